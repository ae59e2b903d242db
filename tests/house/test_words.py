"""Rules a reader would have to check by eye otherwise: one writer of state, safe loaders, no shell, no promises."""

from __future__ import annotations

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


def test_one_function_writes_a_jobs_state() -> None:
    """`jobs.state` is set where a row is made (jobs.create) and in `move`; nowhere else."""
    writes = re.compile(r"\bjob\.state\s*=[^=]|update\(Job\)[^)]*\)?[\s\S]{0,400}?\bstate\s*=")
    writers = {
        str(file.relative_to(REPOSITORY))
        for file in sources()
        if file.is_relative_to(REPOSITORY / "api") or file.is_relative_to(REPOSITORY / "worker")
        if writes.search(file.read_text(encoding="utf-8"))
    }
    assert writers <= {"api/core/moves.py"}, f"other writers of jobs.state: {writers}"
