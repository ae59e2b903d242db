"""Processes of a run: who they are beyond their pid, which of them live, and how they are made to leave.

Linux's /proc only; a zombie counts as dead. It knows nothing of jobs: a run is a leader process and a marker in the
environment of everything the run started.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import IO, Any

from worker import alone
from worker import leader as leader_program

MARKER = "TRAINYARD_RUN"
START_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Identity:
    """A process that a reused pid cannot be mistaken for: `started` is in clock ticks since boot."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        stat = read_stat(pid)
        return cls(pid, stat.started, boot_id()) if stat and stat.is_alive else None

    @classmethod
    def read(cls, path: Path) -> Identity | None:
        """From the file that a leader wrote; None where there is none."""
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None

    def is_alive(self) -> bool:
        return Identity.of(self.pid) == self

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Stat:
    pid: int
    state: str
    parent: int
    session: int
    started: int

    @property
    def is_alive(self) -> bool:
        return self.state not in "ZX"


def read_stat(pid: int) -> Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command's name comes second, in brackets, and may hold brackets and blanks itself.
    fields = text.rpartition(")")[2].split()
    return Stat(pid, state=fields[0], parent=int(fields[1]), session=int(fields[3]), started=int(fields[19]))


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_alone(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    output: IO[bytes] | int,
    pass_fds: Sequence[int] = (),
) -> None:
    """Start a command outside this process's tree and sessions. Raises RuntimeError when that fails."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(Path(alone.__file__)), *argv],
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=pass_fds,
        check=False,
        timeout=START_TIMEOUT_S,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]} could not be started alone: exit code {done.returncode}")


def start_leader(folder: Path, argv: Sequence[str], env: Mapping[str, str], output: Path) -> Identity:
    """Start `argv` under a leader, unless the folder has one; its output and the launcher's go to the file `output`."""
    path = folder / leader_program.LEADER_FILE
    if (known := Identity.read(path)) is not None:
        return known
    program = [sys.executable, "-I", "-S", str(Path(leader_program.__file__)), str(folder), *argv]
    with open(output, "ab") as out:
        start_alone(program, cwd=folder, env=env, output=out)
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if (leader := Identity.read(path)) is not None:
            return leader
        time.sleep(0.005)
    raise RuntimeError(f"the run's session leader did not start; see {output}")


def members(leader: Identity, marker: str) -> list[Identity]:
    """Every living process of a run but its leader: descendants, session members, and whoever carries the marker.

    The marker catches what left session and parents behind (setsid, double fork) after the leader was killed.
    """
    if leader.boot != boot_id():
        return []  # the machine was started anew since: nothing of that run can live
    stats = {stat.pid: stat for stat in _all_stats() if stat.is_alive and stat.started >= leader.started}
    found = {pid for pid, stat in stats.items() if stat.session == leader.pid or _has_marker(pid, marker)}
    if leader.is_alive():
        found.add(leader.pid)
    _add_descendants(found, stats)
    found.discard(leader.pid)
    return [Identity(pid, stats[pid].started, leader.boot) for pid in sorted(found)]


def _all_stats() -> list[Stat]:
    stats = (read_stat(int(entry.name)) for entry in os.scandir("/proc") if entry.name.isdigit())
    return [stat for stat in stats if stat is not None]


def _add_descendants(found: set[int], stats: Mapping[int, Stat]) -> None:
    grown = True
    while grown:
        more = {pid for pid, stat in stats.items() if stat.parent in found and pid not in found}
        found |= more
        grown = bool(more)


def _has_marker(pid: int, marker: str) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARKER}={marker}".encode() in environ.split(b"\0")


def send(targets: Collection[Identity], number: signal.Signals) -> None:
    for target in targets:
        # Looked at once more just before: a pid may have changed hands since the list was made.
        if target.is_alive():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(target.pid, number)


class Rung(IntEnum):
    """How hard a run is asked to leave."""

    ASK = 0
    TERM = 1
    KILL = 2


def rung_at(elapsed_s: float, stop_grace_s: float, term_grace_s: float) -> Rung:
    """The rung of the stop ladder, so long after the STOP file was written."""
    if elapsed_s < stop_grace_s:
        return Rung.ASK
    return Rung.TERM if elapsed_s < stop_grace_s + term_grace_s else Rung.KILL


class Tree:
    """The processes of one run, and the rung it was last asked on."""

    def __init__(self, leader: Identity, marker: str) -> None:
        self.leader = leader
        self.marker = marker
        self._rung = Rung.ASK

    def climb(self, rung: Rung) -> None:
        """Signal everything but the leader: SIGTERM once, SIGKILL on every call until nothing is left.

        The leader leaves by itself once it has no child. It is killed only when it is all that is left.
        """
        if rung is Rung.ASK or (rung is Rung.TERM and self._rung is Rung.TERM):
            return
        first = self._rung is not rung
        self._rung = rung
        living = members(self.leader, self.marker)
        send(living, signal.SIGTERM if rung is Rung.TERM else signal.SIGKILL)
        if rung is Rung.KILL and not living and not first:
            send([self.leader], signal.SIGKILL)

    def remains(self) -> list[Identity]:
        """Everything of the run that lives, the leader last. Empty is the proof that the run is gone."""
        living = members(self.leader, self.marker)
        return [*living, self.leader] if self.leader.is_alive() else living
