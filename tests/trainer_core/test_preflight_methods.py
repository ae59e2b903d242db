"""What preflight finds out for methods other than supervised fine-tuning, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import make_tiny
from tests.tiny_seq2seq import make_tiny_bart, make_tiny_bert, make_tiny_t5
from trainer_core.contract import CauseCode, PreflightReport, RunConfig, RunFolder
from trainer_core.model.files import check_fit
from trainer_core.preflight.inspection import inspect_run

PAIRS = [{"prompt": f"q{index}", "completion": f"a{index}"} for index in range(8)]
LABELS = [{"text": f"t{index}", "label": index % 2} for index in range(8)]
TAGS = [{"tokens": ["a", "b"], "tags": ["O", "B-X"]}] * 8


def config(make: Callable[[Path], Path], folder: Path, method: str, rows: list[Any], **data: Any) -> RunConfig:
    (folder / "rows").write_text("".join(json.dumps(row) + "\n" for row in rows))
    row_format = "prompt_completion" if method in ("seq2seq", "sft") else method
    source = {"name": "tiny", "source": str(make(folder / "model"))}
    data = {"train": folder / "rows", "format": row_format, **data}
    return RunConfig(job_id="j", job_name="n", attempt=0, method=method, model=source, data=data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "method", "rows", "learnt"),
    [(make_tiny_t5, "seq2seq", PAIRS, 8 * 3), (make_tiny_bert, "classification", LABELS, 8),
     (make_tiny, "classification", LABELS, 8), (make_tiny_bert, "token_classification", TAGS, 16)],
)  # fmt: skip
def test_the_command_reports_every_method_without_torch(
    make: Callable[[Path], Path], method: str, rows: list[Any], learnt: int, tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.root.mkdir()
    folder.config.write_text(config(make, tmp_path, method, rows).model_dump_json())
    subprocess.run([sys.executable, "-m", "trainer_core.preflight.start", str(folder.root)], check=True, timeout=60)
    report = PreflightReport.model_validate_json(folder.preflight.read_bytes())
    assert report.ok, report.cause
    assert (report.n_train_rows, report.trained_tokens, report.planned_steps) == (8, learnt, 3)
    assert report.sample


@pytest.mark.parametrize(
    ("make", "method", "param"), [(make_tiny_bert, "seq2seq", "model"), (make_tiny_t5, "sft", "method")]
)
def test_a_model_of_the_other_build_is_refused(
    make: Callable[[Path], Path], method: str, param: str, tmp_path: Path
) -> None:
    report = inspect_run(config(make, tmp_path, method, PAIRS))
    assert report.cause is not None
    assert (report.cause.code, report.cause.param) == (CauseCode.CONFIG_INVALID, param)


@pytest.mark.parametrize(("make", "fits"), [(make_tiny_bart, False), (make_tiny_t5, True)])
def test_completions_longer_than_the_decoders_positions(
    make: Callable[[Path], Path], fits: bool, tmp_path: Path
) -> None:
    rows = [{"prompt": "short", "completion": "long " * 150}]
    report = inspect_run(config(make, tmp_path, "seq2seq", rows))
    assert report.ok == fits
    if report.cause:
        assert "512" in report.cause.message


def test_robertas_first_positions_belong_to_padding() -> None:
    roberta = {"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1, "vocab_size": 9}
    assert check_fit(roberta, 9, 512) == []
    with pytest.raises(Exception, match="positions for 512"):
        check_fit(roberta, 9, 513)
