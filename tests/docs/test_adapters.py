"""The smallest job of each adapter on its page works: sent over HTTP, looked at in preflight, trained, loadable."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from tests.docs.smallest import carry_out
from tests.trainer_core.runs import Workshop
from trainer_core.contract.adapters import peft_part
from trainer_core.contract.config import RunConfig

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning"),
]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "adapters.md").read_text(encoding="utf-8")
JOBS = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
ROWS = re.findall(r"```jsonl\n(.*?)```", PAGE, re.DOTALL)[0]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    workshop = Workshop(tmp_path_factory.mktemp("runs"))
    yield workshop
    workshop.close()


def test_every_type_has_its_smallest_job() -> None:
    kinds = [job["adapter"]["type"] for job in JOBS]
    assert set(kinds) == {"lora", "ia3", "prompt_tuning", "prefix_tuning", "p_tuning", "freeze"}
    assert sum("quantization" in job for job in JOBS) == 1


@pytest.mark.parametrize(
    "number", range(len(JOBS)), ids=[f"{n}-{job['adapter']['type']}" for n, job in enumerate(JOBS)]
)
def test_the_smallest_job_works(
    number: int, workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = JOBS[number]
    outcome = carry_out(workshop, tmp_path, monkeypatch, workshop.model, ("chat.jsonl", ROWS), job)
    plan, config = outcome.one("plan"), RunConfig.model_validate_json(outcome.folder.config.read_bytes())
    assert plan["trainable_share"] == plan["trainable_parameters"] / plan["total_parameters"] < 1
    card = (outcome.folder.output / "README.md").read_text(encoding="utf-8")
    assert f"{plan['trainable_parameters']:,} trained of {plan['total_parameters']:,}" in card
    checkpoint = outcome.folder.checkpoint(2)
    base = AutoModelForCausalLM.from_pretrained(workshop.model, dtype=torch.float32)
    if peft_part(config.adapter) is None:
        assert not (checkpoint / "adapter_config.json").exists()
        AutoModelForCausalLM.from_pretrained(checkpoint)
        return
    adapter_config = (checkpoint / "adapter_config.json").read_text(encoding="utf-8")
    assert str(workshop.root) not in adapter_config
    ids = torch.arange(12).reshape(2, 6)
    loaded = PeftModel.from_pretrained(base, checkpoint)
    assert torch.isfinite(loaded(input_ids=ids, attention_mask=torch.ones_like(ids)).logits).all()
