"""API keys and webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from trainyard.calls import Call, Pages, call, listed, pages, segment
from trainyard.results import Delivery, Json, Key, NewKey, NewWebhook, Webhook


class AccessRoutes:
    @listed
    def keys(self, *, revoked: bool = False) -> Pages[Key]:
        """The API keys, oldest first; never their secrets.

        >>> [key["role"] for key in client.keys()]
        ['admin']
        """
        return Pages("/keys", {"revoked": revoked})

    @call
    def create_key(
        self,
        name: str,
        role: str | None = None,
        *,
        permissions: Sequence[str] | None = None,
        expires_at: datetime | str | None = None,
    ) -> Call[NewKey]:
        """A key with a role (admin, member, viewer) or with permissions; its `secret` is shown this once.

        >>> key = client.create_key("status board", permissions=["jobs:read"], expires_at="2099-12-31")
        >>> key["secret"].startswith("ty-")
        True
        """
        until = expires_at.isoformat() if isinstance(expires_at, datetime) else expires_at
        rights: Json = {"role": role, "permissions": None if permissions is None else list(permissions)}
        return Call("POST", "/keys", json={"name": name, "expires_at": until, **rights})

    @call
    def revoke_key(self, key_id: str) -> Call[Json]:
        """The key opens nothing from now on.

        >>> _ = client.revoke_key(client.create_key("a guest", "viewer")["id"])
        """
        return Call("DELETE", f"/keys/{segment(key_id)}")

    @listed
    def webhooks(self) -> Pages[Webhook]:
        """Addresses that are told of every change of a job's state.

        >>> client.webhooks()
        []
        """
        return Pages("/webhooks")

    @call
    def add_webhook(self, /, name: str, url: str, **options: Any) -> Call[NewWebhook]:
        """A webhook; `options`: format, events. Its `secret` is shown this once.

        >>> client.add_webhook("ours", "https://hooks.example.invalid/yard", events=["job.failed"])["is_enabled"]
        True
        """
        return Call("POST", "/webhooks", json={"name": name, "url": url, **options})

    @call
    def delete_webhook(self, webhook_id: str) -> Call[Json]:
        """Nothing more is sent to it."""
        return Call("DELETE", f"/webhooks/{segment(webhook_id)}")

    @call
    def test_webhook(self, webhook_id: str) -> Call[Delivery]:
        """Sends a test message at once; the answer says what the other side said."""
        return Call("POST", f"/webhooks/{segment(webhook_id)}/test")

    @pages
    def deliveries(self, webhook_id: str) -> Pages[Delivery]:
        """What was sent to a webhook, newest first, with every try."""
        return Pages(f"/webhooks/{segment(webhook_id)}/deliveries")
