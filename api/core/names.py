"""Names: what a name that people send may be, and which keys storage takes.

Pure text rules. Whatever a name says, content is stored under an id of ours and never under the name.
"""

from __future__ import annotations

import unicodedata

from api.core.errors import Invalid

MAX_NAME_BYTES = 255
MAX_KEY_BYTES = 1024


def is_safe_key(key: str) -> bool:
    """Whether `key` is '/'-joined names that cannot leave a folder: no empty part, no `.` or `..`, no backslash,
    no control character, nothing that is not valid UTF-8, and no leading dot in the first part (storage's own)."""
    if not key or key.startswith(".") or not _encodes(key) or len(key.encode()) > MAX_KEY_BYTES:
        return False
    return all(_is_safe_part(part) for part in key.split("/"))


def _is_safe_part(part: str) -> bool:
    if part in ("", ".", "..") or "\\" in part or len(part.encode()) > MAX_NAME_BYTES:
        return False
    return not any(unicodedata.category(character) == "Cc" for character in part)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown_name(sent: str) -> str:
    """The name an uploaded file is shown under: NFC, its path parts taken off (`../../evil.jsonl` is `evil.jsonl`).

    Refused, never repaired: control and line-breaking characters, text that is not UTF-8, more than 255 bytes,
    and a name of which nothing is left.
    """
    if not _encodes(sent):
        raise Invalid("the file name is not valid Unicode; send it as UTF-8", code="name_invalid", param="name")
    name = unicodedata.normalize("NFC", sent.replace("\\", "/").rsplit("/", 1)[-1]).strip()
    for at, character in enumerate(sent):
        if unicodedata.category(character) in ("Cc", "Zl", "Zp"):
            raise Invalid(
                f"the file name holds the control character U+{ord(character):04X} at position {at}; rename the file",
                code="name_invalid",
                param="name",
            )
    if name in ("", ".", ".."):
        raise Invalid("the file name is empty; expected a name such as train.jsonl", code="name_invalid", param="name")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise Invalid(
            f"the file name has {len(name.encode())} bytes, expected at most {MAX_NAME_BYTES}; rename the file",
            code="name_too_long",
            param="name",
        )
    return name


def dataset_prefix(dataset_id: str) -> str:
    return f"datasets/{dataset_id}"
