"""A node's side of engines without a node: takes each engine that waits and answers its prompts with one text."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from api.core import engines, generations
from api.core.db import Database

INFO = {"variants": ["tuned", "base"], "context_length": 100, "notes": []}
FINISHED = {"finish_reason": "stop", "prompt_tokens": 12, "completion_tokens": 5, "tool_calls": []}


class Answerer:
    """A thread until `close`. `outcome` ends every reply; with a `code` it is a refusal."""

    def __init__(
        self, database: Database, pieces: Sequence[str] = ("It is", " 7."), outcome: dict[str, Any] | None = None
    ) -> None:
        self.prompts: list[dict[str, Any]] = []
        self._database = database
        self._pieces = pieces
        self._outcome = outcome or FINISHED
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(0.02):
            with self._database.session() as session:
                row = engines.claim(session, "n1", "answerer", 60)
                if row is not None:
                    engines.renew(session, row.id, "answerer", 60, state="ready", info=INFO)
                ready = [one.id for one in engines.held_on(session, "n1")]
            for engine_id in ready:
                self._answer(engine_id)

    def _answer(self, engine_id: str) -> None:
        with self._database.session() as session:
            row = generations.take_next(session, engine_id)
        if row is None:
            return
        self.prompts.append(row.prompt)
        is_refused = "code" in self._outcome
        for piece in () if is_refused else self._pieces:
            with self._database.session() as session:
                generations.write(session, row.id, piece)
        with self._database.session() as session:
            generations.finish(session, row.id, "failed" if is_refused else "succeeded", self._outcome)
