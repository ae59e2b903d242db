"""Between the database and one engine: prompts go in as they come, text comes out as it grows, wishes are heard."""

from __future__ import annotations

import logging
import threading
import time

from api.core import engines, generations
from api.core.db import Database, now
from api.core.engine_tables import Generation
from api.core.settings import Settings
from trainer_core.contract import Cause, CauseCode
from trainer_core.serve.order import Cancel, Failed, Finished, Piece, Prompt, Ready, Refused
from worker.engine_process import AnyWord, EngineProcess
from worker.patience import AWAY

log = logging.getLogger(__name__)

HEAR_FOR_S = 0.05
LOOK_EVERY_S = 0.15
RENEW_EVERY_S = 1.0
# A reply that was cancelled ends at its next token; an engine that does not is ended.
CANCEL_WITHIN_S = 30.0


class Talk:
    """`run` once. `leave` may be set by anybody: the engine ends when it next listens."""

    def __init__(self, db: Database, settings: Settings, engine_id: str, owner: str, *, holds_device: bool) -> None:
        self.leave = threading.Event()
        self.holds_device = holds_device
        self.used_at_s = time.monotonic()
        self._db = db
        self._settings = settings
        self._engine_id = engine_id
        self._owner = owner
        self._is_ready = False
        self._current: str | None = None
        self._pending = ""
        self._cancelled_at_s: float | None = None
        self._renewed_s = time.monotonic()
        self._next_look_s = self._next_renewal_s = 0.0

    @property
    def is_idle(self) -> bool:
        return self._is_ready and self._current is None

    def run(self, process: EngineProcess) -> Cause | None:
        """Until the engine ends; the cause where that was no wish."""
        self._process = process
        started_s = time.monotonic()
        while not self.leave.is_set():
            try:
                word = process.hear(HEAR_FOR_S)
            except EOFError:
                return self._cause_of_end()
            try:
                if word is not None and (cause := self._take(word)) is not None:
                    return cause
                if not self._keep_up():
                    return None
            except AWAY as error:
                log.warning("engine %s: the database does not answer: %s", self._engine_id, error)
                if time.monotonic() - self._renewed_s > self._settings.lost_after_s / 2:
                    return None  # before somebody else takes it for lost
                self.leave.wait(1.0)
            if not self._is_ready and time.monotonic() - started_s > self._settings.engine_start_s:
                message = f"The engine did not load its model within {self._settings.engine_start_s:.0f} s."
                return Cause(code=CauseCode.TIMEOUT, message=message)
        return None

    def _take(self, word: AnyWord) -> Cause | None:
        if isinstance(word, Failed):
            return word.cause
        if isinstance(word, Ready):
            self._is_ready = True
            self._renew(state="ready", info=word.model_dump(mode="json", exclude={"type"}))
        elif isinstance(word, Piece) and word.id == self._current:
            self._pending += word.text
        elif isinstance(word, Finished | Refused) and word.id == self._current:
            self._finish(word)
        return None

    def _keep_up(self) -> bool:
        """False: the engine was ended by somebody."""
        instant = time.monotonic()
        if instant >= self._next_renewal_s:
            self._next_renewal_s = instant + RENEW_EVERY_S
            if not self._renew():
                return False
        if instant >= self._next_look_s and self._is_ready:
            self._next_look_s = instant + LOOK_EVERY_S
            if self._current is None:
                self._next()
            else:
                self._flush(self._current)
        is_stuck = self._cancelled_at_s is not None and instant - self._cancelled_at_s > CANCEL_WITHIN_S
        return not is_stuck

    def _renew(self, **values: object) -> bool:
        identity = self._process.identity
        if identity is not None:
            values["process"] = identity.as_json()
        with self._db.session() as session:
            lease_s = self._settings.attempt_lease_s
            is_mine = engines.renew(session, self._engine_id, self._owner, lease_s, **values)
        self._renewed_s = time.monotonic()
        return is_mine

    def _next(self) -> None:
        with self._db.reading() as session:
            if not engines.n_open(session, self._engine_id):
                return
        with self._db.session() as session:
            row = generations.take_next(session, self._engine_id)
            if row is None:
                return
            engines.renew(session, self._engine_id, self._owner, self._settings.attempt_lease_s, used_at=now())
        self._current, self._pending, self._cancelled_at_s = row.id, "", None
        self._process.tell(_prompt(row))

    def _flush(self, current: str) -> None:
        """Write what was said since, and hear whether it is still wanted."""
        with self._db.reading() as session:
            is_wanted = generations.is_wanted(session, current)
        if is_wanted and self._pending:
            with self._db.session() as session:
                is_wanted = generations.write(session, current, self._pending)
            self._pending = ""
        if not is_wanted and self._cancelled_at_s is None:
            self._cancelled_at_s = time.monotonic()
            self._process.tell(Cancel(id=current))

    def _finish(self, word: Finished | Refused) -> None:
        assert self._current is not None
        outcome = word.model_dump(mode="json", exclude={"type", "id"})
        state = "failed" if isinstance(word, Refused) else "succeeded"
        if isinstance(word, Finished) and word.finish_reason == "cancelled":
            state = "cancelled"
        with self._db.session() as session:
            if self._pending:
                generations.write(session, self._current, self._pending)
            generations.finish(session, self._current, state, outcome)
        self._current, self._pending, self._cancelled_at_s = None, "", None
        self.used_at_s = time.monotonic()

    def _cause_of_end(self) -> Cause | None:
        code = self._process.exit_code()
        if code == 0:
            return None  # nobody asked any more
        message = f"The engine's process ended with {code}: {self._process.last_words()}"
        return Cause(code=CauseCode.INTERNAL, message=message, hint="A model larger than the memory ends like this.")


def _prompt(row: Generation) -> Prompt:
    return Prompt.model_validate({"id": row.id, **row.prompt})
