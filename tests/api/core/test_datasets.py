"""Datasets in the database: one that a job is just being made of cannot be deleted under it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from api.core import datasets
from api.core.db import Database
from api.core.errors import Conflict
from api.core.ids import new_id
from api.core.states import State
from api.core.tables import Dataset, Job


def make_dataset(database: Database) -> str:
    row = Dataset(
        id=new_id("ds"), name="x", n_rows=1, size_bytes=1, sha256="0" * 64, storage_key="k", report={}, created_by="t"
    )
    with database.session() as session:
        session.add(row)
    return row.id


def make_job(dataset_id: str) -> Job:
    resolved: dict[str, Any] = {"data": {"train": {"id": dataset_id}, "eval": None}}
    return Job(
        id=new_id("job"),
        name="x",
        state=State.VALIDATING,
        method="sft",
        model_name="m",
        spec={},
        resolved=resolved,
        created_by="t",
    )


def test_a_deletion_waits_for_the_job_that_is_being_made_of_it(database: Database) -> None:
    dataset_id = make_dataset(database)
    outcome: list[str] = []

    def delete() -> None:
        try:
            with database.session() as session:
                datasets.delete(session, dataset_id)
            outcome.append("deleted")
        except Conflict as conflict:
            outcome.append(conflict.code)

    with database.session() as session:
        datasets.get(session, dataset_id, for_use=True)
        deleter = threading.Thread(target=delete)
        deleter.start()
        deleter.join(0.3)
        assert outcome == []
        session.add(make_job(dataset_id))
    deleter.join()
    assert outcome == ["dataset_in_use"]
    with database.reading() as session:
        assert datasets.get(session, dataset_id).deleted_at is None


def test_two_deletions_at_once_give_one(database: Database) -> None:
    dataset_id = make_dataset(database)
    outcome: list[str] = []

    def delete() -> None:
        try:
            with database.session() as session:
                datasets.delete(session, dataset_id)
            outcome.append("deleted")
        except datasets.NotFound:
            outcome.append("not found")

    threads = [threading.Thread(target=delete) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome) == ["deleted", "not found"]


@pytest.mark.parametrize("text", ["", "x", "ds_\x00", "\x00", "ds_" + "0" * 21, "../x"])
def test_what_is_no_id_never_reaches_the_database(text: str) -> None:
    nothing: Any = None
    for look in (datasets.get, datasets.delete):
        with pytest.raises(datasets.NotFound):
            look(nothing, text)
