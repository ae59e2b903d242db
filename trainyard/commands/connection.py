"""Which service the command talks to: the options given before the subcommand, else what `location` finds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainyard.client import Client


@dataclass
class Chosen:
    url: str | None = None
    api_key: str | None = None
    data_dir: Path | None = None


chosen = Chosen()


def connect() -> Client:
    return Client(chosen.url, chosen.api_key, data_dir=chosen.data_dir)
