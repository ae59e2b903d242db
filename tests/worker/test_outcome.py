"""How a run ended, judged from what it left: every combination that matters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_core.contract import Cause, CauseCode, CheckpointSaved, Done, Failed, Stopped
from worker.outcome import Evidence, LauncherExit, judge, killed_rank

AT = datetime(2026, 1, 1, tzinfo=UTC)
ENDED_WELL, ENDED_BADLY = LauncherExit(0, None), LauncherExit(1, None)
DONE = Done(seq=9, at=AT, step=6, total_steps=6, last_step=6)
SAVED = CheckpointSaved(
    seq=8, at=AT, step=6, name="checkpoint-6", size_bytes=1, n_files=1, manifest_sha256="a" * 64, is_best=True
)
TORCHRUN = """
Failures:
[1]:
  time      : 2026-01-01_00:00:00
  host      : host
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 11) (SIGTERM)
  error_file: <N/A>
------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : host
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 12) (SIGKILL)
  error_file: <N/A>
"""
DEEPSPEED = "[ERROR] [launch.py:325:sigkill_handler] ['python', '-u', '--local_rank=1'] exits with return code = -9"


def finished(**parts: Any) -> Evidence:
    defaults: dict[str, Any] = {
        "exit": ENDED_WELL,
        "done": DONE,
        "planned_steps": 6,
        "saved": {6: SAVED},
        "uploaded": {6: "a" * 64},
    }
    return Evidence(**(defaults | parts))


def failed(code: CauseCode) -> Failed:
    return Failed(seq=5, at=AT, cause=Cause(code=code, message="told by the trainer"))


def test_all_steps_done_and_the_last_checkpoint_in_storage_is_a_success() -> None:
    outcome = judge(finished())
    assert (outcome.result, outcome.cause, outcome.exit_code) == ("succeeded", None, 0)


def test_a_launcher_that_fails_while_leaving_does_not_undo_what_was_done() -> None:
    assert judge(finished(exit=ENDED_BADLY)).result == "succeeded"


@pytest.mark.parametrize(
    ("parts", "code", "words"),
    [
        ({"planned_steps": 7}, CauseCode.INTERNAL, "7 steps were planned"),
        ({"done": DONE.model_copy(update={"step": 5})}, CauseCode.INTERNAL, "step 5 of 6"),
        ({"saved": {}}, CauseCode.INTERNAL, "never told"),
        ({"uploaded": {}}, CauseCode.STORAGE_UNAVAILABLE, "did not reach storage"),
        ({"uploaded": {6: "b" * 64}}, CauseCode.STORAGE_UNAVAILABLE, "did not reach storage"),
    ],
)
def test_done_without_its_proof_is_no_success(parts: dict[str, Any], code: CauseCode, words: str) -> None:
    outcome = judge(finished(**parts))
    assert outcome.result == "failed"
    assert outcome.cause is not None
    assert outcome.cause.code is code
    assert words in outcome.cause.message


def test_the_uploads_own_problem_is_named() -> None:
    problem = Cause(code=CauseCode.DISK_FULL, message="full")
    assert judge(finished(uploaded={}, upload_problem=problem)).cause == problem


def test_a_run_that_had_nothing_left_to_do_is_a_success_by_the_checkpoint_it_began_with() -> None:
    assert judge(finished(saved={}, inherited={6: "a" * 64})).result == "succeeded"
    assert judge(finished(saved={}, inherited={6: "a" * 64}, uploaded={})).result == "failed"


def test_a_run_that_finished_before_it_could_be_stopped_is_a_success() -> None:
    assert judge(finished(stop="cancel")).result == "succeeded"


def test_a_wish_to_stop_explains_whatever_end_came() -> None:
    assert judge(Evidence(exit=LauncherExit(None, 9), stop="cancel")).result == "stopped"
    assert judge(Evidence(exit=ENDED_BADLY, stop="cancel", failed=failed(CauseCode.INTERNAL))).result == "stopped"
    assert judge(finished(uploaded={}, stop="cancel")).result == "stopped"


@pytest.mark.parametrize("stop", ["pause", "preempt", "drain", "timeout"])
def test_a_fault_on_the_way_to_a_checkpoint_is_told(stop: str) -> None:
    outcome = judge(Evidence(exit=ENDED_BADLY, stop=stop, failed=failed(CauseCode.DISK_FULL)))
    assert outcome.result == "failed"
    assert outcome.cause is not None
    assert outcome.cause.code is CauseCode.DISK_FULL
    assert judge(Evidence(exit=ENDED_BADLY, stop=stop, failed=failed(CauseCode.RANK_DIED))).result == "stopped"
    assert judge(Evidence(exit=LauncherExit(None, 9), stop=stop)).result == "stopped"


def test_the_trainers_own_cause_is_kept() -> None:
    outcome = judge(Evidence(exit=ENDED_BADLY, failed=failed(CauseCode.GPU_OOM)))
    assert outcome.result == "failed"
    assert outcome.cause is not None
    assert outcome.cause.message == "told by the trainer"


def test_a_cause_in_a_ranks_file_is_found() -> None:
    cause = Cause(code=CauseCode.DATA_INVALID, message="row 3", rank=1)
    assert judge(Evidence(exit=ENDED_BADLY, rank_causes=[cause])).cause == cause


@pytest.mark.parametrize(("log", "rank"), [(TORCHRUN, 1), (DEEPSPEED, None)])
def test_a_killed_rank_is_named_with_its_signal(log: str, rank: int | None) -> None:
    for told in (None, failed(CauseCode.RANK_DIED)):
        outcome = judge(Evidence(exit=ENDED_BADLY, launcher_log=log, failed=told))
        assert outcome.cause is not None
        assert outcome.cause.code is CauseCode.RANK_DIED
        assert outcome.cause.rank == rank
        assert "killed by signal 9 (possibly out of memory)" in outcome.cause.message
        assert outcome.signal == 9


def test_another_ranks_real_cause_goes_before_a_lost_peer() -> None:
    real = Cause(code=CauseCode.GPU_OOM, message="out of memory", rank=1)
    lost = Cause(code=CauseCode.RANK_DIED, message="peer gone", rank=0)
    assert judge(Evidence(exit=ENDED_BADLY, rank_causes=[lost, real])).cause == real


@pytest.mark.parametrize(
    ("evidence", "code", "words"),
    [
        (Evidence(exit=ENDED_WELL), CauseCode.INTERNAL, "no record says done"),
        (Evidence(exit=LauncherExit(3, None)), CauseCode.RANK_DIED, "exit code 3"),
        (Evidence(exit=LauncherExit(None, 9)), CauseCode.RANK_DIED, "killed by signal 9 (possibly out of memory)"),
        (Evidence(exit=LauncherExit(None, 11)), CauseCode.RANK_DIED, "killed by signal 11."),
        (Evidence(), CauseCode.RANK_DIED, "killed from outside"),
        (Evidence(is_rebooted=True), CauseCode.NODE_LOST, "started anew"),
    ],
)
def test_a_death_without_a_word_has_a_cause_and_the_end_of_the_log(
    evidence: Evidence, code: CauseCode, words: str
) -> None:
    outcome = judge(Evidence(**(vars(evidence) | {"log_tail": ["last words"]})))
    assert outcome.result == "died"
    assert outcome.cause is not None
    assert outcome.cause.code is code
    assert words in outcome.cause.message
    assert outcome.cause.details["log_tail"] == ["last words"]


def test_a_launcher_that_could_not_be_executed_is_a_failed_launch() -> None:
    assert judge(Evidence(exit=LauncherExit(127, None, "torchrun: No such file"))).result == "launch_failed"


def test_torchruns_own_kills_are_not_the_cause() -> None:
    assert killed_rank(TORCHRUN) == (1, 9)
    assert killed_rank("nothing of the kind") is None


@given(
    exit_code=st.one_of(st.none(), st.integers(0, 255)),
    has_done=st.booleans(),
    is_uploaded=st.booleans(),
    stop=st.sampled_from([None, "cancel", "pause"]),
    has_failed=st.booleans(),
    has_stopped=st.booleans(),
)
def test_only_proof_makes_a_success_and_every_failure_has_a_cause(
    exit_code: int | None, has_done: bool, is_uploaded: bool, stop: str | None, has_failed: bool, has_stopped: bool
) -> None:
    evidence = finished(
        exit=None if exit_code is None else LauncherExit(exit_code, None),
        done=DONE if has_done else None,
        uploaded={6: "a" * 64} if is_uploaded else {},
        stop=stop,
        failed=failed(CauseCode.INTERNAL) if has_failed else None,
        stopped=Stopped(seq=7, at=AT, step=3, reason="cancel") if has_stopped else None,
    )
    outcome = judge(evidence)
    assert (outcome.result == "succeeded") == (has_done and is_uploaded)
    assert (outcome.cause is not None) == (outcome.result in ("failed", "died"))
