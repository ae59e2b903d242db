"""What a job leaves: checkpoints and files, exports, and their downloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainyard.calls import Call, Flow, Pages, Sleep, call, flow, listed, segment
from trainyard.downloads import fetch_files
from trainyard.errors import ApiError
from trainyard.patience import PATIENCE_S, patient
from trainyard.results import Artifact, Checkpoint, Export, Json

OnBytes = Callable[[int], None]


class ResultRoutes:
    @listed
    def checkpoints(self, job_id: str) -> Pages[Checkpoint]:
        """The checkpoints of a job.

        >>> [(one["step"], one["is_best"]) for one in client.checkpoints(job_id)]
        [(10, True)]
        """
        return Pages(f"/jobs/{segment(job_id)}/checkpoints")

    @listed
    def artifacts(self, job_id: str) -> Pages[Artifact]:
        """The other files of a job: results, plots, its card, raw logs.

        >>> [one["path"] for one in client.artifacts(job_id)]
        ['all_results.json']
        """
        return Pages(f"/jobs/{segment(job_id)}/artifacts")

    @flow
    def pick(self, job_id: str, which: str = "best") -> Flow[Checkpoint]:
        """The description of the checkpoint `which`: best, last or a step.

        >>> client.pick(job_id, "last")["step"]
        10
        """
        return (yield from _picked(job_id, which))

    @flow
    def download(
        self, job_id: str, target: Path | str, which: str = "best", *, on_bytes: OnBytes = lambda _: None
    ) -> Flow[Path]:
        """The checkpoint `which` (best, last or a step) into the folder `target`; resumes and checks every digest.

        >>> sorted(file.name for file in client.download(job_id, "tuned", "last").iterdir())
        ['adapter_config.json']
        """
        return (yield from _downloaded(job_id, which, target, on_bytes))

    @flow
    def download_best(
        self, job: str | Mapping[str, Any], path: Path | str, *, on_bytes: OnBytes = lambda _: None
    ) -> Flow[Path]:
        """The best checkpoint of a job, or of its id, into the folder `path`. A second call resumes the first.

        >>> client.download_best(client.job(job_id), "best").name
        'best'
        """
        return (yield from _downloaded(segment(job), "best", path, on_bytes))

    @call
    def export(self, /, job_id: str, kind: str, checkpoint: str | int = "best", **options: Any) -> Call[Export]:
        """Asks for weights of a checkpoint: adapter, merged, fp32 or full; `options`: dtype, max_shard_size.

        >>> client.export(job_id, "merged")["state"]
        'queued'
        """
        body = {"kind": kind, "checkpoint": checkpoint, **options}
        return Call("POST", f"/jobs/{segment(job_id)}/exports", json=body)

    @listed
    def exports(self, job_id: str) -> Pages[Export]:
        """The exports of a job, newest first.

        >>> client.exports(job_id)
        []
        """
        return Pages(f"/jobs/{segment(job_id)}/exports")

    @call
    def cancel_export(self, job_id: str, export_id: str) -> Call[Export]:
        """Cancels an export that is not made yet.

        >>> client.cancel_export(job_id, client.export(job_id, "merged")["id"])["state"]
        'cancelled'
        """
        return Call("POST", f"/jobs/{segment(job_id)}/exports/{segment(export_id)}/cancel")

    @call
    def delete_export(self, job_id: str, export_id: str) -> Call[Json]:
        """Deletes an export and its files.

        >>> export = client.export(job_id, "merged")
        >>> _ = client.cancel_export(job_id, export["id"])
        >>> _ = client.delete_export(job_id, export["id"])
        """
        return Call("DELETE", f"/jobs/{segment(job_id)}/exports/{segment(export_id)}")

    @flow
    def wait_export(self, job_id: str, export_id: str, *, every_s: float = 1.0) -> Flow[Export]:
        """The export once it has ended, well or not. A service that goes away meanwhile is waited for.

        >>> export = client.export(job_id, "merged")
        >>> _ = client.cancel_export(job_id, export["id"])
        >>> client.wait_export(job_id, export["id"])["state"]
        'cancelled'
        """
        look: Call[Export] = Call("GET", f"/jobs/{segment(job_id)}/exports/{segment(export_id)}")
        while (export := (yield from patient(look, PATIENCE_S)))["state"] in ("queued", "running"):
            yield Sleep(every_s)
        return export

    @flow
    def download_export(self, export: Export, target: Path | str, *, on_bytes: OnBytes = lambda _: None) -> Flow[Path]:
        """The files of a finished export into the folder `target`; resumes and checks every digest."""
        base = f"/jobs/{segment(export['job_id'])}/exports/{segment(export['id'])}/files"
        return (yield from fetch_files(base, export["files"], Path(target), on_bytes))


def _picked(job_id: str, which: str) -> Flow[Checkpoint]:
    found: list[Checkpoint] = yield Pages(f"/jobs/{segment(job_id)}/checkpoints")
    for checkpoint in found:
        if checkpoint.get(f"is_{which}") or str(checkpoint["step"]) == which:
            return checkpoint
    steps = ", ".join(str(checkpoint["step"]) for checkpoint in found) or "none"
    raise ApiError(404, "not_found", f"job {job_id} has no checkpoint {which!r}; its steps are: {steps}")


def _downloaded(job_id: str, which: str, target: Path | str, on_bytes: OnBytes) -> Flow[Path]:
    checkpoint = yield from _picked(job_id, which)
    base = f"/jobs/{segment(job_id)}/checkpoints/{checkpoint['step']}/files"
    return (yield from fetch_files(base, checkpoint["files"], Path(target), on_bytes))
