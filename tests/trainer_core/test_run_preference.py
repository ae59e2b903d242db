"""Preference training: its losses against TRL's, and runs on two real processes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer
from trl.experimental.orpo import ORPOTrainer

from tests.trainer_core.reference import TRAINING, groups, one_batch_losses
from tests.trainer_core.runs import Outcome, Workshop, resume_from, setting
from trainer_core.contract import RunConfig
from trainer_core.contract.method_options import PreferenceOptions
from trainer_core.data.collate import PadCollator
from trainer_core.data.prepare import prepare
from trainer_core.model.tokenizer import load_tokenizer
from trainer_core.preflight.inspection import inspect_run
from trainer_core.trainers.preference_loss import score
from trainer_core.trainers.preferring import PreferenceCollator, read

pytestmark = pytest.mark.train
DOC = Path(__file__).resolve().parents[2] / "docs" / "methods" / "preference.md"
ROWS = [
    {"prompt": f"What is {i}?", "chosen": f"It is {'so ' * (i % 5)}{i}.", "rejected": f"Who knows {'what ' * (i % 3)}"}
    for i in range(24)
]


def run(workshop: Workshop, name: str, kind: str = "one", weights: str = "lora", **parts: Any) -> Outcome:
    return workshop.start(workshop.folder(f"preference-{name}", **configured(workshop, kind, weights, **parts)))


def configured(workshop: Workshop, kind: str = "one", weights: str = "lora", **parts: Any) -> dict[str, Any]:
    path = workshop.root / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    parts = {"data": {"train": str(path), "format": "preference"}, **parts}
    settings = setting(kind, weights)
    training = {**settings.pop("training", {}), **parts.pop("training", {})}
    return {"method": "preference", **settings, **parts, "training": training}


@pytest.mark.filterwarnings("ignore")  # TRL's own deprecations
@pytest.mark.parametrize("loss", ["sigmoid", "hinge", "ipo", "robust", "apo_zero"])
def test_a_loss_is_that_of_trls_trainer(tiny_model: Path, tmp_path: Path, loss: Any) -> None:
    smoothing = 0.1 if loss == "robust" else 0.0
    args = DPOConfig(
        output_dir=str(tmp_path), loss_type=[loss], beta=0.3, label_smoothing=smoothing, use_cpu=True, bf16=False,
        per_device_train_batch_size=6, report_to="none",
    )  # fmt: skip
    theirs = DPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(tiny_model),
        ref_model=AutoModelForCausalLM.from_pretrained(tiny_model),
        args=args,
        train_dataset=Dataset.from_list(ROWS),
        processing_class=AutoTokenizer.from_pretrained(tiny_model),
    )
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in theirs.model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    batch = next(iter(theirs.get_train_dataloader()))
    expected = float(theirs.compute_loss(theirs.model, dict(batch)))
    ours = {**batch, "labels": batch["input_ids"].masked_fill(batch["completion_mask"] == 0, -100)}
    with torch.no_grad():
        reference = torch.stack(read(cast(torch.nn.Module, theirs.ref_model), ours)[0].chunk(2), dim=1)
        logps, counts = read(theirs.model, ours)
    options = PreferenceOptions(loss=loss, beta=0.3, label_smoothing=smoothing)
    scored = score(options, logps, counts, reference)
    assert float(scored.losses.mean()) == pytest.approx(expected, abs=1e-5)
    figures = theirs._metrics["eval"]
    assert abs(figures["rewards/margins"][-1]) > 1e-3  # the reference is another model by now
    assert float((scored.chosen - scored.rejected).mean()) == pytest.approx(figures["rewards/margins"][-1], abs=1e-5)


def test_the_odds_are_those_of_trls_orpo() -> None:
    counts, logps = torch.tensor([3, 5, 4, 2]), torch.tensor([-4.0, -9.0, -6.0, -1.5])
    stub = SimpleNamespace(beta=0.2, accelerator=SimpleNamespace(device="cpu"))
    means = logps / counts
    odds = ORPOTrainer.odds_ratio_loss(cast(Any, stub), means[:2], means[2:])[0]
    scored = score(PreferenceOptions(loss="orpo", beta=0.2), logps, counts, torch.zeros(2, 2))
    assert scored.losses.tolist() == pytest.approx((-means[:2] - odds).tolist(), abs=1e-6)


@pytest.mark.parametrize("weights", ["lora", "full"])
def test_margins_grow_over_30_steps(workshop: Workshop, weights: str) -> None:
    training = {"max_steps": 30, "save_steps": 30, "eval_steps": 30, "learning_rate": 1e-2}
    parts: dict[str, Any] = {"metric_for_best": "eval_rewards/margins", "greater_is_better": True}
    outcome = run(workshop, f"margins-{weights}", weights=weights, training=training, **parts)
    assert outcome.codes == [0]
    margins = outcome.series("rewards/margins")
    # Nothing is learnt before the first step: policy and reference are one.
    assert (margins[1], outcome.series("loss")[1]) == pytest.approx((0, 0.693147), abs=1e-5)
    assert margins[30] > 0.2
    assert outcome.series("rewards/accuracies")[30] > 0.9
    values = outcome.of_type("eval")[-1]["values"]
    assert values["eval_rewards/margins"] > 0.2
    assert outcome.one("done")["best_step"] == 30


@pytest.mark.parametrize("weights", ["lora", "full"])
def test_two_processes_are_one_and_resume_is_exact(workshop: Workshop, weights: str) -> None:
    one = run(workshop, f"one-{weights}", "one", weights)
    two = run(workshop, f"two-{weights}", "zero2", weights)
    assert (one.codes, two.codes) == ([0], [0, 0])
    assert two.one("plan")["zero_stage"] == 2
    for name in ("loss", "rewards/margins"):
        assert two.series(name) == pytest.approx(one.series(name), abs=1e-4)
    resume = resume_from(two.folder.checkpoint(3))
    resumed = run(workshop, f"resumed-{weights}", "zero2", weights, resume=resume)
    expected = {step: loss for step, loss in two.series("loss").items() if step > 3}
    assert resumed.series("loss") == expected


def test_the_loss_is_the_mean_over_the_pairs_of_a_step_like_one_batch(workshop: Workshop) -> None:
    """Two processes, two batches a step, and a short last group."""
    path = workshop.root / "twenty.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS[:20]))
    data = {"train": str(path), "format": "preference", "eval_fraction": None}
    parts = configured(workshop, "ddp", "full", data=data, training=TRAINING)
    outcome = workshop.run("preference-mean", **parts)
    assert outcome.codes == [0, 0]
    config = RunConfig.model_validate(json.loads(json.dumps(workshop.config(**parts))))
    loaded = load_tokenizer(config.model)
    collate = PreferenceCollator(PadCollator(loaded.pad_id))
    steps = [collate(group) for group in groups(prepare(config, loaded).train)]
    frozen = AutoModelForCausalLM.from_pretrained(workshop.model).eval()

    def by_token(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        logits = model(batch["input_ids"], batch["attention_mask"]).logits[:, :-1].log_softmax(-1)
        labels = batch["labels"][:, 1:]
        found = logits.gather(2, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        return (found * (labels != -100)).sum(1)

    def dpo(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            before = by_token(frozen, batch)
        better, worse = (by_token(model, batch) - before).chunk(2)
        return torch.log1p(torch.exp(-0.1 * (better - worse))).mean()

    expected = one_batch_losses(AutoModelForCausalLM.from_pretrained(workshop.model), steps, dpo)
    assert outcome.series("loss") == pytest.approx(expected, rel=1e-4)
    assert outcome.series("loss")[6] < 0.69  # the weights have moved


def test_orpo_runs_without_a_reference_under_zero_3(workshop: Workshop) -> None:
    outcome = run(workshop, "orpo", "zero3", "full", preference={"loss": "orpo"})
    assert outcome.codes == [0, 0]
    assert set(outcome.series("rewards/margins")) == {1, 2, 3, 4, 5, 6}


def test_conversations_are_rendered_and_only_the_replies_are_compared(workshop: Workshop) -> None:
    path = workshop.root / "chats.jsonl"
    user, good, bad = (
        {"role": role, "content": text} for role, text in (("user", "Hi"), ("assistant", "Good"), ("assistant", "No"))
    )
    path.write_text(
        json.dumps({"input": {"messages": [user]}, "preferred_output": [good], "non_preferred_output": [bad]}) + "\n"
    )
    report = inspected(workshop, data={"train": str(path), "format": "preference", "eval_fraction": None})
    assert report.sample is not None
    learnt = "".join(token.text for token in report.sample if token.learnt)
    assert learnt == "Good</s>No</s>"


def test_a_reply_that_is_cut_away_drops_the_row_and_preflight_counts_it(workshop: Workshop) -> None:
    path = workshop.root / "long.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*ROWS[:4], {**ROWS[0], "prompt": "long " * 60}]))
    report = inspected(workshop, data={"train": str(path), "format": "preference", "eval_fraction": None})
    assert (report.n_train_rows, report.n_rows_dropped, report.n_rows_truncated) == (4, 1, 1)


@pytest.mark.parametrize(
    ("parts", "param"),
    [
        ({"parallel": {"n_processes": 2, "strategy": "deepspeed", "zero_stage": 3}}, "parallel.zero_stage"),
        ({"training": {"label_smoothing_factor": 0.1}}, "training.label_smoothing_factor"),
    ],
)
def test_what_this_method_cannot_do_is_refused(workshop: Workshop, parts: dict[str, Any], param: str) -> None:
    report = inspected(workshop, **parts)
    assert report.cause is not None
    assert (report.cause.code, report.cause.param) == ("config_invalid", param)


def test_smoothing_is_refused_where_no_loss_uses_it() -> None:
    with pytest.raises(ValueError, match="choose the loss robust"):
        PreferenceOptions(loss="ipo", label_smoothing=0.1)


def test_the_smallest_job_of_the_document_trains(workshop: Workshop) -> None:
    blocks = [json.loads(text.split("```")[0]) for text in DOC.read_text().split("```json\n")[1:]]
    row, job = blocks
    path = workshop.root / "documented.jsonl"
    path.write_text((json.dumps(row) + "\n") * 8)
    data = {"train": str(path), "format": "preference", "eval_fraction": None}
    parts = {"data": data, "preference": job["preference"], "training": job["training"]}
    assert job["method"] == "preference"
    assert run(workshop, "documented", **parts).codes == [0]


def inspected(workshop: Workshop, **parts: Any) -> Any:
    return inspect_run(
        RunConfig.model_validate(json.loads(json.dumps(workshop.config(**configured(workshop, **parts)))))
    )
