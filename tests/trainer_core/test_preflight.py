"""What preflight reports of a run, as a function and as the command the service starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import make_tiny
from trainer_core.contract import (
    CauseCode,
    Columns,
    DataSource,
    LoraAdapter,
    ModelSource,
    ParallelSpec,
    PreflightReport,
    RunConfig,
    RunFolder,
)
from trainer_core.preflight.inspection import inspect_folder, inspect_run

ROWS = [{"prompt": f"q{index}", "completion": f"a{index}"} for index in range(10)]


@pytest.fixture
def train(tmp_path: Path) -> Path:
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def _config(model: Path, train: Path, *, data: dict[str, Any] | None = None, **more: Any) -> RunConfig:
    source = DataSource(train=train, **({"format": "prompt_completion"} | (data or {})))
    model_source = ModelSource(name="tiny", source=str(model))
    return RunConfig(job_id="j", job_name="n", attempt=0, model=model_source, data=source, **more)


def _run_folder(root: Path, config: RunConfig) -> RunFolder:
    root.mkdir()
    folder = RunFolder(root)
    folder.config.write_text(config.model_dump_json(), encoding="utf-8")
    return folder


def _report(folder: RunFolder) -> PreflightReport:
    return PreflightReport.model_validate_json(folder.preflight.read_bytes())


# ---------------------------------------------------------------------------------------------------------------------
# The report
# ---------------------------------------------------------------------------------------------------------------------


def test_a_sound_run_is_reported_with_its_plan(tiny_model: Path, train: Path) -> None:
    training = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "num_train_epochs": 2}
    config = _config(
        tiny_model, train, data={"eval_fraction": 0.2}, training=training, parallel=ParallelSpec(n_processes=2)
    )
    report = inspect_run(config)
    assert report.ok
    assert (report.n_train_rows, report.n_eval_rows) == (8, 2)
    assert (report.steps_per_epoch, report.planned_steps) == (1, 2)
    assert report.trained_tokens == 8 * 3  # "a", a digit, eos
    assert "".join(token.text for token in report.sample if token.learnt).startswith("a")
    assert report.histogram is not None
    assert sum(report.histogram.counts) == 8
    assert report.n_parameters == 35_232
    assert report.memory_bytes_per_device is not None
    assert report.memory_bytes_per_device > 35_232 * 16  # weights, gradients and two moments
    assert report.disk_bytes_per_checkpoint == 35_232 * 12


@pytest.mark.parametrize(
    ("adapter", "parallel", "training", "expected"),
    [
        (None, {}, {}, 12 * 35_232),
        (LoraAdapter(target_modules=["q_proj"], r=2), {}, {}, 12 * 2 * 2 * (32 + 32)),
        (None, {"zero_stage": 2}, {}, 20 * 35_232),
        (None, {"zero_stage": 2}, {"bf16": True}, 16 * 35_232),
    ],
)
def test_disk_follows_what_is_saved(
    tiny_model: Path, train: Path, adapter: Any, parallel: dict[str, Any], training: dict[str, Any], expected: int
) -> None:
    config = _config(tiny_model, train, adapter=adapter, parallel=ParallelSpec(**parallel), training=training)
    assert inspect_run(config).disk_bytes_per_checkpoint == expected


def test_a_model_of_an_unknown_type_is_counted_from_its_weights(tmp_path: Path, train: Path) -> None:
    model = make_tiny(tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"model_type": "newcomer"}))
    assert inspect_run(_config(model, train)).n_parameters == 35_232


def test_the_plan_counts_the_rows_that_remain(tiny_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    rows = [*ROWS[:3], {"prompt": "x" * 100, "completion": "dropped"}, ROWS[3]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    training = {"per_device_train_batch_size": 1, "num_train_epochs": 1}
    report = inspect_run(_config(tiny_model, path, data={"max_length": 50}, training=training))
    assert (report.n_train_rows, report.n_rows_dropped, report.planned_steps) == (4, 1, 4)
    assert any("line 4." in note for note in report.notes)


@pytest.mark.parametrize("missing", ["folder", "tokenizer.json", "config.json", "model.safetensors"])
def test_a_model_that_is_not_whole_is_unavailable(tmp_path: Path, train: Path, missing: str) -> None:
    model = tmp_path / "model"
    if missing != "folder":
        make_tiny(model)
        (model / missing).unlink()
    report = inspect_run(_config(model, train))
    assert not report.ok
    assert report.cause is not None
    assert (report.cause.code, report.cause.param) == (CauseCode.MODEL_UNAVAILABLE, "model")
    assert report.cause.hint


def test_cut_weights_are_found_before_a_device_is_spent(tmp_path: Path, train: Path) -> None:
    model = make_tiny(tmp_path / "model")
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    report = inspect_run(_config(model, train))
    assert report.cause is not None
    assert report.cause.code == CauseCode.MODEL_UNAVAILABLE
    assert "model.safetensors" in report.cause.message


def test_messages_without_a_chat_template_say_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    path.write_text(json.dumps({"messages": turns}) + "\n", encoding="utf-8")
    model = make_tiny(tmp_path / "model", chat_template=False)
    report = inspect_run(_config(model, path, data={"format": "messages"}))
    assert report.cause is not None
    assert report.cause.code == CauseCode.CONFIG_INVALID
    assert "chat_template.jinja" in str(report.cause.hint)


@pytest.mark.parametrize(
    ("training", "param"),
    [
        ({"per_device_train_batch_size": 64, "dataloader_drop_last": True}, "training.dataloader_drop_last"),
        ({"max_steps": 4, "warmup_steps": 1000}, "training.warmup_steps"),
        ({"max_steps": 0}, "training.max_steps"),
    ],
)
def test_a_plan_without_steps_is_refused_and_what_is_known_is_kept(
    tiny_model: Path, train: Path, training: dict[str, Any], param: str
) -> None:
    report = inspect_run(_config(tiny_model, train, training=training))
    assert report.cause is not None
    assert (report.cause.code, report.cause.param) == (CauseCode.CONFIG_INVALID, param)
    assert (report.n_train_rows, report.planned_steps) == (10, 0)


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path, train: Path) -> None:
    model = make_tiny(tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"vocab_size": 100}))
    report = inspect_run(_config(model, train))
    assert report.cause is not None
    assert (report.cause.code, report.cause.param) == (CauseCode.CONFIG_INVALID, "model")
    assert "100" in report.cause.message


@pytest.mark.parametrize("has_rope", [True, False])
def test_rows_longer_than_the_models_positions(tmp_path: Path, train: Path, has_rope: bool) -> None:
    model = make_tiny(tmp_path / "model")
    config = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": 16}
    if not has_rope:
        del config["rope_theta"]
    (model / "config.json").write_text(json.dumps(config))
    report = inspect_run(_config(model, train))
    assert report.ok == has_rope
    if report.cause:
        assert (report.cause.code, report.cause.param) == (CauseCode.CONFIG_INVALID, "dataset.max_length")
    else:
        assert any("made for 16" in note for note in report.notes)


# ---------------------------------------------------------------------------------------------------------------------
# The file and the command
# ---------------------------------------------------------------------------------------------------------------------


def test_a_config_that_is_none_is_reported_with_the_field(tiny_model: Path, train: Path, tmp_path: Path) -> None:
    folder = _run_folder(tmp_path / "run", _config(tiny_model, train))
    folder.config.write_text(folder.config.read_text().replace('"attempt":0', '"attempt":-1'), encoding="utf-8")
    assert inspect_folder(folder) == 0
    cause = _report(folder).cause
    assert cause is not None
    assert (cause.code, cause.param) == (CauseCode.CONFIG_INVALID, "attempt")
    folder.config.unlink()
    assert inspect_folder(folder) == 0
    assert not _report(folder).ok


def test_a_breakdown_of_the_inspection_is_recorded_and_told_by_the_exit_code(
    tiny_model: Path, train: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _run_folder(tmp_path / "run", _config(tiny_model, train))

    def broken(config: RunConfig) -> PreflightReport:
        raise ZeroDivisionError("out of order")

    monkeypatch.setattr("trainer_core.preflight.inspection.inspect_run", broken)
    assert inspect_folder(folder) == 1
    cause = _report(folder).cause
    assert cause is not None
    assert cause.code == CauseCode.INTERNAL
    assert "out of order" in cause.message


@pytest.mark.parametrize("program", [["trainer_core", "preflight"], ["trainer_core.preflight.start"]])
def test_the_command_writes_the_report_without_torch(
    tiny_model: Path, train: Path, tmp_path: Path, program: list[str]
) -> None:
    folder = _run_folder(tmp_path / "run", _config(tiny_model, train))
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", *program, str(folder.root)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert _report(folder).ok
    assert done.stdout == ""
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "transformers" in imported
    assert "torch" not in imported
    assert not [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert not list(folder.root.glob("*.partial"))


def test_the_command_succeeds_at_saying_no(train: Path, tmp_path: Path) -> None:
    folder = _run_folder(tmp_path / "run", _config(tmp_path / "nowhere", train))
    subprocess.run(
        [sys.executable, "-m", "trainer_core", "preflight", str(folder.root)],
        capture_output=True,
        check=True,
        timeout=60,
    )
    cause = _report(folder).cause
    assert cause is not None
    assert cause.code == CauseCode.MODEL_UNAVAILABLE


def test_real_rows_are_planned(tiny_model: Path, shared_data: Path) -> None:
    columns = Columns(prompt="question", completion="answer")
    path = shared_data / "gsm8k" / "train_first1000.jsonl"
    report = inspect_run(_config(tiny_model, path, data={"columns": columns, "max_length": 2048}))
    assert report.ok
    assert (report.n_train_rows, report.steps_per_epoch, report.planned_steps) == (1000, 125, 375)
