"""How every method's run begins: the process group stands, the checkpoint to start from is proved, the run announced.

What a rank knows of its run from then on is one value, `Run`.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
from dataclasses import dataclass
from pathlib import Path

from transformers import TrainingArguments

from trainer_core.checkpoints.resume import open_checkpoint
from trainer_core.contract import Manifest, RunConfig, RunFolder, Started
from trainer_core.run.arguments import start
from trainer_core.run.events import EventWriter
from trainer_core.run.launch_env import LaunchEnv
from trainer_core.run.ranks import Ranks
from trainer_core.run.stop import StopSign
from trainer_core.zero.owners import stage_of, strategy_of

LIBRARIES = ("torch", "transformers", "accelerate", "deepspeed", "peft", "safetensors")


@dataclass(frozen=True)
class Run:
    """One rank's run."""

    config: RunConfig
    folder: RunFolder
    events: EventWriter
    args: TrainingArguments
    ranks: Ranks
    stop: StopSign
    checkpoint: Manifest | None
    """Of the checkpoint to start from, proved."""

    @property
    def global_batch_size(self) -> int:
        """Rows that one optimizer step sees."""
        args = self.args
        return int(args.per_device_train_batch_size * args.gradient_accumulation_steps * self.ranks.world_size)

    @property
    def resumed(self) -> Manifest | None:
        """The checkpoint whose curve is continued: optimizer, schedule, RNG and data position too."""
        resume = self.config.resume
        return self.checkpoint if resume and resume.mode == "full" else None

    @property
    def resume_folder(self) -> Path | None:
        return self.config.resume.checkpoint if self.resumed and self.config.resume else None

    @property
    def weights_folder(self) -> Path | None:
        """The checkpoint whose weights alone are the start of a fresh run."""
        resume = self.config.resume
        return resume.checkpoint if self.checkpoint and resume and resume.mode == "weights" else None


def begin(
    config: RunConfig,
    folder: RunFolder,
    events: EventWriter,
    launch: LaunchEnv,
    arguments_class: type[TrainingArguments] = TrainingArguments,
) -> Run:
    """Start the process group and announce the run. Raises Fault, or StopAsked where a stop was asked for already."""
    args = start(config, folder, launch, arguments_class)
    ranks = Ranks(timeout_s=args.ddp_timeout)
    stop = StopSign(folder, ranks)
    run = Run(config, folder, events, args, ranks, stop, checkpoint=None)
    run = Run(config, folder, events, args, ranks, stop, checkpoint=_checkpoint_to_start_from(run))
    _announce(run)
    stop.leave_if_asked()
    return run


def versions() -> dict[str, str]:
    """Versions of the libraries that decide what a checkpoint is."""
    return {name: importlib.metadata.version(name) for name in LIBRARIES}


def _checkpoint_to_start_from(run: Run) -> Manifest | None:
    """Rank 0 proves it for all: reading every byte once a rank would only load the disk."""
    config = run.config
    strategy = strategy_of(config.parallel)
    stage = stage_of(config.parallel) if strategy == "deepspeed" else None
    manifest = open_checkpoint(config, strategy, stage, run.global_batch_size) if run.ranks.is_main else None
    texts = run.ranks.texts(manifest.model_dump_json() if manifest else "")
    return Manifest.model_validate_json(texts[0]) if texts[0] else None


def _announce(run: Run) -> None:
    processes = [text.split(" ") for text in run.ranks.texts(f"{socket.gethostname()} {os.getpid()}")]
    run.events.emit(
        Started,
        world_size=run.ranks.world_size,
        device=run.config.device,
        hosts=list(dict.fromkeys(host for host, _ in processes)),
        pids=[int(pid) for _, pid in processes],
        versions={"python": platform.python_version(), **versions()},
        resumed_from_step=run.resumed.step if run.resumed else None,
    )
