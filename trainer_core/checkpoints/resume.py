"""Starting from a checkpoint: proves that it is ours, whole and fitting before anything of it is loaded."""

from __future__ import annotations

from trainer_core.checkpoints.manifests import curve_digest, read_manifest, verify
from trainer_core.checkpoints.pickles import refuse_foreign_pickles
from trainer_core.contract import CauseCode, Manifest, RunConfig, peft_part
from trainer_core.run.faults import Fault

# Schedules whose rate at a step does not depend on how many steps there are in all.
OPEN_ENDED_SCHEDULES = frozenset({"constant", "constant_with_warmup", "inverse_sqrt", "reduce_lr_on_plateau"})


def open_checkpoint(config: RunConfig, strategy: str, zero_stage: int | None, global_batch: int) -> Manifest | None:
    """The verified manifest of the checkpoint to start from, or None for a fresh start.

    Raises Fault: checkpoint_invalid for a folder that is not what was saved or holds code, world_size_mismatch where
    the optimizer's shards do not fit, config_invalid where the run is another one.
    """
    point = config.resume
    if point is None:
        return None
    manifest = read_manifest(point.checkpoint, point.manifest_sha256)
    verify(point.checkpoint, manifest)
    part = peft_part(config.adapter)
    adapter = part.type if part else None
    if manifest.adapter != adapter:
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"The checkpoint holds {manifest.adapter or 'full'} weights and the job trains {adapter or 'full'} ones.",
            hint="Resume with the adapter settings of the run that saved it.",
            param="adapter",
        )
    if point.mode == "full":
        _require_same_ranks(config, manifest, strategy, zero_stage)
        if manifest.config_sha256 != curve_digest(config, global_batch):
            raise Fault(
                CauseCode.CONFIG_INVALID,
                "The checkpoint was saved with other data, model, adapter, batch, seed or training options.",
                hint="Resume with mode: weights, which starts a fresh schedule from the checkpoint's weights.",
                param="training",
            )
        refuse_foreign_pickles(point.checkpoint)
    return manifest


def check_total(config: RunConfig, manifest: Manifest, total_steps: int, schedule: str) -> None:
    """Raises Fault(config_invalid) when nothing is left to do, or the longer plan would bend the rate."""
    if manifest.step >= total_steps:
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"The checkpoint is at step {manifest.step} and the plan ends at {total_steps}: nothing is left to do.",
            hint="Ask for more steps, or start from its weights with mode: weights.",
            param="training.max_steps",
        )
    if manifest.total_steps != total_steps and schedule not in OPEN_ENDED_SCHEDULES:
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"The checkpoint's plan had {manifest.total_steps} steps and this one has {total_steps}; the {schedule} "
            "schedule depends on the total, so the learning rate would jump.",
            hint="Keep the total, use lr_scheduler_type constant or constant_with_warmup, or start with mode: weights.",
            param="training.lr_scheduler_type",
        )


def _require_same_ranks(config: RunConfig, manifest: Manifest, strategy: str, zero_stage: int | None) -> None:
    here = (config.parallel.n_processes, strategy, zero_stage)
    saved = (manifest.world_size, manifest.strategy, manifest.zero_stage)
    if here != saved:
        raise Fault(
            CauseCode.WORLD_SIZE_MISMATCH,
            f"The checkpoint was saved by {_described(*saved)}; this run has {_described(*here)}. Optimizer states are "
            "cut to the ranks and cannot be loaded.",
            hint="Resume on the same number of processes with the same strategy, or with mode: weights.",
            param="parallel",
            details={"saved_world_size": manifest.world_size, "world_size": config.parallel.n_processes},
        )


def _described(world_size: int, strategy: str, zero_stage: int | None) -> str:
    stage = "" if zero_stage is None else f" stage {zero_stage}"
    return f"{world_size} process(es) with {strategy}{stage}"
