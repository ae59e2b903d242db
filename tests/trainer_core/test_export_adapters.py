"""Exports of every kind of adapter: merged where there are weights to merge into, proved by logits; else refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from tests.trainer_core.runs import Outcome, Workshop
from tests.trainer_core.test_export import export, logits, refused, report_of, succeeded

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning"),
]
LORA = {"type": "lora", "r": 4, "target_modules": ["q_proj", "v_proj"]}
MERGED: dict[str, dict[str, Any]] = {
    "dora": {"adapter": {**LORA, "use_dora": True}},
    "ia3": {"adapter": {"type": "ia3"}, "training": {"learning_rate": 0.05}},
    "pissa": {"adapter": {**LORA, "init_lora_weights": "pissa_niter_4"}},
    "nf4": {"quantization": {"bits": "nf4"}},
    "int8": {"quantization": {"bits": "int8"}},
}
PROMPTS: dict[str, dict[str, Any]] = {
    "prompt": {"adapter": {"type": "prompt_tuning", "prompt_tuning_init": "TEXT", "prompt_tuning_init_text": "sum"}},
    "p": {"adapter": {"type": "p_tuning", "num_virtual_tokens": 4}},
}


def run(workshop: Workshop, name: str, parts: dict[str, Any]) -> Outcome:
    """Six steps by one process; the adapter block in place of the usual one."""
    folder = workshop.folder(f"one-{name}", **{**parts, "parallel": {"n_processes": 1}})
    config = json.loads(folder.config.read_text())
    config["adapter"] = parts.get("adapter", config["adapter"])
    folder.config.write_text(json.dumps(config))
    outcome = workshop.start(folder)
    assert outcome.codes == [0], outcome.records[-1]
    return outcome


@pytest.mark.parametrize("name", list(MERGED))
def test_a_merge_answers_as_the_adapter_on_its_base(workshop: Workshop, tmp_path: Path, name: str) -> None:
    outcome = run(workshop, name, MERGED[name])
    output = succeeded(folder := export(tmp_path, outcome, "merged"))
    config = json.loads((output / "config.json").read_text())
    assert "quantization_config" not in config
    base = AutoModelForCausalLM.from_pretrained(workshop.model, dtype=torch.float32)
    untrained = logits(base)
    torch.manual_seed(42)
    adapted = logits(PeftModel.from_pretrained(base, outcome.folder.checkpoint(6)))
    merged = logits(AutoModelForCausalLM.from_pretrained(output, dtype=torch.float32))
    if "quantization" in MERGED[name]:
        proof = report_of(folder).proof["dequantised"]
        assert proof["difference"] <= proof["allowed"]
        assert (merged - untrained).abs().max() > 1e-3  # quantised numbers, and trained ones
    else:
        assert (merged - adapted).abs().max() < 1e-5
        assert (merged - untrained).abs().max() > 1e-5


@pytest.mark.parametrize("name", list(PROMPTS))
def test_learnt_prompts_are_not_merged_and_load_by_peft_alone(workshop: Workshop, tmp_path: Path, name: str) -> None:
    outcome = run(workshop, name, PROMPTS[name])
    refused(export(tmp_path, outcome, "merged"), "positions before the text", "use adapter")
    second = tmp_path / "second"
    second.mkdir()
    output = succeeded(export(second, outcome, "adapter"))
    for folder in (output, outcome.folder.checkpoint(6)):
        assert str(workshop.root) not in (folder / "adapter_config.json").read_text()
    base = AutoModelForCausalLM.from_pretrained(workshop.model, dtype=torch.float32)
    untrained = logits(base)
    answers = logits(PeftModel.from_pretrained(base, output))
    assert (answers[:, -untrained.shape[1] :] - untrained).abs().max() > 1e-4


def test_chosen_blocks_are_a_whole_model(workshop: Workshop, tmp_path: Path) -> None:
    outcome = run(workshop, "freeze", {"adapter": {"type": "freeze", "trainable_layers": 1, "from": "last"}})
    output = succeeded(export(tmp_path, outcome, "full"))
    after = AutoModelForCausalLM.from_pretrained(output, dtype=torch.float32).state_dict()
    before = AutoModelForCausalLM.from_pretrained(workshop.model, dtype=torch.float32).state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(".layers.1." in name for name in changed)
    assert outcome.one("plan")["trainable_share"] == pytest.approx(9280 / 35232, abs=0.05)
