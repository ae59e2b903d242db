"""A smallest job as a page of the docs has it: sent over HTTP, looked at in preflight, and trained."""

from __future__ import annotations

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
from tests.trainer_core.runs import Outcome, Workshop
from trainer_core.contract import RunFolder
from worker.plan import Inputs, make_config
from worker.preflight import Preflighter

KEY = "ty-" + "k" * 40


def carry_out(
    workshop: Workshop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: Path,
    rows: tuple[str, str],
    body: dict[str, Any],
) -> Outcome:
    """rows: name of their file, and its text. Fails unless the run ends well at step 2."""
    name, text = rows
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
        files = {"file": (name, text.encode(), "application/jsonl")}
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
    train.write_text(text)
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
    return outcome
