"""`python -m trainer_core run|preflight|export|serve RUN_DIR`: the trainer's command, started once a rank.

Sends the rank's output to its log file first and only then loads the program, which imports torch: five seconds
in which a failed import would otherwise be lost.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

from trainer_core.contract import RunFolder
from trainer_core.run.heartbeat import write_stacks_on_signal
from trainer_core.run.launch_env import drop_stray_switches, read_launch_env, send_output_to

# Loaded by name, after the output has been redirected.
PROGRAMS = {
    "run": "trainer_core.run.program",
    "preflight": "trainer_core.preflight.start",
    "export": "trainer_core.export.program",
    "serve": "trainer_core.serve.program",
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainer_core", description=__doc__)
    parser.add_argument("command", choices=sorted(PROGRAMS))
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--local_rank", "--local-rank", type=int, help="added by the deepspeed launcher; not used")
    options = parser.parse_args(argv)
    folder = RunFolder(options.run_dir.resolve())
    drop_stray_switches()
    if options.command == "run":
        rank = read_launch_env().rank
        send_output_to(folder.rank_log(rank))
        write_stacks_on_signal(folder.rank_stacks(rank))
    program = importlib.import_module(PROGRAMS[options.command])
    return int(program.main(folder))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Leave at once: an orderly interpreter exit waits for communication threads whose peers may be gone already.
    os._exit(code)
