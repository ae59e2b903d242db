"""Checkpoints and artifacts as rows: listed once complete, the best one by a finite figure."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from api.core import attempts
from api.core.db import Database
from api.core.tables import Artifact, Checkpoint
from tests.api.core.rows import Run, job_of, make_run
from trainer_core.contract import Manifest, ManifestFile


def add(database: Database, run: Run, step: int, is_best: bool = False, **metrics: float | str) -> None:
    manifest = Manifest(
        job_id=run.job_id, attempt=1, step=step, epoch=step / 10, world_size=2, strategy="ddp", total_steps=100,
        metrics=dict(metrics), files=[ManifestFile(path="a", size_bytes=3, sha256="0" * 64),
                                      ManifestFile(path="b", size_bytes=4, sha256="1" * 64)],
    )  # fmt: skip
    with database.session() as session:
        attempts.add_checkpoint(session, run.attempt_id, manifest, "f" * 64, f"jobs/{step}", is_best)


def listed(database: Database, run: Run) -> list[tuple[int, int]]:
    with database.reading() as session:
        query = select(Checkpoint).where(Checkpoint.job_id == run.job_id).order_by(Checkpoint.step)
        return [(row.step, row.size_bytes) for row in session.scalars(query)]


def best(database: Database, run: Run) -> tuple[int | None, float | None]:
    job = job_of(database, run.job_id)
    return job.best_step, job.best_value


def test_checkpoints_are_listed_and_the_best_is_named(database: Database) -> None:
    run = make_run(database, started=True)
    add(database, run, 10, True, eval_loss=2.0, loss=1.0)
    add(database, run, 20, True, eval_loss=1.5)
    add(database, run, 30, False, eval_loss=1.8)
    assert listed(database, run) == [(10, 7), (20, 7), (30, 7)]
    assert best(database, run) == (20, 1.5)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_a_figure_that_is_not_finite_is_never_the_best(database: Database, value: str) -> None:
    run = make_run(database, started=True)
    add(database, run, 10, True, eval_loss=value)
    assert best(database, run) == (None, None)


def test_a_run_that_measures_nothing_still_has_a_best(database: Database) -> None:
    run = make_run(database, started=True)
    add(database, run, 10, True)
    assert best(database, run) == (10, None)


def test_adding_a_step_again_replaces_its_row(database: Database) -> None:
    run = make_run(database, started=True)
    for _ in range(2):
        add(database, run, 10, True, eval_loss=2.0)
    assert listed(database, run) == [(10, 7)]


def test_a_removed_checkpoint_is_neither_listed_nor_best(database: Database) -> None:
    run = make_run(database, started=True)
    add(database, run, 10, True, eval_loss=2.0)
    add(database, run, 20, eval_loss=3.0)
    for _ in range(2):
        with database.session() as session:
            attempts.remove_checkpoint(session, run.attempt_id, 10)
    assert listed(database, run) == [(20, 7)]
    assert best(database, run) == (None, None)


def test_an_artifact_sent_again_replaces_its_row(database: Database) -> None:
    run = make_run(database, started=True)
    for size in (5, 6):
        with database.session() as session:
            attempts.add_artifact(session, run.attempt_id, "plots/loss.png", "jobs/x/loss.png", size, "a" * 64)
    with database.reading() as session:
        rows = session.scalars(select(Artifact).where(Artifact.job_id == run.job_id)).all()
        assert [(row.path, row.size_bytes) for row in rows] == [("plots/loss.png", 6)]
