"""Runs a command that dies with its parent and steps back for everything else: `python -I -S tether.py COMMAND...`.

A preflight is worth nothing without the process that waits for it. Standard library only; the command takes its place.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
NICENESS = 10


def main(parent: int, command: list[str]) -> None:
    os.nice(NICENESS)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)  # it died before the kernel knew that we care
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
