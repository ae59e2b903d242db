"""Runs of two ranks with each kind of adapter: a resumed run goes on exactly, and what is saved is what was trained."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.trainer_core.runs import Outcome, Workshop, resume_from

pytestmark = pytest.mark.train
LORA = {"type": "lora", "r": 4, "target_modules": ["q_proj"]}
ZERO_2, ZERO_3 = ({"strategy": "deepspeed", "zero_stage": stage} for stage in (2, 3))
KINDS: dict[str, dict[str, Any]] = {
    "lora+": {"adapter": {**LORA, "loraplus_lr_ratio": 16}},
    "lora+ zero 2": {"adapter": {**LORA, "loraplus_lr_ratio": 16}, "parallel": ZERO_2},
    "pissa": {"adapter": {**LORA, "init_lora_weights": "pissa_niter_4"}},
    "ia3 zero 3": {"adapter": {"type": "ia3"}, "parallel": ZERO_3},
    "p": {"adapter": {"type": "p_tuning", "num_virtual_tokens": 4}},
    "freeze zero 3": {"adapter": {"type": "freeze", "trainable_layers": 1, "train_head": True}, "parallel": ZERO_3},
    "nf4": {"adapter": LORA, "quantization": {"bits": "nf4"}},
    "fp4 zero 2": {"adapter": LORA, "quantization": {"bits": "fp4"}, "parallel": ZERO_2},
}


def start(workshop: Workshop, name: str, parts: dict[str, Any], **more: Any) -> Outcome:
    folder = workshop.folder(name, **parts, **more)
    config = json.loads(folder.config.read_text())
    config["adapter"] = parts["adapter"]  # in place of the usual block
    folder.config.write_text(json.dumps(config))
    return workshop.start(folder)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "lora+ zero 2"])
def test_a_resumed_run_goes_on_exactly(workshop: Workshop, kind: str) -> None:
    name = kind.replace(" ", "-")
    straight = start(workshop, f"adapters-{name}", KINDS[kind])
    assert straight.codes == [0, 0], straight.records[-1]
    again = start(workshop, f"adapters-{name}-on", KINDS[kind], resume=resume_from(straight.folder.checkpoint(3)))
    assert again.codes == [0, 0], again.records[-1]
    expected = {step: loss for step, loss in straight.series("loss").items() if step > 3}
    assert again.series("loss") == pytest.approx(expected, abs=1e-6)
    weights = [next(one.folder.checkpoint(6).glob("*model*.safetensors")) for one in (straight, again)]
    left, right = (load_file(path) for path in weights)
    assert left.keys() == right.keys()
    assert all(torch.allclose(left[key], right[key], atol=1e-6) for key in left)
    if "freeze" not in kind:
        assert {tensor.dtype for tensor in left.values()} == {torch.float32}


def test_lora_plus_learns_the_same_under_zero_2(workshop: Workshop) -> None:
    one, two = (start(workshop, f"plus-{n}", KINDS[kind]) for n, kind in enumerate(("lora+", "lora+ zero 2")))
    assert two.series("loss") == pytest.approx(one.series("loss"), abs=1e-5)


def test_modules_to_save_are_saved_and_trained(workshop: Workshop) -> None:
    outcome = start(workshop, "saved-whole", {"adapter": {**LORA, "modules_to_save": ["lm_head"]}})
    saved = load_file(outcome.folder.checkpoint(6) / "adapter_model.safetensors")
    base = load_file(workshop.model / "model.safetensors")
    head = next(tensor for name, tensor in saved.items() if "lm_head" in name)
    assert not torch.equal(head, base["lm_head.weight"])


def test_a_quantised_base_without_an_adapter_is_refused(workshop: Workshop) -> None:
    outcome = start(workshop, "refused", {"adapter": None, "quantization": {"bits": "nf4"}})
    cause = outcome.one("error")["cause"]
    assert (cause["code"], cause["param"]) == ("config_invalid", "quantization")
    assert "no gradient" in cause["message"]
