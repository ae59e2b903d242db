"""Files people send that are no text: archives, spreadsheets, pickles; each is named and refused unread.

Pure: standard library only. Nothing is ever unpacked or executed here; only the first bytes are looked at.
"""

from __future__ import annotations

import tarfile

from trainer_core.data.problems import UploadRefused

_SEND_ROWS = "Send JSONL (one JSON object a line), a JSON array or a CSV table, optionally gzip-compressed."
_UNPACK = "Unpack it and send the JSONL, JSON or CSV file inside (gzip of that one file is fine)."

# (code, what it is, offset, magic bytes)
_SIGNATURES: tuple[tuple[str, str, int, bytes], ...] = (
    ("archive_sent", "a ZIP archive", 0, b"PK\x03\x04"),
    ("archive_sent", "an empty ZIP archive", 0, b"PK\x05\x06"),
    ("archive_sent", "a part of a ZIP archive", 0, b"PK\x07\x08"),
    ("archive_sent", "a tar archive", 257, b"ustar"),
    ("archive_sent", "a 7-Zip archive", 0, b"7z\xbc\xaf\x27\x1c"),
    ("archive_sent", "a RAR archive", 0, b"Rar!\x1a\x07"),
    ("compression_sent", "compressed with xz", 0, b"\xfd7zXZ\x00"),
    ("compression_sent", "compressed with bzip2", 0, b"BZh"),
    ("compression_sent", "compressed with zstd", 0, b"\x28\xb5\x2f\xfd"),
    ("compression_sent", "compressed with lz4", 0, b"\x04\x22\x4d\x18"),
    ("parquet_sent", "a Parquet file", 0, b"PAR1"),
    ("binary_sent", "an Arrow file", 0, b"ARROW1"),
    ("binary_sent", "a Feather file", 0, b"FEA1"),
    ("binary_sent", "an Avro file", 0, b"Obj\x01"),
    ("binary_sent", "an ORC file", 0, b"ORC"),
    ("binary_sent", "an HDF5 file", 0, b"\x89HDF\r\n\x1a\n"),
    ("binary_sent", "a NumPy file", 0, b"\x93NUMPY"),
    ("binary_sent", "an SQLite database", 0, b"SQLite format 3\x00"),
    ("binary_sent", "a PDF document", 0, b"%PDF-"),
    ("binary_sent", "a PNG picture", 0, b"\x89PNG\r\n\x1a\n"),
    ("binary_sent", "a JPEG picture", 0, b"\xff\xd8\xff"),
    ("binary_sent", "a program", 0, b"\x7fELF"),
    ("spreadsheet_sent", "an Excel or other old Office file", 0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
    *(("pickle_sent", "a Python pickle", 0, bytes((0x80, protocol))) for protocol in range(2, 6)),
)


def refuse_foreign(head: bytes, *, in_gzip: bool) -> None:
    """Raise UploadRefused if `head`, the first bytes of the content, belongs to a kind of file that is not read."""
    found = _recognised(head)
    if found is None:
        return
    code, what = found
    hint = _UNPACK if code in ("archive_sent", "compression_sent") else _SEND_ROWS
    raise UploadRefused(
        code, f"the file is {what}{' inside gzip' if in_gzip else ''}; it was not unpacked or read", hint
    )


def _recognised(head: bytes) -> tuple[str, str] | None:
    for code, what, offset, magic in _SIGNATURES:
        if head[offset : offset + len(magic)] == magic:
            return _inside_zip(head) if magic == b"PK\x03\x04" else (code, what)
    return ("archive_sent", "a tar archive") if _is_old_tar(head) else None


def _inside_zip(head: bytes) -> tuple[str, str]:
    """Office files and PyTorch checkpoints are ZIP archives under another name."""
    if b"[Content_Types].xml" in head or b"xl/" in head:
        return "spreadsheet_sent", "an Excel or other Office file"
    if b"data.pkl" in head:
        return "pickle_sent", "a PyTorch file (a ZIP archive with a pickle)"
    return "archive_sent", "a ZIP archive"


def _is_old_tar(head: bytes) -> bool:
    """Tar before POSIX has no magic bytes, only a checksum over its first block."""
    try:
        tarfile.TarInfo.frombuf(head[:512], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True
