"""Every method's page has a smallest job, and it works: sent over HTTP, looked at in preflight, and trained."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.smallest import carry_out
from tests.tiny import make_tiny
from tests.tiny_seq2seq import make_tiny_bert, make_tiny_t5
from tests.trainer_core.runs import Workshop
from trainer_core.methods_table import METHODS

pytestmark = pytest.mark.train

PAGES = Path(__file__).resolve().parents[2] / "docs" / "methods"
MAKERS: dict[str, Callable[[Path], Path]] = {
    "causal": make_tiny,
    "seq2seq": make_tiny_t5,
    "sequence_classification": make_tiny_bert,
    "token_classification": make_tiny_bert,
}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    workshop = Workshop(tmp_path_factory.mktemp("runs"))
    yield workshop
    workshop.close()


def page(method: str) -> tuple[str, str, dict[str, Any]]:
    """Name and text of the page's rows, and its job."""
    text = (PAGES / f"{method}.md").read_text(encoding="utf-8")
    rows = re.search(r"`(\w+\.jsonl)`.*?```jsonl\n(.*?)```", text, re.DOTALL)
    job = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert rows
    assert job
    return rows[1], rows[2], json.loads(job[1])


@pytest.mark.parametrize("method", ["sft", "pretrain", "seq2seq", "classification", "token_classification", "reward"])
def test_the_smallest_job_works(
    method: str, workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, rows, body = page(method)
    kind = METHODS[method].kind  # type: ignore[index]
    # Any model takes a head; the causal one has a chat template too.
    make = make_tiny if method == "reward" else MAKERS[kind]
    carry_out(workshop, tmp_path, monkeypatch, make(tmp_path / "model"), (name, rows), body)
