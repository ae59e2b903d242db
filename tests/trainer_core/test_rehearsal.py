"""The longest batch and one save before the first step: it finds what would fail, and leaves no trace."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.trainer_core.runs import ENVIRONMENT, REPOSITORY, Outcome, Workshop, setting

pytestmark = pytest.mark.train


def without(workshop: Workshop, kind: str, weights: str) -> Outcome:
    parts = setting(kind, weights)
    parts["parallel"] = {**parts.get("parallel", {}), "dry_run": False}
    return workshop.run(f"unrehearsed-{kind}-{weights}", **parts)


@pytest.mark.parametrize(("kind", "weights"), [("one", "full"), ("zero2", "full"), ("zero3", "full")])
def test_losses_are_those_of_a_run_without_it_bit_for_bit(workshop: Workshop, kind: str, weights: str) -> None:
    tried, plain = workshop.straight(kind, weights), without(workshop, kind, weights)
    for figure in ("loss", "grad_norm", "tokens_seen"):
        assert tried.series(figure) == plain.series(figure)
        assert len(plain.series(figure)) == 6
    assert tried.eval_losses == plain.eval_losses
    told = [note["message"] for note in tried.of_type("note") if note["message"].startswith("Rehearsed")]
    assert len(told) == 1
    assert not [note for note in plain.of_type("note") if note["message"].startswith("Rehearsed")]
    assert ("went forward, and" if kind.startswith("zero") else "went forward and back") in told[0]
    assert not list(tried.folder.checkpoints.glob(".saving-*"))
    assert tried.checkpoints == [3, 6]


def test_dropout_sees_the_same_random_numbers(workshop: Workshop) -> None:
    parts: dict[str, Any] = {"adapter": {"lora_dropout": 0.3}}
    tried = workshop.run("dropout-rehearsed", **parts)
    plain = workshop.run("dropout-unrehearsed", **parts, parallel={"dry_run": False})
    assert tried.series("loss") == plain.series("loss")


def test_a_save_that_would_fail_fails_before_the_first_step(workshop: Workshop) -> None:
    (weights,) = workshop.model.glob("*.safetensors")
    limit = weights.stat().st_size // 2
    folder = workshop.folder("no-save", adapter=None, parallel={"n_processes": 1})
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f {limit // 1024}; exec {sys.executable} -m trainer_core run {folder.root}"],
        env=ENVIRONMENT,
        cwd=REPOSITORY,
        check=False,
    )
    outcome = Outcome(folder, [done.returncode])
    assert outcome.codes == [1]
    assert outcome.one("error")["cause"]["code"] == "disk_full"
    assert outcome.of_type("metrics") == []
    assert not list(folder.checkpoints.iterdir())
