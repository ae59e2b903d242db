"""The session leader of a run: starts the launcher, reaps every orphan of it, writes exit.json, leaves last.

Run as a file by `python -I -S`, standard library only: it holds no more than a few megabytes for the length of a run.
Orphans of the run become its children (PR_SET_CHILD_SUBREAPER), so that its own end proves that nothing is left.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
LEADER_FILE = "leader.json"
EXIT_FILE = "exit.json"
# The kernel's choice when memory runs out: a rank before the processes that have to tell of it.
OOM_SCORE_OF_A_RUN = "500"


def main(folder: str, command: list[str]) -> int:
    """Run `command` in this session; returns once no process of it is left. Writes leader.json first, once."""
    if not _claim(os.path.join(folder, LEADER_FILE)):
        return 0  # another leader runs, or ran, this folder: a run is never started twice
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A handler and not SIG_IGN, which the launcher would inherit.
        signal.signal(number, lambda *_: None)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    exit_file = os.path.join(folder, EXIT_FILE)
    try:
        launcher = os.posix_spawn(command[0], command, os.environ)
    except OSError as error:
        _write(exit_file, {"exit_code": 127, "signal": None, "message": f"{command[0]}: {error.strerror}"})
        return 0
    _let_the_kernel_choose(launcher)
    _reap(launcher, exit_file)
    return 0


def _claim(path: str) -> bool:
    with open("/proc/self/stat", encoding="ascii") as file:
        started = int(file.read().rsplit(")", 1)[1].split()[19])
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), "started": started, "boot": boot}, file)
    try:
        os.link(temporary, path)  # whole and exclusive at once
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    return True


def _let_the_kernel_choose(pid: int) -> None:
    try:
        with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
            file.write(OOM_SCORE_OF_A_RUN)
    except OSError as error:
        print(f"oom_score_adj was not set: {error}", file=sys.stderr)


def _reap(launcher: int, exit_file: str) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        if pid == launcher:
            _write(exit_file, _how_it_ended(status))


def _how_it_ended(status: int) -> dict[str, object]:
    code = os.waitstatus_to_exitcode(status)
    return {"exit_code": code if code >= 0 else None, "signal": -code if code < 0 else None, "message": None}


def _write(path: str, ended: dict[str, object]) -> None:
    """Tried until it works: a full disk must not hide how the run ended."""
    temporary = f"{path}.{os.getpid()}"
    while True:
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(ended | {"ended_at": time.time()}, file)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, path)
        except OSError as error:
            print(f"{path} cannot be written: {error}", file=sys.stderr)
            time.sleep(1)
        else:
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
