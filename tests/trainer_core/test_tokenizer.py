"""Loading a tokenizer: what is missing is said, and a pad token is settled without new tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import make_tiny
from trainer_core.contract import CauseCode, ModelSource
from trainer_core.model.tokenizer import LoadedTokenizer, load_tokenizer
from trainer_core.run.faults import Fault


def _load(folder: Path) -> LoadedTokenizer:
    return load_tokenizer(ModelSource(name="tiny", source=str(folder)))


def test_the_tokenizers_own_pad_token_is_kept(tiny_model: Path) -> None:
    loaded = _load(tiny_model)
    assert loaded.tokenizer.pad_token == "<pad>"
    assert loaded.pad_id == loaded.tokenizer.pad_token_id != loaded.eos_id
    assert "<pad>" in loaded.pad_rule
    assert loaded.pad_rule in loaded.notes


@pytest.mark.parametrize("spare", ["<|reserved_special_token_3|>", "<unused0>", "<|finetune_right_pad_id|>", "[PAD]"])
def test_a_spare_token_pads_where_none_was_set(tmp_path: Path, spare: str) -> None:
    loaded = _load(make_tiny(tmp_path, pad=False, extra_tokens=["<|other|>", spare]))
    assert loaded.tokenizer.pad_token == spare
    assert spare in loaded.pad_rule


def test_a_token_made_for_padding_goes_before_a_reserved_one(tmp_path: Path) -> None:
    loaded = _load(make_tiny(tmp_path, pad=False, extra_tokens=["<|reserved_0|>", "<|pad|>"]))
    assert loaded.tokenizer.pad_token == "<|pad|>"


def test_eos_pads_where_the_vocabulary_has_no_spare_token(tmp_path: Path) -> None:
    loaded = _load(make_tiny(tmp_path, pad=False))
    assert loaded.pad_id == loaded.eos_id
    assert "keeps its label" in loaded.pad_rule
    assert len(loaded.tokenizer) == len(_load(tmp_path).tokenizer)


def test_the_settled_pad_token_is_saved_with_the_tokenizer(tmp_path: Path) -> None:
    _load(make_tiny(tmp_path / "base", pad=False)).tokenizer.save_pretrained(tmp_path / "saved")
    assert _load(tmp_path / "saved").tokenizer.pad_token == "</s>"


@pytest.mark.parametrize(
    ("breakage", "said"),
    [
        ("no folder", "does not exist"),
        ("empty folder", "could not be loaded"),
        ("no tokenizer", "could not be loaded"),
        ("cut tokenizer", "could not be loaded"),
        ("foreign tokenizer", "could not be loaded"),
        ("cut config", "could not be loaded"),
    ],
)
def test_a_model_without_a_tokenizer_is_unavailable(tmp_path: Path, breakage: str, said: str) -> None:
    folder = tmp_path / "model"
    if breakage == "empty folder":
        folder.mkdir()
    elif breakage != "no folder":
        make_tiny(folder)
        tokenizer = folder / "tokenizer.json"
        if breakage == "no tokenizer":
            tokenizer.unlink()
        elif breakage == "cut tokenizer":
            tokenizer.write_text(tokenizer.read_text()[:500])
        elif breakage == "foreign tokenizer":
            tokenizer.write_text('{"a": 1}')
        else:
            (folder / "config.json").write_text("{")
    with pytest.raises(Fault, match=said) as caught:
        _load(folder)
    cause = caught.value.cause
    assert (cause.code, cause.param) == (CauseCode.MODEL_UNAVAILABLE, "model")
    assert cause.hint


def test_special_tokens_come_longest_first(tmp_path: Path) -> None:
    tokens = _load(make_tiny(tmp_path, extra_tokens=["<|a|>", "<|a|><|b|>"])).special_tokens
    assert tokens.index("<|a|><|b|>") < tokens.index("<|a|>")
    assert "</s>" in tokens
