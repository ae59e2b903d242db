"""How the ranks of a run are started: one function a launcher, from a launch to a command line. Pure.

Every launch has a rendezvous of its own on a port of its own, so that two runs on one machine never meet.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Launch:
    """One process a device, in rank order."""

    run_dir: Path
    run_id: str
    devices: Sequence[int]
    port: int  # free when it was looked for; launchers that can take one by themselves ignore it


Launcher = Callable[[Launch], list[str]]


def torchrun_argv(launch: Launch) -> list[str]:
    """torchrun by its module, so that no PATH is needed; port 0 lets it take a free port without a race."""
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", "1", "--nproc-per-node", str(len(launch.devices))),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id", launch.run_id),
        # Without it the ranks meet at the machine's own name, which need not resolve.
        *("--local-addr", "127.0.0.1"),
        *("--module", "trainer_core", "run", str(launch.run_dir)),
    ]


def deepspeed_argv(launch: Launch) -> list[str]:
    """DeepSpeed's launcher for one node, as its `deepspeed` command starts it: no ssh, no host file."""
    world = base64.urlsafe_b64encode(json.dumps({"localhost": list(launch.devices)}).encode()).decode()
    return [
        *(sys.executable, "-m", "deepspeed.launcher.launch", f"--world_info={world}"),
        *("--master_addr=127.0.0.1", f"--master_port={launch.port}"),
        *("--module", "trainer_core", "run", str(launch.run_dir)),
    ]


LAUNCHERS: Mapping[str, Launcher] = {"torchrun": torchrun_argv, "deepspeed": deepspeed_argv}
