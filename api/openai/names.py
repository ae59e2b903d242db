"""Ids and model names as OpenAI writes them, and back: `file-…` is a dataset, `ftjob-…` a job, `ft:…` what it made.

Pure text: an id keeps its 22 characters whatever stands before them. A text that is none of ours passes through, and is
then not found where it is looked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from api.core.fine_tunes import ORGANIZATION, model_name

FILE = "file-"
RESULT = "file-result-"
JOB = "ftjob-"
CHECKPOINT = "ftckpt_"
EVENT = "ftevent-"
UPLOAD = "upload_"
TAIL = "[0-9a-hjkmnp-tv-z]{22}"
TUNED = re.compile(rf"^ft:.+:{ORGANIZATION}:[^:]*:({TAIL})(?::ckpt-step-([0-9]{{1,18}}))?$")
EVENT_ID = re.compile(rf"^{EVENT}({TAIL})-([em])([0-9]{{1,18}})$")

__all__ = ["ORGANIZATION", "model_name"]


def tail(own_id: str) -> str:
    """The part of an id that every way of writing it has."""
    return own_id.partition("_")[2]


def file_id(dataset_id: str) -> str:
    return FILE + tail(dataset_id)


def result_file_id(job_id: str) -> str:
    return RESULT + tail(job_id)


def result_job_id(sent: str) -> str | None:
    """The id of the job whose results the file holds; null for every other file."""
    return "job_" + sent.removeprefix(RESULT) if sent.startswith(RESULT) else None


def dataset_id(sent: str) -> str:
    return "ds_" + sent.removeprefix(FILE) if sent.startswith(FILE) else sent


def fine_tune_id(job_id: str) -> str:
    return JOB + tail(job_id)


def job_id(sent: str) -> str:
    return "job_" + sent.removeprefix(JOB) if sent.startswith(JOB) else sent


def checkpoint_id(own_id: str) -> str:
    return CHECKPOINT + tail(own_id)


def own_checkpoint_id(sent: str) -> str:
    return "ckpt_" + sent.removeprefix(CHECKPOINT) if sent.startswith(CHECKPOINT) else sent


def event_id(own_job_id: str, kind: str, n: int) -> str:
    """`kind`: e for an event, m for a row of metrics."""
    return f"{EVENT}{tail(own_job_id)}-{kind}{n}"


def event_of(sent: str, own_job_id: str) -> tuple[str, int] | None:
    """(kind, n) of an event id of this job; null for anything else."""
    found = EVENT_ID.fullmatch(sent)
    if found is None or "job_" + found[1] != own_job_id:
        return None
    return found[2], int(found[3])


@dataclass(frozen=True)
class TunedName:
    """What a `ft:` name names: a job's model, or one of its checkpoints."""

    job_id: str
    step: int | None


def tuned(name: str) -> TunedName | None:
    """What the name names; null where it is none of a fine-tuned model. Who has the job compares the rest of it."""
    found = TUNED.fullmatch(name)
    return TunedName("job_" + found[1], int(found[2]) if found[2] else None) if found else None
