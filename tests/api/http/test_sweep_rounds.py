"""The rounds of sweeps: which values come, one trial each, early stopping, the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import func, select
from starlette.testclient import TestClient

from api.core import moves, sweep_round
from api.core.db import Database
from api.core.events import NewEvent
from api.core.settings import Settings
from api.core.states import State
from api.core.tables import Job, MetricRow
from tests.api.core.rows import T0, events_of, job_of, together
from tests.api.http.conftest import error_of

Json = dict[str, Any]
RATE = "training.learning_rate"


class Rounds:
    """The scheduler's rounds, and what runs would have said meanwhile."""

    def __init__(self, database: Database, settings: Settings, client: TestClient) -> None:
        self.database, self.settings, self.client = database, settings, client

    def look(self) -> int:
        return sweep_round.advance_all(self.database, self.settings, at=T0)

    def trials(self, sweep_id: str) -> list[Json]:
        data: list[Json] = self.client.get(f"/v1/sweeps/{sweep_id}/trials").json()["data"]
        return data

    def sweep(self, sweep_id: str) -> Json:
        found: Json = self.client.get(f"/v1/sweeps/{sweep_id}").json()
        return found

    def start(self, job_id: str) -> None:
        for state in (State.QUEUED, State.STARTING, State.RUNNING):
            self.move(job_id, state)

    def move(self, job_id: str, state: State, **values: Any) -> None:
        with self.database.session() as session:
            assert moves.move(session, job_id, state, NewEvent(state.value, state.value), **values)

    def log(self, job_id: str, step: int, value: float | str, metric: str = "eval_loss") -> None:
        with self.database.session() as session:
            job = session.get_one(Job, job_id)
            job.step, job.latest, job.last_metric_n = step, {metric: value}, job.last_metric_n + 1
            session.add(
                MetricRow(
                    job_id=job_id, n=job.last_metric_n, at=T0, attempt=1, seq=job.last_metric_n, kind="eval",
                    step=step, values={metric: value},
                )
            )  # fmt: skip

    def finish(self, job_id: str, value: float, state: State = State.SUCCEEDED) -> None:
        self.start(job_id)
        self.log(job_id, 27, value)
        self.move(job_id, state)


@pytest.fixture
def rounds(database: Database, settings: Settings, client: TestClient) -> Rounds:
    return Rounds(database, settings, client)


def test_a_grid_runs_in_order_as_jobs_with_a_shared_limit(submit: Callable[..., Json], rounds: Rounds) -> None:
    made = submit(n_parallel=2, labels={"team": "a"})
    assert made["counts"] == {"made": 0, "to_come": 4, "retried": 0}
    assert [rounds.look(), rounds.look()] == [2, 0]
    first, second = rounds.trials(made["id"])
    assert [first["values"], second["values"]] == [{RATE: 1e-4}, {RATE: 2e-4}]
    job = rounds.client.get(f"/v1/jobs/{first['job_id']}").json()
    assert job["labels"] == {"team": "a", "sweep": made["id"], "trial": "0"}
    assert job["training"]["learning_rate"] == 1e-4
    listed = rounds.client.get(f"/v1/jobs?label=sweep:{made['id']}").json()["data"]
    assert [one["name"] for one in listed] == ["rates #1", "rates #0"]
    assert "trial_of" in [event.kind for event in events_of(rounds.database, first["job_id"])]
    rounds.finish(second["job_id"], 0.5)
    assert [rounds.look(), rounds.look()] == [1, 0]
    third = rounds.trials(made["id"])[2]
    rounds.finish(first["job_id"], 0.7)
    rounds.finish(third["job_id"], 0.9, State.FAILED)
    rounds.look()
    rounds.finish(rounds.trials(made["id"])[3]["job_id"], 0.6)
    rounds.look()
    ended = rounds.sweep(made["id"])
    assert ended["state"] == "succeeded"
    assert ended["counts"] == {"failed": 1, "succeeded": 3, "made": 4, "to_come": 0, "retried": 0}
    assert (ended["best"]["number"], ended["best"]["value"], ended["best"]["values"]) == (1, 0.5, {RATE: 2e-4})
    assert [trial["is_best"] for trial in rounds.trials(made["id"])] == [False, True, False, False]
    page = rounds.client.get(f"/v1/sweeps/{made['id']}/trials?after=0&limit=2").json()
    assert ([one["number"] for one in page["data"]], page["next"]) == ([1, 2], "2")


@pytest.mark.parametrize("search", ["random", "tpe"])
def test_the_same_seed_gives_the_same_values(submit: Callable[..., Json], rounds: Rounds, search: str) -> None:
    spaces = {RATE: {"min": 1e-5, "max": 1e-3, "log": True}, "training.warmup_steps": {"min": 0, "max": 8, "step": 2}}
    seen = {}
    for name, seed in (("first", 1), ("same", 1), ("other", 2)):
        made = submit(name=name, parameters=spaces, search=search, n_trials=11, seed=seed, n_parallel=1)
        for _ in range(11):
            assert rounds.look() == 1
            trial = rounds.trials(made["id"])[-1]
            rounds.finish(trial["job_id"], abs(trial["values"][RATE] - 1e-4))
        rounds.look()
        assert rounds.sweep(made["id"])["state"] == "succeeded"
        seen[name] = [trial["values"] for trial in rounds.trials(made["id"])]
    assert seen["first"] == seen["same"] != seen["other"]
    assert all(1e-5 <= values[RATE] <= 1e-3 for values in seen["first"])
    assert {values["training.warmup_steps"] for values in seen["first"]} <= {0, 2, 4, 6, 8}


def test_rounds_at_the_same_moment_make_each_trial_once(submit: Callable[..., Json], rounds: Rounds) -> None:
    made = submit(n_parallel=4)
    together([rounds.look] * 4)
    rounds.look()
    assert [trial["number"] for trial in rounds.trials(made["id"])] == [0, 1, 2, 3]
    with rounds.database.reading() as session:
        assert session.scalar(select(func.count()).select_from(Job)) == 4


def test_a_round_that_is_cut_off_leaves_nothing_half(
    submit: Callable[..., Json], rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = submit(n_parallel=2)

    class Killed(BaseException):
        pass

    def kill(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(sweep_round.events, "append", kill)
        with pytest.raises(Killed):
            rounds.look()
    assert rounds.trials(made["id"]) == []
    with rounds.database.reading() as session:
        assert session.scalar(select(func.count()).select_from(Job)) == 0
    with monkeypatch.context() as patch:
        patch.setattr(sweep_round.queue, "nudge_preflight", kill)  # committed, and then killed
        with pytest.raises(Killed):
            rounds.look()
    rounds.look()
    assert [trial["values"][RATE] for trial in rounds.trials(made["id"])] == [1e-4, 2e-4]


def test_halving_stops_the_worse_and_says_why(submit: Callable[..., Json], rounds: Rounds) -> None:
    made = submit(n_parallel=4, early_stopping={"min_steps": 3, "reduction_factor": 3, "min_trials": 3})
    rounds.look()
    ids = [trial["job_id"] for trial in rounds.trials(made["id"])]
    for job_id, value in zip(ids, (0.9, 0.5, 0.7, 0.4), strict=True):
        rounds.start(job_id)
        rounds.log(job_id, 3, value)
        for _ in range(2):
            rounds.look()
    states = [trial["state"] for trial in rounds.trials(made["id"])]
    assert states == ["running", "running", "stopping", "running"]
    pruned = rounds.trials(made["id"])[2]
    assert pruned["reason"].startswith("pruned at step 3: eval_loss 0.7 is not among the best of the 3 trials")
    assert [rung["keeps"] for rung in pruned["rungs"]] == [False]
    kinds = [event.kind for event in events_of(rounds.database, ids[2])]
    assert (kinds.count("pruned"), kinds.count("cancel_requested")) == (1, 1)
    assert job_of(rounds.database, ids[2]).stop == "cancel"
    rounds.move(ids[2], State.CANCELLED)
    for job_id, value in zip((ids[0], ids[1], ids[3]), (0.8, 0.3, 0.2), strict=True):
        rounds.log(job_id, 27, value)
        rounds.move(job_id, State.SUCCEEDED)
    rounds.look()
    ended = rounds.sweep(made["id"])
    assert (ended["state"], ended["best"]["number"]) == ("succeeded", 3)
    assert ended["counts"] == {"pruned": 1, "succeeded": 3, "made": 4, "to_come": 0, "retried": 0}


def test_a_value_that_is_not_finite_loses_and_is_never_the_best(submit: Callable[..., Json], rounds: Rounds) -> None:
    made = submit(n_parallel=4, n_trials=2, early_stopping={"min_steps": 3, "reduction_factor": 2})
    rounds.look()
    good, bad = (trial["job_id"] for trial in rounds.trials(made["id"]))
    rounds.start(good)
    rounds.start(bad)
    rounds.log(good, 3, 9.0)
    rounds.log(bad, 3, "NaN")
    rounds.look()
    assert "no finite value" in rounds.trials(made["id"])[1]["reason"]
    rounds.move(good, State.SUCCEEDED)
    rounds.move(bad, State.SUCCEEDED)  # it was done before it heard
    rounds.look()
    ended = rounds.sweep(made["id"])
    assert (ended["counts"]["succeeded"], ended["best"]["number"], ended["best"]["value"]) == (2, 0, 9.0)


def test_a_sweep_whose_trials_all_fail_has_failed(submit: Callable[..., Json], rounds: Rounds) -> None:
    made = submit(n_trials=2, n_parallel=2)
    rounds.look()
    for trial in rounds.trials(made["id"]):
        rounds.finish(trial["job_id"], 0.5, State.FAILED)
    rounds.look()
    ended = rounds.sweep(made["id"])
    assert (ended["state"], ended["cause"]["code"], ended["best"]) == ("failed", "all_trials_failed", None)


def test_cancel_stops_what_runs_and_makes_no_more(
    client: TestClient, submit: Callable[..., Json], rounds: Rounds
) -> None:
    made = submit(n_parallel=2)
    rounds.look()
    waiting, running = (trial["job_id"] for trial in rounds.trials(made["id"]))
    rounds.start(running)
    for _ in range(2):
        assert client.post(f"/v1/sweeps/{made['id']}/cancel").json()["state"] == "cancelling"
        assert rounds.look() == 0
    assert [job_of(rounds.database, one).state for one in (waiting, running)] == ["cancelled", "cancelling"]
    rounds.move(running, State.CANCELLED)
    rounds.look()
    assert rounds.sweep(made["id"])["state"] == "cancelled"
    assert error_of(client.post(f"/v1/sweeps/{made['id']}/cancel"), 409)["code"] == "already_finished"


def test_a_trial_whose_job_is_refused_later_fails_alone(
    client: TestClient, submit: Callable[..., Json], rounds: Rounds
) -> None:
    made = submit()
    assert client.delete(f"/v1/datasets/{made['job']['dataset']['train']}").status_code == 204
    rounds.look()
    ended = rounds.sweep(made["id"])
    assert (ended["state"], ended["counts"]["failed"]) == ("failed", 4)
    assert "its job was refused" in rounds.trials(made["id"])[0]["reason"]
