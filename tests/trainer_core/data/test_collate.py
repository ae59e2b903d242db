"""Batches: padding by position, labels of real tokens untouched whatever their ids."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.tiny import make_tiny
from trainer_core.contract import DataSource, ModelSource
from trainer_core.data.collate import PadCollator
from trainer_core.data.encode import IGNORED, Encoded, Encoder
from trainer_core.data.examples import ChatExample
from trainer_core.model.tokenizer import load_tokenizer


def test_padding_is_on_the_right_and_never_learnt() -> None:
    batch = PadCollator(pad_id=9)([Encoded([1, 2, 3], [IGNORED, 2, 3]), Encoded([4], [IGNORED])])
    assert batch["input_ids"].tolist() == [[1, 2, 3], [4, 9, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [[IGNORED, 2, 3], [IGNORED, IGNORED, IGNORED]]
    assert all(tensor.dtype == torch.int64 for tensor in batch.values())


@pytest.mark.parametrize(("multiple", "width"), [(None, 3), (1, 3), (2, 4), (8, 8)])
def test_the_width_is_rounded_up_as_asked(multiple: int | None, width: int) -> None:
    batch = PadCollator(pad_id=0, pad_to_multiple_of=multiple)([Encoded([1, 2, 3], [1, 2, 3])])
    assert [tuple(tensor.shape) for tensor in batch.values()] == [(1, width)] * 3


def test_the_eos_of_every_reply_keeps_its_label_where_eos_is_the_pad_token(tmp_path: Path) -> None:
    loaded = load_tokenizer(ModelSource(name="tiny", source=str(make_tiny(tmp_path, pad=False))))
    assert loaded.pad_id == loaded.eos_id
    encoder = Encoder(loaded, DataSource(train=Path("/none"), format="messages"))
    drafts = []
    for n_turns in (1, 3):
        turns = [{"role": role, "content": "hi" * n_turns} for role in ("user", "assistant")] * n_turns
        drafts.append(encoder.draft(ChatExample(tuple(turns), None, (False, True) * n_turns)))
    batch = PadCollator(loaded.pad_id)([sequence for [sequence] in encoder.encode(drafts)])
    assert (batch["labels"] == loaded.eos_id).sum(1).tolist() == [1, 3]
    assert (batch["labels"][batch["attention_mask"] == 0] == IGNORED).all()
    assert (batch["input_ids"][batch["attention_mask"] == 0] == loaded.eos_id).all()


@pytest.mark.train
def test_a_model_trained_with_eos_as_pad_learns_to_stop(tmp_path: Path) -> None:
    source = ModelSource(name="tiny", source=str(make_tiny(tmp_path, pad=False)))
    loaded = load_tokenizer(source)
    encoder = Encoder(loaded, DataSource(train=Path("/none"), format="messages"))
    turns = ({"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"})
    longer = ({"role": "user", "content": "hi there"}, {"role": "assistant", "content": "hello you"})
    drafts = [encoder.draft(ChatExample(messages, None, (False, True))) for messages in (turns, longer)]
    batch = PadCollator(loaded.pad_id)([sequence for [sequence] in encoder.encode(drafts)])
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(200):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    prompt = loaded.tokenizer.apply_chat_template(
        [turns[0]], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.eval().generate(**prompt, max_new_tokens=64, do_sample=False, pad_token_id=loaded.pad_id)
    assert loaded.tokenizer.decode(output[0, prompt["input_ids"].shape[1] :]) == "hello</s>"
