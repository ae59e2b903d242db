"""The only sender of Celery messages, and the maker of the Celery application.

The row is the truth and a message only a nudge: sending never raises, never waits long, and after a failure is not
tried again for some seconds, so that a broker that is away costs its users nothing but a delay.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError as OperationalError

from api.core.settings import Settings, get_settings

CONTROL_QUEUE = "control"
SCHEDULE = "trainyard.schedule"
PREFLIGHT = "trainyard.preflight"
TAKE_PLACEMENTS = "trainyard.take_placements"
STOP = "trainyard.stop"

PAUSE_AFTER_FAILURE_S = 5.0
LOG_EVERY_S = 60.0
REMIND_EVERY_S = 10.0
EXPIRES_S = 60  # the loops look by themselves every few seconds; an older nudge says nothing new
SEND_OPTIONS = {"max_retries": 0, "socket_connect_timeout": 0.5, "socket_timeout": 1.0, "connect_retries_timeout": 1.0}

log = logging.getLogger(__name__)


def node_queue(node_name: str) -> str:
    """The queue of one node, in characters that every broker takes."""
    return "node." + re.sub(r"[^A-Za-z0-9._-]", "-", node_name)


def make_celery(settings: Settings) -> Celery:
    """The Celery application of workers. Makes the folders of the file broker where that is the broker."""
    return _make(settings.broker, settings, sending=False)


def _make(broker: str, settings: Settings, *, sending: bool) -> Celery:
    uses_files = broker.startswith("filesystem")
    # The host means nothing to files; without one kombu logs a warning at each connection.
    url = "filesystem://localhost" if uses_files else broker
    app = Celery("trainyard", broker=url, set_as_current=not sending)
    app.conf.update(
        task_ignore_result=True,
        task_default_queue=CONTROL_QUEUE,
        task_serializer="json",
        accept_content=["json"],
        # Acknowledged before they run: a nudge that is lost with its worker is made up for by the sweep.
        task_acks_late=False,
        task_publish_retry=False,
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options=dict(SEND_OPTIONS) if sending else {},
        worker_hijack_root_logger=False,
        worker_send_task_events=False,
        enable_utc=True,
    )
    if uses_files:
        _use_files(app, settings)
    return app


def _use_files(app: Celery, settings: Settings) -> None:
    messages, control = settings.broker_folder / "messages", settings.broker_folder / "control"
    for folder in (messages, control):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    app.conf.broker_transport = "api.core.file_broker:Transport"
    app.conf.broker_transport_options = {
        "data_folder_in": str(messages),
        "data_folder_out": str(messages),
        "control_folder": str(control),
        # kombu looks once a second; a nudge is there to be fast, and a look is one listing of a small folder.
        "polling_interval": 0.1,
    }


class Sender:
    """Sends nudges over one broker. Safe to use from many threads."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = _make(settings.broker, settings, sending=True)
        self._clock = clock
        self._lock = threading.Lock()
        self._quiet_until = float("-inf")
        self._logged_at = float("-inf")
        self._reminded: dict[tuple[str, ...], float] = {}

    def send(self, task: str, args: list[Any], queue: str) -> bool:
        """Whether the message was handed to the broker; False changes nothing but a delay."""
        if self._clock() < self._quiet_until:
            return False
        try:
            self._app.send_task(task, args=args, queue=queue, retry=False, expires=EXPIRES_S, ignore_result=True)
        except (OperationalError, OSError) as error:
            self._note(error)
            return False
        return True

    def remind(self, task: str, args: list[Any], queue: str) -> bool:
        """Sends what the sweep finds waiting, the same at most every few seconds: nobody may be there to take it."""
        key = (task, *map(str, args))
        with self._lock:
            instant = self._clock()
            self._reminded = {known: until for known, until in self._reminded.items() if until > instant}
            if key in self._reminded:
                return False
            self._reminded[key] = instant + REMIND_EVERY_S
        return self.send(task, args, queue)

    def _note(self, error: Exception) -> None:
        with self._lock:
            instant = self._clock()
            self._quiet_until = instant + PAUSE_AFTER_FAILURE_S
            if instant < self._logged_at + LOG_EVERY_S:
                return
            self._logged_at = instant
        # The error's own text may hold the URL with its password.
        log.warning(
            "the broker does not take messages (%s); work goes on, found by looking every few seconds",
            type(error).__name__,
        )


@lru_cache(maxsize=8)
def _sender(settings: Settings) -> Sender:
    return Sender(settings)


def _send(settings: Settings | None, task: str, args: list[Any], queue: str) -> None:
    _sender(settings or get_settings()).send(task, args, queue)


def nudge_schedule(settings: Settings | None = None) -> None:
    """Something waits, or a device is free: place now rather than at the next look."""
    _send(settings, SCHEDULE, [], CONTROL_QUEUE)


def nudge_preflight(job_id: str, settings: Settings | None = None) -> None:
    """A job waits to be checked."""
    _send(settings, PREFLIGHT, [job_id], CONTROL_QUEUE)


def remind_preflight(job_id: str, settings: Settings | None = None) -> None:
    """The same from the sweep, which comes by every few seconds."""
    _sender(settings or get_settings()).remind(PREFLIGHT, [job_id], CONTROL_QUEUE)


def nudge_node(node_name: str, settings: Settings | None = None) -> None:
    """The node has placements to launch."""
    _send(settings, TAKE_PLACEMENTS, [node_name], node_queue(node_name))


def nudge_stop(node_name: str, attempt_id: str, settings: Settings | None = None) -> None:
    """The attempt on that node is to stop; its next beat would tell it as well."""
    _send(settings, STOP, [attempt_id], node_queue(node_name))
