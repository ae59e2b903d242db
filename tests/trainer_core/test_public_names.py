"""A saved adapter names its base model as people know it, never by a folder of the machine it was trained on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer_core.contract import ModelSource
from trainer_core.model.public_names import name_the_base, public_name


@pytest.mark.parametrize(("source", "expected"), [("/srv/models/base", "base-7b"), ("org/base-7b", "org/base-7b")])
def test_the_base_is_named_as_people_know_it(tmp_path: Path, source: str, expected: str) -> None:
    model = ModelSource(name="base-7b", source=source)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 8, "base_model_name_or_path": source}))
    (tmp_path / "README.md").write_text(f"base_model: {source}")
    name_the_base(tmp_path, model, "AutoModelForCausalLM")
    assert public_name(model) == expected
    assert json.loads((tmp_path / "adapter_config.json").read_text()) == {"r": 8, "base_model_name_or_path": expected}
    readme = (tmp_path / "README.md").read_text()
    assert expected in readme
    assert "/srv" not in readme


def test_full_weights_are_left_as_they_are(tmp_path: Path) -> None:
    name_the_base(tmp_path, ModelSource(name="base", source="/srv/base"), "AutoModelForCausalLM")
    assert list(tmp_path.iterdir()) == []
