"""Fixtures of the trainer's tests: one tiny model for the whole session. Tests read it and never write into it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiny import make_tiny
from tests.trainer_core.runs import Workshop


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """Run folders and warm ranks to train in them; runs that several tests look at are made once."""
    workshop = Workshop(tmp_path_factory.mktemp("runs"))
    yield workshop
    workshop.close()
