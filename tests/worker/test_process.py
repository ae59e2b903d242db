"""Processes: known beyond their pid, found wherever they strayed, and asked to leave step by step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.world import wait_for
from worker.process import MARKER, Identity, Rung, Tree, members, read_stat, rung_at, send, start_leader

SLEEP = "import time; time.sleep(300)"
STARTED: list[tuple[Identity, str]] = []


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", SLEEP])
    yield process
    process.kill()
    process.wait()


def start(folder: Path, code: str, marker: str = "run-1") -> Identity:
    argv = [sys.executable, "-S", "-c", code]
    leader = start_leader(folder, argv, {MARKER: marker}, folder / "out.log")
    STARTED.append((leader, marker))
    return leader


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Also where a test fails."""
    yield
    for leader, marker in STARTED:
        send([*members(leader, marker), leader], signal.SIGKILL)
    STARTED.clear()


def two_members(leader: Identity) -> list[Identity]:
    """The launcher, and the process that left its session."""
    found = members(leader, "run-1")
    sessions = {stat.session for one in found if (stat := read_stat(one.pid))}
    return found if len(found) == len(sessions) == 2 else []


def climb_to_the_end(tree: Tree) -> None:
    tree.climb(Rung.TERM)
    wait_for(lambda: tree.climb(Rung.KILL) or not tree.remains(), "nothing to be left", 10)


def test_an_identity_is_not_its_pid(sleeper: subprocess.Popen[bytes]) -> None:
    identity = Identity.of(sleeper.pid)
    assert identity is not None
    assert identity.is_alive()
    assert not replace(identity, started=identity.started + 1).is_alive()
    assert not replace(identity, boot="another").is_alive()
    assert Identity(**identity.as_json()) == identity


def test_a_zombie_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    identity = Identity.of(sleeper.pid)
    assert identity is not None
    sleeper.kill()
    wait_for(lambda: (stat := read_stat(sleeper.pid)) and stat.state == "Z", "a zombie")
    assert not identity.is_alive()
    assert Identity.of(sleeper.pid) is None


def test_a_name_with_brackets_is_read_right(tmp_path: Path) -> None:
    program = tmp_path / "a) Z 1 (b"
    program.symlink_to(sys.executable)
    process = subprocess.Popen([program, "-S", "-c", SLEEP])
    stat = read_stat(process.pid)
    assert stat is not None
    assert (stat.parent, stat.is_alive) == (os.getpid(), True)
    process.kill()
    process.wait()


def test_a_run_has_one_leader_and_no_parent(tmp_path: Path) -> None:
    leader = start(tmp_path, SLEEP)
    assert start(tmp_path, "raise SystemExit") == leader
    stat = read_stat(leader.pid)
    assert stat is not None
    assert stat.parent != os.getpid()
    assert stat.session == leader.pid
    wait_for(lambda: members(leader, "run-1"), "the launcher")
    climb_to_the_end(Tree(leader, "run-1"))


def test_whatever_strays_is_found_also_when_the_leader_is_dead(tmp_path: Path) -> None:
    stray = "import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0: time.sleep(300)\n os._exit(0)\n"
    leader = start(tmp_path, stray + SLEEP)
    living = wait_for(lambda: two_members(leader), "two processes")
    send([leader], signal.SIGKILL)
    wait_for(lambda: not leader.is_alive(), "the leader to die")
    assert members(leader, "run-1") == living
    climb_to_the_end(Tree(leader, "run-1"))
    assert not any(one.is_alive() for one in living)


def test_a_child_without_marker_and_session_is_found_by_its_parents(tmp_path: Path) -> None:
    bare = "import os, time\nif os.fork() == 0:\n os.setsid()\n os.execve('/bin/sleep', ['sleep', '300'], {})\n"
    leader = start(tmp_path, bare + SLEEP)
    living = wait_for(lambda: two_members(leader), "two processes")
    climb_to_the_end(Tree(leader, "run-1"))
    assert not any(one.is_alive() for one in living)


def test_a_foreign_process_is_never_a_member(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    mine, its = start(tmp_path, SLEEP), start(other, SLEEP, marker="run-10")
    wait_for(lambda: members(mine, "run-1") and members(its, "run-10"), "both launchers")
    pids = {one.pid for one in members(mine, "run-1")}
    assert not pids & {sleeper.pid, os.getpid(), its.pid, *(one.pid for one in members(its, "run-10"))}
    climb_to_the_end(Tree(mine, "run-1"))
    assert members(its, "run-10")
    climb_to_the_end(Tree(its, "run-10"))


def test_sigterm_comes_once_and_first(tmp_path: Path) -> None:
    said = tmp_path / "said"
    code = f"import signal, time\nsignal.signal(15, lambda *_: open({str(said)!r}, 'a').write('x'))\n"
    leader = start(tmp_path, code + f"open({str(tmp_path / 'ready')!r}, 'w')\nwhile True: time.sleep(1)")
    wait_for((tmp_path / "ready").exists, "the launcher to be ready")
    tree = Tree(leader, "run-1")
    for _ in range(3):
        tree.climb(Rung.TERM)
    wait_for(said.exists, "SIGTERM")
    assert said.read_text() == "x"
    climb_to_the_end(tree)


@pytest.mark.parametrize(
    ("code", "exit_code", "number"),
    [("raise SystemExit(3)", 3, None), ("import os; os.kill(os.getpid(), 9)", None, 9), ("", 0, None)],
)
def test_the_leader_tells_how_the_launcher_ended(
    tmp_path: Path, code: str, exit_code: int | None, number: int | None
) -> None:
    leader = start(tmp_path, code)
    wait_for(lambda: not leader.is_alive(), "the end")
    ended = json.loads((tmp_path / "exit.json").read_text())
    assert (ended["exit_code"], ended["signal"]) == (exit_code, number)


@given(elapsed=st.floats(0, 1e4), stop=st.floats(0, 1e3), term=st.floats(0, 1e3))
def test_the_ladder_is_climbed_in_order_and_to_its_end(elapsed: float, stop: float, term: float) -> None:
    rung = rung_at(elapsed, stop, term)
    assert rung_at(elapsed + 1, stop, term) >= rung
    assert rung_at(stop + term + 1e-3 + 2e-3, stop, term) is Rung.KILL
    assert (rung is Rung.ASK) == (elapsed < stop)
