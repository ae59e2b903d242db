"""The out-of-memory ladder: what each rung gives up, and what none may change."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_core.contract import ParallelSpec
from trainer_core.memory.ladder import Rung, next_rung
from trainer_core.steps import plan_steps
from trainer_core.zero.config import check

Device = Literal["cpu", "cuda"]


def climb(training: dict[str, Any], parallel: ParallelSpec, device: Device) -> list[Rung]:
    rungs: list[Rung] = []
    while (rung := next_rung(training, parallel, device)) is not None:
        rungs.append(rung)
        training, parallel = rung.training, rung.parallel
        assert len(rungs) < 40
    return rungs


def options(batch: int = 4, accumulation: int = 2, **more: Any) -> dict[str, Any]:
    return {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation, **more}


def test_the_whole_ladder_in_the_stated_order() -> None:
    rungs = climb(options(), ParallelSpec(strategy="ddp", n_processes=2), "cuda")
    assert [rung.name for rung in rungs] == [
        *("micro_batch", "micro_batch", "activation_checkpointing", "zero_2", "optimizer_offload", "zero_3"),
        "parameter_offload",
    ]
    assert [str(change) for change in rungs[0].changes] == [
        "training.per_device_train_batch_size 4 -> 2",
        "training.gradient_accumulation_steps 2 -> 4",
        "training.per_device_eval_batch_size 8 -> 2",
    ]
    assert [str(change) for change in rungs[3].changes] == [
        "parallel.strategy ddp -> deepspeed",
        "parallel.zero_stage None -> 2",
    ]
    last = rungs[-1].parallel
    assert (last.zero_stage, last.offload) == (3, "all")
    assert [rung.keeps_states for rung in rungs] == [True, True, True, False, True, False, True]


@pytest.mark.parametrize(
    ("n_processes", "device", "names"),
    [
        (1, "cuda", ["optimizer_offload", "parameter_offload"]),
        (1, "cpu", []),
        (2, "cpu", ["zero_2", "zero_3"]),
    ],
)
def test_rungs_that_would_save_nothing_are_left_out(n_processes: int, device: Device, names: list[str]) -> None:
    start = options(batch=1, gradient_checkpointing=True)
    assert [rung.name for rung in climb(start, ParallelSpec(n_processes=n_processes), device)] == names


def test_a_batch_that_has_no_half_gives_its_largest_part() -> None:
    rung = next_rung(options(batch=9, accumulation=1), ParallelSpec(), "cpu")
    assert rung is not None
    assert rung.training["per_device_train_batch_size"] == 3
    assert rung.training["gradient_accumulation_steps"] == 3


def test_rows_that_an_epoch_leaves_out_stay_the_same() -> None:
    rung = next_rung(options(dataloader_drop_last=True), ParallelSpec(), "cpu")
    assert rung is not None
    assert rung.name == "activation_checkpointing"


def test_numbers_repeated_in_the_block_do_not_stand_in_the_way() -> None:
    block = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1, "contiguous_gradients": True}}
    parallel = ParallelSpec(strategy="deepspeed", zero_stage=1, n_processes=2, deepspeed=block)
    for rung in climb(options(), parallel, "cuda"):
        plan = check(rung.parallel, rung.training, "cuda")
        assert plan.config["train_micro_batch_size_per_gpu"] == rung.training["per_device_train_batch_size"]
        assert plan.config["zero_optimization"]["stage"] == rung.parallel.zero_stage
        assert plan.config["zero_optimization"]["contiguous_gradients"] is True


@given(
    batch=st.integers(1, 64),
    accumulation=st.integers(1, 16),
    n_processes=st.integers(1, 8),
    stage=st.sampled_from([None, 0, 1, 2, 3]),
    offload=st.sampled_from(["none", "optimizer"]),
    device=st.sampled_from(["cpu", "cuda"]),
    n_rows=st.integers(1, 5_000),
    epochs=st.sampled_from([0.5, 1, 3]),
)
def test_global_batch_and_steps_never_change_and_every_rung_is_a_configuration_that_runs(
    batch: int,
    accumulation: int,
    n_processes: int,
    stage: int | None,
    offload: Literal["none", "optimizer"],
    device: Device,
    n_rows: int,
    epochs: float,
) -> None:
    spread: dict[str, Any] = {"strategy": "ddp"}
    if stage is not None:
        spread = {"strategy": "deepspeed", "zero_stage": stage, "offload": offload if stage else "none"}
    parallel = ParallelSpec.model_validate({"n_processes": n_processes, **spread})
    before = _steps(options(batch, accumulation), n_processes, n_rows, epochs)
    seen = []
    for rung in climb(options(batch, accumulation), parallel, device):
        assert _steps(rung.training, n_processes, n_rows, epochs) == before
        assert rung.changes
        assert rung.parallel.n_processes == n_processes
        check(rung.parallel, rung.training, device)
        seen.append((rung.training, rung.parallel.model_dump()))
    assert all(one not in seen[:number] for number, one in enumerate(seen))


def _steps(training: dict[str, Any], n_processes: int, n_rows: int, epochs: float) -> tuple[int, int]:
    plan = plan_steps(
        n_rows=n_rows,
        n_processes=n_processes,
        per_device_batch=training["per_device_train_batch_size"],
        accumulation=training["gradient_accumulation_steps"],
        epochs=epochs,
        max_steps=None,
        drop_last=False,
        warmup=0,
    )
    return plan.global_batch, plan.total_steps
