"""How attempts end: devices are freed, and the job goes where its state, the cause and the budget lead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from api.core import attempts
from api.core.attempts import Lost, Outcome
from api.core.db import Database
from api.core.errors import Conflict
from api.core.moves import NewEvent, move, request_cancel
from api.core.outcomes import cause_of
from api.core.policy import POLICY, Budgets, Decision, backoff_s, decide
from api.core.settings import Settings
from api.core.states import TERMINAL, State
from tests.api.core.rows import Run, after, attempt_of, events_of, holders, job_of, make_run, started_record, together
from trainer_core.contract import Cause, CauseCode

DATA_CAUSE = Cause(code=CauseCode.DATA_INVALID, message="line 3 is not JSON", line=3)


SETTINGS = Settings(max_attempts_internal=4, max_attempts_node=3, max_attempts_user=2, retry_backoff_s=10)


def end(database: Database, run: Run, outcome: Outcome, *, at_s: float = 0, settings: Settings = SETTINGS) -> State:
    with database.session() as session:
        return attempts.end(session, run.attempt_id, outcome, settings=settings, at=after(at_s))


def again(database: Database, run: Run) -> Run:
    """The job's next attempt, started."""
    with database.session() as session:
        attempt = attempts.place(session, run.job_id, run.node_id, [0, 1])
        assert attempt is not None
        attempts.take_records(session, attempt.id, [started_record()])
        return Run(run.job_id, run.node_id, attempt.id)


@pytest.mark.parametrize("started", [True, False])
def test_success_frees_the_devices(database: Database, started: bool) -> None:
    run = make_run(database, started=started)
    assert end(database, run, Outcome(result="succeeded", exit_code=0)) == State.SUCCEEDED
    assert holders(database, run.node_id) == [None, None]
    assert attempt_of(database, run.attempt_id).ended_at is not None
    job = job_of(database, run.job_id)
    assert (job.finished_at is not None, job.phase, job.eta_s) == (True, None, None)


def test_ending_twice_in_the_same_way_changes_nothing(database: Database) -> None:
    run = make_run(database, started=True)
    outcome = Outcome(result="succeeded", exit_code=0)
    assert [end(database, run, outcome), end(database, run, outcome)] == [State.SUCCEEDED] * 2
    with pytest.raises(Lost):
        end(database, run, Outcome(result="died", signal=9))
    assert [event.kind for event in events_of(database, run.job_id)] == ["placed", "started", "succeeded"]


def test_killed_runs_are_tried_again_until_the_budget_is_spent(database: Database) -> None:
    run = make_run(database, started=True)
    killed = Outcome(result="died", signal=9)
    assert end(database, run, killed) == State.QUEUED
    run = again(database, run)
    assert end(database, run, killed) == State.QUEUED
    run = again(database, run)
    assert end(database, run, killed) == State.FAILED
    job = job_of(database, run.job_id)
    assert (job.attempt, job.n_failures) == (3, 3)
    assert job.cause is not None
    assert job.cause["code"] == "rank_died"
    assert job.cause["message"] == "killed by signal 9 (possibly out of memory)"
    requeued = [event.message for event in events_of(database, run.job_id) if event.kind == "requeued"]
    assert requeued == [
        f"Queued again in {wait_s} s (attempt {number} of 3 by the node's faults): "
        "killed by signal 9 (possibly out of memory)"
        for number, wait_s in ((2, 10), (3, 20))
    ]
    assert holders(database, run.node_id) == [None, None]


def test_the_users_fault_is_not_tried_again(database: Database) -> None:
    run = make_run(database, started=True)
    assert end(database, run, Outcome(result="failed", exit_code=1, cause=DATA_CAUSE)) == State.FAILED
    job = job_of(database, run.job_id)
    assert (job.n_failures, job.cause) == (0, {**DATA_CAUSE.model_dump(mode="json", exclude_none=True), "details": {}})


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(result="stopped", exit_code=75),
        Outcome(result="died", signal=9),
        Outcome(result="lost"),
        Outcome(result="failed", exit_code=1, cause=DATA_CAUSE),
        Outcome(result="launch_failed"),
    ],
    ids=lambda outcome: outcome.result,
)
def test_a_cancelled_run_is_cancelled_however_it_ended(database: Database, outcome: Outcome) -> None:
    run = make_run(database, started=True)
    with database.session() as session:
        request_cancel(session, run.job_id)
    assert end(database, run, outcome) == State.CANCELLED
    assert holders(database, run.node_id) == [None, None]
    assert job_of(database, run.job_id).cause is None


def test_a_run_that_finished_before_it_heard_the_cancel_has_succeeded(database: Database) -> None:
    run = make_run(database, started=True)
    with database.session() as session:
        request_cancel(session, run.job_id)
    assert end(database, run, Outcome(result="succeeded", exit_code=0)) == State.SUCCEEDED


def test_a_run_asked_to_leave_its_node_is_queued_again_for_free(database: Database) -> None:
    run = make_run(database, started=True)
    for _ in range(5):
        assert end(database, run, Outcome(result="stopped", exit_code=75)) == State.QUEUED
        run = again(database, run)
    assert job_of(database, run.job_id).n_failures == 0


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome(result="stopped", exit_code=75), State.PAUSED),
        (Outcome(result="died", signal=15), State.PAUSED),
        (Outcome(result="failed", cause=DATA_CAUSE), State.FAILED),
    ],
    ids=["stopped", "died", "failed"],
)
def test_a_pausing_run_is_paused_unless_it_failed(database: Database, outcome: Outcome, state: State) -> None:
    run = make_run(database, started=True)
    with database.session() as session:
        assert move(session, run.job_id, State.PAUSING, NewEvent("pausing", "Pausing"))
    assert end(database, run, outcome) == state


def test_cancel_racing_the_end_leaves_one_truth(database: Database) -> None:
    outcomes = [Outcome(result="succeeded", exit_code=0), Outcome(result="died", signal=9), Outcome(result="stopped")]
    for outcome in outcomes * 3:
        run = make_run(database, started=True)
        calls: Sequence[Callable[[], None]] = [
            partial(cancel, database, run),
            partial(end_once, database, run, outcome),
        ]
        together(calls)
        job = job_of(database, run.job_id)
        assert holders(database, run.node_id) == [None, None]
        assert State(job.state) in TERMINAL
        finals = [event.kind for event in events_of(database, run.job_id) if event.kind in list(TERMINAL)]
        assert finals == [job.state]


def cancel(database: Database, run: Run) -> None:
    """As the API does it; a job that is finished by then is a conflict, which is an answer too."""
    with database.session() as session:
        try:
            request_cancel(session, run.job_id)
        except Conflict as conflict:
            if conflict.code != "already_finished":
                raise


def end_once(database: Database, run: Run, outcome: Outcome) -> None:
    end(database, run, outcome)


def test_two_that_end_an_attempt_at_once_agree(database: Database) -> None:
    run = make_run(database, started=True)

    def end_as(outcome: Outcome) -> str:
        try:
            return end(database, run, outcome)
        except Lost:
            return "lost"

    answers = together([lambda: end_as(Outcome(result="lost")), lambda: end_as(Outcome(result="succeeded"))])
    assert sorted(answers) in (["lost", "queued"], ["lost", "succeeded"])
    assert len([event for event in events_of(database, run.job_id) if event.kind in ("requeued", "succeeded")]) == 1


@pytest.mark.parametrize(
    ("outcome", "code", "words"),
    [
        (Outcome(result="died", signal=9), "rank_died", "killed by signal 9 (possibly out of memory)"),
        (Outcome(result="died", signal=11), "rank_died", "killed by signal 11"),
        (Outcome(result="died", exit_code=1), "rank_died", "exit code 1"),
        (Outcome(result="died"), "rank_died", "left no word"),
        (Outcome(result="lost"), "node_lost", "not heard of"),
        (Outcome(result="launch_failed"), "internal", "could not be started"),
        (Outcome(result="stopped", exit_code=75), "preempted", "asked to leave"),
        (Outcome(result="failed", cause=DATA_CAUSE), "data_invalid", "line 3"),
    ],
)
def test_every_end_has_a_cause_in_words(outcome: Outcome, code: str, words: str) -> None:
    cause = cause_of(outcome)
    assert cause.code == code
    assert words in cause.message


def test_every_cause_has_a_policy() -> None:
    assert set(POLICY) == set(CauseCode)


@pytest.mark.parametrize(
    ("code", "faults", "decision"),
    [
        (CauseCode.RANK_DIED, {}, Decision.RETRY),
        (CauseCode.RANK_DIED, {"node": 1}, Decision.RETRY),
        (CauseCode.RANK_DIED, {"node": 2}, Decision.STOP),
        (CauseCode.RANK_DIED, {"service": 9, "user": 9}, Decision.RETRY),
        (CauseCode.INTERNAL, {"node": 9}, Decision.RETRY),
        (CauseCode.INTERNAL, {"service": 3}, Decision.STOP),
        (CauseCode.GPU_OOM, {}, Decision.RETRY),
        (CauseCode.GPU_OOM, {"user": 1}, Decision.STOP),
        (CauseCode.PREEMPTED, {"node": 99, "service": 99, "user": 99}, Decision.RETRY_FREE),
        (CauseCode.DATA_INVALID, {}, Decision.STOP),
        (CauseCode.TIMEOUT, {}, Decision.STOP),
    ],
)
def test_each_kind_of_fault_has_a_budget_of_its_own(
    code: CauseCode, faults: dict[str, int], decision: Decision
) -> None:
    assert decide(code, faults, Budgets(service=4, node=3, user=2)) is decision


def test_one_attempt_in_all_means_no_second() -> None:
    assert decide(CauseCode.NODE_LOST, {}, Budgets(node=1)) is Decision.STOP


def test_the_wait_doubles_up_to_its_longest() -> None:
    assert [backoff_s(n, 5, 60) for n in (1, 2, 3, 4, 5, 10_000)] == [5, 10, 20, 40, 60, 60]
    assert backoff_s(3, 0, 60) == 0


def test_the_next_try_waits_longer_each_time_and_a_free_one_not_at_all(database: Database) -> None:
    run = make_run(database, started=True)
    waits = []
    for outcome in (Outcome(result="died", signal=9), Outcome(result="died", signal=9), Outcome(result="stopped")):
        end(database, run, outcome, at_s=100)
        not_before = job_of(database, run.job_id).not_before
        waits.append(not_before and (not_before - after(100)).total_seconds())
        run = again(database, run)
    assert waits == [10, 20, None]


def test_what_the_node_did_uses_up_nothing_of_the_services_budget(database: Database) -> None:
    run = make_run(database, started=True)
    killed, ours = Outcome(result="died", signal=9), Outcome(result="launch_failed")
    for outcome in (killed, ours, killed, ours, ours):
        assert end(database, run, outcome) == State.QUEUED
        run = again(database, run)
    assert job_of(database, run.job_id).faults == {"node": 2, "service": 3}
    assert end(database, run, ours) == State.FAILED
    job = job_of(database, run.job_id)
    assert (job.faults, job.n_failures) == ({"node": 2, "service": 4}, 6)
