"""Encoder-decoders, from pairs of texts to translations, on two real processes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.tiny_seq2seq import make_tiny_bart, make_tiny_marian, make_tiny_t5
from tests.trainer_core.reference import TRAINING, groups, one_batch_losses, own_loss
from tests.trainer_core.runs import Outcome, Workshop, resume_from

pytestmark = pytest.mark.train

ROWS = [{"prompt": f"say {i}", "completion": f"{i} {'yes ' * (i % 5)}".strip()} for i in range(30)]
LORA = {"r": 4, "target_modules": ["q", "v"]}
ZERO2 = {"strategy": "deepspeed", "zero_stage": 2}
MAKERS = {"t5": make_tiny_t5, "bart": make_tiny_bart, "marian": make_tiny_marian}
FIGURES = {"eval_bleu", "eval_chrf", "eval_rouge1", "eval_rouge2", "eval_rougeL"}
Run = Callable[..., Outcome]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pairs")
    return {name: make(folder / name) for name, make in MAKERS.items()}


@pytest.fixture
def run(workshop: Workshop, models: dict[str, Path], request: pytest.FixtureRequest) -> Run:
    def run(rows: list[dict[str, Any]], model: str = "t5", **parts: Any) -> Outcome:
        # No brackets: DeepSpeed looks for its files by patterns.
        name = re.sub(r"[^a-z0-9]+", "-", f"{request.node.name}-{parts.pop('part', 'run')}")
        path = workshop.root / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        data = {"format": "prompt_completion", "train": str(path), **parts.pop("data", {})}
        source = {"name": model, "source": str(models[model])}
        adapter = parts.pop("adapter", None)
        return workshop.run(name, method="seq2seq", model=source, data=data, adapter=adapter, **parts)

    return run


@pytest.mark.parametrize("model", MAKERS)
def test_the_loss_is_the_mean_over_the_tokens_of_a_step_like_one_batch(
    run: Run, models: dict[str, Path], model: str
) -> None:
    rows = ROWS[:20]
    data = {"eval_fraction": None, "eval": None}
    outcome = run(rows, model, data=data, training=TRAINING | {"eval_strategy": "no"})
    assert outcome.codes == [0, 0]
    tokenizer = AutoTokenizer.from_pretrained(models[model])
    reference = AutoModelForSeq2SeqLM.from_pretrained(models[model])
    steps = []
    for group in groups(rows):
        batch = dict(tokenizer([row["prompt"] for row in group], padding=True, return_tensors="pt"))
        batch.pop("token_type_ids", None)
        targets = tokenizer([row["completion"] for row in group], padding=True, return_tensors="pt")
        steps.append(batch | {"labels": targets["input_ids"].masked_fill(targets["attention_mask"] == 0, -100)})
    assert outcome.series("loss") == pytest.approx(one_batch_losses(reference, steps, own_loss), rel=1e-4)


@pytest.mark.parametrize(("adapter", "parallel"), [(LORA, {"strategy": "ddp"}), (None, ZERO2)], ids=["lora", "full"])
def test_a_resumed_run_continues_the_curve(run: Run, adapter: Any, parallel: Any) -> None:
    training = {"predict_with_generate": True, "generation_max_length": 30}
    straight = run(ROWS, part="straight", adapter=adapter, parallel=parallel, training=training)
    assert straight.codes == [0, 0]
    resume = resume_from(straight.folder.checkpoint(3))
    resumed = run(ROWS, part="resumed", adapter=adapter, parallel=parallel, training=training, resume=resume)
    expected = {step: loss for step, loss in straight.series("loss").items() if step > 3}
    assert resumed.series("loss") == pytest.approx(expected, rel=1e-6)
    assert straight.of_type("eval")[-1]["values"].keys() >= FIGURES


def test_all_ranks_generate_as_long_as_one_does_under_zero_3(run: Run) -> None:
    """Nine eval rows in batches of four make three batches for two ranks: one of them has none in the last round."""
    zero3 = {"strategy": "deepspeed", "zero_stage": 3}
    training = {
        "predict_with_generate": True,
        "generation_num_beams": 2,
        "generation_config": {"max_length": 12, "num_beams": 5, "length_penalty": 0.5},
        "max_steps": 2,
        "save_steps": 2,
        "eval_steps": 2,
    }
    three = run(ROWS, part="three", data={"eval_fraction": 0.3}, parallel=zero3, training=training)
    assert three.codes == [0, 0]
    plain = run(ROWS, part="plain", data={"eval_fraction": 0.3}, training=training)
    assert three.one("plan")["n_eval_rows"] == 9
    for name in FIGURES | {"eval_loss"}:
        values = [outcome.of_type("eval")[-1]["values"][name] for outcome in (three, plain)]
        assert values[0] == pytest.approx(values[1], rel=1e-4)
    saved = json.loads((plain.folder.checkpoint(2) / "generation_config.json").read_text())
    assert (saved["max_length"], saved["num_beams"], saved["decoder_start_token_id"]) == (12, 5, 0)
    assert any("end at 12 tokens" in note for note in plain.one("plan")["report"]["notes"])


def test_generation_settings_that_cannot_be_are_refused(run: Run) -> None:
    training = {"predict_with_generate": True, "generation_config": {"num_beams": 2, "num_return_sequences": 5}}
    cause = run(ROWS, training=training).one("error")["cause"]
    assert (cause["code"], cause["param"]) == ("config_invalid", "training.generation_config")


def test_english_becomes_german_a_little(run: Run, shared_data: Path) -> None:
    """Two text files, line by line, as pairs; enough steps to see that it learns, not to translate."""
    sources, targets = (
        (shared_data / "opennmt_en_de" / f"{side}-train_first800.txt").read_text(encoding="utf-8").splitlines()
        for side in ("src", "tgt")
    )
    rows = [{"prompt": source, "completion": target} for source, target in zip(sources, targets, strict=True)][:64]
    training = {
        "predict_with_generate": True,
        "generation_max_length": 40,
        "max_steps": 12,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "eval_steps": 12,
        "save_steps": 12,
    }
    options = {"source_prefix": "translate English to German: ", "max_target_length": 96}
    outcome = run(rows, seq2seq=options, training=training, data={"max_length": 256, "eval_fraction": 0.1})
    assert outcome.codes == [0, 0]
    losses = outcome.series("loss")
    assert losses[12] < losses[1] - 1
    assert outcome.of_type("eval")[-1]["values"]["eval_chrf"] > 0
    assert any("translate English" in note for note in outcome.one("plan")["report"]["notes"])


def test_pairs_inside_objects_are_found_by_dotted_columns(run: Run, shared_data: Path) -> None:
    lines = (shared_data / "wmt16_sample" / "sample.json").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    languages = list(rows[0]["translation"])
    columns = {"prompt": f"translation.{languages[0]}", "completion": f"translation.{languages[1]}"}
    training = {"max_steps": 1, "eval_strategy": "no"}
    outcome = run(rows, data={"columns": columns, "eval_fraction": None}, training=training)
    assert outcome.codes == [0, 0]
    assert outcome.one("plan")["n_train_rows"] == len(rows)
