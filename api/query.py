"""Query parameters that a route does not know are refused: a misspelt filter would answer everything, in silence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import Request
from fastapi.dependencies.models import Dependant

from api.core.errors import Invalid
from trainer_core.problems import cut, unknown_key

CHECKED = "/v1/"  # the pages and the OpenAI face take what browsers and clients add to an address


async def refuse_unknown_query(request: Request) -> None:
    """Raises Invalid for every query parameter that the request's route does not name, each with the nearest name."""
    if not request.query_params or not request.url.path.startswith(CHECKED):
        return
    known = _names(request.scope["route"].dependant)
    problems = [
        unknown_key(cut(name), name, known) for name in dict.fromkeys(request.query_params) if name not in known
    ]
    if not problems:
        return
    details: list[dict[str, Any]] = [
        {
            "param": problem.param,
            "message": f"unknown query parameter `{problem.param}`. {problem.hint or ''}".strip(),
            "code": "unknown_parameter",
            "hint": problem.hint,
        }
        for problem in problems
    ]
    first = details[0]
    raise Invalid(first["message"], code="unknown_parameter", param=first["param"], details=details)


def _names(dependant: Dependant) -> frozenset[str]:
    return frozenset(_every_name(dependant))


def _every_name(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _every_name(inner)
