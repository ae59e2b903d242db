"""`trainyard keys list|create|revoke`."""

from __future__ import annotations

from typing import Annotated

import typer

from trainyard import screen
from trainyard.commands.connection import connect

app = typer.Typer(no_args_is_help=True, help="API keys: list, create, revoke.")
AsJson = Annotated[bool, typer.Option("--json", help="Print the service's own JSON.")]


@app.command("list")
def list_keys(
    revoked: Annotated[bool, typer.Option("--revoked", help="List revoked keys too.")] = False, as_json: AsJson = False
) -> None:
    """List API keys, oldest first; never their secrets."""
    with connect() as client:
        listed = client.keys(revoked=revoked)
    if as_json:
        screen.print_json(listed)
        return
    rows = (
        (
            key["id"],
            key["name"],
            ", ".join(key["permissions"]) if key["role"] == "custom" else key["role"],
            key["state"],
            screen.ago(key["last_used_at"]) or "never",
            (key["expires_at"] or "never")[:10],
        )
        for key in listed
    )
    screen.print_table(["id", "name", "may", "state", "last used", "expires"], rows)


@app.command()
def create(
    name: str,
    role: Annotated[str | None, typer.Option(help="admin, member or viewer.")] = None,
    permission: Annotated[
        list[str] | None, typer.Option(help="Instead of a role, such as jobs:read; repeatable.")
    ] = None,
    expires: Annotated[str | None, typer.Option(help="An instant or a day, such as 2030-12-31 (UTC).")] = None,
    as_json: AsJson = False,
) -> None:
    """Make an API key. It is printed this once."""
    with connect() as client:
        key = client.create_key(name, role, permissions=permission, expires_at=expires)
    if as_json:
        screen.print_json(key)
        return
    screen.err.print(f"{key['id']}: keep this key, it cannot be shown again", markup=False, soft_wrap=True)
    screen.out.out(key["secret"], highlight=False)


@app.command()
def revoke(key_id: str, as_json: AsJson = False) -> None:
    """Revoke an API key: it opens nothing from now on. The last lasting admin key stays."""
    with connect() as client:
        client.revoke_key(key_id)
    screen.print_json({"id": key_id, "state": "revoked"}) if as_json else screen.out.print(
        f"revoked {key_id}", markup=False
    )
