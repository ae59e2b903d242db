"""What an export is asked for and what it answers: two files in its run folder. Pure: pydantic only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from trainer_core.contract import Cause, Frozen, Manifest, RunConfig

ORDER_NAME = "export.json"
REPORT_NAME = "export-report.json"
LEARNT_PROMPTS = ("prompt_tuning", "prefix_tuning", "p_tuning")

ExportKind = Literal["adapter", "merged", "fp32", "full"]
ExportDtype = Literal["auto", "float32", "bfloat16", "float16"]
ShardSize = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,5}(KB|MB|GB)$")]


class ExportOrder(Frozen):
    """`export.json`: written by the service, or by hand; `python -m trainer_core export RUN_DIR` carries it out."""

    version: Literal[1] = 1
    config: RunConfig = Field(description="Of the run that saved the checkpoint; its rows are not read.")
    checkpoint: Path = Field(description="Absolute folder with a complete manifest.")
    manifest_sha256: str = Field(description="Digest recorded for manifest.json; a foreign folder is refused.")
    kind: ExportKind
    dtype: ExportDtype = Field(default="auto", description="auto: the precision the weights have already.")
    max_shard_size: ShardSize = "5GB"


class ExportReport(Frozen):
    """`export-report.json`: written last. The files are in output/."""

    ok: bool
    cause: Cause | None = None
    proof: dict[str, Any] = Field(
        default_factory=dict, description="Largest differences of logits, each with what it may be."
    )


def unfit(kind: ExportKind, dtype: ExportDtype, manifest: Manifest) -> str | None:
    """Why a checkpoint cannot give this kind of export, and what to ask for; null when it can."""
    if kind in ("adapter", "merged") and manifest.adapter is None:
        return f"the checkpoint holds full weights and no adapter, so there is no {kind} of it; use kind full"
    if kind in ("merged", "fp32") and manifest.adapter in LEARNT_PROMPTS:
        return f"{manifest.adapter} learns positions before the text and no weights that could be {kind}; use adapter"
    if kind == "full" and manifest.adapter is not None:
        return f"the checkpoint holds a {manifest.adapter} adapter; use kind merged for whole weights, or adapter"
    if kind == "fp32" and not manifest.zero_stage:
        other = "adapter" if manifest.adapter else "full"
        return f"the checkpoint holds no ZeRO shards (stage 1 to 3) to put together; use kind {other}"
    if kind == "fp32" and dtype not in ("auto", "float32"):
        return f"fp32 is float32, and dtype says {dtype}; leave dtype out, or use another kind"
    return None
