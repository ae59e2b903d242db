"""Sweeps of hyperparameters and their trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.calls import Call, Pages, call, once, pages, segment
from trainyard.results import Json


class SweepRoutes:
    @call
    def submit_sweep(self, sweep: Mapping[str, Any], idempotency_key: str | None = None) -> Call[Json]:
        """Submits a sweep's body and returns its description. With a key, a repeated call returns the same sweep."""
        return Call("POST", "/sweeps", json=dict(sweep), headers=once(idempotency_key))

    @pages
    def sweeps(self) -> Pages[Json]:
        """Every sweep, newest first."""
        return Pages("/sweeps")

    @call
    def sweep(self, sweep_id: str) -> Call[Json]:
        """A sweep with its counts and its best trial."""
        return Call("GET", f"/sweeps/{segment(sweep_id)}")

    @pages
    def sweep_trials(self, sweep_id: str) -> Pages[Json]:
        """A sweep's trials, in the order they were made."""
        return Pages(f"/sweeps/{segment(sweep_id)}/trials")

    @call
    def cancel_sweep(self, sweep_id: str) -> Call[Json]:
        """Makes no further trial and cancels those under way; the sweep is `cancelling` until they are gone."""
        return Call("POST", f"/sweeps/{segment(sweep_id)}/cancel")
