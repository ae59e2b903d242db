"""Engines on a node, with a stand-in for the trainer: claimed once, relayed, ended by every way there is."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from api.core import devices, engines, generations, nodes
from api.core.auth import Actor
from api.core.engine_tables import Engine, Generation
from api.core.ids import new_id
from api.core.nodes import DeviceFact
from api.core.states import State
from api.core.tables import BaseModel, Device, Job
from tests.worker.world import World, wait_for
from worker.engines import EngineHost

# Speaks as the engine does: two pieces a prompt, and with `forever` no end until it is cancelled.
PROGRAM = """
import json, sys
def say(**word):
    print(json.dumps(word), flush=True)
say(type="ready", variants=["tuned", "base"], context_length=100)
for line in sys.stdin:
    wish = json.loads(line)
    if wish["type"] == "cancel":
        say(type="finished", id=wish["id"], finish_reason="cancelled", prompt_tokens=1, completion_tokens=1)
        continue
    text = wish["messages"][0]["content"]
    if text == "crash":
        sys.exit("no memory left")
    say(type="piece", id=wish["id"], text="It is ")
    if text != "forever":
        say(type="piece", id=wish["id"], text=text)
        say(type="finished", id=wish["id"], finish_reason="stop", prompt_tokens=3, completion_tokens=2)
"""
ACTOR = Actor(id="key", name="ann", role="admin")


@pytest.fixture
def host(world: World, tmp_path: Path) -> Iterator[EngineHost]:
    file = tmp_path / "engine.py"
    file.write_text(PROGRAM)
    host = EngineHost(world.db, world.storage, world.settings, (sys.executable, str(file)))
    yield host
    host.end_all()
    wait_for(lambda: not host.talks, "the engines to end", 20)


def add_model(world: World) -> str:
    row = BaseModel(id=new_id("model"), name=new_id("name"), source="/models/tiny", details={})
    with world.db.session() as session:
        session.add(row)
    return row.id


def ask(world: World, model_id: str, text: str, device: str = "auto") -> tuple[str, str]:
    prompt = {"variant": "base", "messages": [{"role": "user", "content": text}], "tools": None, "sampling": {}}
    with world.db.session() as session:
        engine = engines.find_or_ask(session, f"model:{model_id}", "tiny", device, ACTOR)
        return engine.id, generations.ask(session, engine, prompt, ACTOR, 16).id


def reply(world: World, generation_id: str) -> Generation:
    with world.db.reading() as session:
        return session.get_one(Generation, generation_id)


def engine(world: World, engine_id: str) -> Engine:
    with world.db.reading() as session:
        return session.get_one(Engine, engine_id)


def ended(world: World, generation_id: str) -> Any:
    def seen() -> Generation | None:
        row = reply(world, generation_id)
        return row if row.ended_at else None

    return wait_for(seen, "the reply to end", 20)


def test_prompts_are_answered_in_turn_by_one_engine(world: World, host: EngineHost) -> None:
    model = add_model(world)
    asked = [ask(world, model, text) for text in ("one", "two")]
    assert asked[0][0] == asked[1][0]
    assert host.look() == 1
    for (_, generation_id), text in zip(asked, ("one", "two"), strict=True):
        row = ended(world, generation_id)
        assert (row.state, row.text, row.outcome["finish_reason"]) == ("succeeded", f"It is {text}", "stop")
    assert host.look() == 0
    assert engine(world, asked[0][0]).state == "ready"


def test_a_cancelled_reply_makes_way(world: World, host: EngineHost) -> None:
    model = add_model(world)
    _, first = ask(world, model, "forever")
    host.look()
    wait_for(lambda: reply(world, first).text, "its first piece", 20)
    with world.db.session() as session:
        generations.cancel(session, first)
    _, second = ask(world, model, "next")
    assert ended(world, second).state == "succeeded"
    assert reply(world, first).state == "cancelled"


def test_a_reader_that_fell_silent_cancels(world: World, host: EngineHost) -> None:
    model = add_model(world)
    _, first = ask(world, model, "forever")
    host.look()
    wait_for(lambda: reply(world, first).text, "its first piece", 20)
    with world.db.session() as session:
        session.execute(update(Generation).values(wanted_until=Generation.created_at))
    assert ended(world, first).state == "cancelled"


def test_a_crash_is_told_with_its_last_words_and_leaves_nothing(world: World, host: EngineHost) -> None:
    engine_id, generation_id = ask(world, add_model(world), "crash")
    host.look()
    assert ended(world, generation_id).state == "failed"
    assert "no memory left" in engine(world, engine_id).cause["message"]  # type: ignore[index]
    wait_for(lambda: not (world.settings.runs_dir / "engines" / engine_id).exists(), "its folder to be gone", 20)


def test_a_killed_engine_frees_its_place(world: World, host: EngineHost) -> None:
    engine_id, generation_id = ask(world, add_model(world), "one")
    host.look()
    ended(world, generation_id)
    wait_for(lambda: engine(world, engine_id).process, "its process to be known", 20)
    os.kill(engine(world, engine_id).process["pid"], signal.SIGKILL)  # type: ignore[index]
    wait_for(lambda: engine(world, engine_id).state == "ended", "its end", 20)
    wait_for(lambda: not host.talks, "its thread to end", 20)


def test_another_model_takes_the_place_of_one_that_nobody_asks(world: World, host: EngineHost) -> None:
    first, generation_id = ask(world, add_model(world), "one")
    host.look()
    ended(world, generation_id)
    _, other = ask(world, add_model(world), "two")

    def answered() -> bool:
        host.look()
        return reply(world, other).state == "succeeded"

    wait_for(answered, "the other's reply", 20)
    assert engine(world, first).state == "ended"


def test_an_ended_engine_s_process_leaves(world: World, host: EngineHost) -> None:
    engine_id, generation_id = ask(world, add_model(world), "one")
    host.look()
    ended(world, generation_id)
    with world.db.session() as session:
        assert engines.end(session, engine_id)
    wait_for(lambda: not host.talks, "its process to leave", 20)


def test_what_a_dead_agent_left_is_settled_at_once(world: World, host: EngineHost) -> None:
    engine_id, generation_id = ask(world, add_model(world), "one")
    with world.db.session() as session:
        assert engines.claim(session, world.settings.node_name, "999999:1:boot", 60)
    host.look()
    assert (engine(world, engine_id).state, reply(world, generation_id).state) == ("ended", "failed")


def test_a_device_is_never_held_twice(world: World) -> None:
    with world.db.session() as session:
        fact = DeviceFact(index=0, kind="cuda", name="gpu", memory_bytes=10**9)
        node = nodes.register(session, world.settings.node_name, [fact], {}, {})
    first, _ = ask(world, add_model(world), "one", "cuda")
    second, _ = ask(world, add_model(world), "two", "cuda")
    with world.db.session() as session:
        assert getattr(engines.claim(session, world.settings.node_name, "me", 60), "id", None) == first
        assert engines.claim(session, world.settings.node_name, "me", 60) is None
        assert not devices.take(session, "attempt", node.id, [0])
        assert engines.end(session, first)
        assert session.scalar(select(Device.engine_id)) is None
    with world.db.session() as session:
        world_job = world.submit(state=State.QUEUED)
    with world.db.session() as session:
        assert session.get_one(Job, world_job).state == "queued"
        assert engines.claim(session, world.settings.node_name, "me", 60) is None  # a job waits for it
    assert engine(world, second).state == "queued"
