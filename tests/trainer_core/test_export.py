"""Exports of real checkpoints: each loads in plain libraries and answers as the checkpoint does, or is refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from tests.tiny_seq2seq import make_tiny_bert, make_tiny_t5
from tests.trainer_core.runs import Outcome, Workshop, resume_from
from trainer_core.checkpoints.manifests import describe_files, write_manifest
from trainer_core.contract import MANIFEST_NAME, Manifest, RunConfig, RunFolder
from trainer_core.export import program as export_module
from trainer_core.export.order import ORDER_NAME, REPORT_NAME, ExportOrder, ExportReport
from trainer_core.export.proof import Prover
from trainer_core.run.faults import Fault

pytestmark = [
    pytest.mark.train,
    # PEFT asks transformers by the older name.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]

IDS = torch.tensor([[5, 17, 40, 8, 99, 23]])


def export(tmp_path: Path, outcome: Outcome, kind: str, checkpoint: Path | None = None, **parts: Any) -> RunFolder:
    """The export's folder, once it has ended."""
    folder = RunFolder(tmp_path / "export")
    folder.root.mkdir()
    source = checkpoint or outcome.folder.checkpoint(6)
    order = ExportOrder(
        config=RunConfig.model_validate_json(outcome.folder.config.read_bytes()),
        checkpoint=source,
        manifest_sha256=resume_from(source)["manifest_sha256"],
        kind=kind,  # type: ignore[arg-type]
        **parts,
    )
    (folder.root / ORDER_NAME).write_text(order.model_dump_json())
    export_module.main(folder)
    return folder


def report_of(folder: RunFolder) -> ExportReport:
    return ExportReport.model_validate_json((folder.root / REPORT_NAME).read_bytes())


def succeeded(folder: RunFolder) -> Path:
    report = report_of(folder)
    assert report.ok, report.cause
    assert all(one["difference"] <= one["allowed"] for one in report.proof.values())
    for file in folder.output.iterdir():
        if file.suffix in (".json", ".md"):
            assert str(folder.root.parent) not in file.read_text(), file.name
    assert "sha256" in (folder.output / "README.md").read_text()
    AutoTokenizer.from_pretrained(folder.output)
    assert not {file.suffix for file in folder.output.rglob("*")} & {".pt", ".bin", ".pth"}
    return folder.output


def refused(folder: RunFolder, *parts: str) -> None:
    report = report_of(folder)
    assert not report.ok
    assert report.cause is not None
    for part in parts:
        assert part in report.cause.message


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(input_ids=IDS).logits.float()
    return found


def adapted(workshop: Workshop, folder: Path) -> torch.Tensor:
    base = AutoModelForCausalLM.from_pretrained(workshop.model, dtype=torch.float32)
    return logits(PeftModel.from_pretrained(base, folder))


def whole(folder: Path) -> torch.Tensor:
    return logits(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))


def without(tmp_path: Path, outcome: Outcome, pattern: str) -> Path:
    """A copy of the last checkpoint without some files, with a manifest that is right for it."""
    copy = tmp_path / "checkpoint-6"
    shutil.copytree(outcome.folder.checkpoint(6), copy)
    for path in copy.glob(pattern):
        path.unlink()
    return resealed(copy)


def resealed(copy: Path) -> Path:
    manifest = Manifest.model_validate_json((copy / MANIFEST_NAME).read_bytes())
    (copy / MANIFEST_NAME).unlink()
    write_manifest(copy, manifest.model_copy(update={"files": describe_files(copy)}))
    return copy


def test_an_adapter_comes_clean(workshop: Workshop, tmp_path: Path) -> None:
    outcome = workshop.straight("ddp", "lora")
    output = succeeded(export(tmp_path, outcome, "adapter"))
    assert torch.equal(adapted(workshop, output), adapted(workshop, outcome.folder.checkpoint(6)))
    assert json.loads((output / "adapter_config.json").read_text())["base_model_name_or_path"] == "tiny"
    assert not (output / "model.safetensors").exists()


@pytest.mark.parametrize(("dtype", "tolerance"), [("auto", 1e-6), ("float32", 1e-6), ("bfloat16", 0.01)])
def test_a_merged_model_answers_as_the_adapter_on_its_base(
    workshop: Workshop, tmp_path: Path, dtype: Any, tolerance: float
) -> None:
    outcome = workshop.straight("ddp", "lora")
    output = succeeded(export(tmp_path, outcome, "merged", dtype=dtype, max_shard_size="50KB"))
    assert len(list(output.glob("model-*.safetensors"))) > 1
    assert (output / "model.safetensors.index.json").exists()
    expected = adapted(workshop, outcome.folder.checkpoint(6))
    assert torch.allclose(whole(output), expected, atol=tolerance)
    assert not torch.allclose(whole(output), whole(workshop.model), atol=1e-5)
    saved = {str(one.dtype) for file in output.glob("*.safetensors") for one in load_file(file).values()}
    assert saved == {f"torch.{'float32' if dtype == 'auto' else dtype}"}


def test_a_merge_that_lost_the_adapter_is_refused(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PEFT's models hand what they lack to the method they wrap.
    monkeypatch.setattr(PeftModel, "merge_and_unload", lambda self, **_: self.base_model.unload(), raising=False)
    folder = export(tmp_path, workshop.straight("ddp", "lora"), "merged")
    refused(folder, "merged: logits differ by")
    assert not (folder.output / "model.safetensors").exists()


def test_weights_that_were_written_wrong_are_refused(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens between the memory and the disk, what is loaded again has to answer the same."""

    def spoil(order: ExportOrder, output: Path) -> None:
        weights = load_file(output / "model.safetensors")
        weights["model.norm.weight"] = weights["model.norm.weight"] * 1.01
        save_file(weights, output / "model.safetensors", metadata={"format": "pt"})

    monkeypatch.setattr(export_module, "clean_configs", spoil)
    refused(export(tmp_path, workshop.straight("ddp", "full"), "full"), "reloaded: logits differ by")


def test_full_weights_come_without_optimizer(workshop: Workshop, tmp_path: Path) -> None:
    outcome = workshop.straight("ddp", "full")
    output = succeeded(export(tmp_path, outcome, "full"))
    assert torch.equal(whole(output), whole(outcome.folder.checkpoint(6)))


@pytest.mark.parametrize("kind", ["zero2", "zero3"])
@pytest.mark.parametrize("is_gathered", [True, False], ids=["gathered", "shards alone"])
def test_fp32_weights_of_zero_shards(workshop: Workshop, tmp_path: Path, kind: str, is_gathered: bool) -> None:
    outcome = workshop.straight(kind, "full")
    checkpoint = None if is_gathered else without(tmp_path, outcome, "model*.safetensors")
    folder = export(tmp_path, outcome, "fp32", checkpoint)
    output = succeeded(folder)
    assert torch.allclose(whole(output), whole(outcome.folder.checkpoint(6)), atol=1e-6)
    assert ("gathered" in report_of(folder).proof) is is_gathered


@pytest.mark.parametrize("kind", ["zero2", "zero3"])
def test_fp32_adapter_of_zero_shards(workshop: Workshop, tmp_path: Path, kind: str) -> None:
    outcome = workshop.straight(kind, "lora")
    output = succeeded(export(tmp_path, outcome, "fp32"))
    saved, expected = (
        load_file(place / "adapter_model.safetensors") for place in (output, outcome.folder.checkpoint(6))
    )
    assert saved.keys() == expected.keys()
    assert torch.allclose(adapted(workshop, output), adapted(workshop, outcome.folder.checkpoint(6)), atol=1e-6)


def test_kinds_that_a_checkpoint_does_not_have(workshop: Workshop, tmp_path: Path) -> None:
    lora, full = workshop.straight("ddp", "lora"), workshop.straight("ddp", "full")
    for number, (outcome, kind, word) in enumerate(
        [(full, "merged", "kind full"), (lora, "full", "kind merged"), (lora, "fp32", "ZeRO")]
    ):
        place = tmp_path / str(number)
        place.mkdir()
        refused(export(place, outcome, kind), word)


def test_shards_that_are_not_the_gathered_weights_are_refused(workshop: Workshop, tmp_path: Path) -> None:
    outcome = workshop.straight("zero2", "full")
    copy = without(tmp_path, outcome, "nothing")
    [file] = copy.glob("model*.safetensors")
    weights = load_file(file)
    weights["model.norm.weight"] = weights["model.norm.weight"] * 1.5
    file.unlink()
    save_file(weights, file, metadata={"format": "pt"})
    refused(export(tmp_path, outcome, "fp32", resealed(copy)), "logits differ", "gathered")


def test_a_folder_that_is_not_what_was_saved_is_refused(workshop: Workshop, tmp_path: Path) -> None:
    outcome = workshop.straight("ddp", "lora")
    copy = without(tmp_path, outcome, "nothing")
    with (copy / "adapter_model.safetensors").open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\0\0\0\1")
    refused(export(tmp_path, outcome, "merged", copy), "another content")


def test_pickles_with_code_are_refused_before_they_are_opened(workshop: Workshop, tmp_path: Path) -> None:
    outcome = workshop.straight("zero2", "full")
    copy = without(tmp_path, outcome, "nothing")
    [shard, *_] = sorted(copy.glob("global_step*/*optim_states.pt"))
    shard.unlink()
    torch.save({"optimizer_state_dict": _Bomb(tmp_path / "ran")}, shard)
    refused(export(tmp_path, outcome, "fp32", resealed(copy)), "names", "Nothing of it was loaded")
    assert not (tmp_path / "ran").exists()


class _Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.path),))


def test_a_difference_is_a_fault_with_both_numbers(tiny_model: Path) -> None:
    prover = Prover(AutoTokenizer.from_pretrained(tiny_model), is_seq2seq=False)
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    before = prover.logits(model)
    prover.compare("same", before, prover.logits(model), 0.0)
    with torch.no_grad():
        model.lm_head.weight[3] += 0.1
    with pytest.raises(Fault, match="logits differ by"):
        prover.compare("other", before, prover.logits(model), 1e-4)
    with pytest.raises(Fault, match="NaN"):
        prover.compare("other", before, [tensor * float("nan") for tensor in before], 1.0)


@pytest.mark.parametrize("kind", ["adapter", "merged"])
def test_a_classifier_keeps_its_labels(workshop: Workshop, tmp_path: Path, kind: str) -> None:
    rows = workshop.root / f"labels-{kind}.jsonl"
    rows.write_text("".join(json.dumps({"text": f"row {i}", "label": "ab"[i % 2]}) + "\n" for i in range(24)))
    outcome = workshop.run(
        f"labels-{kind}",
        method="classification",
        model={"name": "bert", "source": str(make_tiny_bert(tmp_path / "bert"))},
        data={"format": "classification", "train": str(rows), "eval_fraction": 0.34},
        adapter={"r": 4, "target_modules": ["query", "value"]},
    )
    output = succeeded(export(tmp_path, outcome, kind))
    config = AutoConfig.from_pretrained(output)
    assert config.id2label == {0: "a", 1: "b"}
    if kind == "merged":
        model = AutoModelForSequenceClassification.from_pretrained(output)
        assert tuple(model(input_ids=IDS).logits.shape) == (1, 2)


def test_an_encoder_decoder_is_merged(workshop: Workshop, tmp_path: Path) -> None:
    rows = workshop.root / "pairs.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"say {i}", "completion": str(i)}) + "\n" for i in range(24)))
    outcome = workshop.run(
        "pairs",
        method="seq2seq",
        model={"name": "t5", "source": str(make_tiny_t5(tmp_path / "t5"))},
        data={"format": "prompt_completion", "train": str(rows)},
        adapter={"r": 4, "target_modules": ["q", "v"]},
    )
    output = succeeded(export(tmp_path, outcome, "merged"))
    model = AutoModelForSeq2SeqLM.from_pretrained(output)
    assert torch.isfinite(model(input_ids=IDS, decoder_input_ids=IDS).logits).all()
