"""Fixtures shared by every test: where the public data files are, and a private home for each run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real public data files; they are read in place and never copied into the project."""
    folder = Path(os.environ.get("TRAINYARD_SHARED_DATA", REPOSITORY.parent / "shared" / "data")).resolve()
    if not folder.is_dir():
        message = f"the public data files are not at {folder}; set TRAINYARD_SHARED_DATA"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return folder
