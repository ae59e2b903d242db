"""What webhooks say: types of events, and one event as the body of each format. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from api.core.states import TERMINAL, State

TEST = "webhook.test"
OPENAI = "fine_tuning.job"
TYPES = (*(f"job.{state}" for state in State), *(f"{OPENAI}.{state}" for state in sorted(TERMINAL)))


class Format(StrEnum):
    STANDARD = "standard"
    JSON = "json"
    SLACK = "slack"
    TEAMS = "teams"


# Chat rooms would read of every end twice if they had both kinds.
DEFAULT_EVENTS = {
    Format.STANDARD: ["*"],
    Format.JSON: ["job.*"],
    Format.SLACK: ["job.*"],
    Format.TEAMS: ["job.*"],
}
COLOURS = {State.SUCCEEDED: "Good", State.FAILED: "Attention", State.CANCELLED: "Warning"}


def types_of(state: State) -> list[str]:
    """The types of event that a job's new state is."""
    return [f"job.{state}", *([f"{OPENAI}.{state}"] if state in TERMINAL else [])]


def is_wanted(event_type: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(event_type, pattern) for pattern in patterns)


def body_of(form: Format, event_id: str, event_type: str, at: datetime, data: Mapping[str, Any]) -> bytes:
    """The bytes that are sent, and signed; the same in every try."""
    make = {Format.STANDARD: _standard, Format.JSON: _plain, Format.SLACK: _slack, Format.TEAMS: _teams}[form]
    return json.dumps(make(event_id, event_type, at, data), ensure_ascii=False, separators=(",", ":")).encode()


def _standard(event_id: str, event_type: str, at: datetime, data: Mapping[str, Any]) -> dict[str, Any]:
    """As OpenAI sends them: of a fine-tuning job its id alone, which is then asked for."""
    is_openai = event_type.startswith(f"{OPENAI}.")
    shown = {"id": f"ftjob-{data['id'].partition('_')[2]}"} if is_openai else dict(data)
    return {"id": event_id, "object": "event", "created_at": int(at.timestamp()), "type": event_type, "data": shown}


def _plain(event_id: str, event_type: str, at: datetime, data: Mapping[str, Any]) -> dict[str, Any]:
    stamp = at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return {"event": event_type, "event_id": event_id, "at": stamp, **data}


def _slack(_event_id: str, event_type: str, _at: datetime, data: Mapping[str, Any]) -> dict[str, Any]:
    text = "\n".join(_lines(event_type, data))
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)  # what a name holds must not become a link or a mention
    return {"text": text, "mrkdwn": False}


def _teams(_event_id: str, event_type: str, _at: datetime, data: Mapping[str, Any]) -> dict[str, Any]:
    """An adaptive card, as a Teams workflow takes it. RichTextBlock: names are text there, never markdown."""
    first, *rest = _lines(event_type, data)
    colour = COLOURS.get(State(data["state"]), "Default") if data.get("state") else "Default"
    title = {"type": "TextRun", "text": first, "weight": "Bolder", "color": colour}
    body = [{"type": "RichTextBlock", "inlines": [title]}]
    body += [{"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": line}]} for line in rest]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _lines(event_type: str, data: Mapping[str, Any]) -> list[str]:
    if event_type == TEST:
        return ["Trainyard: a test message", str(data.get("message", ""))]
    lines = [f"{data['name']}: {data['state']}", f"{data['id']} ({data['method']} of {data['model']})"]
    cause = data.get("cause")
    if cause:
        lines.append(" ".join(str(part) for part in (cause.get("message"), cause.get("hint")) if part))
    elif data.get("message"):
        lines.append(str(data["message"]))
    return lines
