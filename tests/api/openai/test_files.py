"""Files and uploads in parts by the official client."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import openai
import pytest

from api.core.db import now
from api.core.openai_tables import Upload
from tests.api.openai.conftest import Service, rows


def test_a_file_comes_is_found_read_and_goes(client: openai.OpenAI) -> None:
    sent = rows(3)
    file = client.files.create(file=("train.jsonl", sent), purpose="fine-tune")
    assert (file.filename, file.bytes, file.purpose, file.status) == (
        "train.jsonl",
        len(sent),
        "fine-tune",
        "processed",
    )
    assert client.files.retrieve(file.id) == client.files.wait_for_processing(file.id)
    assert client.files.content(file.id).read() == sent
    assert [one.id for one in client.files.list(purpose="fine-tune")] == [file.id]
    gone = client.files.delete(file.id)
    assert gone.deleted
    with pytest.raises(openai.NotFoundError) as caught:
        client.files.retrieve(file.id)
    assert caught.value.param == "id"
    assert f"No such File object: {file.id}" in caught.value.message


def test_it_is_a_dataset_of_the_service(client: openai.OpenAI, service: Service) -> None:
    file = client.files.create(file=("train.jsonl", rows(3)), purpose="fine-tune")
    dataset = client.get(f"{service.url}/v1/datasets/{file.dataset['id']}", cast_to=object)  # type: ignore[attr-defined]
    assert dataset["n_rows"] == 3  # type: ignore[index]


def test_a_bad_row_is_told_with_its_line(client: openai.OpenAI) -> None:
    sent = rows(1) + b'{"messages": []}\n' + rows(1) + b"{oops\n"
    with pytest.raises(openai.BadRequestError) as caught:
        client.files.create(file=("train.jsonl", sent), purpose="fine-tune")
    assert caught.value.status_code == 400
    assert "line 2" in caught.value.message
    assert "line 4" in caught.value.message
    assert not list(client.files.list())


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"purpose": "assistants"}, "purpose"),
        ({"purpose": "fine-tune", "expires_after": {"anchor": "created_at", "seconds": 3600}}, "expires_after"),
    ],
)
def test_what_is_not_served_is_refused_by_its_name(client: openai.OpenAI, options: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.files.create(file=("train.jsonl", rows()), **options)
    assert caught.value.param == param


def test_a_form_without_a_purpose_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post(
            "/files",
            cast_to=object,
            files={"file": ("a.jsonl", rows())},
            options={"headers": {"Content-Type": "multipart/form-data"}},
        )
    assert caught.value.param == "purpose"


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_every_file_is_listed_once_in_order(client: openai.OpenAI, order: Any) -> None:
    made = [client.files.create(file=(f"{i}.jsonl", rows(1)), purpose="fine-tune").id for i in range(7)]
    found = [file.id for file in client.files.list(limit=2, order=order)]
    assert found == (made if order == "asc" else made[::-1])


def test_a_page_goes_on_after_a_file_that_was_deleted(client: openai.OpenAI) -> None:
    made = [client.files.create(file=(f"{i}.jsonl", rows(1)), purpose="fine-tune").id for i in range(4)]
    page = client.files.list(limit=2)
    client.files.delete(made[2])
    assert [file.id for file in page.get_next_page()] == [made[1], made[0]]
    with pytest.raises(openai.BadRequestError):
        client.files.list(after="file-nothing")


# Uploads -------------------------------------------------------------------------------------------------------------


def test_parts_become_one_file_in_the_order_named(client: openai.OpenAI) -> None:
    sent = rows(5)
    upload = client.uploads.create(bytes=len(sent), filename="t.jsonl", mime_type="text/jsonl", purpose="fine-tune")
    assert upload.status == "pending"
    last = client.uploads.parts.create(upload.id, data=sent[100:])
    first = client.uploads.parts.create(upload.id, data=sent[:100])
    parts = [first.id, last.id]
    done = client.uploads.complete(upload.id, part_ids=parts, md5=hashlib.md5(sent).hexdigest())
    assert done.status == "completed"
    assert done.file is not None
    assert client.files.content(done.file.id).read() == sent
    again = client.uploads.complete(upload.id, part_ids=parts)
    assert again.file == done.file
    with pytest.raises(openai.BadRequestError):
        client.uploads.parts.create(upload.id, data=b"more")
    with pytest.raises(openai.BadRequestError):
        client.uploads.cancel(upload.id)


def test_the_client_sends_a_file_in_chunks(client: openai.OpenAI) -> None:
    sent = rows(9)
    done = client.uploads.upload_file_chunked(
        file=sent, filename="t.jsonl", bytes=len(sent), mime_type="text/jsonl", purpose="fine-tune", part_size=200
    )
    assert done.file is not None
    assert client.files.content(done.file.id).read() == sent


def test_an_upload_that_does_not_add_up_is_refused(client: openai.OpenAI, service: Service) -> None:
    sent = rows(2)
    upload = client.uploads.create(bytes=len(sent), filename="t.jsonl", mime_type="text/jsonl", purpose="fine-tune")
    part = client.uploads.parts.create(upload.id, data=sent[:-1])
    for part_ids in ([part.id], [part.id, part.id], [], ["part_other"]):
        with pytest.raises(openai.BadRequestError) as caught:
            client.uploads.complete(upload.id, part_ids=part_ids)
        assert caught.value.param == "part_ids"
    rest = client.uploads.parts.create(upload.id, data=sent[-1:])
    with pytest.raises(openai.BadRequestError) as caught:
        client.uploads.complete(upload.id, part_ids=[part.id, rest.id], md5="0" * 32)
    assert caught.value.param == "md5"
    cancelled = client.uploads.cancel(upload.id)
    assert cancelled.status == "cancelled"
    assert list(service.storage.list(f"uploads/{upload.id}")) == []
    with pytest.raises(openai.BadRequestError):
        client.uploads.complete(upload.id, part_ids=[part.id, rest.id])


def test_a_refused_file_names_its_lines_and_leaves_the_upload_open(client: openai.OpenAI) -> None:
    sent = rows(1) + b'{"messages": []}\n'
    upload = client.uploads.create(bytes=len(sent), filename="t.jsonl", mime_type="text/jsonl", purpose="fine-tune")
    part = client.uploads.parts.create(upload.id, data=sent)
    with pytest.raises(openai.BadRequestError) as caught:
        client.uploads.complete(upload.id, part_ids=[part.id])
    assert "line 2" in caught.value.message
    assert client.uploads.cancel(upload.id).status == "cancelled"


def test_an_upload_expires(client: openai.OpenAI, service: Service) -> None:
    upload = client.uploads.create(bytes=9, filename="t.jsonl", mime_type="text/jsonl", purpose="fine-tune")
    client.uploads.parts.create(upload.id, data=b"123")
    with service.database.session() as session:
        session.get_one(Upload, upload.id).expires_at = now() - timedelta(seconds=1)
    with pytest.raises(openai.BadRequestError) as caught:
        client.uploads.parts.create(upload.id, data=b"4")
    assert "expired" in caught.value.message
    client.uploads.create(bytes=9, filename="t.jsonl", mime_type="text/jsonl", purpose="fine-tune")
    assert list(service.storage.list(f"uploads/{upload.id}")) == []


def test_a_part_over_64_mib_is_refused(client: openai.OpenAI) -> None:
    upload = client.uploads.create(bytes=2**27, filename="t.jsonl", mime_type="text/jsonl", purpose="fine-tune")
    with pytest.raises(openai.APIStatusError) as caught:
        client.uploads.parts.create(upload.id, data=b"0" * (64 * 1024**2 + 1))
    assert caught.value.status_code == 413
