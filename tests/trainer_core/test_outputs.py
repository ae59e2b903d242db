"""The files of a finished run: those people expect, strict JSON, no machine's paths, loadable weights."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from tests.trainer_core.runs import ENVIRONMENT, REPOSITORY, Outcome, Workshop, refuse_constant
from trainer_core.contract import RunFolder
from trainer_core.outputs.write import plot_losses, write_results
from trainer_core.run.events import EventWriter

pytestmark = pytest.mark.train

RESULTS = ("train_results.json", "eval_results.json", "all_results.json", "trainer_state.json")

LOAD_AND_GENERATE = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
base, checkpoint = sys.argv[1:]
is_adapter = base != checkpoint
model = AutoModelForCausalLM.from_pretrained(base)
if is_adapter:
    from peft import PeftModel
    model = PeftModel.from_pretrained(model, checkpoint)
tokenizer = AutoTokenizer.from_pretrained(checkpoint)
chat = [{"role": "user", "content": "What is 1+3?"}, {"role": "assistant", "content": "It is 4"}]
ids = tokenizer.apply_chat_template(chat, return_tensors="pt", return_dict=True)["input_ids"]
with torch.no_grad():
    print(float(model(input_ids=ids, labels=ids).loss))
"""


@pytest.fixture(params=["lora", "full"])
def outcome(request: pytest.FixtureRequest, workshop: Workshop) -> Outcome:
    return workshop.straight("ddp", request.param)


def strict(path: Path) -> Any:
    return json.loads(path.read_text(), parse_constant=refuse_constant)


def test_all_files_are_there_and_strict(outcome: Outcome) -> None:
    output = outcome.folder.output
    for name in RESULTS:
        assert strict(output / name)
    assert (output / "training_loss.png").read_bytes().startswith(b"\x89PNG")
    assert strict(output / "trainer_state.json")["global_step"] == 6
    assert strict(output / "eval_results.json")["eval_loss"] == pytest.approx(outcome.eval_losses[6])
    everything = strict(output / "all_results.json")
    assert everything["train_loss"] == pytest.approx(sum(outcome.series("loss").values()) / 6, rel=1e-4)
    assert everything["eval_loss"] == pytest.approx(outcome.eval_losses[6])


def test_the_log_has_one_line_a_record(outcome: Outcome) -> None:
    lines = [json.loads(line) for line in (outcome.folder.output / "trainer_log.jsonl").read_text().splitlines()]
    fields = {"step", "total", "loss", "eval_loss", "lr", "epoch", "percentage", "elapsed", "remaining"}
    assert all(line.keys() == fields for line in lines)
    assert {line["step"]: line["loss"] for line in lines if line["loss"]} == pytest.approx(outcome.series("loss"))
    assert {line["step"]: line["eval_loss"] for line in lines if line["eval_loss"]} == pytest.approx(
        outcome.eval_losses
    )
    assert (lines[-1]["percentage"], lines[-1]["remaining"]) == (100.0, 0.0)


def test_the_card_says_where_the_model_comes_from(outcome: Outcome, workshop: Workshop) -> None:
    card = (outcome.folder.output / "README.md").read_text()
    _, front, body = card.split("---", 2)
    assert "pipeline_tag: text-generation" in front
    for part in ("## Results", "## Configuration", "## Versions", "eval_loss", "torch"):
        assert part in body
    assert str(workshop.root) not in card
    assert f"step {outcome.one('done')['best_step']}" in body


def test_saved_weights_load_and_give_the_loss_of_training(outcome: Outcome, workshop: Workshop) -> None:
    """In a fresh process, with the tokenizer and template of the checkpoint."""
    checkpoint = outcome.folder.checkpoint(6)
    is_adapter = (checkpoint / "adapter_config.json").exists()
    losses = []
    for weights in (checkpoint, workshop.model):
        base = workshop.model if is_adapter else weights
        command = [sys.executable, "-c", LOAD_AND_GENERATE, str(base), str(weights if weights == checkpoint else base)]
        environment = {**ENVIRONMENT, "HF_HUB_OFFLINE": "1"}
        answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY, env=environment)
        losses.append(float(answer.stdout.split()[-1]))
    tuned, plain = losses
    assert math.isfinite(tuned)
    assert tuned < plain


def test_full_weights_have_the_base_models_names_and_shapes(workshop: Workshop) -> None:
    base = load_file(workshop.model / "model.safetensors")
    for kind in ("ddp", "zero3"):
        saved = load_file(workshop.straight(kind, "full").folder.checkpoint(6) / "model.safetensors")
        assert {name: tensor.shape for name, tensor in saved.items()} == {n: t.shape for n, t in base.items()}


def test_every_strategy_saves_the_same_weights(workshop: Workshop) -> None:
    first = load_file(workshop.straight("ddp", "full").folder.checkpoint(6) / "model.safetensors")
    for kind in ("zero0", "zero1", "zero2", "zero3"):
        saved = load_file(workshop.straight(kind, "full").folder.checkpoint(6) / "model.safetensors")
        for name, tensor in first.items():
            # Adam's first steps divide by tiny moments, so noise of 1e-8 in a gradient may show as 1e-5.
            assert abs(saved[name] - tensor).max() < 1e-4, (kind, name)


def test_no_secret_is_saved(workshop: Workshop) -> None:
    env = {"HF_TOKEN": "hf_verysecretverysecret"}
    outcome = workshop.start(workshop.folder("with-token", training={"max_steps": 1}), env)
    assert outcome.codes == [0, 0]
    for path in outcome.folder.root.rglob("*"):
        if path.is_file():
            assert b"verysecret" not in path.read_bytes(), path


def test_results_with_nan_stay_strict_json(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.output.mkdir()
    history = [{"loss": math.nan, "step": 1}, {"eval_loss": math.inf, "step": 1}]
    write_results(folder, {"log_history": history}, {"train_loss": math.nan}, {"eval_loss": -math.inf})
    assert strict(folder.output / "trainer_state.json")["log_history"][0]["loss"] == "NaN"
    assert strict(folder.output / "all_results.json") == {"train_loss": "NaN", "eval_loss": "-Infinity"}


def test_a_plot_that_fails_is_a_note(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.output.mkdir()
    events = EventWriter(folder.events)
    plot_losses(folder, events)
    events.close()
    note = json.loads(folder.events.read_text())
    assert (note["type"], note["level"]) == ("note", "warning")
