"""The run's checkpoints on disk: saved aside, verified, renamed into place, announced, and let go by our own rule.

Rank 0's side only; what the Trainer writes into a checkpoint is not known here. A folder `checkpoint-{S}` is complete
or it does not exist: while it is written it lies under `.saving-{S}`.
"""

from __future__ import annotations

import math
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainer_core.checkpoints.manifests import describe_files, read_manifest, sync_folder, write_manifest
from trainer_core.checkpoints.retention import rank_by_metric, steps_to_remove
from trainer_core.checkpoints.weights import check_weights
from trainer_core.contract import (
    MANIFEST_NAME,
    CauseCode,
    CheckpointRemoved,
    CheckpointSaved,
    Manifest,
    RunConfig,
    RunFolder,
)
from trainer_core.methods_table import METHODS
from trainer_core.model.public_names import name_the_base
from trainer_core.run.events import EventWriter
from trainer_core.run.faults import Fault

CHECKPOINT_NAME = re.compile(r"checkpoint-(\d+)")
# A save needs room for a whole new checkpoint before an old one may go, and a little for logs beside it.
SPARE_BYTES = 1024 * 1024


class CheckpointStore:
    """Knows what lies in checkpoints/ and which of it is best."""

    def __init__(self, config: RunConfig, folder: RunFolder, events: EventWriter) -> None:
        self.config = config
        self.folder = folder
        self._events = events
        self._saved: dict[int, float | None] = {}
        self._size_bytes = 0
        self._told_of_metric = False

    @property
    def best_step(self) -> int | None:
        ranked = rank_by_metric(self._saved, self.config.greater_is_better)
        return ranked[0] if ranked else None

    @property
    def last_step(self) -> int | None:
        return max(self._saved, default=None)

    def saving_root(self, step: int) -> Path:
        """Where checkpoint-{step} is written before it is complete."""
        return self.folder.checkpoints / f".saving-{step}"

    def adopt_existing(self) -> None:
        """Know this job's complete checkpoints of an earlier attempt; put half and foreign ones into scratch/."""
        for path in sorted(self.folder.checkpoints.iterdir()):
            if path.name.startswith((".saving-", ".removing-")):
                shutil.rmtree(path)
            elif match := CHECKPOINT_NAME.fullmatch(path.name):
                self._adopt(path, int(match.group(1)))

    def require_room(self, needed_bytes: int = 0) -> None:
        """Raises Fault(disk_full) when there is no room for a checkpoint as large as the last (or as needed_bytes)."""
        needed = max(self._size_bytes, needed_bytes) + SPARE_BYTES
        free = shutil.disk_usage(self.folder.checkpoints).free
        if free < needed:
            raise Fault(
                CauseCode.DISK_FULL,
                f"A checkpoint needs about {needed:,} bytes and the disk of the run folder has {free:,} free.",
                hint="Free space there, or keep fewer checkpoints; the last complete one is intact.",
                details={"needed_bytes": needed, "free_bytes": free},
            )

    def complete(self, manifest: Manifest, expected: Iterable[frozenset[str]]) -> None:
        """Verify what was saved for manifest.step, give it its manifest and its name, announce it, let others go.

        manifest comes without files. Raises Fault when the weights are not whole and finite.
        """
        step = manifest.step
        saving = self.saving_root(step) / f"checkpoint-{step}"
        check_weights(saving, expected, has_adapter=manifest.adapter is not None)
        name_the_base(saving, self.config.model, METHODS[self.config.method].auto_class, self.config.seed)
        manifest = manifest.model_copy(update={"files": describe_files(saving)})
        sha256 = write_manifest(saving, manifest)
        self._put_in_place(saving, step)
        self._saved[step] = self._metric_of(manifest)
        self._size_bytes = manifest.size_bytes
        self._tell_of_metric(manifest)
        self._events.emit(
            CheckpointSaved,
            step=step,
            name=f"checkpoint-{step}",
            size_bytes=manifest.size_bytes,
            n_files=len(manifest.files),
            manifest_sha256=sha256,
            metrics=manifest.metrics,
            is_best=self.best_step == step,
        )
        self._let_go()

    def clear_half_saved(self) -> None:
        """After a failed save: give its bytes back to the disk."""
        for path in self.folder.checkpoints.glob(".saving-*"):
            shutil.rmtree(path, ignore_errors=True)

    def _adopt(self, path: Path, step: int) -> None:
        try:
            manifest = read_manifest(path)
            complete = manifest.job_id == self.config.job_id and manifest.step == step
        except Fault:
            complete = False
        if not complete:
            self._set_aside(path)
            return
        self._saved[step] = self._metric_of(manifest)
        self._size_bytes = max(self._size_bytes, manifest.size_bytes)

    def _put_in_place(self, saving: Path, step: int) -> None:
        final = self.folder.checkpoint(step)
        if final.exists():
            self._set_aside(final)
        saving.rename(final)
        self.saving_root(step).rmdir()
        sync_folder(self.folder.checkpoints)

    def _set_aside(self, path: Path) -> None:
        target = self.folder.scratch / f"set-aside-{time.time_ns()}-{path.name}"
        path.rename(target)
        self._events.note(f"{path.name} was half written or of another run; it was moved aside.", level="warning")

    def _let_go(self) -> None:
        retention, greater = self.config.retention, self.config.greater_is_better
        pinned = {step for step in self._saved if (self.folder.checkpoints / f".keep-{step}").exists()}
        for step in steps_to_remove(self._saved, retention, greater, pinned):
            going = self.folder.checkpoints / f".removing-{step}"
            # Renamed first: a reader never meets a checkpoint that is losing its files.
            self.folder.checkpoint(step).rename(going)
            del self._saved[step]
            self._events.emit(CheckpointRemoved, step=step)
            shutil.rmtree(going)

    def _tell_of_metric(self, manifest: Manifest) -> None:
        """Say once that the asked metric is not there, and what decides in its place."""
        name = self.config.metric_for_best
        if self._told_of_metric or name in manifest.metrics or f"eval_{name}" in manifest.metrics:
            return
        self._told_of_metric = True
        stand_in = next((key for key in ("eval_loss", "loss") if key in manifest.metrics), None)
        there = ", ".join(sorted(manifest.metrics)) or "nothing"
        self._events.note(
            f"The best checkpoint is chosen by {stand_in or 'nothing'}: {name} is not computed; there is {there}.",
            level="warning",
        )

    def _metric_of(self, manifest: Manifest) -> float | None:
        value = best_value(manifest.metrics, self.config.metric_for_best)
        return value if value is not None and math.isfinite(value) else None


def best_value(metrics: Mapping[str, float | str], name: str) -> float | None:
    """The figure that decides which checkpoint is best: the asked one, else eval_loss, else loss."""
    for key in (name, f"eval_{name}", "eval_loss", "loss"):
        if key in metrics:
            return float(metrics[key])
    return None


def newest_complete(checkpoints: Path) -> Path | None:
    """The complete checkpoint with the highest step in a folder, or None."""
    complete = [
        (int(match.group(1)), path)
        for path in checkpoints.glob("checkpoint-*")
        if (match := CHECKPOINT_NAME.fullmatch(path.name)) and (path / MANIFEST_NAME).is_file()
    ]
    return max(complete)[1] if complete else None
