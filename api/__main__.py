"""`python -m api serve | migrate | config | doctor | add-key | add-model | simulate`: the API and what goes with it."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from api import doctor, simulate
from api.app import create_app
from api.core import auth, models, schema
from api.core.db import Database
from api.core.errors import TrainyardError
from api.core.settings import Settings, get_settings

GRACE_S = 2  # followed streams are ended at once; this is for a download in flight


class Server(uvicorn.Server):
    """Ends followed streams first: the server waits for its connections, and those would never end by themselves."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        self.app = app
        super().__init__(
            uvicorn.Config(
                app,
                host=settings.host,
                port=settings.port,
                # uvloop sets TCP_NODELAY; without it every call on a kept connection waits 40 ms more.
                loop="uvloop",
                http="httptools",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE_S,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for server in self.servers:
            for bound in server.sockets:
                host, port = bound.getsockname()[:2]
                print(f"Trainyard listens on http://{host}:{port}", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.state.parts.follower.close()
        await super().shutdown(sockets)


def serve(settings: Settings, *, migrate: bool = False) -> int:
    """Serve until SIGINT or SIGTERM. Exit code 3 when the address is taken."""
    if migrate:
        schema.upgrade(settings)
    server = Server(create_app(settings), settings)
    gc.freeze()  # all of it stays as long as the process
    server.run()
    return 0 if server.started else 3


def add_key(settings: Settings, name: str, role: str) -> int:
    """Print a fresh key; it is shown this once."""
    database = Database(settings.database)
    with database.session() as session:
        _row, secret = auth.add_key(session, name, role)
    database.close()
    print(secret)
    return 0


def add_model(settings: Settings, name: str, source: str, revision: str | None) -> int:
    """Register a base model without a server."""
    database = Database(settings.database)
    with database.session() as session:
        model, is_new = models.register(session, name, source, revision, settings)
    database.close()
    print(f"{model.name}: {'registered' if is_new else 'was registered'} as {model.source}")
    return 0


def show_config(settings: Settings) -> int:
    print(json.dumps(settings.shown(), indent=2))
    return 0


def migrate(settings: Settings) -> int:
    schema.upgrade(settings)
    print("The database is up to date.")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        settings = get_settings()
        logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        return _run(arguments, settings)
    except ValidationError as error:
        faults = [f"  {'.'.join(map(str, fault['loc'])) or 'settings'}: {fault['msg']}" for fault in error.errors()]
        print("The settings cannot be used:", *faults, sep="\n", file=sys.stderr)
        return 2
    except TrainyardError as error:
        print(error.message, file=sys.stderr)
        return 1
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", error)).splitlines()[0]
        print(f"The database cannot be used ({reason}); `python -m api migrate` makes its tables", file=sys.stderr)
        return 1


def _run(arguments: argparse.Namespace, settings: Settings) -> int:
    commands: dict[str, Callable[[], int]] = {
        "serve": lambda: serve(settings, migrate=arguments.migrate),
        "migrate": lambda: migrate(settings),
        "config": lambda: show_config(settings),
        "doctor": lambda: doctor.examine(settings),
        "add-key": lambda: add_key(settings, arguments.name, arguments.role),
        "simulate": lambda: simulate.replay(
            arguments.trace,
            arguments.nodes,
            half_life_s=arguments.half_life_s,
            look_every_s=arguments.look_every_s,
            spans_nodes=arguments.span_nodes,
        ),
        "add-model": lambda: add_model(settings, arguments.name, arguments.source, arguments.revision),
    }
    return commands[arguments.command]()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m api", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve", help="serve the HTTP API")
    serving.add_argument("--migrate", action="store_true", help="bring the database up to date first")
    commands.add_parser("migrate", help="bring the database up to date")
    commands.add_parser("config", help="print the resolved settings, secrets hidden")
    commands.add_parser("doctor", help="print what is wrong with this installation, as JSON")
    key = commands.add_parser("add-key", help="print a fresh API key")
    key.add_argument("name")
    key.add_argument("--role", default="admin", choices=sorted(auth.ROLES))
    model = commands.add_parser("add-model", help="register a base model")
    model.add_argument("name")
    model.add_argument("source", help="an absolute folder, or a hub id")
    model.add_argument("--revision")
    replaying = commands.add_parser("simulate", help="replay a trace of jobs against the scheduler")
    replaying.add_argument("trace", type=Path, help=".jsonl or .csv")
    replaying.add_argument("--nodes", default="4x8", help="COUNTxDEVICES[:cpu|:cuda], several with commas")
    replaying.add_argument("--half-life-s", type=float, default=604_800.0)
    replaying.add_argument("--look-every-s", type=float, default=2.0)
    replaying.add_argument("--span-nodes", action="store_true", help="let a gang span nodes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
