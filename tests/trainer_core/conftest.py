"""Fixtures of the trainer's tests: one tiny model for the whole session. Tests read it and never write into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import make_tiny


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("tiny") / "model")
