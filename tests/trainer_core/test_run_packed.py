"""Packed rows and blocks of text: no sequence looks into another, the loss is that of rows alone, resume is exact."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from tests.trainer_core.runs import ENVIRONMENT, REPOSITORY, Outcome, Workshop, resume_from, setting
from trainer_core.contract import RunConfig
from trainer_core.data.collate import PadCollator
from trainer_core.data.encoded import Encoded
from trainer_core.data.packing import pack
from trainer_core.preflight.inspection import inspect_run
from trainer_core.trainers.packed import keeps_apart

pytestmark = pytest.mark.train
TEXTS = [f"Chapter {i}. " + "It was so, and so it was. " * (1 + i * 7 % 5) for i in range(30)]


def text_run(workshop: Workshop, name: str, kind: str = "one", **parts: Any) -> Outcome:
    return workshop.start(workshop.folder(f"pretrain-{name}", **configured(workshop, kind, **parts)))


def configured(workshop: Workshop, kind: str, **parts: Any) -> dict[str, Any]:
    path = workshop.root / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    data = {"train": str(path), "format": "text", "max_length": 48, "eval_fraction": 0.2}
    settings = setting(kind, "lora")
    training = {**settings.pop("training", {}), **parts.pop("training", {})}
    return {"method": "pretrain", "data": data, **settings, **parts, "training": training}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_packed_sequence_gets_the_logits_it_gets_alone(workshop: Workshop, attention: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(workshop.model, attn_implementation=attention).eval()
    model.config.use_cache = False  # as the Trainer has it: with a cache positions do not part sequences
    generator = torch.Generator().manual_seed(3)
    ids = [torch.randint(3, 200, (length,), generator=generator).tolist() for length in (9, 5, 12, 4)]
    sequences = [Encoded(row, [-100, *row[1:]]) for row in ids]
    batch = PadCollator(0)(pack(sequences, 16))
    batch.pop("n_tokens")
    with torch.no_grad():
        packed = model(**batch)
        total, count = 0.0, 0
        for row in ids:
            alone = model(input_ids=torch.tensor([row]), labels=torch.tensor([row]))
            total, count = total + float(alone.loss) * (len(row) - 1), count + len(row) - 1
            found = [
                packed.logits[line, start : start + len(row)]
                for line in range(len(batch["input_ids"]))
                for start in range(17 - len(row))
                if batch["input_ids"][line, start : start + len(row)].tolist() == row
            ]
            torch.testing.assert_close(found[0], alone.logits[0], rtol=1e-5, atol=1e-5)
    assert float(packed.loss) == pytest.approx(total / count, rel=1e-5)


class Leaky(LlamaForCausalLM):
    """Takes positions and lets them do nothing, as some attention does."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **(kwargs | {"position_ids": None}))


class WithoutPositions(LlamaForCausalLM):
    def forward(self, input_ids: torch.Tensor) -> Any:  # type: ignore[override]
        return super().forward(input_ids)


def test_a_model_that_does_not_keep_sequences_apart_is_found_out(workshop: Workshop) -> None:
    args = SimpleNamespace(train_batch_size=2, device=torch.device("cpu"), bf16=False)
    found = []
    for kind in (AutoModelForCausalLM, Leaky, WithoutPositions):
        model = kind.from_pretrained(workshop.model)
        model.config.use_cache = False
        found.append(keeps_apart(model, args))
    assert found == [True, False, False]
    assert not keeps_apart(AutoModelForCausalLM.from_pretrained(workshop.model), args)  # with a cache


@pytest.mark.parametrize("kind", ["ddp", "zero2", "zero3"])
def test_packed_rows_train_alike_on_any_number_of_processes(workshop: Workshop, kind: str) -> None:
    def packed(name: str, kind: str) -> Outcome:
        parts = setting(kind, "lora") | {"method": "sft", "sft": {"packing": True}}
        training = {**parts.pop("training", {}), "max_steps": 1, "gradient_accumulation_steps": 1}
        return workshop.run(f"packed-{name}", training=training, data={"max_length": 256}, **parts)

    one, two = packed(f"one-{kind}", "one"), packed(kind, kind)
    assert one.codes == [0]
    assert two.codes == [0, 0]
    for figure in ("loss", "grad_norm"):
        assert two.series(figure) == pytest.approx(one.series(figure), rel=1e-4)
    assert two.series("tokens_seen") == one.series("tokens_seen")
    plan = two.one("plan")
    assert plan["n_train_rows"] < 16
    assert any("16 sequences are packed into" in note for note in plan["report"]["notes"])


def test_one_packed_batch_has_the_loss_and_gradient_of_its_rows_alone(workshop: Workshop) -> None:
    training = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "max_steps": 1}
    parts: dict[str, Any] = {"parallel": {"n_processes": 1}, "training": training}
    alone = workshop.run("alone", **parts)
    packed = workshop.run("all-packed", **parts, sft={"packing": True})
    for figure in ("loss", "grad_norm", "tokens_seen"):
        assert packed.series(figure) == pytest.approx(alone.series(figure), rel=1e-4)


@pytest.mark.parametrize("boundaries", ["attend", "mask"])
def test_preflight_plans_what_a_run_on_text_does(workshop: Workshop, boundaries: str) -> None:
    parts = {"pretrain": {"document_boundaries": boundaries}}
    config = workshop.config(**configured(workshop, "ddp", **parts))
    config["training"].pop("max_steps")
    report = inspect_run(RunConfig.model_validate(config))
    assert report.ok, report.cause
    outcome = text_run(
        workshop, f"planned-{boundaries}", "ddp", **parts, training={"max_steps": -1, "num_train_epochs": 1}
    )
    plan = outcome.one("plan")
    assert outcome.codes == [0, 0]
    assert (plan["n_train_rows"], plan["n_eval_rows"]) == (report.n_train_rows, report.n_eval_rows)
    assert plan["trained_tokens_per_epoch"] == report.trained_tokens
    assert plan["total_steps"] == report.steps_per_epoch
    evaluated = outcome.of_type("eval")[-1]["values"]
    assert evaluated["eval_perplexity"] > 1


@pytest.mark.parametrize("kind", ["ddp", "zero2"])
def test_text_trains_alike_on_one_and_two_processes(workshop: Workshop, kind: str) -> None:
    one, two = text_run(workshop, f"one-{kind}"), text_run(workshop, kind, kind)
    assert two.codes == [0, 0]
    for figure in ("loss", "tokens_seen"):
        assert two.series(figure) == pytest.approx(one.series(figure), rel=1e-4)
    assert two.eval_losses == pytest.approx(one.eval_losses, rel=1e-4)


@pytest.mark.parametrize("boundaries", ["attend", "mask"])
def test_a_run_on_text_goes_on_exactly_where_it_stopped(workshop: Workshop, boundaries: str) -> None:
    parts = {"pretrain": {"document_boundaries": boundaries}}
    straight = text_run(workshop, f"straight-{boundaries}", "ddp", **parts)
    resumed = text_run(
        workshop, f"resumed-{boundaries}", "ddp", **parts, resume=resume_from(straight.folder.checkpoint(3))
    )
    assert resumed.codes == [0, 0]
    expected = {step: loss for step, loss in straight.series("loss").items() if step > 3}
    assert resumed.series("loss") == pytest.approx(expected, rel=1e-6)


def test_packed_rows_go_on_exactly_where_they_stopped(workshop: Workshop) -> None:
    parts: dict[str, Any] = {"sft": {"packing": True}}
    straight = workshop.run("packed-straight", **parts)
    resumed = workshop.run("packed-resumed", **parts, resume=resume_from(straight.folder.checkpoint(3)))
    assert resumed.codes == [0, 0]
    expected = {step: loss for step, loss in straight.series("loss").items() if step > 3}
    assert resumed.series("loss") == pytest.approx(expected, rel=1e-6)


def test_text_at_fault_is_told_with_its_line_on_every_rank(workshop: Workshop) -> None:
    parts = configured(workshop, "ddp")
    path = workshop.root / "bad.jsonl"
    path.write_text('{"text": "good"}\n{"text": 7}\n')
    outcome = workshop.run("pretrain-bad", **parts | {"data": {**parts["data"], "train": str(path)}})
    cause = outcome.one("error")["cause"]
    assert (cause["code"], cause["line"]) == ("data_invalid", 2)


def test_texts_are_read_in_memory_that_does_not_grow_with_them(workshop: Workshop, tmp_path: Path) -> None:
    """Peak memory for 4.6 million tokens against that for a twentieth: as a list of ids they would take 37 MB."""
    line = json.dumps({"text": "word and number 12345 " * 2000}) + "\n"
    peaks = []
    for rows in (5, 100):
        part = tmp_path / f"{rows}.jsonl"
        part.write_text("".join(line for _ in range(rows)))
        config = workshop.config(method="pretrain", data={"train": str(part), "format": "text", "max_length": 64})
        config["data"].pop("eval_fraction")
        program = (
            "import resource, sys\n"
            "from pathlib import Path\n"
            "from trainer_core.contract import RunConfig\n"
            "from trainer_core.data.prepare_text import open_blocks, read_texts\n"
            "from trainer_core.model.tokenizer import load_tokenizer\n"
            "config = RunConfig.model_validate_json(sys.argv[1])\n"
            "report = read_texts(config, load_tokenizer(config.model), Path(sys.argv[2]))\n"
            "blocks = open_blocks(config, report, Path(sys.argv[2])).train\n"
            "print(report.total_tokens, len(blocks), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
        )
        scratch = tmp_path / f"scratch-{rows}"
        scratch.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", program, json.dumps(config), str(scratch)],
            capture_output=True, text=True, check=True, cwd=REPOSITORY, env=ENVIRONMENT,
        )  # fmt: skip
        peaks.append([int(word) for word in done.stdout.split()])
    (n_few, _, small), (n_many, n_blocks, large) = peaks
    assert n_many == 20 * n_few
    assert n_blocks == -(-(n_many - 1) // 63)
    assert large - small < 25_000  # kilobytes
