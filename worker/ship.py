"""Brings a run's records and log lines into the database, in batches, each exactly once.

All of it stays in the run folder until it was taken over; nothing more is read while a batch waits for the database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from api.core import attempts
from api.core.db import Database
from api.core.logs import LogLine
from trainer_core.contract import (
    AnyRecord,
    CheckpointRemoved,
    CheckpointSaved,
    Done,
    Failed,
    Metrics,
    Phase,
    PhaseChanged,
    RunFolder,
    Stopped,
)
from worker.tail import LogTail, RecordTail


@dataclass
class Told:
    """What the records said that matters for checkpoints and for how the run ended."""

    done: Done | None = None
    stopped: Stopped | None = None
    failed: Failed | None = None
    saved: dict[int, CheckpointSaved] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    has_trained: bool = False
    n_records: int = 0
    phase: Phase | None = None
    has_moved: bool = False  # a step was told of since the phase began
    step: int = 0

    def note(self, record: AnyRecord) -> None:
        self.n_records += 1
        if isinstance(record, PhaseChanged):
            self.phase, self.has_moved = record.phase, False
        elif isinstance(record, Metrics):
            self.step, self.has_moved = record.step, True
        match record:
            case PhaseChanged(phase=Phase.TRAINING) | Metrics():
                self.has_trained = True
            case Done():
                self.done = record
            case Stopped():
                self.stopped = record
            case Failed():
                self.failed = record
            case CheckpointSaved():
                self.saved[record.step] = record
                self.removed.discard(record.step)
            case CheckpointRemoved():
                self.removed.add(record.step)


class RecordShipper:
    """events.jsonl to the database. It is read from its beginning, also after a restart: the story must be known."""

    def __init__(
        self,
        db: Database,
        attempt_id: str,
        folder: RunFolder,
        on_checkpoint: Callable[[CheckpointSaved | CheckpointRemoved], None],
    ) -> None:
        self.told = Told()
        self._on_checkpoint = on_checkpoint
        self._db = db
        self._attempt_id = attempt_id
        self._tail = RecordTail(folder.events)
        self._waiting: list[AnyRecord] = []

    def read(self) -> bool:
        """Read on, unless a batch still waits for the database; whether one waits now."""
        if not self._waiting:
            self._waiting = self._tail.read()
            for record in self._waiting:
                self.told.note(record)
                if isinstance(record, CheckpointSaved | CheckpointRemoved):
                    self._on_checkpoint(record)
        return bool(self._waiting)

    def ship(self) -> None:
        """Everything there is, a chunk a transaction. Raises what the database raises, and loses nothing by it."""
        while self.read():
            with self._db.session() as session:
                attempts.take_records(session, self._attempt_id, self._waiting)
            self._waiting = []


class LogShipper:
    """The log files to the database."""

    def __init__(self, db: Database, attempt_id: str, folder: RunFolder, offsets: Mapping[str, int]) -> None:
        self._db = db
        self._attempt_id = attempt_id
        self._folder = folder
        self._tails = {name: LogTail(folder.logs / name, offset) for name, offset in offsets.items()}
        self._shipped = dict(offsets)
        self._waiting: list[LogLine] = []

    def ship(self, now_s: float, *, is_last: bool = False) -> None:
        """One chunk of each file, or with `is_last` all that is left. Raises what the database raises."""
        if self._waiting:
            self._send()
        while True:
            self._read(now_s, is_last=is_last)
            self._send()
            if not is_last or not any(tail.n_bytes_left for tail in self._tails.values()):
                return

    def _read(self, now_s: float, *, is_last: bool) -> None:
        for path in sorted(self._folder.logs.glob("*.log")):
            tail = self._tails.setdefault(path.name, LogTail(path))
            rank = _rank_of(path)
            lines = tail.read(now_s, is_last=is_last)
            self._waiting += [LogLine(line.at, path.stem, rank, line.text) for line in lines]

    def _send(self) -> None:
        offsets = {name: tail.offset for name, tail in self._tails.items() if tail.offset != self._shipped.get(name, 0)}
        if not offsets:
            self._waiting = []
            return
        before = {name: self._shipped.get(name, 0) for name in offsets}
        with self._db.session() as session:
            stored = attempts.take_logs(session, self._attempt_id, self._waiting, offsets, before)
        self._waiting = []
        for name, offset in offsets.items():
            if stored.get(name, 0) != offset:  # the lines were in already, from a commit whose answer was lost
                self._tails[name] = LogTail(self._folder.logs / name, stored.get(name, 0))
        self._shipped = stored


def _rank_of(path: Path) -> int | None:
    number = path.stem.removeprefix("rank")
    return int(number) if path.stem.startswith("rank") and number.isdigit() else None
