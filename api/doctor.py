"""`python -m api doctor`: what is wrong with the service's side of an installation, as JSON for `trainyard doctor`.

Every look stands alone: one that fails is a finding, and the rest are still made.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from api.core import auth, nodes, queue, schema
from api.core.db import Database, now
from api.core.errors import TrainyardError
from api.core.settings import Settings
from api.core.states import NodeState

GIB = 1024**3
ANSWER_WITHIN_S = 3.0
LITTLE_DISK_BYTES = 20 * GIB


@dataclass(frozen=True)
class Finding:
    """One line: `level` is ok, warn or fail; `todo` says what to do about it."""

    name: str
    level: str
    found: str
    todo: str = ""


def examine(settings: Settings) -> int:
    """Print every finding. Exit code 0 whatever they are: who asked decides."""
    print(json.dumps([asdict(finding) for finding in findings(settings)]))
    return 0


def findings(settings: Settings) -> list[Finding]:
    looks: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _data_dir,
        _disk,
        _key_file,
        _database,
        _broker,
        _port,
    )
    return [finding for look in looks for finding in look(settings)]


def _data_dir(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            yield Finding("data folder", "ok", f"{folder} is writable")
    except OSError as error:
        todo = f"give this user the folder, or name another by TRAINYARD_DATA_DIR (user id {os.getuid()})"
        yield Finding("data folder", "fail", f"{folder}: {error.strerror or error}", todo)


def _disk(settings: Settings) -> Iterator[Finding]:
    folder = next(path for path in (settings.data_dir, *settings.data_dir.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    found = f"{free / GIB:.1f} GiB free at {folder}"
    if free < settings.min_free_disk_bytes:
        yield Finding("disk", "fail", found, "free some: uploads and runs are refused (TRAINYARD_MIN_FREE_DISK_BYTES)")
    elif free < LITTLE_DISK_BYTES:
        yield Finding("disk", "warn", found, "checkpoints of larger models will not fit; free some or add a disk")
    else:
        yield Finding("disk", "ok", found)


def _key_file(settings: Settings) -> Iterator[Finding]:
    file = settings.key_file
    try:
        key = auth.read_key_file(file)
    except (TrainyardError, OSError) as error:
        yield Finding(
            "key file", "fail", str(error), f"make {file} readable for this user, or delete it to get a new key"
        )
        return
    if key is None:
        yield Finding("key file", "warn", f"{file} is not there", "`trainyard up` makes it at its first start")
        return
    mode = file.stat().st_mode & 0o777
    if mode & 0o077:
        yield Finding("key file", "fail", f"{file} has mode {mode:o}: others can read it", f"chmod 600 {file}")
    else:
        yield Finding("key file", "ok", f"{file} has mode {mode:o}")


def _database(settings: Settings) -> Iterator[Finding]:
    url = settings.shown()["database_url"]
    database = Database(settings.database)
    try:
        with database.reading() as session:
            session.execute(text("select 1"))
        yield Finding("database", "ok", f"{url} answers")
        if schema.is_current(database):
            yield Finding("tables", "ok", "current")
            yield from _nodes(database)
        else:
            yield Finding("tables", "fail", "not those of this release", "trainyard migrate")
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", error)).splitlines()[0]
        yield Finding("database", "fail", f"{url}: {reason}", "start it, or correct TRAINYARD_DATABASE_URL")
    finally:
        database.close()


def _nodes(database: Database) -> Iterator[Finding]:
    with database.reading() as session:
        views = nodes.listing(session)
    if not views:
        yield Finding("nodes", "warn", "none has reported yet", "start one with `trainyard worker` or `trainyard up`")
    for view in views:
        age_s = (now() - view.node.beat_at).total_seconds()
        found = f"{view.node.name}: {view.node.state}, {len(view.devices)} devices, heard of {age_s:.0f} s ago"
        is_away = view.node.state == NodeState.UNREACHABLE
        todo = f"start `trainyard worker` on {view.node.name}, or look into its log" if is_away else ""
        yield Finding("node", "warn" if is_away else "ok", found, todo)


def _broker(settings: Settings) -> Iterator[Finding]:
    url = settings.shown()["broker_url"]
    try:
        with queue.make_celery(settings).connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, timeout=ANSWER_WITHIN_S)
        yield Finding("broker", "ok", f"{url} answers")
    except (queue.OperationalError, OSError) as error:
        todo = "start it, or correct TRAINYARD_BROKER_URL; without it jobs start some seconds later"
        yield Finding("broker", "fail", f"{url}: {error}", todo)


def _port(settings: Settings) -> Iterator[Finding]:
    where = f"{settings.host}:{settings.port}"
    try:
        socket.create_server((settings.host, settings.port)).close()
        yield Finding("port", "ok", f"{where} is free")
    except OSError as error:
        if _is_ours(settings):
            yield Finding("port", "ok", f"Trainyard answers at {where}")
        else:
            yield Finding(
                "port", "fail", f"{where}: {error.strerror or error}", "choose another by --port or TRAINYARD_PORT"
            )


def _is_ours(settings: Settings) -> bool:
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    try:
        with urllib.request.urlopen(f"http://{host}:{settings.port}/v1/health/live", timeout=ANSWER_WITHIN_S) as answer:
            return b'"ok"' in answer.read(1000)
    except (urllib.error.URLError, OSError):
        return False
