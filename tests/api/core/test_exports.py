"""Exports in the database: one owner at a time, ended once, cancelled at once, tried three times at most."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from api.core import exports
from api.core.auth import Actor, add_key
from api.core.db import Database
from api.core.errors import Conflict, Invalid, NotFound
from api.core.export_tables import Export
from api.core.exports import MAX_TRIES, ExportSpec
from api.core.ids import new_id
from api.core.states import State
from api.core.tables import Checkpoint
from tests.api.core.rows import T0, after, events_of, make_job, together
from trainer_core.contract import Cause, CauseCode, Manifest, ManifestFile

FILES = [ManifestFile(path="config.json", size_bytes=2, sha256="0" * 64)]
CAUSE = Cause(code=CauseCode.CHECKPOINT_INVALID, message="logits differ")


def make_checkpoint(database: Database, job_id: str, step: int = 10, **facts: Any) -> None:
    parts: dict[str, Any] = {"adapter": "lora", "zero_stage": None, "strategy": "ddp", **facts}
    manifest = Manifest(job_id=job_id, attempt=1, step=step, world_size=1, total_steps=10, files=[], **parts)
    with database.session() as session:
        session.add(
            Checkpoint(
                id=new_id("ckpt"), job_id=job_id, attempt=1, step=step, storage_prefix=f"jobs/{job_id}/{step}",
                manifest=manifest.model_dump(mode="json"), manifest_sha256="0" * 64, size_bytes=0,
            )
        )  # fmt: skip


@pytest.fixture
def actor(database: Database) -> Actor:
    with database.session() as session:
        row, _ = add_key(session, "ann")
        return Actor(id=row.id, name="ann", role="admin")


@pytest.fixture
def job_id(database: Database) -> str:
    job_id = make_job(database, State.SUCCEEDED, best_step=10)
    make_checkpoint(database, job_id)
    return job_id


def ask(database: Database, job_id: str, actor: Actor, **body: Any) -> str:
    with database.session() as session:
        spec = ExportSpec.model_validate({"kind": "merged", **body})
        return exports.create(session, job_id, spec, actor).id


def claim(database: Database, owner: str, at: Any = None) -> Export | None:
    with database.session() as session:
        return exports.claim(session, owner, 60.0, at=at)


def row_of(database: Database, export_id: str) -> Export:
    with database.reading() as session:
        return session.get_one(Export, export_id)


def test_best_is_settled_when_it_is_asked_for(database: Database, job_id: str, actor: Actor) -> None:
    make_checkpoint(database, job_id, 20)
    assert row_of(database, ask(database, job_id, actor)).step == 10
    assert row_of(database, ask(database, job_id, actor, checkpoint="last")).step == 20
    assert row_of(database, ask(database, job_id, actor, checkpoint="20")).step == 20
    with pytest.raises(NotFound):
        ask(database, job_id, actor, checkpoint=15)


@pytest.mark.parametrize(
    ("facts", "body", "word"),
    [
        ({}, {"kind": "full"}, "kind merged"),
        ({}, {"kind": "fp32"}, "no ZeRO shards"),
        ({"zero_stage": 0, "strategy": "deepspeed"}, {"kind": "fp32"}, "no ZeRO shards"),
        ({"zero_stage": 2, "strategy": "deepspeed"}, {"kind": "fp32", "dtype": "float16"}, "fp32 is float32"),
        ({"adapter": None}, {"kind": "merged"}, "kind full"),
        ({"adapter": None}, {"kind": "adapter"}, "kind full"),
    ],
)
def test_a_kind_the_checkpoint_cannot_give_is_refused(
    database: Database, actor: Actor, facts: Any, body: Any, word: str
) -> None:
    job_id = make_job(database, State.SUCCEEDED, best_step=10)
    make_checkpoint(database, job_id, **facts)
    with pytest.raises(Invalid, match=word) as refused:
        ask(database, job_id, actor, **body)
    assert (refused.value.param, refused.value.code) == ("kind", "kind_unfit")


def test_two_owners_never_have_the_same_one(database: Database, job_id: str, actor: Actor) -> None:
    wanted = {ask(database, job_id, actor) for _ in range(3)}
    claimed = together([partial(claim, database, f"w{number}") for number in range(6)])
    ids = [row.id for row in claimed if row]
    assert len(set(ids)) == len(ids)
    rest = [claim(database, "late") for _ in range(4)]
    assert sorted(row.id for row in [*claimed, *rest] if row) == sorted(wanted)
    assert rest[-1] is None


def test_a_finished_one_is_told_and_stays(database: Database, job_id: str, actor: Actor) -> None:
    export_id = ask(database, job_id, actor)
    row = claim(database, "w1")
    assert row is not None
    with database.session() as session:
        assert exports.renew(session, row, "w1", 60.0, ["Merging"])
        assert exports.succeed(session, row, "w1", FILES, {"merged": {"difference": 0.0, "allowed": 1.0}}, "p")
        assert not exports.fail_mine(session, row, "w1", CAUSE)
    found = row_of(database, export_id)
    assert (found.state, found.size_bytes, found.storage_prefix) == ("succeeded", 2, "p")
    told = [event.message for event in events_of(database, job_id) if event.kind == "export"]
    assert [message.split(" as merged")[1].strip(": ")[:8] for message in told] == [
        "asked fo", "begun", "Merging", "is ready",
    ]  # fmt: skip
    with database.session() as session, pytest.raises(Conflict):
        exports.cancel(session, job_id, export_id, actor)


def test_a_cancelled_one_is_nobodys(database: Database, job_id: str, actor: Actor) -> None:
    export_id = ask(database, job_id, actor)
    row = claim(database, "w1")
    assert row is not None
    with database.session() as session:
        exports.cancel(session, job_id, export_id, actor)
        assert exports.cancel(session, job_id, export_id, actor).state == "cancelled"
        assert not exports.renew(session, row, "w1", 60.0, ["too late"])
        assert not exports.succeed(session, row, "w1", FILES, {}, "p")
    assert claim(database, "w2") is None
    assert not any("too late" in event.message for event in events_of(database, job_id))


def test_a_silent_owner_loses_it_and_the_fourth_try_fails(database: Database, job_id: str, actor: Actor) -> None:
    export_id = ask(database, job_id, actor)
    for number in range(MAX_TRIES):
        row = claim(database, f"w{number}", at=after(100 * number))
        assert row is not None
        assert claim(database, "other", at=after(100 * number + 59)) is None
    with database.session() as session:
        assert not exports.renew(session, row_of(database, export_id), "w0", 60.0, [])
    assert claim(database, "w9", at=after(1000)) is None
    found = row_of(database, export_id)
    assert (found.state, found.cause and found.cause["code"]) == ("failed", "internal")
    assert (found.finished_at or T0) > T0


def test_what_is_given_back_is_there_at_once(database: Database, job_id: str, actor: Actor) -> None:
    export_id = ask(database, job_id, actor)
    row = claim(database, "w1")
    assert row is not None
    with database.session() as session:
        exports.give_back(session, row, "w1")
    again = claim(database, "w2")
    assert again is not None
    assert (again.id, again.n_tries) == (export_id, 2)


def test_only_finished_ones_are_deleted(database: Database, job_id: str, actor: Actor) -> None:
    export_id = ask(database, job_id, actor)
    with database.session() as session, pytest.raises(Conflict, match="cancel it first"):
        exports.delete(session, job_id, export_id)
    with database.session() as session:
        exports.cancel(session, job_id, export_id, actor)
        assert exports.delete(session, job_id, export_id) == f"jobs/{job_id}/exports/{export_id}"
    with database.reading() as session:
        assert exports.listing(session, job_id) == []


def test_an_export_of_another_job_is_not_found(database: Database, job_id: str, actor: Actor) -> None:
    export_id = ask(database, job_id, actor)
    with database.reading() as session, pytest.raises(NotFound):
        exports.get(session, make_job(database), export_id)
