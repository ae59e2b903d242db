"""Job files and `--set`: read as YAML, put where the path says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from trainyard import location
from trainyard.commands.job_files import assign, read_job_file
from trainyard.errors import NotConfigured


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("training.learning_rate=0.1", {"training": {"learning_rate": 0.1}}),
        ("adapter=null", {"adapter": None}),
        ("parallel.deepspeed.a.stage=2", {"parallel": {"deepspeed": {"a": {"stage": 2}}}}),
        ("labels.team=a=b", {"labels": {"team": "a=b"}}),
    ],
)  # fmt: skip
def test_assignments_reach_their_field(assignment: str, expected: dict[str, Any]) -> None:
    body: dict[str, Any] = {}
    assign(body, assignment)
    assert body == expected


@pytest.mark.parametrize("assignment", ["training.learning_rate", "=1", "name.deeper=1"])
def test_a_bad_assignment_says_so(assignment: str) -> None:
    with pytest.raises(typer.BadParameter):
        assign({"name": "x"}, assignment)


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [1", "just words"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(typer.BadParameter):
        read_job_file(file)


def test_the_key_of_this_machine_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRAINYARD_URL", "TRAINYARD_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(NotConfigured, match="TRAINYARD_API_KEY"):
        location.find(folder=tmp_path)
    (tmp_path / "api-key").write_text("ty-secret\n")
    (tmp_path / "api-url").write_text("http://127.0.0.1:9999\n")
    assert location.find(folder=tmp_path) == location.Location("http://127.0.0.1:9999", "ty-secret")
