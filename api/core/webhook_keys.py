"""Secrets of webhooks. None is kept: each follows from the service's own key, the endpoint and its salt.

The service's key is a setting, or a file of the data folder that is made when it is first needed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from base64 import b64decode, b64encode
from pathlib import Path

from api.core.settings import Settings

PREFIX = "whsec_"
KEY_FILE = "webhook-key"


def secret_of(settings: Settings, endpoint_id: str, salt: str) -> str:
    """`whsec_` and 32 bytes in base64, as Standard Webhooks has it."""
    derived = hmac.digest(_service_key(settings), f"{endpoint_id}.{salt}".encode(), "sha256")
    return PREFIX + b64encode(derived).decode()


def fingerprint(secret: str) -> str:
    """What a row may hold of a secret: enough to see that another key would make another one."""
    return hashlib.sha256(secret.encode()).hexdigest()


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The webhook-signature header: v1, HMAC-SHA256 over id, timestamp and body."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + b64encode(hmac.digest(b64decode(secret.removeprefix(PREFIX)), signed, "sha256")).decode()


def _service_key(settings: Settings) -> bytes:
    own = settings.webhook_key.get_secret_value()
    return own.encode() if own else _from_file(settings.data_dir / KEY_FILE)


def _from_file(path: Path) -> bytes:
    """The key in the file; a fresh one, whole or not at all, where there is none. Of two at once the first stays."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_urlsafe(32).encode())
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was first, and its key is the one
    finally:
        draft.unlink()
    return path.read_bytes()
