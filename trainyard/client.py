"""A typed client for Trainyard's HTTP API. It needs httpx and nothing of the server."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

from trainyard import location, streams
from trainyard.downloads import download_files
from trainyard.errors import ApiError, ConnectionFailed, JobFailed
from trainyard.patience import AWAY, PATIENCE_S, patiently

Json = dict[str, Any]
TERMINAL = ("succeeded", "failed", "cancelled")
CONNECT_RETRIES = 3


class Client:
    """The service behind `url`. Without arguments it finds the one on this machine.

    Every method raises ApiError for an error the service answered, ConnectionFailed when nothing answered.
    Descriptions come back as the dictionaries the API reference shows.
    """

    def __init__(self, url: str | None = None, api_key: str | None = None, *, data_dir: Path | None = None) -> None:
        found = location.find(url, api_key, data_dir)
        self.url = found.url
        self._http = httpx.Client(
            base_url=f"{found.url}/v1",
            headers={"Authorization": f"Bearer {found.api_key}"},
            timeout=httpx.Timeout(30.0, connect=5.0),
            transport=httpx.HTTPTransport(retries=CONNECT_RETRIES),
            event_hooks={"response": [_raise_api_error]},
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # Datasets

    def push_dataset(self, file: Path | str, name: str | None = None) -> Json:
        """Uploads a JSONL or JSON file (gzip allowed); streamed, any size."""
        path = Path(file)
        with path.open("rb") as stream:
            form = {"name": name} if name else {}
            return self._call("POST", "/datasets", files={"file": (path.name, stream)}, data=form, timeout=None)

    def datasets(self) -> Iterator[Json]:
        return self._pages("/datasets")

    def dataset(self, dataset_id: str) -> Json:
        return self._call("GET", f"/datasets/{_segment(dataset_id)}")

    def dataset_rows(self, dataset_id: str, after: int = 0, limit: int = 20) -> Json:
        return self._call("GET", f"/datasets/{_segment(dataset_id)}/rows", params={"after": after, "limit": limit})

    def delete_dataset(self, dataset_id: str) -> None:
        self._call("DELETE", f"/datasets/{_segment(dataset_id)}")

    # Models and nodes

    def add_model(self, name: str, source: str, revision: str | None = None) -> Json:
        return self._call("POST", "/models", json={"name": name, "source": source, "revision": revision})

    def models(self) -> Iterator[Json]:
        return self._pages("/models")

    def nodes(self) -> Iterator[Json]:
        return self._pages("/nodes")

    def drain(self, node: str, *, stop: bool = False) -> Json:
        """No further work for the node; with `stop` its runs leave at a checkpoint and are queued again."""
        return self._call("POST", f"/nodes/{_segment(node)}/drain", params={"stop": stop})

    def cordon(self, node: str) -> Json:
        return self._call("POST", f"/nodes/{_segment(node)}/cordon")

    def uncordon(self, node: str) -> Json:
        return self._call("POST", f"/nodes/{_segment(node)}/uncordon")

    # Jobs

    def submit(self, job: Mapping[str, Any], idempotency_key: str | None = None) -> Json:
        """Submits a job body and returns its description. With a key, a repeated call returns the same job."""
        return self._call("POST", "/jobs", json=dict(job), headers=_once(idempotency_key))

    def estimate(self, job: Mapping[str, Any]) -> Json:
        """What the job of this body would need: memory, disk, tokens, time. Nothing is made."""
        return self._call("POST", "/estimates", json=dict(job))

    def jobs(
        self, *, state: list[str] | None = None, label: list[str] | None = None, name: str | None = None
    ) -> Iterator[Json]:
        filters: Json = {"state": state, "label": label, "name": name}
        return self._pages("/jobs", {key: value for key, value in filters.items() if value})

    def job(self, job_id: str) -> Json:
        return self._call("GET", f"/jobs/{_segment(job_id)}")

    def cancel(self, job_id: str) -> Json:
        return self._call("POST", f"/jobs/{_segment(job_id)}/cancel")

    def pause(self, job_id: str) -> Json:
        """Its run saves a checkpoint and leaves its devices; the job is `pausing` until it is gone."""
        return self._call("POST", f"/jobs/{_segment(job_id)}/pause")

    def resume(self, job_id: str) -> Json:
        return self._call("POST", f"/jobs/{_segment(job_id)}/resume")

    def retry(self, job_id: str, checkpoint: str | int | None = None, idempotency_key: str | None = None) -> Json:
        """A new job of one that failed or was cancelled, from `checkpoint` (best, last, a step) or from the start."""
        body = {"checkpoint": checkpoint}
        return self._call("POST", f"/jobs/{_segment(job_id)}/retry", json=body, headers=_once(idempotency_key))

    def clone(self, job_id: str, patch: Mapping[str, Any] | None = None, idempotency_key: str | None = None) -> Json:
        """A new job like this one, with a JSON merge patch over its body."""
        body = dict(patch or {})
        return self._call("POST", f"/jobs/{_segment(job_id)}/clone", json=body, headers=_once(idempotency_key))

    def change(self, job_id: str, **patch: Any) -> Json:
        """`labels` and `notes` at any time, `priority` and `time_limit_s` while it waits; None takes away."""
        return self._call("PATCH", f"/jobs/{_segment(job_id)}", json=patch)

    def wait(self, job_id: str, *, every_s: float = 1.0, timeout_s: float | None = None) -> Json:
        """The job once it has succeeded. Raises JobFailed when it ended otherwise, TimeoutError when it has not.

        A service that goes away meanwhile is waited for, up to two minutes.
        """
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        job = self.job(job_id)
        while job["state"] not in TERMINAL:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"job {job_id} is still {job['state']} after {timeout_s} s")
            time.sleep(min(every_s, left_s))
            job = patiently(lambda: self.job(job_id), min(PATIENCE_S, left_s))
        if job["state"] != "succeeded":
            raise JobFailed(job)
        return job

    def events(self, job_id: str, *, follow: bool = False, after: int = 0) -> Iterator[Json]:
        return self._feed(job_id, "events", follow, after)

    def metrics(self, job_id: str, *, follow: bool = False, after: int = 0) -> Iterator[Json]:
        return self._feed(job_id, "metrics", follow, after)

    def logs(self, job_id: str, *, follow: bool = False, after: int = 0) -> Iterator[Json]:
        return self._feed(job_id, "logs", follow, after)

    # What a job leaves

    def checkpoints(self, job_id: str) -> list[Json]:
        return list(self._pages(f"/jobs/{_segment(job_id)}/checkpoints"))

    def artifacts(self, job_id: str) -> list[Json]:
        return list(self._pages(f"/jobs/{_segment(job_id)}/artifacts"))

    def download(
        self,
        job_id: str,
        target: Path | str,
        which: str = "best",
        *,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> Path:
        """The checkpoint `which` (best, last or a step) into the folder `target`; resumes and checks every digest."""
        checkpoint = self.pick(job_id, which)
        base = f"/jobs/{_segment(job_id)}/checkpoints/{checkpoint['step']}/files"
        return download_files(self._http, base, checkpoint["files"], Path(target), on_bytes)

    def pick(self, job_id: str, which: str = "best") -> Json:
        """The description of the checkpoint `which`: best, last or a step."""
        listed = self.checkpoints(job_id)
        for checkpoint in listed:
            if checkpoint.get(f"is_{which}") or str(checkpoint["step"]) == which:
                return checkpoint
        steps = ", ".join(str(checkpoint["step"]) for checkpoint in listed) or "none"
        raise ApiError(404, "not_found", f"job {job_id} has no checkpoint {which!r}; its steps are: {steps}")

    # Exports

    def export(self, job_id: str, kind: str, checkpoint: str | int = "best", **options: Any) -> Json:
        """Asks for weights of a checkpoint: adapter, merged, fp32 or full; `options`: dtype, max_shard_size."""
        body = {"kind": kind, "checkpoint": checkpoint, **options}
        return self._call("POST", f"/jobs/{_segment(job_id)}/exports", json=body)

    def exports(self, job_id: str) -> list[Json]:
        return list(self._pages(f"/jobs/{_segment(job_id)}/exports"))

    def cancel_export(self, job_id: str, export_id: str) -> Json:
        return self._call("POST", f"/jobs/{_segment(job_id)}/exports/{_segment(export_id)}/cancel")

    def delete_export(self, job_id: str, export_id: str) -> None:
        self._call("DELETE", f"/jobs/{_segment(job_id)}/exports/{_segment(export_id)}")

    def wait_export(self, job_id: str, export_id: str, *, every_s: float = 1.0) -> Json:
        """The export once it has ended, well or not. A service that goes away meanwhile is waited for."""
        path = f"/jobs/{_segment(job_id)}/exports/{_segment(export_id)}"
        while (export := patiently(lambda: self._call("GET", path), PATIENCE_S))["state"] in ("queued", "running"):
            time.sleep(every_s)
        return export

    def download_export(
        self, export: Json, target: Path | str, *, on_bytes: Callable[[int], None] = lambda _: None
    ) -> Path:
        """The files of a finished export into the folder `target`; resumes and checks every digest."""
        base = f"/jobs/{_segment(export['job_id'])}/exports/{_segment(export['id'])}/files"
        return download_files(self._http, base, export["files"], Path(target), on_bytes)

    def health(self) -> Json:
        return self._call("GET", "/health/ready")

    # How a call is made

    def _feed(self, job_id: str, what: str, follow: bool, after: int) -> Iterator[Json]:
        path = f"/jobs/{_segment(job_id)}/{what}"
        return streams.follow(self._http, path, after=after) if follow else self._pages(path, {"after": after})

    def _pages(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[Json]:
        query = dict(params or {})
        while True:
            page = self._call("GET", path, params=query)
            yield from page["data"]
            if not page["has_more"]:
                return
            query["after"] = page["next"]

    def _call(self, method: str, path: str, **options: Any) -> Json:
        try:
            response = self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise ConnectionFailed(
                f"nothing answers at {self.url}: {error}; is the service up (`trainyard up`)?"
            ) from error
        return response.json() if response.content else {}


def _once(idempotency_key: str | None) -> dict[str, str]:
    return {"Idempotency-Key": idempotency_key} if idempotency_key else {}


def _segment(text: str) -> str:
    """One path segment: an id is quoted, so that it can never name another route."""
    if not re.fullmatch(r"[\w.-]{1,200}", text) or text in {".", ".."}:
        raise ApiError(404, "not_found", f"expected an id such as job_01..., found {text[:60]!r}")
    return quote(text, safe="")


def _raise_api_error(response: httpx.Response) -> None:
    if not response.is_error or response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
        return
    if response.status_code in AWAY and "text/event-stream" in response.request.headers.get("accept", ""):
        return  # the stream's own reader waits for the service to come back
    response.read()
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        error = {"code": "http_error", "message": f"HTTP {response.status_code} from {response.request.url}"}
    raise ApiError(
        response.status_code,
        error["code"],
        error["message"],
        param=error.get("param"),
        details=error.get("details") or (),
        request_id=response.headers.get("x-request-id"),
    )
