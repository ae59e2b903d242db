"""Where the service is and which key opens it: arguments, then environment, then the data folder of this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trainyard.errors import NotConfigured

DEFAULT_URL = "http://127.0.0.1:8000"
KEY_FILE = "api-key"
URL_FILE = "api-url"


@dataclass(frozen=True)
class Location:
    url: str
    api_key: str


def data_dir() -> Path:
    return Path(os.environ.get("TRAINYARD_DATA_DIR") or Path.home() / ".trainyard").expanduser()


def find(url: str | None = None, api_key: str | None = None, folder: Path | None = None) -> Location:
    """The service's address and key. Raises NotConfigured when no key is found anywhere."""
    folder = folder or data_dir()
    address = url or os.environ.get("TRAINYARD_URL") or _read(folder / URL_FILE) or DEFAULT_URL
    key = api_key or os.environ.get("TRAINYARD_API_KEY") or _read(folder / KEY_FILE)
    if not key:
        raise NotConfigured(
            "found no API key: set TRAINYARD_API_KEY, pass --api-key, or start the service on this machine "
            f"(looked for {folder / KEY_FILE})"
        )
    return Location(address.rstrip("/"), key)


def _read(file: Path) -> str | None:
    try:
        return file.read_text().strip() or None
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
