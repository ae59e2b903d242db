"""What the service and preflight must know of each method before it runs: rows, figures, model. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainer_core.contract.method_options import ClassificationOptions, MethodBlocks, MethodName
from trainer_core.data.mapping import METHOD_FORMATS
from trainer_core.data.report import TrainFormat

ModelKind = Literal["causal", "seq2seq", "sequence_classification", "token_classification"]
Directions = dict[str, bool]
"""Figure of an evaluation -> whether a greater one is better."""

LOSS: Directions = {"eval_loss": False}
CLASSES: Directions = {
    "eval_accuracy": True, "eval_precision_macro": True, "eval_precision_micro": True, "eval_recall_macro": True,
    "eval_recall_micro": True, "eval_f1_macro": True, "eval_f1_micro": True, "eval_auc": True,
}  # fmt: skip
NUMBERS: Directions = {"eval_mse": False, "eval_rmse": False, "eval_mae": False, "eval_pearson": True}
GENERATED: Directions = {
    "eval_bleu": True, "eval_chrf": True, "eval_rouge1": True, "eval_rouge2": True, "eval_rougeL": True,
}  # fmt: skip
TAGS: Directions = {"eval_accuracy": True}
ENTITIES: Directions = {"eval_precision": True, "eval_recall": True, "eval_f1": True}
REWARDS: Directions = {
    "eval_rewards/margins": True, "eval_rewards/accuracies": True, "eval_rewards/chosen": True,
    "eval_rewards/rejected": False,
}  # fmt: skip

PAIRS: Directions = {"eval_accuracy": True, "eval_margin": True}


@dataclass(frozen=True)
class Method:
    """One row of the table."""

    name: MethodName
    kind: ModelKind
    metrics: Directions
    """Every figure that its evaluation may yield; which ones it does may depend on the rows and the options."""
    needs_template: bool = False
    """Whether rows may be rendered by a chat template."""
    allows_adapters: bool = True
    title: str = ""
    """What the model card calls it."""
    pipeline: str = "text-generation"
    """The hub's pipeline tag."""
    auto_class: str = "AutoModelForCausalLM"
    """The transformers class that loads the trained model."""

    @property
    def has_labels(self) -> bool:
        """Whether the model has a head made for this job's labels."""
        return self.kind in ("sequence_classification", "token_classification")

    @property
    def formats(self) -> tuple[TrainFormat, ...]:
        """The dataset formats it trains on, in order of precedence."""
        return METHOD_FORMATS[self.name]


_METHODS = (
    Method("sft", "causal", LOSS | {"eval_perplexity": False}, needs_template=True, title="supervised fine-tuning"),
    Method("pretrain", "causal", LOSS | {"eval_perplexity": False}, title="training on plain text"),
    Method(
        "seq2seq", "seq2seq", LOSS | GENERATED, title="sequence-to-sequence training",
        pipeline="text2text-generation", auto_class="AutoModelForSeq2SeqLM",
    ),
    Method(
        "classification", "sequence_classification", LOSS | CLASSES | NUMBERS, title="training as a classifier",
        pipeline="text-classification", auto_class="AutoModelForSequenceClassification",
    ),
    Method(
        "token_classification", "token_classification", LOSS | TAGS | ENTITIES, title="training as a tagger",
        pipeline="token-classification", auto_class="AutoModelForTokenClassification",
    ),
    Method("preference", "causal", LOSS | REWARDS, needs_template=True, title="training on preferences"),
    Method(
        "reward", "sequence_classification", LOSS | PAIRS, needs_template=True, title="training as a reward model",
        pipeline="text-classification", auto_class="AutoModelForSequenceClassification",
    ),
)  # fmt: skip
METHODS: dict[MethodName, Method] = {method.name: method for method in _METHODS}


def metrics_before_reading(job: MethodBlocks, training: Mapping[str, Any]) -> Directions:
    """The figures to choose from before the rows are looked at: those that the options alone rule out are left out."""
    ruled_out: Directions = {}
    if job.method == "seq2seq" and training.get("predict_with_generate") is not True:
        ruled_out = GENERATED
    elif isinstance(job.options, ClassificationOptions) and job.options.problem != "auto":
        ruled_out = CLASSES if job.options.problem == "regression" else NUMBERS
    return {name: greater for name, greater in METHODS[job.method].metrics.items() if name not in ruled_out}
