"""Starts ranks without the five seconds of imports: a process that has imported all libraries forks one child a rank.

Speaks JSON lines on stdin and stdout: {"run_dir", "n_ranks", "port", "env"} in, {"codes"} out once all have ended.
The ranks are real processes with the environment torchrun would give them; a failed rank ends the others, as it does.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time

PRELOADED = (
    "trainer_core.methods.sft",
    "trainer_core.methods.classification",
    "trainer_core.methods.token_classification",
    "trainer_core.methods.seq2seq",
    "trainer_core.run.program",
    "trainer_core.run.deepspeed_start",
    "trainer_core.__main__",
)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints while it is imported is no answer
    for name in PRELOADED:
        importlib.import_module(name)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        children = [fork_rank(order, rank) for rank in range(order["n_ranks"])]
        print(json.dumps({"codes": wait_like_torchrun(children)}), file=answers, flush=True)


def fork_rank(order: dict[str, object], rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(order["n_ranks"]),
        "LOCAL_WORLD_SIZE": str(order["n_ranks"]),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(order["port"]),
        **order["env"],  # type: ignore[dict-item]
    }
    trainer = importlib.import_module("trainer_core.__main__")
    code = 99
    try:
        code = trainer.main(["run", str(order["run_dir"])])
    finally:
        os._exit(code)


def wait_like_torchrun(children: list[int]) -> list[int]:
    """Exit codes in rank order (negative: a signal); the first failure sends SIGTERM, then SIGKILL, to the rest."""
    codes: dict[int, int] = {}
    killed_at = None
    while len(codes) < len(children):
        for pid in [pid for pid in children if pid not in codes]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
        if any(codes.values()) and killed_at is None:
            killed_at = time.monotonic()
            end(children, codes, signal.SIGTERM)
        elif killed_at and time.monotonic() - killed_at > 20:
            end(children, codes, signal.SIGKILL)
        time.sleep(0.01)
    return [codes[pid] for pid in children]


def end(children: list[int], codes: dict[int, int], number: signal.Signals) -> None:
    for pid in children:
        if pid not in codes:
            os.kill(pid, number)


if __name__ == "__main__":
    main()
