"""Uploads: what is taken, what is refused with its line, and that a refused file leaves nothing."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from api import uploads
from api.core import datasets
from api.core.errors import Unavailable
from api.core.settings import Settings
from api.core.storage import LocalStorage
from tests.api.files.conftest import OK3, error_of, jsonl

Upload = Callable[..., Any]
Check = Callable[[], None]


def test_a_dataset_is_listed_shown_and_downloaded(upload: Upload, client: TestClient, settings: Settings) -> None:
    made = upload(jsonl(OK3), "train.jsonl")
    assert made.status_code == 201
    dataset = made.json()
    assert made.headers["location"] == f"/v1/datasets/{dataset['id']}"
    assert (dataset["name"], dataset["format"], dataset["n_rows"]) == ("train.jsonl", "messages", 3)
    assert dataset["columns"] == {"messages": ["array"]}
    assert client.get(f"/v1/datasets/{dataset['id']}").json() == dataset
    assert client.get("/v1/datasets").json() == {"data": [dataset], "has_more": False, "next": None}
    content = client.get(f"/v1/datasets/{dataset['id']}/content")
    assert content.content == jsonl(OK3)
    assert hashlib.sha256(content.content).hexdigest() == dataset["sha256"]
    assert dataset["size_bytes"] == len(content.content)
    rows = client.get(f"/v1/datasets/{dataset['id']}/rows").json()
    assert rows["data"] == [{"n": n + 1, "row": row, "is_cut": False} for n, row in enumerate(OK3)]
    assert (rows["has_more"], rows["next"]) == (False, None)
    assert list(settings.incoming_dir.iterdir()) == []


def test_the_same_content_twice_is_two_datasets(upload: Upload, client: TestClient) -> None:
    first, second = upload(jsonl(OK3)).json(), upload(jsonl(OK3)).json()
    assert first["id"] != second["id"]
    assert first["sha256"] == second["sha256"]
    assert client.delete(f"/v1/datasets/{first['id']}").status_code == 204
    assert client.get(f"/v1/datasets/{second['id']}/content").content == jsonl(OK3)


def test_a_raw_body_is_taken_too(client: TestClient) -> None:
    for kind in ("application/jsonl", "application/x-ndjson", "application/json; charset=utf-8"):
        made = client.post("/v1/datasets?name=raw.jsonl", content=jsonl(OK3), headers={"Content-Type": kind})
        assert made.status_code == 201, made.text
        assert (made.json()["name"], made.json()["n_rows"]) == ("raw.jsonl", 3)


def test_a_form_may_name_its_file(client: TestClient) -> None:
    made = client.post("/v1/datasets", files={"file": ("x.jsonl", jsonl(OK3))}, data={"name": "mine"})
    assert made.json()["name"] == "mine"


def test_byte_order_mark_and_utf16_give_the_same_rows(upload: Upload) -> None:
    plain = upload(jsonl(OK3)).json()
    marked = upload(b"\xef\xbb\xbf" + jsonl(OK3)).json()
    wide = upload(jsonl(OK3).decode().encode("utf-16")).json()
    assert {marked["sha256"], wide["sha256"]} == {plain["sha256"]}
    assert {marked["n_rows"], wide["n_rows"]} == {3}
    assert any("UTF-16" in note for note in wide["notes"])


def test_cp1252_is_refused_with_line_and_offset(upload: Upload, nothing_left: Check) -> None:
    content = jsonl(OK3).replace(b"answer 1", b"it\x92s 1")
    error = error_of(upload(content))
    assert error["details"][0]["line"] == 2
    assert error["details"][0]["byte_offset"] == content.index(b"\x92")
    nothing_left()


def test_content_decides_and_not_the_extension(upload: Upload, shared_data: Path) -> None:
    identity = (shared_data / "llamafactory" / "identity.json").read_bytes()
    wmt = (shared_data / "wmt16_sample" / "sample.json").read_bytes()
    for name in ("x.jsonl", "x.json"):
        assert upload(identity, name).json()["n_rows"] == 91
        assert upload(wmt, name).json()["n_rows"] == wmt.count(b"\n")


def test_a_trailing_comma_is_refused_with_its_line(upload: Upload, nothing_left: Check) -> None:
    content = b'[\n{"prompt": "p", "completion": "c"},\n{"prompt": "p", "completion": "c"},\n]\n'
    error = error_of(upload(content, "x.json"))
    assert error["details"][0]["line"] in (3, 4)
    nothing_left()


def test_bad_lines_are_found_at_upload(upload: Upload, nothing_left: Check) -> None:
    lines = [b'{"prompt": "p", "completion": "c"}'] * 2000
    lines[1499] = b'{"prompt":"p","completion":"called "this" there"}'
    started = time.monotonic()
    error = error_of(upload(b"\n".join(lines)))
    assert time.monotonic() - started < 5
    assert "1500" in error["message"]
    assert [fault["line"] for fault in error["details"]] == [1500]
    lines[10:60] = [b"{"] * 50
    error = error_of(upload(b"\n".join(lines)))
    assert [fault["line"] for fault in error["details"]] == list(range(11, 31))
    assert "51 rows" in error["message"]
    assert error_of(upload(b"\n".join(lines[100:1000])[:-20]))["details"][0]["line"] == 900
    nothing_left()


CHATS = {
    "repeated assistant": (["assistant", "assistant"], True),
    "last turn is user": (["user", "assistant", "user", "user"], True),
    "system in the middle": (["user", "system", "assistant"], True),
    "no user": (["system", "assistant"], False),
    "only user": (["user"], True),
    "space in the role": (["user", "Assistant "], True),
    "unknown role": (["user", "bot"], True),
}


def test_each_order_of_roles_has_its_rule(upload: Upload) -> None:
    for case, (roles, is_refused) in CHATS.items():
        response = upload(jsonl([{"messages": [{"role": role, "content": "text"} for role in roles]}]))
        if not is_refused:
            assert response.status_code == 201, (case, response.text)
            continue
        fault = error_of(response)["details"][0]
        assert fault["line"] == 1, case
        assert fault["field"].startswith("messages"), case


def test_a_reply_must_be_a_text(upload: Upload, nothing_left: Check) -> None:
    good = b'{"prompt": "two and two", "completion": "four"}\n'
    for reply in (b"4", b"null", b'{"a":1}', b'["x"]', b'""', b'"   "'):
        fault = error_of(upload(good + b'{"prompt": "p", "completion": %s}\n' % reply))["details"][0]
        assert (fault["line"], fault["field"]) == (2, "completion"), reply
    nothing_left()


def test_extra_columns_never_make_a_file_fail(upload: Upload, client: TestClient) -> None:
    made = upload(b'{"prompt": "p", "completion": "c", "id": 18446744073709552000, "score": NaN}\n')
    assert made.status_code == 201, made.text
    rows = client.get(f"/v1/datasets/{made.json()['id']}/rows")
    assert json.loads(rows.text, parse_constant=pytest.fail)["data"][0]["row"]["id"] == 18446744073709552000


def test_zero_characters_in_keys_and_values_do_not_stop_a_database(upload: Upload, client: TestClient) -> None:
    row = {
        "messages": [{"role": "user", "content": "q", "k\0": 1}, {"role": "assistant", "content": "a"}],
        "c\0": "v\0",
    }
    made = upload(jsonl([row]))
    assert made.status_code == 201, made.text
    assert client.get(f"/v1/datasets/{made.json()['id']}/rows").json()["data"][0]["row"] == row


def test_tool_calls_are_taken_in_both_forms(upload: Upload, shared_data: Path) -> None:
    text = (shared_data / "openai_cookbook" / "drone_training.jsonl").read_bytes()
    parsed = [json.loads(line) for line in text.splitlines()]
    for row in parsed:
        for message in row["messages"]:
            for call in message.get("tool_calls", []):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
                message["content"] = None
    as_text, as_object = upload(text), upload(jsonl(parsed))
    assert as_text.status_code == as_object.status_code == 201, (as_text.text, as_object.text)
    assert as_text.json()["n_rows"] == as_object.json()["n_rows"] == 103


def test_half_an_emoji_is_refused_and_whole_ones_come_back(
    upload: Upload, client: TestClient, nothing_left: Check
) -> None:
    good = b'{"prompt": "p", "completion": "c"}\n'
    error = error_of(upload(good + b'{"prompt":"bad \\ud83d end","completion":"x"}\n' + good))
    assert error["details"][0]["line"] == 2
    nothing_left()
    whole = '{"prompt": "👩‍👩‍👧‍👦 ☀️ 🚀", "completion": "é"}\n'.encode()
    dataset = upload(whole).json()
    assert client.get(f"/v1/datasets/{dataset['id']}/content").content == whole


def test_gzip_is_unpacked_and_bombs_are_not(upload: Upload, nothing_left: Check, client: TestClient) -> None:
    bomb = gzip.compress(bytes(64 * 1024 * 1024))
    error_of(upload(bomb, "b.jsonl.gz"))
    error_of(upload(gzip.compress(jsonl(OK3)) + b"garbage"))
    error_of(upload(b"PK\x03\x04" + bytes(100), "x.zip"))
    nothing_left()
    assert upload(gzip.compress(jsonl(OK3))).json()["n_rows"] == 3


def test_too_large_is_refused_before_and_while_reading(
    client: TestClient, settings: Settings, nothing_left: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    app: Any = client.app
    small = settings.model_copy(update={"max_upload_bytes": 2_000_000})
    monkeypatch.setattr(app.state, "parts", replaced(app.state.parts, settings=small))
    headers = {"Content-Type": "application/jsonl"}
    assert error_of(client.post("/v1/datasets", content=bytes(3_000_000), headers=headers), 413)
    chunks = (bytes(100_000) for _ in range(30))
    error = error_of(client.post("/v1/datasets", content=chunks, headers=headers), 413)
    assert error["code"] == "upload_too_large"
    nothing_left()


def replaced(parts: Any, **changes: Any) -> Any:
    return type(parts)(**{**vars(parts), **changes})


def test_a_full_disk_is_told_before_reading_and_while_storing(
    upload: Upload, nothing_left: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(uploads.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
        assert error_of(upload(jsonl(OK3)), 503)["code"] == "disk_full"
        nothing_left()

    def no_space(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    for place, name in ((datasets, "normalise"), (datasets.previews, "write_index")):
        with monkeypatch.context() as full:
            full.setattr(place, name, no_space)
            assert error_of(upload(jsonl(OK3)), 503)["code"] == "disk_full"
            nothing_left()


def test_half_of_a_dataset_is_never_kept(upload: Upload, nothing_left: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    put = LocalStorage.put

    def put_rows_only(storage: LocalStorage, key: str, path: Path, *, link: bool = True) -> None:
        if key.endswith("index"):
            raise Unavailable("storage failed", code="storage_unavailable")
        put(storage, key, path, link=link)

    with monkeypatch.context() as broken:
        broken.setattr(LocalStorage, "put", put_rows_only)
        assert error_of(upload(jsonl(OK3)), 503)["code"] == "storage_unavailable"
    nothing_left()


def test_a_row_that_cannot_be_written_leaves_no_file(
    client: TestClient, nothing_left: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> None:
        raise RuntimeError("the row could not be written")

    with monkeypatch.context() as broken:
        broken.setattr(datasets, "add", fail)
        assert error_of(client.post("/v1/datasets", files={"file": ("x", jsonl(OK3))}), 500)["code"] == "internal"
    nothing_left()
