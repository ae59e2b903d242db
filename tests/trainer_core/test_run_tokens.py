"""Taggers, from words and tags to entities found, on two real processes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

from tests.tiny_seq2seq import make_tiny_bert
from tests.trainer_core.reference import TRAINING, groups, one_batch_losses, own_loss
from tests.trainer_core.runs import Outcome, Workshop, resume_from

pytestmark = pytest.mark.train

WORDS, TAGS = ["Anna", "lives", "in", "New", "York"], ["B-PER", "O", "O", "B-LOC", "I-LOC"]
ROWS = [{"tokens": WORDS[i % 2 : 3 + i % 3], "tags": TAGS[i % 2 : 3 + i % 3]} for i in range(30)]
NAMES = ["B-LOC", "B-PER", "I-LOC", "O"]
LORA = {"r": 4, "target_modules": ["query", "value"]}
ZERO2 = {"strategy": "deepspeed", "zero_stage": 2}
Run = Callable[..., Outcome]


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_bert(tmp_path_factory.mktemp("bert") / "model")


@pytest.fixture
def run(workshop: Workshop, bert: Path, request: pytest.FixtureRequest) -> Run:
    def run(rows: list[dict[str, Any]], **parts: Any) -> Outcome:
        # No brackets: DeepSpeed looks for its files by patterns.
        name = re.sub(r"[^a-z0-9]+", "-", f"{request.node.name}-{parts.pop('part', 'run')}")
        path = workshop.root / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        data = {"format": "token_classification", "train": str(path), "eval": str(path), "eval_fraction": None}
        model = {"name": "tiny-bert", "source": str(bert)}
        adapter = parts.pop("adapter", None)
        return workshop.run(name, method="token_classification", model=model, data=data, adapter=adapter, **parts)

    return run


def test_the_loss_is_the_mean_over_the_words_of_a_step_like_one_batch(run: Run, bert: Path) -> None:
    rows = ROWS[:20]
    outcome = run(rows, training=TRAINING)
    tokenizer = AutoTokenizer.from_pretrained(bert)
    torch.manual_seed(42)
    model = AutoModelForTokenClassification.from_pretrained(bert, num_labels=4)
    steps = []
    for group in groups(rows):
        out = tokenizer([row["tokens"] for row in group], is_split_into_words=True, padding=True, return_tensors="pt")
        labels = torch.full_like(out["input_ids"], -100)
        for index, row in enumerate(group):
            seen: set[int] = set()
            for at, word in enumerate(out.word_ids(index)):
                if word is not None and word not in seen:
                    seen.add(word)
                    labels[index, at] = NAMES.index(row["tags"][word])
        steps.append(dict(out) | {"labels": labels})
    assert outcome.series("loss") == pytest.approx(one_batch_losses(model, steps, own_loss), rel=1e-4)


@pytest.mark.parametrize(("adapter", "parallel"), [(None, {"strategy": "ddp"}), (LORA, ZERO2)], ids=["full", "lora"])
def test_entities_are_found_and_a_resumed_run_continues_the_curve(run: Run, adapter: Any, parallel: Any) -> None:
    options = {"token_classification": {"label_all_tokens": True}, "training": {"learning_rate": 5e-3}}
    straight = run(ROWS, part="straight", adapter=adapter, parallel=parallel, **options)
    assert straight.codes == [0, 0]
    resume = resume_from(straight.folder.checkpoint(3))
    resumed = run(ROWS, part="resumed", adapter=adapter, parallel=parallel, resume=resume, **options)
    expected = {step: loss for step, loss in straight.series("loss").items() if step > 3}
    assert resumed.series("loss") == pytest.approx(expected, rel=1e-6)
    last = [outcome.of_type("eval")[-1]["values"] for outcome in (straight, resumed)]
    assert last[0]["eval_f1"] == pytest.approx(last[1]["eval_f1"])
    assert {"eval_accuracy", "eval_precision", "eval_recall", "eval_f1"} <= last[0].keys()
    saved = json.loads((straight.folder.checkpoint(6) / "config.json").read_text())
    assert list(saved["id2label"].values()) == NAMES


def test_tags_that_spell_no_entities_are_counted_by_word(run: Run) -> None:
    rows = [{"tokens": ["a", "b"], "tags": [i % 2, 1]} for i in range(20)]
    outcome = run(
        rows, token_classification={"tag_names": ["noun", "verb"]}, training={"max_steps": 1, "eval_steps": 1}
    )
    assert "eval_f1" not in outcome.of_type("eval")[-1]["values"]
    assert any("entities are not counted" in note for note in outcome.one("plan")["report"]["notes"])


def test_a_best_by_entities_is_refused_where_there_are_none(run: Run) -> None:
    cause = run([{"tokens": ["a"], "tags": ["x"]}] * 4, metric_for_best="eval_f1").one("error")["cause"]
    assert (cause["code"], cause["param"]) == ("config_invalid", "training.metric_for_best_model")
