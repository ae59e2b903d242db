"""Whatever stands in a body, the answer is a job or a refusal that names what is wrong, never a failure of ours."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from starlette.testclient import TestClient

from api.core.specs import ContinueFrom, DatasetSpec, JobSpec
from trainer_core.arguments.table import ACCEPTED
from trainer_core.contract import LoraAdapter, ParallelSpec

N_BODIES = 500
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 3.7, 1e308, -1e308, 5e-324, 2**63 - 1, -(2**63)),
    *("", "x", "1e4", "nan", "é😀\u2028", "a" * 3000, "best"),
    *([], [1], [[[]]], {}, {"a": 1}, {"": [None]}, {"stage": "x"}),
]
DEEPSPEED = (
    "optimizer",
    "scheduler",
    "zero_optimization",
    "fp16",
    "bf16",
    "train_batch_size",
    "gradient_clipping",
    "aio",
)


def bodies(valid: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every option with every value, one at a time."""
    groups = {"adapter": LoraAdapter, "parallel": ParallelSpec, "continue_from": ContinueFrom}
    for value in VALUES:
        yield from ({**valid, "training": {name: value}} for name in (*ACCEPTED, "seed", "report_to", "nothing"))
        yield from ({**valid, name: value} for name in JobSpec.model_fields)
        yield from ({**valid, "dataset": {**valid["dataset"], name: value}} for name in DatasetSpec.model_fields)
        for group, model in groups.items():
            yield from ({**valid, group: {name: value}} for name in model.model_fields)
        for name in DEEPSPEED:
            yield {**valid, "parallel": {"strategy": "deepspeed", "deepspeed": {name: value}}}


def test_no_body_makes_the_service_fail(client: TestClient, body: Callable[..., dict[str, Any]]) -> None:
    chosen = random.Random(20261130).sample(list(bodies(body())), N_BODIES)
    seen = set()
    for sent in chosen:
        answer = client.post("/v1/jobs", json=sent)
        seen.add(answer.status_code)
        assert answer.status_code in (201, 422), f"{sent}\n{answer.text}"
        if answer.status_code == 422:
            error = answer.json()["error"]
            assert error["details"], f"{sent}\n{error}"
    assert seen == {201, 422}
