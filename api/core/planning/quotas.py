"""Limits while a plan is made: what each project and user holds already, and whether one more job is within. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from api.core.planning.model import Account, Policy, Running, Usage, Waiting


class Ledger:
    """Devices and running jobs by account; the plan takes from it job by job."""

    def __init__(self, running: Iterable[Running], usage: Usage, policy: Policy) -> None:
        self._policy = policy
        self._usage = usage
        self._devices: dict[Account, int] = {}
        self._running: dict[Account, int] = {}
        for run in running:
            self._add(run.project, run.user, run.n_devices)

    def refusal(self, job: Waiting) -> str | None:
        """The limit that keeps the job waiting, in words."""
        return self._over(("project", job.project), job) or self._over(("user", job.user), job)

    def take(self, job: Waiting) -> None:
        self._add(job.project, job.user, job.n_devices)

    def _add(self, project: str, user: str, n_devices: int) -> None:
        accounts: tuple[Account, Account] = (("project", project), ("user", user))
        for account in accounts:
            self._devices[account] = self._devices.get(account, 0) + n_devices
            self._running[account] = self._running.get(account, 0) + 1

    def _over(self, account: Account, job: Waiting) -> str | None:
        limits = self._policy.limits_of(account)
        devices, running = self._devices.get(account, 0), self._running.get(account, 0)
        if limits.devices is not None and devices + job.n_devices > limits.devices:
            return f"{_who(account)} holds {devices} of the {limits.devices} devices it may have at once"
        if limits.running is not None and running >= limits.running:
            return f"{_who(account)} runs {running} of the {limits.running} jobs it may run at once"
        used_hours = self._usage.window.get(account, 0.0) / 3600
        if limits.device_hours is not None and used_hours >= limits.device_hours:
            return f"{_who(account)} has used {used_hours:.1f} of its {limits.device_hours:g} device-hours lately"
        return None


def _who(account: Account) -> str:
    scope, name = account
    return f"project {name}" if scope == "project" else "its user"
