"""How pages are rendered: Jinja with autoescape always on, and the few filters that turn figures into words."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Undefined, select_autoescape
from starlette.responses import HTMLResponse

from api.core.auth import Actor

UNITS = ("B", "kB", "MB", "GB", "TB")


def figure(value: Any) -> str:
    """Four significant digits; nothing for what is not there."""
    if value is None or isinstance(value, Undefined):
        return ""
    return f"{value:.4g}" if isinstance(value, float) and math.isfinite(value) else str(value)


def size(n_bytes: int) -> str:
    amount = float(n_bytes)
    for unit in UNITS[:-1]:
        if amount < 1000:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} {UNITS[-1]}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def ago(at: datetime) -> str:
    return f"{duration(max((datetime.now(UTC) - at).total_seconds(), 0))} ago"


def pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def bars(counts: Sequence[int], width: int = 240, height: int = 60) -> list[tuple[float, float, float, float]]:
    """A histogram's bars as (x, y, width, height) in a box of that size."""
    step, highest = width / max(len(counts), 1), max(counts, default=0) or 1
    heights = [height * count / highest for count in counts]
    return [(index * step, height - tall, max(step - 1, 1), tall) for index, tall in enumerate(heights)]


_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=select_autoescape(default=True, default_for_string=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters.update(
    bars=bars, figure=figure, size=size, duration=duration, ago=ago, pretty=pretty, stamp=lambda at: at.isoformat()
)


def page(
    template: str, request: Request, actor: Actor | None = None, *, status: int = 200, **values: Any
) -> HTMLResponse:
    text = _environment.get_template(template).render(request=request, actor=actor, **values)
    return HTMLResponse(text, status_code=status)
