"""Records and log lines are taken over once, in order, and become rows, events and the job's progress."""

from __future__ import annotations

import random
from functools import partial

import pytest

from api.core import attempts, logs, metrics
from api.core.attempts import Lost, Outcome
from api.core.db import Database
from api.core.errors import Invalid
from api.core.logs import LogLine
from api.core.moves import request_cancel
from api.core.states import AttemptState, Health, State
from api.core.tables import Job, MetricRow
from tests.api.core.rows import (
    T0,
    Run,
    after,
    attempt_of,
    events_of,
    job_of,
    make_run,
    metrics_record,
    started_record,
    together,
)
from trainer_core.contract import (
    AnyRecord,
    Cause,
    CauseCode,
    CheckpointSaved,
    Done,
    Evaluated,
    Failed,
    Metrics,
    Note,
    Phase,
    PhaseChanged,
    Planned,
)


def take(database: Database, run: Run, *records: AnyRecord) -> int:
    with database.session() as session:
        return attempts.take_records(session, run.attempt_id, list(records))


def rows_of(database: Database, run: Run, **options: bool) -> list[MetricRow]:
    with database.reading() as session:
        return metrics.read(session, run.job_id, 0, 10_000, **options)  # type: ignore[arg-type]


def planned(seq: int, total_steps: int = 100) -> Planned:
    return Planned(
        seq=seq, at=after(1), total_steps=total_steps, n_train_rows=1000, n_eval_rows=0, n_epochs=1,
        global_batch_size=8, trainable_parameters=10, total_parameters=20, trained_tokens_per_epoch=5,
        wrapped_model="M", optimizer="AdamW", precision="fp32",
    )  # fmt: skip


def test_the_first_record_makes_the_job_run(database: Database) -> None:
    run = make_run(database)
    assert take(database, run, started_record()) == 1
    job, attempt = job_of(database, run.job_id), attempt_of(database, run.attempt_id)
    assert (job.state, job.started_at, job.attempt) == (State.RUNNING, T0, 1)
    assert (attempt.state, attempt.started_at, attempt.start_step) == (AttemptState.RUNNING, T0, 0)
    kinds = [(event.kind, event.seq, event.attempt) for event in events_of(database, run.job_id)]
    assert kinds == [("placed", None, 1), ("started", 1, 1)]


def test_a_job_that_is_being_cancelled_stays_so_when_its_trainer_speaks(database: Database) -> None:
    run = make_run(database)
    with database.session() as session:
        request_cancel(session, run.job_id)
    assert take(database, run, started_record(), metrics_record(2, 1)) == 2
    assert job_of(database, run.job_id).state == State.CANCELLING
    assert [event.kind for event in events_of(database, run.job_id)] == ["placed", "cancel_requested", "started"]


def test_records_sent_again_are_taken_once(database: Database) -> None:
    run = make_run(database)
    records: list[AnyRecord] = [started_record(), *(metrics_record(seq, seq - 1) for seq in range(2, 30))]
    assert take(database, run, *records[:20]) == 20
    assert take(database, run, *records[:20]) == 20
    assert take(database, run, *records[10:]) == 29
    rows = rows_of(database, run)
    assert [row.seq for row in rows] == list(range(2, 30))
    assert [row.n for row in rows] == list(range(1, 29))


def test_overlapping_deliveries_at_once_are_taken_once(database: Database) -> None:
    run = make_run(database)
    records: list[AnyRecord] = [started_record(), *(metrics_record(seq, seq - 1) for seq in range(2, 201))]
    chance = random.Random(7)

    def deliver() -> None:
        shipped = 0
        while shipped < len(records):
            start = max(0, shipped - chance.randrange(20))
            with database.session() as session:
                shipped = attempts.take_records(session, run.attempt_id, records[start : shipped + 17])

    together([deliver] * 4)
    rows = rows_of(database, run)
    assert [(row.n, row.seq) for row in rows] == [(seq - 1, seq) for seq in range(2, 201)]
    assert [event.n for event in events_of(database, run.job_id)] == [1, 2]
    assert job_of(database, run.job_id).step == 199


def test_a_gap_is_refused_whole(database: Database) -> None:
    run = make_run(database, started=True)
    with pytest.raises(Invalid, match="expected record 3 next, found 4"):
        take(database, run, metrics_record(2, 1), metrics_record(4, 3))
    assert rows_of(database, run) == []
    assert attempt_of(database, run.attempt_id).shipped_seq == 1


def test_progress_follows_the_records(database: Database) -> None:
    run = make_run(database, started=True)
    take(
        database,
        run,
        planned(2),
        PhaseChanged(seq=3, at=after(10), phase=Phase.TRAINING),
        metrics_record(4, 10, after(30), loss=2.0, lr=0.1),
        metrics_record(5, 20, after(50), loss=1.0),
        Evaluated(seq=6, at=after(52), step=20, epoch=0.2, values={"eval_loss": 1.5}),
        PhaseChanged(seq=7, at=after(53), phase=Phase.SAVING),
    )
    job = job_of(database, run.job_id)
    assert (job.planned_steps, job.step, job.epoch, job.phase) == (100, 20, 0.2, "saving")
    assert job.latest == {"loss": 1.0, "lr": 0.1, "eval_loss": 1.5}
    assert job.progressed_at == after(52)
    assert job.eta_s == pytest.approx(80 * 2.2)  # 22 s from step 10 to 20, the evaluation counted
    assert attempt_of(database, run.attempt_id).trained_from_at == after(10)


def test_the_first_row_already_gives_an_eta_from_where_training_began(database: Database) -> None:
    run = make_run(database, started=True)
    take(
        database,
        run,
        planned(2),
        PhaseChanged(seq=3, at=after(1000), phase=Phase.TRAINING),
        metrics_record(4, 10, after(1020)),
    )
    assert job_of(database, run.job_id).eta_s == pytest.approx(90 * 2)


def test_the_eta_follows_the_recent_pace_over_several_batches(database: Database) -> None:
    run = make_run(database, started=True)
    take(database, run, planned(2, 1000))
    slow = [metrics_record(2 + step, step, after(10 * step)) for step in range(1, 101)]
    fast = [metrics_record(2 + step, step, after(1000 + (step - 100))) for step in range(101, 161)]
    take(database, run, *slow)
    assert job_of(database, run.job_id).eta_s == pytest.approx(900 * 10)
    for record in fast:
        take(database, run, record)
    assert job_of(database, run.job_id).eta_s == pytest.approx(840 * 1)


def test_values_come_back_exactly_and_non_finite_ones_as_words(database: Database) -> None:
    run = make_run(database, started=True)
    values: dict[str, float | str] = {
        "loss": 0.1 + 0.2, "tiny": 5e-324, "huge": 1.7976931348623157e308, "train/loss": -1.5,
        "grad_norm": "NaN", "a": "Infinity", "b": "-Infinity", "k" * 10_000: 1.0, "nul\x00": 2.0,
    }  # fmt: skip
    take(database, run, Metrics(seq=2, at=T0, step=-1, values=values), Metrics(seq=3, at=T0, step=-1, values=values))
    expected = {name.replace("\x00", "\ufffd"): value for name, value in values.items()}
    assert [(row.step, row.values) for row in rows_of(database, run)] == [(-1, expected)] * 2
    assert job_of(database, run.job_id).latest == expected


def test_a_resumed_attempt_supersedes_the_steps_it_does_again(database: Database) -> None:
    run = make_run(database, started=True)
    take(database, run, *(metrics_record(seq, seq - 1) for seq in range(2, 8)))
    with database.session() as session:
        assert attempts.end(session, run.attempt_id, Outcome(result="died", signal=9)) == State.QUEUED
        second = attempts.place(session, run.job_id, run.node_id, [0, 1])
        assert second is not None
        attempts.take_records(session, second.id, [started_record(resumed_from_step=4), metrics_record(2, 5, loss=9.0)])
    assert job_of(database, run.job_id).step == 5
    assert [(row.attempt, row.step) for row in rows_of(database, run)] == [(1, 1), (1, 2), (1, 3), (1, 4), (2, 5)]
    everything = rows_of(database, run, include_superseded=True)
    assert [row.n for row in everything] == list(range(1, 8))
    assert [row.step for row in everything if row.is_superseded] == [5, 6]


def test_a_fresh_start_supersedes_everything(database: Database) -> None:
    run = make_run(database, started=True)
    take(database, run, metrics_record(2, 1), metrics_record(3, 2))
    with database.session() as session:
        attempts.end(session, run.attempt_id, Outcome(result="died", signal=9))
        second = attempts.place(session, run.job_id, run.node_id, [0, 1])
        assert second is not None
        attempts.take_records(session, second.id, [started_record()])
    assert rows_of(database, run) == []
    assert job_of(database, run.job_id).step == 0


def test_events_are_made_for_people(database: Database) -> None:
    run = make_run(database)
    take(
        database,
        run,
        started_record(),
        CheckpointSaved(seq=2, at=T0, step=40, name="checkpoint-40", size_bytes=12_345_678, n_files=9,
                        manifest_sha256="f", metrics={"eval_loss": "NaN"}, is_best=True),
        Note(seq=3, at=T0, level="warning", message="3 rows were cut", data={"n": float("inf")}),
        Done(seq=4, at=T0, step=100, total_steps=100, best_step=40, last_step=100),
        Failed(seq=5, at=T0, cause=Cause(code=CauseCode.GPU_OOM, message="out of memory", hint="use less")),
    )  # fmt: skip
    said = [(event.level, event.message) for event in events_of(database, run.job_id)[1:]]
    assert said == [
        ("info", "Running in 2 processes on cpu"),
        ("info", "Checkpoint at step 40 saved (12.3 MB, the best so far)"),
        ("warning", "3 rows were cut"),
        ("info", "Training finished: 100 of 100 steps done; the best checkpoint is at step 40"),
        ("error", "out of memory. use less"),
    ]
    assert events_of(database, run.job_id)[3].data["data"] == {"n": "Infinity"}


def test_any_word_makes_an_unreachable_run_healthy_again(database: Database) -> None:
    for say in ("beat", "records"):
        run = make_run(database, started=True)
        with database.session() as session:
            session.get_one(Job, run.job_id).health = Health.UNREACHABLE.value
        with database.session() as session:
            if say == "beat":
                attempts.beat(session, run.attempt_id)
            else:
                attempts.take_records(session, run.attempt_id, [metrics_record(2, 1)])
        assert job_of(database, run.job_id).health == Health.OK
        assert events_of(database, run.job_id)[-1].kind == "reachable"


def line(text: str) -> LogLine:
    return LogLine(T0, "rank0", 0, text)


def test_log_lines_sent_again_are_taken_once(database: Database) -> None:
    run = make_run(database, started=True)
    with database.session() as session:
        assert attempts.take_logs(session, run.attempt_id, [line("a")], {"rank0.log": 2}) == {"rank0.log": 2}
        assert attempts.take_logs(session, run.attempt_id, [line("a")], {"rank0.log": 2}) == {"rank0.log": 2}
        stored = attempts.take_logs(session, run.attempt_id, [line("a"), line("b")], {"rank0.log": 4}, {"rank0.log": 0})
        assert stored == {"rank0.log": 2}
        attempts.take_logs(session, run.attempt_id, [line("b")], {"rank0.log": 4}, {"rank0.log": 2})
    with database.reading() as session:
        assert [item["text"] for item in logs.read(session, run.job_id, 0, 10)] == ["a", "b"]
    assert attempt_of(database, run.attempt_id).shipped_logs == {"rank0.log": 4}


def test_the_same_log_lines_from_many_at_once_are_taken_once(database: Database) -> None:
    run = make_run(database, started=True)

    def deliver(_number: int) -> None:
        with database.session() as session:
            attempts.take_logs(session, run.attempt_id, [line("a")], {"rank0.log": 2}, {"rank0.log": 0})

    together([partial(deliver, number) for number in range(6)])
    with database.reading() as session:
        assert len(logs.read(session, run.job_id, 0, 10)) == 1


def test_a_lost_attempt_is_told_so(database: Database) -> None:
    run = make_run(database, started=True)
    with database.session() as session:
        attempts.end(session, run.attempt_id, Outcome(result="lost"))
    with pytest.raises(Lost, match="stop its processes"):
        take(database, run, metrics_record(2, 1))
