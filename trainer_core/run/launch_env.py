"""Which process of the run this is, read once from what torchrun or the deepspeed launcher put into the environment.

Torch-free: the program sends its own output to the rank's log file before anything heavy is imported.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LaunchEnv:
    """`is_launched` is False for a process started alone, without a launcher."""

    rank: int
    world_size: int
    is_launched: bool

    @property
    def is_main(self) -> bool:
        return self.rank == 0


def read_launch_env() -> LaunchEnv:
    """RANK and WORLD_SIZE as the launcher set them; one lone process without them."""
    return LaunchEnv(
        rank=int(os.environ.get("RANK", "0")),
        world_size=int(os.environ.get("WORLD_SIZE", "1")),
        is_launched="WORLD_SIZE" in os.environ,
    )


def drop_stray_switches() -> None:
    """Forget ACCELERATE_* variables: ACCELERATE_USE_CPU alone makes accelerate ignore DeepSpeed without a word."""
    for name in [name for name in os.environ if name.startswith("ACCELERATE_")]:
        del os.environ[name]


def be_the_only_process() -> None:
    """Give one lone process the rendezvous that a launcher would have given it; DeepSpeed cannot start without."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ |= {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def send_output_to(path: Path) -> None:
    """Point this process's stdout and stderr, Python's and C's alike, at a file; every line is written at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
