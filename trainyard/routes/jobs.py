"""Jobs: submitted, looked at, waited for, followed, changed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from trainyard.calls import (
    Call,
    Flow,
    Following,
    Pages,
    Sleep,
    call,
    feed,
    job_call,
    job_flow,
    job_pages,
    once,
    segment,
)
from trainyard.errors import JobFailed
from trainyard.patience import PATIENCE_S, patient
from trainyard.results import Event, Json, LogLine, Metric

TERMINAL = ("succeeded", "failed", "cancelled")


class JobRoutes:
    @job_call
    def submit(self, job: Mapping[str, Any], idempotency_key: str | None = None) -> Call[Json]:
        """Submits a job body. With a key, a repeated call returns the same job.

        >>> job = client.submit({"model": "tiny", "dataset": {"train": dataset_id}})
        >>> job.state
        'validating'
        """
        return Call("POST", "/jobs", json=dict(job), headers=once(idempotency_key))

    @call
    def estimate(self, job: Mapping[str, Any]) -> Call[Json]:
        """What the job of this body would need: memory, disk, tokens, time. Nothing is made.

        >>> client.estimate({"model": "tiny", "dataset": {"train": dataset_id}})["planned_steps"] > 0
        True
        """
        return Call("POST", "/estimates", json=dict(job))

    @job_pages
    def jobs(
        self, *, state: list[str] | None = None, label: list[str] | None = None, name: str | None = None
    ) -> Pages[Json]:
        """Jobs, newest first; pages are fetched as they are read. A label is `key:value`.

        >>> [job.name for job in client.jobs(state=["succeeded"])]
        ['done']
        """
        filters: Json = {"state": state, "label": label, "name": name}
        return Pages("/jobs", {key: value for key, value in filters.items() if value})

    @job_call
    def job(self, job_id: str) -> Call[Json]:
        """A job with all that is known of it.

        >>> client.job(job_id).best_step
        10
        """
        return Call("GET", f"/jobs/{segment(job_id)}")

    @job_call
    def cancel(self, job_id: str) -> Call[Json]:
        """Cancels a job: `cancelling` until none of its processes is left.

        >>> client.submit({"model": "tiny", "dataset": {"train": dataset_id}}).cancel().state
        'cancelled'
        """
        return Call("POST", f"/jobs/{segment(job_id)}/cancel")

    @job_call
    def pause(self, job_id: str) -> Call[Json]:
        """Its run saves a checkpoint and leaves its devices; the job is `pausing` until it is gone.

        >>> client.pause(queued_id).state
        'paused'
        """
        return Call("POST", f"/jobs/{segment(job_id)}/pause")

    @job_call
    def resume(self, job_id: str) -> Call[Json]:
        """A paused job goes back into the queue, and on from its newest checkpoint.

        >>> _ = client.pause(queued_id)
        >>> client.resume(queued_id).state
        'queued'
        """
        return Call("POST", f"/jobs/{segment(job_id)}/resume")

    @job_call
    def retry(self, job_id: str, checkpoint: str | int | None = None, idempotency_key: str | None = None) -> Call[Json]:
        """A new job of one that failed or was cancelled, from `checkpoint` (best, last, a step) or from the start.

        >>> cancelled = client.submit({"model": "tiny", "dataset": {"train": dataset_id}}).cancel()
        >>> cancelled.retry().state
        'validating'
        """
        body = {"checkpoint": checkpoint}
        return Call("POST", f"/jobs/{segment(job_id)}/retry", json=body, headers=once(idempotency_key))

    @job_call
    def clone(
        self, job_id: str, patch: Mapping[str, Any] | None = None, idempotency_key: str | None = None
    ) -> Call[Json]:
        """A new job like this one, with a JSON merge patch over its body.

        >>> client.clone(queued_id, {"name": "slower", "training": {"learning_rate": 1e-5}}).name
        'slower'
        """
        path = f"/jobs/{segment(job_id)}/clone"
        return Call("POST", path, json=dict(patch or {}), headers=once(idempotency_key))

    @job_call
    def change(self, /, job_id: str, **patch: Any) -> Call[Json]:
        """`labels` and `notes` at any time, `priority` and `time_limit_s` while it waits; None takes away.

        >>> client.change(job_id, labels={"team": "support"})["labels"]
        {'team': 'support'}
        """
        return Call("PATCH", f"/jobs/{segment(job_id)}", json=patch)

    @job_flow
    def wait(self, job_id: str, *, every_s: float = 1.0, timeout_s: float | None = None) -> Flow[Json]:
        """The job once it has succeeded. Raises JobFailed when it ended otherwise, TimeoutError when it has not.

        A service that goes away meanwhile is waited for, up to two minutes.

        >>> client.wait(job_id).state
        'succeeded'
        """
        look: Call[Json] = Call("GET", f"/jobs/{segment(job_id)}")
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        job: Json = yield look
        while job["state"] not in TERMINAL:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"job {job_id} is still {job['state']} after {timeout_s} s")
            yield Sleep(min(every_s, left_s))
            job = yield from patient(look, min(PATIENCE_S, left_s))
        if job["state"] != "succeeded":
            raise JobFailed(job)
        return job

    @feed
    def events(self, job_id: str, *, follow: bool = False, after: int = 0) -> Following[Event]:
        """What happened to a job, in order; with `follow` until it is over, across restarts of the service.

        >>> [event["kind"] for event in client.events(job_id)][-1]
        'succeeded'
        """
        return Following(f"/jobs/{segment(job_id)}/events", follow, after)

    @feed
    def metrics(self, job_id: str, *, follow: bool = False, after: int = 0) -> Following[Metric]:
        """Its figures, one item a step.

        >>> [row["values"]["loss"] for row in client.metrics(job_id)]
        [2.5, 2.0]
        >>> client.job(job_id).metrics().to_pandas()["loss"].min()
        np.float64(2.0)
        """
        return Following(f"/jobs/{segment(job_id)}/metrics", follow, after)

    @feed
    def logs(self, job_id: str, *, follow: bool = False, after: int = 0) -> Following[LogLine]:
        """Its log lines.

        >>> for line in client.logs(job_id, follow=True):
        ...     print(line["text"])
        loading
        training
        """
        return Following(f"/jobs/{segment(job_id)}/logs", follow, after)
