"""What the tests of uploads and formats share: a file put through the reader, and short ways to write conversations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from trainer_core.data.formats import ChatExample, RowFault, to_example
from trainer_core.data.rows import DatasetReport, Limits, UploadRefused, normalise, read_rows

GOOD = '{"prompt":"p","completion":"c"}'
DOCS = Path(__file__).resolve().parents[3] / "docs" / "datasets.md"
CALL = {"type": "function", "function": {"name": "f", "arguments": "{}"}}


def turn(role: str, content: object = "x", **more: object) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def chat(*messages: dict[str, Any], **more: object) -> ChatExample:
    example = to_example("messages", {}, {"messages": list(messages), **more})
    assert isinstance(example, ChatExample)
    assert any(example.learnt)
    assert all(isinstance(message["content"], str) for message in example.messages)
    return example


def fault(*messages: object, **more: object) -> tuple[str, str | None]:
    with pytest.raises(RowFault) as caught:
        to_example("messages", {}, {"messages": list(messages), **more})
    assert caught.value.code in documented_codes(), "every code is in the documentation"
    return caught.value.code, caught.value.field


def documented_codes() -> set[str]:
    return set(re.findall(r"`([a-z0-9_]+)`", DOCS.read_text()))


def put(folder: Path, content: bytes, name: str = "upload") -> tuple[DatasetReport, list[dict[str, Any]]]:
    (folder / name).write_bytes(content)
    report = normalise(folder / name, folder / "stored.jsonl")
    return report, [row.value for row in read_rows(folder / "stored.jsonl")]


def refused(folder: Path, content: bytes, limits: Limits = Limits()) -> UploadRefused:
    (folder / "upload").write_bytes(content)
    with pytest.raises(UploadRefused) as caught:
        normalise(folder / "upload", folder / "stored.jsonl", limits)
    assert sorted(path.name for path in folder.iterdir()) == ["upload"], "a refusal leaves nothing behind"
    caught.value.message.encode("utf-8")
    return caught.value
