"""Every method's page has a smallest job, and it works: sent over HTTP, looked at in preflight, and trained."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.app import create_app
from api.core import queue
from api.core.auth import add_key
from api.core.db import Database
from api.core.ids import new_id
from api.core.schema import upgrade_url
from api.core.settings import Settings
from api.core.specs import Resolved
from api.core.storage import make_storage
from api.core.tables import BaseModel, Job
from tests.tiny import make_tiny
from tests.tiny_seq2seq import make_tiny_bert, make_tiny_t5
from tests.trainer_core.runs import Workshop
from trainer_core.contract import RunFolder
from trainer_core.methods_table import METHODS
from worker.plan import Inputs, make_config
from worker.preflight import Preflighter

pytestmark = pytest.mark.train

PAGES = Path(__file__).resolve().parents[2] / "docs" / "methods"
MAKERS: dict[str, Callable[[Path], Path]] = {
    "causal": make_tiny,
    "seq2seq": make_tiny_t5,
    "sequence_classification": make_tiny_bert,
    "token_classification": make_tiny_bert,
}
KEY = "ty-" + "k" * 40


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    workshop = Workshop(tmp_path_factory.mktemp("runs"))
    yield workshop
    workshop.close()


def page(method: str) -> tuple[str, str, dict[str, Any]]:
    """Name and text of the page's rows, and its job."""
    text = (PAGES / f"{method}.md").read_text(encoding="utf-8")
    rows = re.search(r"`(\w+\.jsonl)`.*?```jsonl\n(.*?)```", text, re.DOTALL)
    job = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert rows
    assert job
    return rows[1], rows[2], json.loads(job[1])


@pytest.mark.parametrize("method", ["sft", "seq2seq", "classification", "token_classification"])
def test_the_smallest_job_works(
    method: str, workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, rows, body = page(method)
    kind = METHODS[method].kind  # type: ignore[index]
    model = MAKERS[kind](tmp_path / "model")
    settings = Settings(data_dir=tmp_path / "data", min_free_disk_bytes=0)
    settings.data_dir.mkdir()
    url = f"sqlite:///{tmp_path / 'db.sqlite'}"
    upgrade_url(url)
    database = Database(url)
    monkeypatch.setattr(queue, "_send", lambda *_: True)
    with database.session() as session:
        add_key(session, "test", key=KEY)
        session.add(BaseModel(id=new_id("model"), name="MODEL", source=str(model), details={}))
    with TestClient(create_app(settings, database=database), headers={"Authorization": f"Bearer {KEY}"}) as client:
        files = {"file": (name, rows.encode(), "application/jsonl")}
        uploaded = client.post("/v1/datasets", files=files)
        assert uploaded.status_code == 201, uploaded.text
        answer = client.post("/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text
        storage = make_storage(settings)
        job_id = answer.json()["id"]
        assert Preflighter(database, storage, settings).run_one(job_id) == job_id
        told = client.get(f"/v1/jobs/{job_id}").json()
        assert told["state"] == "queued", told
    with database.reading() as session:
        job = session.get_one(Job, job_id)
        resolved, planned = Resolved.model_validate(job.resolved), job.planned_steps
    train = tmp_path / "train.jsonl"
    train.write_text(rows)
    config = make_config(
        job_id=job_id, job_name="page", attempt=1, resolved=resolved, inputs=Inputs(train=train), device="cpu",
        planned_steps=planned,
    )  # fmt: skip
    folder = RunFolder(tmp_path / "run")
    folder.root.mkdir()
    folder.config.write_text(config.model_dump_json())
    outcome = workshop.start(folder)
    assert outcome.codes == [0]
    assert outcome.one("done")["step"] == 2
    database.close()
