"""The registry of base models, and the list of nodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.core import nodes
from api.core.db import Database
from api.core.nodes import DeviceFact
from tests.api.http.conftest import error_of
from tests.tiny import make_tiny

Body = Callable[..., dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny(tmp_path / "model")


def register(client: TestClient, source: object, name: str = "mine", **more: Any) -> Any:
    return client.post("/v1/models", json={"name": name, "source": str(source), **more})


def test_a_folder_is_registered_and_read(client: TestClient, folder: Path) -> None:
    answer = register(client, folder)
    model = answer.json()
    assert answer.status_code == 201
    assert model["details"]["model_type"] == "llama"
    assert model["details"]["n_parameters"] > 10_000
    assert model["details"]["has_chat_template"] is True
    assert client.get("/v1/models/mine").json() == model
    assert client.get(answer.headers["location"]).json() == model
    assert {one["name"] for one in client.get("/v1/models").json()["data"]} == {"mine", "tiny"}
    assert register(client, folder).status_code == 200


def test_a_name_that_is_taken_is_refused(client: TestClient, folder: Path, tmp_path: Path) -> None:
    register(client, folder)
    error = error_of(register(client, make_tiny(tmp_path / "other")), 409)
    assert (error["code"], error["param"]) == ("name_taken", "name")


def without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def only_pickles(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def cut_short(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


def with_config(**changes: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))

    return change


def without_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


def foreign_shard(folder: Path) -> None:
    index = {"weight_map": {"a": "../../etc/passwd"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def missing_shard(folder: Path) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def not_json(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (without("config.json"), "config.json"),
        (without("model.safetensors"), "no weights"),
        (only_pickles, "pickles"),
        (cut_short, "not whole"),
        (with_config(auto_map={"AutoModel": "x.Y"}), "allow_remote_code"),
        (with_config(model_type=None), "model_type"),
        (without_tokenizer, "tokenizer"),
        (foreign_shard, "outside the folder"),
        (missing_shard, "missing"),
        (not_json, "config.json"),
    ],
)
def test_a_folder_that_cannot_be_trained_from_is_refused(
    client: TestClient, folder: Path, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(folder)
    error = error_of(register(client, folder), 422)
    assert (error["code"], error["param"]) == ("model_unusable", "source")
    assert words in error["message"]
    error_of(client.get("/v1/models/mine"), 404)


@pytest.mark.parametrize("source", ["/nowhere/at/all", "./here", "~/model", "a/b/c", "a b", "", "-x", "org/../x"])
def test_a_source_that_is_nothing_is_refused(client: TestClient, source: str) -> None:
    assert error_of(register(client, source), 422)["param"] == "source"


def test_a_hub_id_is_taken_as_it_is(client: TestClient) -> None:
    model = register(client, "org/model-1.5", revision="main").json()
    assert (model["source"], model["revision"], model["details"]) == ("org/model-1.5", "main", {})
    assert error_of(register(client, "org/x", name="a\nb"), 422)["param"] == "name"
    assert error_of(register(client, "org/x", sorce="y"), 422)["code"] == "unknown_key"


def test_a_model_in_use_stays_and_a_deleted_name_is_free(client: TestClient, folder: Path, body: Body) -> None:
    register(client, folder)
    job = client.post("/v1/jobs", json=body(model="mine")).json()
    error = error_of(client.delete("/v1/models/mine"), 409)
    assert job["id"] in error["message"]
    client.post(f"/v1/jobs/{job['id']}/cancel")
    assert client.delete("/v1/models/mine").status_code == 204
    error_of(client.get("/v1/models/mine"), 404)
    assert client.get(f"/v1/jobs/{job['id']}").json()["model"] == "mine"
    assert register(client, folder).status_code == 201


def test_nodes_show_their_devices(client: TestClient, database: Database) -> None:
    assert client.get("/v1/nodes").json() == {"data": [], "has_more": False, "next": None}
    with database.session() as session:
        facts = [DeviceFact(index=n, kind="cpu", name="slot") for n in range(2)]
        nodes.register(session, "n1", facts, {"cores": 2}, {"zone": "a"})
    (node,) = client.get("/v1/nodes").json()["data"]
    assert (node["name"], node["state"], node["labels"]) == ("n1", "ready", {"zone": "a"})
    assert [(one["index"], one["kind"], one["job_id"]) for one in node["devices"]] == [
        (0, "cpu", None),
        (1, "cpu", None),
    ]
