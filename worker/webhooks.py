"""The sender of webhooks: one look sends everything that is due, several at once, and may run on many nodes at once."""

from __future__ import annotations

import logging
import threading
import time

from api.core import webhook_sending
from api.core.db import Database
from api.core.settings import Settings
from api.core.webhook_sending import Message

log = logging.getLogger(__name__)

TIDY_EVERY_S = 3600.0


class WebhookSender:
    def __init__(self, db: Database, settings: Settings) -> None:
        self._db = db
        self._settings = settings
        self._tidied: float | None = None

    def look(self) -> int:
        """Send what is due; returns how many messages that were."""
        self._tidy()
        n_sent = 0
        while messages := self._claim():
            # Daemons and no pool: a pool's threads would hold up the end of the process until each had its answer.
            threads = [threading.Thread(target=self._send, args=(message,), daemon=True) for message in messages]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            n_sent += len(messages)
        return n_sent

    def _claim(self) -> list[Message]:
        with self._db.reading() as session:
            if not webhook_sending.has_due(session):
                return []
        with self._db.session() as session:
            return webhook_sending.claim(session, self._settings)

    def _send(self, message: Message) -> None:
        try:
            result = webhook_sending.send(message, self._settings)
            with self._db.session() as session:
                webhook_sending.settle(session, message, result)
        except Exception:  # this try ends here; it is made again once the lease is over
            log.exception("the webhook message %s could not be settled", message.id)

    def _tidy(self) -> None:
        if self._tidied is None or time.monotonic() - self._tidied > TIDY_EVERY_S:
            with self._db.session() as session:
                webhook_sending.tidy(session)
            self._tidied = time.monotonic()
