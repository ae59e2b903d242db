"""What is wrong with an installation is found, each with what to do."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest
from pydantic import SecretStr

from api import doctor
from api.core import nodes
from api.core.db import Database
from api.core.nodes import DeviceFact
from api.core.settings import Settings


@pytest.fixture
def settings(tmp_path: Path, sqlite_template: Path) -> Settings:
    settings = Settings(data_dir=tmp_path / "data", min_free_disk_bytes=0, port=0)
    settings.data_dir.mkdir()
    shutil.copy(sqlite_template, settings.data_dir / "trainyard.db")
    settings.key_file.write_text("ty-" + "k" * 40)
    settings.key_file.chmod(0o600)
    return settings


def found(settings: Settings, name: str) -> doctor.Finding:
    [finding] = [finding for finding in doctor.findings(settings) if finding.name == name]
    assert finding.todo or finding.level == "ok"
    return finding


def test_a_whole_installation_is_ok(settings: Settings) -> None:
    database = Database(settings.database)
    with database.session() as session:
        nodes.register(session, "n1", [DeviceFact(index=0, kind="cpu", name="slot")], {}, {})
    database.close()
    levels = {finding.name: finding.level for finding in doctor.findings(settings)}
    assert {level for name, level in levels.items() if name != "disk"} == {"ok"}
    assert set(levels) == {"data folder", "disk", "key file", "database", "tables", "node", "broker", "port"}


def test_a_key_that_others_can_read(settings: Settings) -> None:
    settings.key_file.chmod(0o644)
    assert (found(settings, "key file").level, "chmod 600" in found(settings, "key file").todo) == ("fail", True)


def test_a_key_file_that_holds_none(settings: Settings) -> None:
    settings.key_file.write_text("secret")
    finding = found(settings, "key file")
    assert finding.level == "fail"
    assert "secret" not in finding.found


def test_tables_of_another_release(settings: Settings) -> None:
    (settings.data_dir / "trainyard.db").unlink()
    assert (found(settings, "tables").level, found(settings, "tables").todo) == ("fail", "trainyard migrate")


def test_no_node(settings: Settings) -> None:
    assert found(settings, "nodes").level == "warn"


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("database_url", "postgresql+psycopg://yard:s3cret@127.0.0.1:9/yard", "database"),
        ("broker_url", "redis://:s3cret@127.0.0.1:9/0", "broker"),
    ],
)
def test_what_does_not_answer(settings: Settings, field: str, value: str, name: str) -> None:
    finding = found(settings.model_copy(update={field: SecretStr(value)}), name)
    assert finding.level == "fail"
    assert "127.0.0.1" in finding.found
    assert "s3cret" not in finding.found


def test_a_port_that_somebody_else_has(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken.settimeout(0.1)
        port = taken.getsockname()[1]
        finding = found(settings.model_copy(update={"port": port}), "port")
    assert (finding.level, str(port) in finding.found) == ("fail", True)


def test_a_full_disk(settings: Settings) -> None:
    assert found(settings.model_copy(update={"min_free_disk_bytes": 2**62}), "disk").level == "fail"


def test_a_data_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finding = found(Settings(data_dir=tmp_path / "file" / "data", port=0), "data folder")
    assert finding.level == "fail"
    assert "TRAINYARD_DATA_DIR" in finding.todo
