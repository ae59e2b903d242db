"""From a node's engine to whoever asked: the reply's row is read as it grows, and cancelled when the client is gone.

It goes through the database, so that node and API need not reach each other and may be on different machines.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
from fastapi import Request
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from api.core import asking, generations
from api.core.asking import Asked
from api.core.engines import EngineState
from api.core.errors import Invalid, NotFound, TooMany, TrainyardError, Unavailable
from api.core.generations import Growth
from api.deps import Parts

LOOK_EVERY_S = 0.08
WANTED_EVERY_S = 5.0
GONE_EVERY_S = 0.5
# What a prompt or a model was refused for: it would be refused again.
REFUSALS = frozenset(
    [
        *("context_length_exceeded", "no_chat_template", "template_refused", "no_such_variant"),
        *("model_unavailable", "checkpoint_invalid", "config_invalid"),
    ]
)


@dataclass(frozen=True)
class Waiting:
    """Where the engine stands, while there is no word yet."""

    engine_id: str
    state: str


@dataclass
class Relay:
    """One reply on its way. `words` once; then `outcome` has the reason it ended, tokens and tool calls."""

    parts: Parts
    request: Request
    ask: Callable[[Session], Asked]
    outcome: dict[str, Any] = field(default_factory=dict)

    async def words(self) -> AsyncGenerator[str | Waiting]:
        """Texts as they come, and before the first of them where the engine stands. Raises TrainyardError."""
        try:
            async for word in self._one_try():
                yield word
        except _EngineLeft:  # it ended between the question and the answer: another is asked, once
            async for word in self._one_try():
                yield word

    async def _one_try(self) -> AsyncGenerator[str | Waiting]:
        asked = await run_in_threadpool(self._begin)
        is_whole = False
        try:
            async for word in self._follow(asked):
                yield word
            is_whole = True
        finally:
            if not is_whole:
                with anyio.CancelScope(shield=True):  # also where the client's going cancelled this
                    await run_in_threadpool(self._give_up, asked)

    async def _follow(self, asked: Asked) -> AsyncGenerator[str | Waiting]:
        n_seen, told, clock = 0, "", _Clock(self.parts.settings.engine_wait_s)
        while True:
            found = await run_in_threadpool(self._read, asked.generation_id, n_seen)
            if found.engine_state != told and not n_seen:
                told = found.engine_state
                yield Waiting(asked.engine_id, told)
            if found.more:
                n_seen += len(found.more)
                yield found.more
            elif found.state in ("succeeded", "cancelled", "failed"):
                self._settle(found, n_seen)
                return
            clock.check(found)
            if clock.is_due("wanted", WANTED_EVERY_S):
                await run_in_threadpool(self._still_wanted, asked.generation_id)
            if clock.is_due("gone", GONE_EVERY_S) and await self.request.is_disconnected():
                raise Unavailable("the client is gone", code="client_gone")
            await asyncio.sleep(LOOK_EVERY_S)

    def _settle(self, found: Growth, n_seen: int) -> None:
        self.outcome = found.outcome
        if found.state == "cancelled":
            self.outcome = {"finish_reason": "cancelled", "prompt_tokens": 0, "completion_tokens": 0} | found.outcome
        if found.state == "failed":
            if found.outcome["code"] in ("engine_ended", "node_lost") and not n_seen:
                raise _EngineLeft
            raise error_of(found.outcome)

    def _begin(self) -> Asked:
        with self.parts.database.session() as session:
            return self.ask(session)

    def _read(self, generation_id: str, n_seen: int) -> Growth:
        with self.parts.database.reading() as session:
            found = generations.read(session, generation_id, n_seen)
        if found is None:
            raise NotFound("the reply is gone with its engine; ask again")
        return found

    def _still_wanted(self, generation_id: str) -> None:
        with self.parts.database.session() as session:
            generations.still_wanted(session, generation_id)

    def _give_up(self, asked: Asked) -> None:
        with self.parts.database.session() as session:
            asking.give_up(session, asked)


class _EngineLeft(Unavailable):
    def __init__(self) -> None:
        super().__init__("the engine ended before it answered; ask again", code="engine_ended")


class _Clock:
    """What is due now and then, and how long a node is waited for."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._begun_s = time.monotonic()
        self._done: dict[str, float] = {}

    def is_due(self, name: str, every_s: float) -> bool:
        instant = time.monotonic()
        if instant - self._done.setdefault(name, self._begun_s) < every_s:
            return False
        self._done[name] = instant
        return True

    def check(self, found: Growth) -> None:
        """Raises Unavailable where no node took the engine in time."""
        waited_s = time.monotonic() - self._begun_s
        if found.engine_state == EngineState.QUEUED and waited_s > self._wait_s:
            raise Unavailable(
                f"no node had room for this model's engine within {self._wait_s:.0f} s: every engine or device is in "
                "use, or no node runs; try again later, or end an engine (GET /v1/engines)",
                code="no_free_device",
            )


def error_of(outcome: dict[str, Any]) -> TrainyardError:
    """What an engine refused, or ended with, as an error of the service."""
    code, message, param = outcome["code"], outcome["message"], outcome.get("param")
    if code in REFUSALS:
        return Invalid(message, code=code, param=param or "model")
    if code == "engine_busy":
        return TooMany(message, code=code)
    return Unavailable(message, code=code)
