"""Limits over HTTP: set, listed, taken back, and holding at submit."""

from __future__ import annotations

from starlette.testclient import TestClient


def test_limits_are_replaced_as_a_whole_and_taken_back(client: TestClient) -> None:
    put = client.put("/v1/limits/project/vision", json={"devices": 8, "queued": 2, "weight": 2})
    assert put.status_code == 200
    assert {key: put.json()[key] for key in ("scope", "name", "devices", "running", "queued", "weight")} == {
        "scope": "project", "name": "vision", "devices": 8, "running": None, "queued": 2, "weight": 2.0,
    }  # fmt: skip
    assert client.put("/v1/limits/project/vision", json={"running": 1}).json()["devices"] is None
    listed = client.get("/v1/limits").json()
    assert [(row["scope"], row["name"], row["running"]) for row in listed["data"]] == [("project", "vision", 1)]
    assert listed["defaults"]["user"] == {"devices": None, "running": None, "queued": None, "device_hours": None}
    assert client.delete("/v1/limits/project/vision").status_code == 204
    assert client.delete("/v1/limits/project/vision").status_code == 404
    assert client.get("/v1/limits").json()["data"] == []


def test_bad_limits_are_refused(client: TestClient) -> None:
    assert client.put("/v1/limits/team/x", json={}).status_code == 422
    assert client.put("/v1/limits/project/x", json={"devices": -1}).status_code == 422
    assert client.put("/v1/limits/project/x", json={"gpus": 1}).status_code == 422
    assert client.put("/v1/limits/user/key_1", json={"weight": 2}).json()["error"]["param"] == "weight"
