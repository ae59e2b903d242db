"""A job's adapter and quantised base against its model, method and strategy, as far as the config tells."""

from __future__ import annotations

from api.core.estimates import read_config
from api.core.specs import JobSpec
from api.core.tables import BaseModel
from trainer_core.arguments.resolve import Resolved as Options
from trainer_core.model.rules import Setting, check, packs_rows
from trainer_core.problems import Problem
from trainer_core.zero.config import ZeroPlan


def problems_of(
    spec: JobSpec, model: BaseModel | None, spread: ZeroPlan | None, options: Options | None
) -> list[Problem]:
    """Every reason why they do not go together. A model's config that is not here is looked at by preflight."""
    if model is None or spread is None:
        return []
    setting = Setting(
        method=spec.method,
        training=options.values if options else {},
        model_config=read_config(model),
        zero_stage=spread.stage if spread.strategy == "deepspeed" else None,
        has_own_optimizer="optimizer" in (spec.parallel.deepspeed or {}),
        packs=packs_rows(spec),
    )
    return check(spec.adapter, spec.quantization, setting)
