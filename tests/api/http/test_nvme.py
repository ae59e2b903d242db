"""NVMe offload only into folders that the operator named, by the text of the path: it lies on a node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.core.settings import Settings
from tests.api.http.conftest import error_of


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    folder = tmp_path / "data"
    folder.mkdir()
    return Settings(data_dir=folder, nvme_roots=(Path("/nvme/runs"),), min_free_disk_bytes=0)


def parallel(path: str) -> dict[str, Any]:
    zero = {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": path}}
    return {"strategy": "deepspeed", "zero_stage": 3, "deepspeed": {"zero_optimization": zero}}


def test_a_folder_below_a_root_is_taken(client: TestClient, body: Callable[..., dict[str, Any]]) -> None:
    made = client.post("/v1/jobs", json=body(parallel=parallel("/nvme/runs/a"), resources={"device": "cuda"}))
    assert made.status_code == 201, made.text
    zero = made.json()["resolved"]["deepspeed"]["zero_optimization"]
    assert zero["offload_optimizer"]["nvme_path"] == "/nvme/runs/a"


@pytest.mark.parametrize("path", ["/nvme/runs/../etc", "/elsewhere", "nvme/runs"])
def test_another_is_refused_with_what_is_allowed(
    client: TestClient, body: Callable[..., dict[str, Any]], path: str
) -> None:
    refused = client.post("/v1/jobs", json=body(parallel=parallel(path), resources={"device": "cuda"}))
    error = error_of(refused, 422)
    assert error["param"] == "parallel.deepspeed.zero_optimization.offload_optimizer.nvme_path"
    assert "/nvme/runs" in str(error)
