"""Uploads around the file itself: the form, the names, and the private folders they arrive in."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

from starlette.testclient import TestClient

from api import uploads
from api.core.settings import Settings
from tests.api.files.conftest import OK3, error_of, files_below, jsonl

Upload = Callable[..., Any]
Check = Callable[[], None]


def test_forms_that_are_no_dataset_are_refused(client: TestClient, nothing_left: Check) -> None:
    def post(body: bytes, kind: str = "multipart/form-data; boundary=b") -> str:
        response = client.post("/v1/datasets", content=body, headers={"Content-Type": kind})
        code: str = error_of(response)["code"]
        return code

    part = b'--b\r\nContent-Disposition: form-data; name="%s"; filename="x"\r\n\r\n%s\r\n'
    assert post(b"", "text/html") == "content_type_unsupported"
    assert post(b"", "multipart/form-data") == "multipart_invalid"
    assert post(b"nonsense") == "multipart_invalid"
    assert post(b"--b--\r\n") == "file_missing"
    assert post(part % (b"name", b"only") + b"--b--\r\n") == "file_missing"
    assert post(part % (b"file", jsonl(OK3)) * 2 + b"--b--\r\n") == "repeated_field"
    assert post(part % (b"files", jsonl(OK3)) + b"--b--\r\n") == "unknown_field"
    assert post(part % (b"file", jsonl(OK3))) == "multipart_invalid"
    assert post(part % (b"name", b"n" * 10_000) + b"--b--\r\n") == "name_too_long"
    assert post(part % (b"file", b"") + b"--b--\r\n") == "empty_file"
    nothing_left()


NAMES = {
    "报告 🚀.jsonl": "报告 🚀.jsonl",
    'a"b.jsonl': 'a"b.jsonl',
    "../../evil.jsonl": "evil.jsonl",
    "..\\..\\evil.jsonl": "evil.jsonl",
    unicodedata.normalize("NFD", "é.jsonl"): unicodedata.normalize("NFC", "é.jsonl"),
    "é" * 120 + ".jsonl": "é" * 120 + ".jsonl",
}


def test_names_in_any_script_are_shown_and_downloaded(upload: Upload, client: TestClient, settings: Settings) -> None:
    kept = set()
    for sent, shown in NAMES.items():
        dataset = upload(jsonl(OK3), sent).json()
        assert dataset["name"] == shown
        content = client.get(f"/v1/datasets/{dataset['id']}/content")
        assert content.content == jsonl(OK3)
        header = content.headers["content-disposition"]
        assert header.isascii()
        assert "filename*=UTF-8''" in header
        kept |= {f"datasets/{dataset['id']}/rows.jsonl", f"datasets/{dataset['id']}/rows.index"}
    assert files_below(settings.storage_dir) == kept


def test_names_that_cannot_be_shown_are_refused(upload: Upload, client: TestClient, nothing_left: Check) -> None:
    for name in ("a\r\nX-Evil: 1.jsonl", "a\x00b", "n" * 300, "..", "a/", " ", "a\u2028b"):
        if "\x00" not in name:  # the test's client writes %00 for it, which is a name like any other
            assert error_of(upload(jsonl(OK3), name))["param"] == "name"
        headers = {"Content-Type": "application/jsonl"}
        raw = client.post("/v1/datasets", params={"name": name}, content=jsonl(OK3), headers=headers)
        assert error_of(raw)["param"] == "name"
    nothing_left()


def test_what_a_killed_process_left_is_swept_and_a_living_upload_is_not(upload: Upload, settings: Settings) -> None:
    folder, lock = uploads._make(settings.incoming_dir)
    (settings.incoming_dir / "dead").mkdir()
    (settings.incoming_dir / "dead" / "sent").write_bytes(b"half")
    assert upload(jsonl(OK3)).status_code == 201
    assert list(settings.incoming_dir.iterdir()) == [folder]
    uploads.os.close(lock)
    assert upload(jsonl(OK3)).status_code == 201
    assert list(settings.incoming_dir.iterdir()) == []


def test_a_table_may_be_sent_as_the_body(client: TestClient) -> None:
    headers = {"Content-Type": "text/csv"}
    made = client.post("/v1/datasets?name=labels.csv", content=b"text,label\nhello,good\nbye,bad\n", headers=headers)
    assert made.status_code == 201, made.text
    assert (made.json()["format"], made.json()["n_rows"]) == ("classification", 2)
