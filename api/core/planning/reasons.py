"""Why a job waits, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from api.core.planning.model import FreeNode, Kept, Needs, Plan, Standing, Waiting

GIB = 1024**3


def standings_of(plan: Plan, starts_s: dict[str, float]) -> dict[str, Standing]:
    """Of every waiting job; `starts_s` says in how many seconds each will likely start, where that is known."""
    placed = {placement.job_id for placement in plan.placements}
    return {
        job.job_id: Standing(position, _reason(job, position, placed, plan), starts_s.get(job.job_id))
        for position, job in enumerate(plan.ordered, 1)
    }


def _reason(job: Waiting, position: int, placed: set[str], plan: Plan) -> str:
    if job.job_id in placed:
        return "about to start"
    refusal = plan.refusals.get(job.job_id)
    if refusal is not None:
        return refusal
    kept = plan.kept.get(job.job_id)
    if kept is not None:
        return f"needs {asked(job)}; {_kept_words(kept)}"
    before = position - 1
    return f"needs {asked(job)}; {before} {'job is' if before == 1 else 'jobs are'} before it"


def _kept_words(kept: Kept) -> str:
    where = " and ".join(kept.node_names)
    if kept.is_preempting:
        return f"waits for {where}, whose devices are being freed for it"
    if kept.n_missing == 0:
        return f"waits for {where}, which is kept free for it"
    are = "is" if len(kept.node_names) == 1 else "are"
    return f"waits for {kept.n_missing} more on {where}, which {are} kept free for it"


def never_fits(job: Waiting, nodes: Sequence[FreeNode], spans_nodes: bool) -> str:
    """Why no node that answers could ever hold the job, and what to do."""
    needs = f"needs {asked(job)}"
    with_devices = [node for node in nodes if node.devices]
    if not with_devices:
        return f"{needs}; no node with devices answers: start a worker"
    suiting = [node for node in with_devices if node.suits(job.needs)]
    if not suiting:
        return f"{needs}; no node that answers has such devices: ask for others or add a node"
    largest = max(suiting, key=lambda node: len(node.devices))
    size = len(largest.devices)
    if spans_nodes:
        return f"{needs}; the {len(suiting)} nodes that suit cannot hold it in equal parts: ask for fewer processes"
    return (
        f"{needs} on one node; the largest node that answers, {largest.name}, has {size}: "
        "ask for fewer processes or add a larger node (a run does not span nodes here)"
    )


def asked(job: Waiting) -> str:
    """The devices a job asks for: `2 cuda devices with 40 GiB labelled zone=a`."""
    kind = "" if job.needs.kind is None else f"{job.needs.kind} "
    count = f"1 {kind}device" if job.n_devices == 1 else f"{job.n_devices} {kind}devices"
    return count + _further(job.needs)


def _further(needs: Needs) -> str:
    words = ""
    if needs.min_memory_bytes is not None:
        words += f" with {needs.min_memory_bytes / GIB:.4g} GiB"
    if needs.labels:
        words += " labelled " + ", ".join(f"{key}={value}" for key, value in sorted(needs.labels))
    nodes = sorted({node for node, _ in needs.excluded})
    return words + (f" away from {', '.join(nodes)}" if nodes else "")
