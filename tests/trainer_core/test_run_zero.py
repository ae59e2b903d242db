"""Every ZeRO stage on two real processes, with LoRA and with full weights: the same training as on one process."""

from __future__ import annotations

import json

import pytest

from tests.trainer_core.runs import Workshop

pytestmark = pytest.mark.train

OPTIMIZERS = {0: "AdamW", 1: "DeepSpeedZeroOptimizer(AdamW)", 2: "DeepSpeedZeroOptimizer(AdamW)"}


@pytest.mark.parametrize("weights", ["lora", "full"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_every_stage_trains_like_one_process(workshop: Workshop, stage: int, weights: str) -> None:
    one, outcome = workshop.straight("one", weights), workshop.straight(f"zero{stage}", weights)
    assert outcome.codes == [0, 0]
    for figure in ("loss", "grad_norm", "learning_rate"):
        assert outcome.series(figure).keys() == {1, 2, 3, 4, 5, 6}
        assert outcome.series(figure) == pytest.approx(one.series(figure), rel=1e-4)
    assert outcome.eval_losses == pytest.approx(one.eval_losses, rel=1e-5)
    plan = outcome.one("plan")
    assert plan["wrapped_model"] == "DeepSpeedEngine"
    assert plan["zero_stage"] == stage
    assert plan["optimizer"] == OPTIMIZERS.get(stage, "DeepSpeedZeroOptimizer_Stage3(AdamW)")
    assert plan["total_parameters"] == one.one("plan")["total_parameters"]


@pytest.mark.parametrize("weights", ["lora", "full"])
@pytest.mark.parametrize("stage", [2, 3])
def test_a_checkpoint_holds_shards_and_usable_weights(workshop: Workshop, stage: int, weights: str) -> None:
    checkpoint = workshop.straight(f"zero{stage}", weights).folder.checkpoint(6)
    names = {path.relative_to(checkpoint).as_posix() for path in checkpoint.rglob("*") if path.is_file()}
    usable = (
        {"adapter_config.json", "adapter_model.safetensors"}
        if weights == "lora"
        else {"config.json", "model.safetensors"}
    )
    tokenizer = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    state = {"trainer_state.json", "training_args.bin", "latest", "zero_to_fp32.py", "manifest.json"}
    assert usable | tokenizer | state <= names
    shards = [name for name in names if name.startswith("global_step6/") and name.endswith("_optim_states.pt")]
    assert len(shards) == 2
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    assert (manifest["world_size"], manifest["strategy"], manifest["zero_stage"]) == (2, "deepspeed", stage)


def test_one_process_runs_deepspeed_without_a_launcher_of_its_own(workshop: Workshop) -> None:
    parallel = {"n_processes": 1, "strategy": "deepspeed", "zero_stage": 2}
    outcome = workshop.run("zero2-alone", parallel=parallel, training={"per_device_train_batch_size": 4})
    assert outcome.series("loss") == pytest.approx(workshop.straight("one", "lora").series("loss"), rel=1e-5)


def test_bf16_runs_in_bf16(workshop: Workshop) -> None:
    parallel = {"strategy": "deepspeed", "zero_stage": 3}
    outcome = workshop.run("zero3-bf16", parallel=parallel, training={"bf16": True}, adapter=None)
    assert outcome.one("plan")["precision"] == "bf16"
    assert outcome.series("loss") == pytest.approx(workshop.straight("one", "full").series("loss"), rel=5e-3)
