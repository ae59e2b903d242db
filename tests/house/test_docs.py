"""The documents stay true: every setting is described as the code has it."""

from __future__ import annotations

import re

from api.core.settings import Settings
from tests.house.test_sizes import REPOSITORY


def settings_table() -> str:
    """One row a setting: environment variable, default, meaning."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default_factory else field.default
        shown = default.get_secret_value() if hasattr(default, "get_secret_value") else default
        value = "" if shown in ("", None) else f"`{shown}`"
        rows.append(f"| `TRAINYARD_{name.upper()}` | {value} | {field.description or ''} |")
    return "\n".join(rows)


def test_every_setting_is_documented_as_it_is() -> None:
    text = (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8")
    assert settings_table() in text, "docs/settings.md differs; put this table there:\n" + settings_table()


def test_links_between_documents_lead_somewhere() -> None:
    documents = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")]
    broken = [
        f"{document.name}: {target}"
        for document in documents
        for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#]+)", document.read_text(encoding="utf-8"))
        if not (document.parent / target).exists()
    ]
    assert not broken, broken
