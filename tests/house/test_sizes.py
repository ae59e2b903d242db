"""Files and functions stay small enough to live in; the few exceptions are named with their reason."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ROOMS = ("api", "worker", "trainer_core", "trainyard", "migrations", "examples")
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50

LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}


def sources() -> list[Path]:
    return sorted(file for room in ROOMS for file in (REPOSITORY / room).rglob("*.py"))


@pytest.mark.parametrize("file", sources(), ids=lambda file: str(file.relative_to(REPOSITORY)))
def test_file_and_functions_fit_their_budget(file: Path) -> None:
    name = str(file.relative_to(REPOSITORY))
    text = file.read_text(encoding="utf-8")
    n_lines = text.count("\n")
    assert n_lines <= MAX_FILE_LINES or name in LONG_FILES, f"{name} has {n_lines} lines; give it a second room"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            is_story = f"{name}:{node.name}" in LONG_FUNCTIONS
            assert length <= MAX_FUNCTION_LINES or is_story, f"{name}:{node.name} has {length} lines"


def test_every_named_exception_is_still_needed() -> None:
    for name in LONG_FILES:
        assert (REPOSITORY / name).read_text(encoding="utf-8").count("\n") > MAX_FILE_LINES, f"{name} is short again"
    for key in LONG_FUNCTIONS:
        name, _, function = key.partition(":")
        tree = ast.parse((REPOSITORY / name).read_text(encoding="utf-8"))
        assert any(isinstance(node, ast.FunctionDef) and node.name == function for node in ast.walk(tree)), key
