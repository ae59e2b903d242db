"""Where every process of a run stands: its state by the kernel's word, and its Python stack.

py-spy reads a process from outside without stopping it. Where the system does not let it, a rank writes its stack
itself, on a signal that it listens to from its first moment; a process that does not listen is left alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from trainer_core.contract import STACKS_SIGNAL, RunFolder
from worker.process import Identity, read_stat, send

PY_SPY_TIMEOUT_S = 8.0
ANSWER_TIMEOUT_S = 1.0
# Beyond so many processes the file would be read by nobody, and taking it would keep the supervisor from its beats.
MAX_PROCESSES = 32
MAX_CHARACTERS = 20_000

STATES = {"R": "running", "S": "sleeping", "D": "waiting in the kernel", "T": "stopped by a signal", "t": "traced"}


@dataclass(frozen=True)
class Stack:
    """One process. `rank` null: it is none, and of no rank."""

    rank: int | None
    is_child: bool
    pid: int
    state: str
    text: str

    @property
    def title(self) -> str:
        who = "a process" if self.rank is None else f"rank {self.rank}"
        return f"{'a child of ' if self.is_child else ''}{who}, pid {self.pid}, {self.state}"

    @property
    def where(self) -> str | None:
        """The innermost frame of the main thread that either reader tells of."""
        lines = [line.strip() for line in self.text.splitlines()]
        for number, line in enumerate(lines):
            if line.startswith(("Thread", "Current thread")) and ("MainThread" in line or "most recent" in line):
                return next((after for after in lines[number + 1 :] if after), None)
        return None


def take(members: Sequence[Identity], folder: RunFolder) -> list[Stack]:
    """Ranks first, in order, each with its children; processes that ended meanwhile are left out."""
    ranks = {one.pid: rank for one in members if (rank := _rank_of(one.pid)) is not None}
    chosen = [one for one in members if one.pid in ranks][:MAX_PROCESSES]
    with ThreadPoolExecutor(4) as pool:
        stacks = pool.map(lambda one: _take(one, ranks, folder), chosen)
        return sorted(stacks, key=lambda stack: (stack.rank or 0, stack.is_child, stack.pid))


def _take(one: Identity, ranks: dict[int, int], folder: RunFolder) -> Stack:
    stat = read_stat(one.pid)
    state = STATES.get(stat.state, stat.state) if stat else "gone"
    # Loader processes inherit RANK; the rank itself is the one whose parent has none.
    is_child = stat is not None and stat.parent in ranks
    text, complaint = _by_py_spy(one.pid)
    if text is None:
        text = _by_itself(one, ranks[one.pid], folder) or f"No stack could be read. py-spy: {complaint}"
    return Stack(ranks[one.pid], is_child, one.pid, state, text[:MAX_CHARACTERS])


def _by_py_spy(pid: int) -> tuple[str | None, str]:
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        return None, "it is not installed"
    argv = [program, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PY_SPY_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    return (done.stdout, "") if done.returncode == 0 and "Thread" in done.stdout else (None, done.stderr.strip())


def _by_itself(one: Identity, rank: int, folder: RunFolder) -> str | None:
    """What the process adds to its rank's file on the signal; None where it does not listen, or does not answer."""
    if not _listens(one.pid):
        return None
    path = folder.rank_stacks(rank)
    before = path.stat().st_size if path.exists() else 0
    send([one], STACKS_SIGNAL)
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while time.monotonic() < deadline:
        time.sleep(0.05)
        if path.exists() and path.stat().st_size > before:
            time.sleep(0.05)  # the rest of it
            return path.read_bytes()[before:].decode(errors="replace")
    return None


def _listens(pid: int) -> bool:
    """Whether it catches the signal; it would die of it otherwise."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)
    return bool(caught >> (STACKS_SIGNAL - 1) & 1)


def _rank_of(pid: int) -> int | None:
    """By the environment that the launcher gave it."""
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = next((entry[5:] for entry in environ if entry.startswith(b"RANK=")), b"")
    return int(found) if found.isdigit() else None
