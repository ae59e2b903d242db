"""Rules a reader would have to check by eye otherwise: one writer of state, safe loaders, no shell, no promises."""

from __future__ import annotations

import ast
import re

from tests.house.test_sizes import REPOSITORY, sources

FORBIDDEN = {
    r"weights_only\s*=\s*False": "unpickling runs code; load safetensors or weights_only=True",
    r"shell\s*=\s*True": "no shell strings",
    r"\bos\.system\(|\bos\.popen\(": "no shell strings",
    r"\b(TODO|FIXME|XXX)\b": "finish it, or leave it out",
    r"NotImplementedError": "no stubs",
    r"pickle\.loads?\(": "unpickling runs code",
}


def test_forbidden_words_stand_nowhere() -> None:
    found = [
        f"{file.relative_to(REPOSITORY)}: {match.group()} ({why})"
        for file in sources()
        for pattern, why in FORBIDDEN.items()
        for match in re.finditer(pattern, file.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def writes_state(node: ast.AST, text: str) -> bool:
    """`update(Job)....values(state=...)`, or an assignment to the `state` of something called job."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "values":
        names = {keyword.arg for keyword in node.keywords}
        return "state" in names and "update(Job)" in (ast.get_source_segment(text, node) or "")
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    return any(
        isinstance(target, ast.Attribute)
        and target.attr == "state"
        and isinstance(target.value, ast.Name)
        and "job" in target.value.id
        for target in targets
    )


def has_writer(text: str) -> bool:
    return any(writes_state(node, text) for node in ast.walk(ast.parse(text)))


def test_one_function_writes_a_jobs_state() -> None:
    writers = {str(file.relative_to(REPOSITORY)) for file in sources() if has_writer(file.read_text(encoding="utf-8"))}
    assert writers == {"api/core/moves.py"}, f"writers of jobs.state: {writers}"
