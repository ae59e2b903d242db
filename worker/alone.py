"""Runs a command alone, so that no tree or group that is killed has it: `python -I -S alone.py COMMAND...`.

Ends at once; the command goes on without a parent, in a session of its own. Standard library only.
"""

from __future__ import annotations

import os
import sys


def stand_alone() -> None:
    """Returns in a process that its starter's tree does not hold; the process that called it ends with 0."""
    if os.fork() > 0:
        os._exit(0)
    os.setsid()


if __name__ == "__main__":
    stand_alone()
    os.execv(sys.argv[1], sys.argv[1:])
