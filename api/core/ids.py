"""Fresh identifiers: a prefix that says what it is, then 22 characters of randomness that sort by time.

The first 9 characters are milliseconds since 1970 in base 32, so that newer ids sort later; 13 random ones follow.
"""

from __future__ import annotations

import re
import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u
_SHAPE = re.compile(r"^[a-z]+_[0-9a-hjkmnp-tv-z]{22}$")


def new_id(prefix: str) -> str:
    """`job_01jdx...`: unique, unguessable (65 random bits), and sorted by creation time."""
    stamp = time.time_ns() // 1_000_000
    head = ""
    for _ in range(9):
        stamp, digit = divmod(stamp, 32)
        head = _ALPHABET[digit] + head
    return f"{prefix}_{head}" + "".join(secrets.choice(_ALPHABET) for _ in range(13))


def is_id(text: str) -> bool:
    """Whether `text` has the shape of an id of ours; anything else cannot be in the database."""
    return _SHAPE.fullmatch(text) is not None
