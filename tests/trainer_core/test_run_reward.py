"""Reward models: the loss against TRL's and against one batch, and runs on two real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import PeftModel
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer
from trl import RewardConfig, RewardTrainer

from tests.trainer_core.reference import TRAINING, groups, one_batch_losses
from tests.trainer_core.runs import Outcome, Workshop, resume_from, setting
from trainer_core.contract import RunConfig
from trainer_core.contract.method_options import RewardOptions
from trainer_core.data.collate import PadCollator
from trainer_core.data.encode_rewards import Ranked
from trainer_core.data.prepare import prepare
from trainer_core.model.tokenizer import load_tokenizer
from trainer_core.preflight.inspection import inspect_run
from trainer_core.trainers.rewarding import RewardCollator, losses, scores

pytestmark = pytest.mark.train
ROWS: list[dict[str, Any]] = [
    {
        "prompt": f"What is {i}?",
        "chosen": f"It is {'so ' * (i % 5)}{i}.",
        "rejected": f"Who knows {'what ' * (i % 3)}",
        "margin": i % 4 / 2,
    }
    for i in range(24)
]


def configured(workshop: Workshop, kind: str = "one", weights: str = "lora", **parts: Any) -> dict[str, Any]:
    rows = parts.pop("rows", ROWS)
    path = workshop.root / f"pairs-{len(rows)}-{len(json.dumps(rows))}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = setting(kind, weights)
    data = {"train": str(path), "format": "preference", **parts.pop("data", {})}
    training = {**settings.pop("training", {}), **parts.pop("training", {})}
    return {"method": "reward", **settings, **parts, "data": data, "training": training}


def run(workshop: Workshop, name: str, kind: str = "one", weights: str = "lora", **parts: Any) -> Outcome:
    return workshop.start(workshop.folder(f"reward-{name}", **configured(workshop, kind, weights, **parts)))


def config_of(workshop: Workshop, **parts: Any) -> RunConfig:
    return RunConfig.model_validate(json.loads(json.dumps(workshop.config(**configured(workshop, **parts)))))


@pytest.mark.filterwarnings("ignore")  # TRL's own deprecations
def test_the_loss_is_that_of_trls_trainer(tiny_model: Path, tmp_path: Path) -> None:
    args = RewardConfig(
        output_dir=str(tmp_path), center_rewards_coefficient=0.05, use_cpu=True, bf16=False, report_to="none",
        per_device_train_batch_size=6, gradient_checkpointing=False,
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    model = AutoModelForSequenceClassification.from_pretrained(tiny_model, num_labels=1)
    theirs = RewardTrainer(model=model, args=args, train_dataset=Dataset.from_list(ROWS), processing_class=tokenizer)
    batch = next(iter(theirs.get_train_dataloader()))
    assert float(batch["margin"].sum()) > 0
    with torch.no_grad():
        theirs.model.score.weight *= 20
        expected = float(theirs.compute_loss(theirs.model, dict(batch)))
        chosen, rejected = scores(theirs.model, batch)
    ours = losses(RewardOptions(center_rewards_coefficient=0.05), chosen, rejected, batch["margin"])
    assert float(ours.mean()) == pytest.approx(expected, abs=1e-5)
    assert float((chosen - rejected).mean()) == pytest.approx(theirs._metrics["eval"]["margin"][-1], abs=1e-5)


def test_the_loss_is_the_mean_over_the_pairs_of_a_step_like_one_batch(workshop: Workshop) -> None:
    """Two processes, two batches a step, and a short last group."""
    parts: dict[str, Any] = {"rows": ROWS[:20], "data": {"eval_fraction": None}, "training": TRAINING}
    reward = {"center_rewards_coefficient": 0.1}
    outcome = run(workshop, "mean", "ddp", "full", reward=reward, **parts)
    assert outcome.codes == [0, 0]
    config = config_of(workshop, kind="ddp", weights="full", **parts)
    loaded = load_tokenizer(config.model, "reward")
    rows: list[Ranked] = prepare(config, loaded).train
    torch.manual_seed(config.seed)
    model = AutoModelForSequenceClassification.from_pretrained(workshop.model, num_labels=1)
    model.config.pad_token_id = loaded.pad_id

    def loss_of(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        chosen, rejected = model(batch["input_ids"], batch["attention_mask"]).logits[:, 0].chunk(2)
        bradley_terry = torch.log1p(torch.exp(-(chosen - rejected - batch["margin"])))
        return (bradley_terry + 0.1 * (chosen + rejected) ** 2).mean()

    collate = RewardCollator(PadCollator(loaded.pad_id))
    expected = one_batch_losses(model, [collate(group) for group in groups(rows)], loss_of)
    assert outcome.series("loss") == pytest.approx(expected, rel=1e-4)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT asks by the old name
@pytest.mark.parametrize("weights", ["lora", "full"])
def test_scores_part_over_30_steps_and_the_checkpoint_gives_them_again(workshop: Workshop, weights: str) -> None:
    training = {"max_steps": 30, "save_steps": 30, "eval_steps": 30, "learning_rate": 1e-2}
    parts: dict[str, Any] = {"metric_for_best": "eval_accuracy", "greater_is_better": True}
    outcome = run(workshop, f"part-{weights}", weights=weights, training=training, **parts)
    assert outcome.codes == [0]
    assert outcome.series("margin")[30] > 1
    assert outcome.series("accuracy")[30] == 1
    values = outcome.of_type("eval")[-1]["values"]
    assert values["eval_accuracy"] == 1
    assert outcome.one("done")["best_step"] == 30
    folder = outcome.folder.checkpoint(30)
    assert AutoConfig.from_pretrained(folder).id2label == {0: "reward"}
    good, bad = scored(workshop, folder, weights)
    assert good - bad > 1


def scored(workshop: Workshop, folder: Path, weights: str) -> list[float]:
    """Both replies to one prompt, by plain libraries as the documents say."""
    auto: Any = AutoModelForSequenceClassification
    if weights == "full":
        model = auto.from_pretrained(folder)
    else:
        base = auto.from_pretrained(
            workshop.model, config=AutoConfig.from_pretrained(folder), ignore_mismatched_sizes=True
        )
        model = PeftModel.from_pretrained(base, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = []
    for reply in (ROWS[1]["chosen"], ROWS[1]["rejected"]):
        turns = [{"role": "user", "content": ROWS[1]["prompt"]}, {"role": "assistant", "content": reply}]
        inputs = tokenizer.apply_chat_template(turns, return_tensors="pt", return_dict=True)
        found.append(model.eval()(**inputs).logits[0, 0].item())
    return found


@pytest.mark.parametrize(("kind", "weights"), [("zero2", "lora"), ("zero3", "full")])
def test_two_processes_are_one_and_resume_is_exact(workshop: Workshop, kind: str, weights: str) -> None:
    one = run(workshop, f"one-{weights}", "one", weights)
    two = run(workshop, f"{kind}-{weights}", kind, weights)
    assert (one.codes, two.codes) == ([0], [0, 0])
    for name in ("loss", "margin", "accuracy"):
        assert two.series(name) == pytest.approx(one.series(name), abs=1e-4)
    resume = resume_from(two.folder.checkpoint(3))
    resumed = run(workshop, f"resumed-{weights}", kind, weights, resume=resume)
    assert resumed.codes == [0, 0]
    expected = {step: loss for step, loss in two.series("loss").items() if step > 3}
    assert resumed.series("loss") == pytest.approx(expected, rel=1e-6)


def test_a_pair_that_does_not_fit_is_dropped_and_margins_are_counted(workshop: Workshop) -> None:
    without = {name: value for name, value in ROWS[0].items() if name != "margin"}
    rows = [*ROWS[:4], without, {**ROWS[0], "chosen": "long " * 60}]
    report = inspect_run(config_of(workshop, rows=rows, data={"eval_fraction": None}))
    assert (report.n_train_rows, report.n_rows_dropped, report.n_rows_truncated) == (5, 1, 1)
    assert report.trained_tokens == 5
    assert any("5 rows have a margin; 1 have none" in note for note in report.notes)
    assert report.sample is not None
    assert sum(token.learnt for token in report.sample) == 2


def test_a_margin_that_is_no_number_is_refused_with_its_line(workshop: Workshop) -> None:
    report = inspect_run(config_of(workshop, rows=[ROWS[0], {**ROWS[1], "margin": "wide"}]))
    assert report.cause is not None
    assert (report.cause.code, report.cause.line) == ("data_invalid", 2)
    assert "a margin is a finite number, found" in report.cause.message


def test_smoothing_is_refused(workshop: Workshop) -> None:
    report = inspect_run(config_of(workshop, training={"label_smoothing_factor": 0.1}))
    assert report.cause is not None
    assert report.cause.param == "training.label_smoothing_factor"
