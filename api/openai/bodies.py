"""What the OpenAI face takes, and a fine-tuning job's body as the job body of this service.

The base rate of `learning_rate_multiplier` is the service's own default rate: one for adapters, one for full weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, StringConstraints, ValidationError, model_validator

from api.core.errors import Invalid
from api.core.specs import JobSpec, LabelKey, LabelValue, Reference, detail_of
from api.openai.names import dataset_id
from trainer_core.arguments.table import default_rate
from trainer_core.contract import Frozen
from trainer_core.numbers import PositiveNumber, PositiveWholeNumber, WholeNumber
from trainer_core.problems import from_validation_error

MAX_PER_DEVICE = 8  # rows a device takes at once where batch_size says nothing of it; the rest is accumulated
METHODS = {"supervised": "sft", "dpo": "preference", "reinforcement": "rl"}
GRADERS = ("string_check", "text_similarity", "multi")
BATCH_OPTIONS = ("per_device_train_batch_size", "gradient_accumulation_steps")
Auto = Literal["auto"]


class Hyperparameters(Frozen):
    batch_size: Auto | Annotated[PositiveWholeNumber, Field(le=256)] = "auto"
    learning_rate_multiplier: Auto | PositiveNumber = "auto"
    n_epochs: Auto | Annotated[PositiveWholeNumber, Field(le=50)] = "auto"


class DpoHyperparameters(Hyperparameters):
    beta: Auto | Annotated[PositiveNumber, Field(le=2)] = "auto"


class ReinforcementHyperparameters(Hyperparameters):
    reasoning_effort: Literal["default", "low", "medium", "high"] = "default"
    compute_multiplier: Auto | Annotated[PositiveNumber, Field(le=10)] = "auto"
    eval_interval: Auto | PositiveWholeNumber = "auto"
    eval_samples: Auto | PositiveWholeNumber = "auto"


class Supervised(Frozen):
    hyperparameters: Hyperparameters = Hyperparameters()


class Dpo(Frozen):
    hyperparameters: DpoHyperparameters = DpoHyperparameters()


class Reinforcement(Frozen):
    grader: dict[str, Any]
    hyperparameters: ReinforcementHyperparameters = ReinforcementHyperparameters()


class Method(Frozen):
    type: Literal["supervised", "dpo", "reinforcement"]
    supervised: Supervised | None = None
    dpo: Dpo | None = None
    reinforcement: Reinforcement | None = None

    @model_validator(mode="after")
    def _one_block(self) -> Self:
        given = [name for name in METHODS if getattr(self, name) is not None]
        if any(name != self.type for name in given):
            raise ValueError(f"the type is {self.type}, and there is a block {', '.join(given)}; keep the one it names")
        return self

    @property
    def hyperparameters(self) -> Hyperparameters:
        block: Supervised | Dpo | Reinforcement | None = getattr(self, self.type)
        return block.hyperparameters if block else Hyperparameters()


class CreateJob(Frozen):
    """The body of POST /fine_tuning/jobs. What stands below `metadata` is this service's own, sent by `extra_body`."""

    model: Reference
    training_file: Reference
    validation_file: Reference | None = None
    hyperparameters: Hyperparameters | None = None
    method: Method | None = None
    suffix: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    seed: Annotated[WholeNumber, Field(ge=0, le=2**31 - 1)] | None = None
    integrations: list[dict[str, Any]] | None = None
    metadata: Annotated[dict[LabelKey, LabelValue], Field(max_length=16)] | None = None

    name: str | None = None
    adapter: dict[str, Any] | Literal["default"] | None = Field(default="default", description="null: every weight.")
    training: dict[str, Any] = Field(default_factory=dict)
    parallel: dict[str, Any] = Field(default_factory=dict)
    dataset: dict[str, Any] = Field(default_factory=dict, description="columns, render, max_length, eval_fraction")
    options: dict[str, Any] = Field(default_factory=dict, description="Further options of the method's own block.")
    priority: int = 0
    notes: str | None = None

    @model_validator(mode="after")
    def _hyperparameters_once(self) -> Self:
        if self.hyperparameters is not None and self.method is not None:
            raise ValueError("hyperparameters are given twice; leave the old key out and keep those in `method`")
        if both := {"train", "eval"} & set(self.dataset):
            raise ValueError(f"dataset.{min(both)} is named by training_file and validation_file")
        return self

    @property
    def hyper(self) -> Hyperparameters:
        if self.method is not None:
            return self.method.hyperparameters
        return self.hyperparameters or Hyperparameters()


def as_spec(body: CreateJob, start: dict[str, Any] | None = None) -> JobSpec:
    """The job that is asked for. `start`: what a job on top of a fine-tuned model takes from the one that made it.

    Raises Invalid with every fault of the parts that are this service's own.
    """
    if body.integrations:
        raise Invalid(
            "no integration is offered here; leave it out", code="unsupported_parameter", param="integrations"
        )
    method = METHODS[body.method.type if body.method else "supervised"]
    sent: dict[str, Any] = {
        "name": body.name or (body.suffix and body.suffix.strip()) or None,
        "model": body.model,
        "method": _offered(method),
        "dataset": {**body.dataset, "train": dataset_id(body.training_file), **_validation(body)},
        "adapter": {"type": "lora"} if body.adapter == "default" else body.adapter,
        "training": body.training,
        "parallel": body.parallel,
        "labels": body.metadata or {},
        "priority": body.priority,
        "notes": body.notes,
        **_block(method, body),
        **_started(start, body),
    }
    sent["training"] = _training(body, sent["adapter"])
    try:
        return JobSpec.model_validate(sent)
    except ValidationError as invalid:
        details = [detail_of(problem) for problem in from_validation_error(invalid, JobSpec)]
        first = details[0]
        raise Invalid(str(first["message"]), code=first["code"], param=first["param"], details=details) from invalid


def _offered(method: str) -> str:
    if method not in offered():
        names = [theirs for theirs, ours in METHODS.items() if ours in offered()]
        raise Invalid(
            f"this method is not offered here; there is: {', '.join(names)}", code="unsupported_method", param="method"
        )
    return method


def offered() -> tuple[str, ...]:
    """The methods that a job of this service may have."""
    return get_args(JobSpec.model_fields["method"].annotation)


def _validation(body: CreateJob) -> dict[str, Any]:
    return {"eval": dataset_id(body.validation_file)} if body.validation_file else {}


def _started(start: dict[str, Any] | None, body: CreateJob) -> dict[str, Any]:
    if start is None:
        return {}
    return {key: value for key, value in start.items() if key != "adapter" or body.adapter == "default"}


def _block(method: str, body: CreateJob) -> dict[str, Any]:
    """The method's own block of the job body."""
    block = dict(body.options)
    if method == "preference":
        block = {"loss": "sigmoid"} | block
        if isinstance(body.hyper, DpoHyperparameters) and body.hyper.beta != "auto":
            block["beta"] = body.hyper.beta
    if method == "rl":
        block["grader"] = _grader(body)
    return {method: block} if block else {}


def _grader(body: CreateJob) -> dict[str, Any]:
    """What scores an answer. Raises Invalid for a grader that would run code or ask another model."""
    sent = body.method.reinforcement if body.method else None
    if sent is None:
        raise Invalid("a job of reinforcement needs a grader", code="missing", param="method.reinforcement.grader")
    several = sent.grader.get("graders")
    graders = [sent.grader, *(several.values() if isinstance(several, dict) else [])]
    for grader in graders:
        kind = grader.get("type") if isinstance(grader, dict) else None
        if kind not in GRADERS:
            raise Invalid(
                f"there is no grader of the type {str(kind)[:60]!r} here; there is: {', '.join(GRADERS)}",
                code="unsupported_grader",
                param="method.reinforcement.grader",
            )
    usual = ReinforcementHyperparameters()
    for name in ("reasoning_effort", "compute_multiplier", "eval_samples"):
        if getattr(sent.hyperparameters, name) != getattr(usual, name):
            param = f"method.reinforcement.hyperparameters.{name}"
            raise Invalid(f"{name} has no meaning here; leave it out", code="unsupported_parameter", param=param)
    return sent.grader


def _training(body: CreateJob, adapter: dict[str, Any] | None) -> dict[str, Any]:
    """The training block with what the hyperparameters say. Raises Invalid where an option is given twice."""
    hyper, training = body.hyper, dict(body.training)
    said: dict[str, Any] = {}
    if hyper.n_epochs != "auto":
        said["num_train_epochs"] = hyper.n_epochs
    if hyper.learning_rate_multiplier != "auto":
        said["learning_rate"] = base_rate(adapter) * hyper.learning_rate_multiplier
    if hyper.batch_size != "auto":
        said |= _batch(hyper.batch_size, body)
    if isinstance(hyper, ReinforcementHyperparameters) and hyper.eval_interval != "auto":
        said["eval_steps"] = hyper.eval_interval
    if body.seed is not None:
        said["seed"] = body.seed
    if twice := sorted(set(said) & set(training)):
        raise Invalid(f"training.{twice[0]} says what the request says by OpenAI's own name too; keep one of them",
                      code="conflict", param=f"training.{twice[0]}")  # fmt: skip
    return training | said


def base_rate(adapter: Mapping[str, Any] | None) -> float:
    """The learning rate that a multiplier of 1 means."""
    return default_rate(None if adapter is None else str(adapter.get("type", "lora")))


def _batch(batch_size: int, body: CreateJob) -> dict[str, int]:
    """Rows a step, over all processes, as rows a device and accumulation."""
    n_processes = body.parallel.get("n_processes", 1)
    n_processes = n_processes if isinstance(n_processes, int) and n_processes > 0 else 1  # refused later by its name
    rows, rest = divmod(batch_size, n_processes)
    if rest:
        raise Invalid(f"batch_size {batch_size} cannot be shared by {n_processes} processes; take a multiple of it",
                      code="out_of_range", param="hyperparameters.batch_size")  # fmt: skip
    per_device = max(n for n in range(1, min(rows, MAX_PER_DEVICE) + 1) if rows % n == 0)
    return dict(zip(BATCH_OPTIONS, (per_device, rows // per_device), strict=True))
