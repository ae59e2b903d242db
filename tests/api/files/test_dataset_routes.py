"""Datasets once they are there: lists, previews, conditional downloads, deletion."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.core import previews
from api.core.db import Database
from api.core.ids import new_id
from api.core.settings import Settings
from api.core.states import TERMINAL, State
from api.core.storage import LocalStorage, Storage
from api.core.tables import Job
from tests.api.files.conftest import OK3, files_below, jsonl, make_job

Upload = Callable[..., Any]

UNKNOWN = [new_id("ds"), "nope", "a%00b", "..", "%2e%2e%2f", "ds_" + "i" * 22, "x" * 5000, "报告"]


def test_an_unknown_id_is_one_and_the_same_404(client: TestClient) -> None:
    calls = [("GET", ""), ("GET", "/rows"), ("GET", "/content"), ("DELETE", "")]
    for dataset_id, (method, rest) in product(UNKNOWN, calls):
        answer = client.request(method, f"/v1/datasets/{dataset_id}{rest}")
        assert answer.status_code == 404, (method, rest, answer.text)
        if dataset_id not in ("..", "%2e%2e%2f"):
            assert answer.json()["error"]["message"] == "no such dataset"


def test_a_list_is_paged_newest_first_without_gaps(upload: Upload, client: TestClient) -> None:
    made = [upload(jsonl(OK3), f"{n}.jsonl").json()["id"] for n in range(5)]
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = client.get("/v1/datasets", params=query).json()
        seen += [dataset["id"] for dataset in page["data"]]
        if not page["has_more"]:
            assert page["next"] is None
            break
        query["after"] = page["next"]
    assert sorted(seen) == sorted(made)
    assert seen == sorted(seen, reverse=True)
    assert client.get("/v1/datasets", params={"after": "nonsense"}).status_code == 422


def test_any_page_of_rows_is_right_and_read_from_near_its_start(
    upload: Upload, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_rows = 20_000
    content = b"".join(b'{"text": "row %d %s"}\n' % (n, b"x" * (n * 7919 % 90)) for n in range(1, n_rows + 1))
    dataset = upload(content).json()
    for after in (0, 1, 7, 4321, n_rows - 10, n_rows - 1, n_rows, n_rows + 5, 2**53):
        page = client.get(f"/v1/datasets/{dataset['id']}/rows", params={"after": after, "limit": 10}).json()
        expected = list(range(after + 1, min(after + 10, n_rows) + 1))
        assert [row["n"] for row in page["data"]] == expected
        assert all(row["row"]["text"].startswith(f"row {row['n']} ") for row in page["data"])
        assert page["has_more"] == (after + 10 < n_rows)
        assert page["next"] == (expected[-1] if page["has_more"] else None)


def test_a_far_page_does_not_read_the_rows_before_it(tmp_path: Path) -> None:
    rows, index = tmp_path / "rows.jsonl", tmp_path / "rows.index"
    rows.write_bytes(b"".join(b'{"text": "%07d"}\n' % n for n in range(1, 500_001)))
    previews.write_index(rows, index)
    storage = LocalStorage(tmp_path / "storage")
    storage.put("rows", rows)
    storage.put("index", index)
    with storage.pin("rows") as pinned, storage.pin("index") as entries:
        starts: list[int] = []
        read = pinned.read
        pinned.read = lambda start=0, end=None: starts.append(start) or read(start, end)  # type: ignore
        page, following = previews.read_page(pinned, entries, 400_000, 3, is_full=False)
    assert [row.row["text"] for row in page] == ["0400001", "0400002", "0400003"]
    assert following == 400_003
    line = len(b'{"text": "0000001"}\n')
    assert 0 <= 400_000 * line - starts[0] <= previews.EVERY_BYTES + line


def test_lines_longer_than_a_block_are_indexed_too(tmp_path: Path) -> None:
    rows, index = tmp_path / "rows.jsonl", tmp_path / "rows.index"
    lengths = [10, previews.EVERY_BYTES * 3, 5, previews.EVERY_BYTES - 13, 1, previews.EVERY_BYTES * 5 + 1, 0, 8]
    rows.write_bytes(jsonl([{"n": n, "text": "x" * length} for n, length in enumerate(lengths, 1)]))
    previews.write_index(rows, index)
    storage = LocalStorage(tmp_path / "storage")
    storage.put("rows", rows)
    storage.put("index", index)
    for after in range(len(lengths) + 2):
        with storage.pin("rows") as pinned, storage.pin("index") as entries:
            page, _ = previews.read_page(pinned, entries, after, 100, is_full=True)
        assert [(row.n, row.row["n"]) for row in page] == [(n, n) for n in range(after + 1, len(lengths) + 1)]


def test_long_texts_are_cut_with_a_mark_unless_asked_for(upload: Upload, client: TestClient) -> None:
    row = {"prompt": "p" * 5000, "completion": "c", "meta": {"deep": ["d" * 1001]}}
    dataset = upload(jsonl([row, OK3 and {"prompt": "p", "completion": "c"}])).json()
    url = f"/v1/datasets/{dataset['id']}/rows"
    long, short = client.get(url).json()["data"]
    assert long["is_cut"]
    assert long["row"]["prompt"] == "p" * 1000 + "… (4000 more characters)"
    assert long["row"]["meta"]["deep"] == ["d" * 1000 + "… (1 more characters)"]
    assert short == {"n": 2, "row": {"prompt": "p", "completion": "c"}, "is_cut": False}
    assert client.get(url, params={"full": True}).json()["data"][0] == {"n": 1, "row": row, "is_cut": False}


def test_a_page_of_huge_rows_ends_early_and_goes_on(upload: Upload, client: TestClient) -> None:
    dataset = upload(jsonl([{"text": f"{n}" * 3_000_000} for n in range(1, 6)])).json()
    url = f"/v1/datasets/{dataset['id']}/rows"
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        answer = client.get(url, params={"after": after, "full": True})
        assert len(answer.content) < 9 * 1024 * 1024
        seen += [row["n"] for row in answer.json()["data"]]
        after = answer.json()["next"]
    assert seen == [1, 2, 3, 4, 5]


def test_bad_paging_is_refused(upload: Upload, client: TestClient) -> None:
    dataset = upload(jsonl(OK3)).json()
    for query in ("limit=0", "limit=201", "after=-1", "after=x", f"after={2**70}", "full=perhaps"):
        assert client.get(f"/v1/datasets/{dataset['id']}/rows?{query}").status_code == 422


def test_content_is_conditional_and_by_range(upload: Upload, client: TestClient) -> None:
    dataset = upload(json.dumps(OK3).encode(), "train.json.gz").json()
    url = f"/v1/datasets/{dataset['id']}/content"
    whole = client.get(url)
    assert whole.content == jsonl(OK3)
    assert whole.headers["etag"] == f'"{dataset["sha256"]}"'
    assert 'filename="train.jsonl"' in whole.headers["content-disposition"]
    assert client.get(url, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
    part = client.get(url, headers={"Range": "bytes=5-9"})
    assert (part.status_code, part.content) == (206, whole.content[5:10])
    head = client.head(url)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.content))


def test_deletion_waits_for_the_jobs_that_need_it(
    upload: Upload, client: TestClient, database: Database, settings: Settings
) -> None:
    used, other = upload(jsonl(OK3)).json()["id"], upload(jsonl(OK3)).json()["id"]
    job_id = make_job(database, State.QUEUED, train=used)
    refused = client.delete(f"/v1/datasets/{used}")
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "dataset_in_use"
    assert refused.json()["error"]["details"][0]["job"] == job_id
    assert client.get(f"/v1/datasets/{used}/content").status_code == 200
    assert client.delete(f"/v1/datasets/{other}").status_code == 204
    with database.session() as session:
        session.get_one(Job, job_id).state = State.FAILED
    assert client.delete(f"/v1/datasets/{used}").status_code == 204
    assert client.delete(f"/v1/datasets/{used}").status_code == 404
    assert files_below(settings.storage_dir) == set()
    assert client.get("/v1/datasets").json()["data"] == []


def test_a_dataset_is_kept_until_every_job_that_needs_it_has_ended(
    upload: Upload, client: TestClient, database: Database
) -> None:
    for state, part in product(State, ("train", "eval")):
        dataset_id = upload(jsonl(OK3)).json()["id"]
        job_id = make_job(database, state)
        with database.session() as session:
            rows = {"train": {"id": "other"}, "eval": {"id": "other"}, part: {"id": dataset_id}}
            session.get_one(Job, job_id).resolved = {"data": rows}
        expected = 204 if state in TERMINAL else 409
        assert client.delete(f"/v1/datasets/{dataset_id}").status_code == expected, (state, part)


def test_a_deleted_dataset_can_still_be_read_by_who_has_begun(
    upload: Upload, client: TestClient, storage: Storage
) -> None:
    dataset = upload(jsonl(OK3)).json()
    with storage.pin(f"datasets/{dataset['id']}/rows.jsonl") as pinned:
        assert client.delete(f"/v1/datasets/{dataset['id']}").status_code == 204
        assert b"".join(pinned.read()) == jsonl(OK3)


def test_every_route_asks_for_a_key(client: TestClient) -> None:
    bare = TestClient(client.app)
    for method, path in [
        ("POST", ""),
        ("GET", ""),
        ("GET", "/x"),
        ("GET", "/x/rows"),
        ("GET", "/x/content"),
        ("HEAD", "/x/content"),
        ("DELETE", "/x"),
    ]:
        assert bare.request(method, f"/v1/datasets{path}").status_code == 401
