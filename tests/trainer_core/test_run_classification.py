"""Classifiers and regressions, from rows to files, on two real processes."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from tests.tiny_seq2seq import make_tiny_bert
from tests.trainer_core.reference import TRAINING, groups, one_batch_losses, own_loss
from tests.trainer_core.runs import Outcome, Workshop, resume_from

pytestmark = pytest.mark.train

ROWS = [{"text": f"row {i} is {'fine' if i % 3 else 'bad'} {'so ' * (i % 4)}", "label": i % 3 + 1} for i in range(30)]
LORA = {"r": 4, "target_modules": ["query", "value"]}
ZERO2 = {"strategy": "deepspeed", "zero_stage": 2}
Run = Callable[..., Outcome]


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_bert(tmp_path_factory.mktemp("bert") / "model")


@pytest.fixture
def run(workshop: Workshop, bert: Path, request: pytest.FixtureRequest) -> Run:
    def run(rows: list[dict[str, Any]], held_out: list[dict[str, Any]] | None = None, **parts: Any) -> Outcome:
        # No brackets: DeepSpeed looks for its files by patterns.
        name = re.sub(r"[^a-z0-9]+", "-", f"{request.node.name}-{parts.pop('part', 'run')}")
        data: dict[str, Any] = {"format": "classification", "train": write(workshop.root / f"{name}.train", rows)}
        data["eval"] = write(workshop.root / f"{name}.eval", held_out or rows[:10])
        data["eval_fraction"] = None
        model = {"name": "tiny-bert", "source": str(parts.pop("model", bert))}
        adapter = parts.pop("adapter", None)
        return workshop.run(name, method="classification", model=model, data=data, adapter=adapter, **parts)

    return run


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("weights", ["none", "balanced"])
def test_the_loss_is_the_mean_over_the_rows_of_a_step_like_one_batch(run: Run, bert: Path, weights: str) -> None:
    rows = ROWS[:20]
    outcome = run(rows, training=TRAINING, classification={"class_weights": weights})
    tokenizer = AutoTokenizer.from_pretrained(bert)
    torch.manual_seed(42)
    model = AutoModelForSequenceClassification.from_pretrained(bert, num_labels=3)
    counts = [sum(row["label"] == label for row in rows) for label in (1, 2, 3)]
    balanced = torch.tensor([20 / (3 * count) for count in counts])

    def weighted(model: Any, batch: dict[str, torch.Tensor]) -> Any:
        labels = batch.pop("labels")
        return torch.nn.CrossEntropyLoss(weight=balanced)(model(**batch).logits, labels)

    steps = []
    for group in groups(rows):
        batch = dict(tokenizer([row["text"] for row in group], padding=True, return_tensors="pt"))
        steps.append(batch | {"labels": torch.tensor([int(row["label"]) - 1 for row in group])})
    expected = one_batch_losses(model, steps, weighted if weights == "balanced" else own_loss)
    assert outcome.series("loss") == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("adapter", [None, LORA], ids=["full", "lora"])
@pytest.mark.parametrize("parallel", [{"strategy": "ddp"}, ZERO2], ids=["ddp", "zero2"])
def test_a_resumed_run_continues_the_curve(run: Run, adapter: Any, parallel: dict[str, Any]) -> None:
    straight = run(ROWS, part="straight", adapter=adapter, parallel=parallel)
    assert straight.codes == [0, 0]
    resumed = run(
        ROWS, part="resumed", adapter=adapter, parallel=parallel, resume=resume_from(straight.folder.checkpoint(3))
    )
    assert resumed.codes == [0, 0]
    expected = {step: loss for step, loss in straight.series("loss").items() if step > 3}
    assert resumed.series("loss") == pytest.approx(expected, rel=1e-6)
    last = [outcome.of_type("eval")[-1]["values"] for outcome in (straight, resumed)]
    assert last[0]["eval_f1_macro"] == pytest.approx(last[1]["eval_f1_macro"])
    if adapter:
        plan = straight.one("plan")
        # q and v of two layers at rank 4, the pooler and the classifier in full.
        assert plan["trainable_parameters"] == 2 * 2 * 4 * 64 + (32 * 32 + 32) + (32 * 3 + 3)


def test_labels_of_both_splits_are_mapped_and_saved_with_the_model(run: Run) -> None:
    """Labels 1 to 4, and the eval rows lack one of them."""
    rows = [{"text": f"text {i}", "label": i % 4 + 1} for i in range(20)]
    outcome = run(rows, [row for row in rows if row["label"] != 4], training={"max_steps": 1, "eval_steps": 1})
    assert outcome.codes == [0, 0]
    saved = AutoConfig.from_pretrained(outcome.folder.checkpoint(1))
    assert saved.id2label == {0: "1", 1: "2", 2: "3", 3: "4"}
    notes = " ".join(outcome.one("plan")["report"]["notes"])
    assert "no eval row has, so that no figure tells of them: 4" in notes
    confusion = json.loads((outcome.folder.output / "confusion_matrix.json").read_text())
    assert confusion["labels"] == ["1", "2", "3", "4"]
    assert [sum(row) for row in confusion["matrix"]] == [5, 5, 5, 0]
    assert (outcome.folder.output / "confusion_matrix.png").stat().st_size > 5000
    values = outcome.of_type("eval")[-1]["values"]
    assert all(isinstance(value, float | int) for value in values.values())
    assert {"eval_accuracy", "eval_f1_macro", "eval_f1_micro", "eval_auc"} <= values.keys()


# PEFT asks the model by the name that transformers 5 is leaving.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_the_cards_recipe_loads_an_adapter_with_its_head(run: Run, bert: Path) -> None:
    outcome = run(ROWS, adapter=LORA, training={"learning_rate": 1e-2})
    folder = outcome.folder.checkpoint(6)
    card = (outcome.folder.output / "README.md").read_text()
    code = card.split("```python\n")[1].split("```")[0]
    scope: dict[str, Any] = {}
    exec(code.replace("CHECKPOINT_FOLDER", str(folder)).replace("BASE_MODEL", str(bert)), scope)
    model, tokenizer = scope["model"].eval(), scope["tokenizer"]
    assert isinstance(model, PeftModel)
    held_out = ROWS[:10]
    batch = tokenizer([row["text"] for row in held_out], padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**batch).logits
    labels = torch.tensor([int(row["label"]) - 1 for row in held_out])
    loss = torch.nn.functional.cross_entropy(logits, labels)
    assert float(loss) == pytest.approx(outcome.eval_losses[6], rel=1e-4)


def test_several_labels_a_row(run: Run) -> None:
    rows = [{"text": f"{i} rain sun", "label": [n for n, k in (("wet", 2), ("dry", 3)) if i % k]} for i in range(24)]
    outcome = run(rows, classification={"class_weights": {"wet": 2}})
    values = outcome.of_type("eval")[-1]["values"]
    assert {"eval_accuracy", "eval_f1_macro", "eval_f1_micro", "eval_auc"} <= values.keys()
    saved = json.loads((outcome.folder.checkpoint(6) / "config.json").read_text())
    assert (saved["problem_type"], saved["id2label"]) == ("multi_label_classification", {"0": "dry", "1": "wet"})


def test_a_number_to_predict_keeps_its_precision_under_half_precision(run: Run) -> None:
    rows = [{"text": f"{i} rooms", "label": 100.25 + i} for i in range(24)]
    outcome = run(rows, parallel=ZERO2, training={"bf16": True, "metric_for_best_model": None})
    assert outcome.codes == [0, 0]
    values = outcome.of_type("eval")[-1]["values"]
    assert values["eval_rmse"] == pytest.approx(values["eval_mse"] ** 0.5)
    # The labels of the first ten rows around zero predictions: bfloat16 would round 100.25 to 100.
    assert values["eval_loss"] == pytest.approx(values["eval_mse"], rel=1e-5)


def test_a_causal_model_classifies_by_its_last_real_token(run: Run, workshop: Workshop) -> None:
    lora = {"r": 4, "target_modules": ["q_proj", "v_proj"]}
    two = run(ROWS, model=workshop.model, adapter=lora)
    one = run(ROWS, part="small", model=workshop.model, adapter=lora, training={"per_device_eval_batch_size": 1})
    # Padding would count if the pad token were not known: batches of one row have none.
    assert two.eval_losses == pytest.approx(one.eval_losses, rel=1e-5)
    saved = json.loads((two.folder.checkpoint(6) / "config.json").read_text())
    assert saved["pad_token_id"] == 2


def test_labels_that_cannot_be_told_apart_are_refused(run: Run) -> None:
    cause = run([{"text": "a", "label": "only"}] * 4).one("error")["cause"]
    assert (cause["code"], cause["param"]) == ("data_invalid", "dataset.train")


def test_spam_is_told_from_ham_a_little(run: Run, shared_data: Path) -> None:
    """Real messages, far more ham than spam; enough steps to see that it learns."""
    with (shared_data / "sms_spam" / "spam_header_5cols.csv").open(encoding="latin-1", newline="") as file:
        lines = [{"text": line["v2"][:100], "label": line["v1"]} for line in csv.DictReader(file)][:160]
    training = {"max_steps": 16, "learning_rate": 1e-2, "eval_steps": 16, "save_steps": 16}
    outcome = run(lines[:120], lines[120:], classification={"class_weights": "balanced"}, training=training)
    assert outcome.codes == [0, 0]
    losses = list(outcome.series("loss").values())
    assert sum(losses[-4:]) < sum(losses[:4])
    assert outcome.of_type("eval")[-1]["values"]["eval_auc"] > 0.6
