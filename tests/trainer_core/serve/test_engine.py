"""The engine itself: one load answers as base and as checkpoint, the same for the same seed, within its bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from tests.tiny import make_tiny
from tests.trainer_core.serve.engine import Engine, prompt, running
from trainer_core.checkpoints.manifests import describe_files, write_manifest
from trainer_core.contract import Manifest, ModelSource
from trainer_core.serve.order import Cancel, ServeOrder

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),  # PEFT asks for it
]


def make_adapter(base: Path, folder: Path) -> tuple[Path, str]:
    """A checkpoint whose adapter changes every reply, and its manifest's digest."""
    torch.manual_seed(1)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=4, target_modules="all-linear"))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn_like(parameter)
    model.save_pretrained(folder)
    manifest = Manifest(
        job_id="j", attempt=1, step=3, world_size=1, strategy="ddp", adapter="lora", total_steps=3,
        files=describe_files(folder),
    )  # fmt: skip
    return folder, write_manifest(folder, manifest)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    place = tmp_path_factory.mktemp("engine")
    base = make_tiny(place / "base")
    checkpoint, digest = make_adapter(base, place / "checkpoint-3")
    source = ModelSource(name="tiny", source=str(base))
    order = ServeOrder(model=source, checkpoint=checkpoint, manifest_sha256=digest)
    with running(place / "run", order) as engine:
        ready = engine.hear()
        assert (ready.type, ready.variants, ready.context_length) == ("ready", ["tuned", "base"], 2048)
        yield engine


def test_the_adapter_is_off_for_the_base(engine: Engine) -> None:
    tuned, ended = engine.ask("hello", max_tokens=16, temperature=0)
    base, _ = engine.ask("hello", variant="base", max_tokens=16, temperature=0)
    again, _ = engine.ask("hello", max_tokens=16, temperature=0)
    assert tuned == again != base
    assert ended.completion_tokens <= 16


def test_base_answers_are_those_of_the_plain_model(engine: Engine, tmp_path: Path) -> None:
    with running(tmp_path, ServeOrder(model=ModelSource(name="tiny", source=str(make_tiny(tmp_path / "m"))))) as alone:
        assert alone.hear().variants == ["base"]
        theirs, _ = alone.ask("hello", variant="base", max_tokens=16, temperature=0)
        _, refused = alone.ask("hello")
    assert engine.ask("hello", variant="base", max_tokens=16, temperature=0)[0] == theirs
    assert (refused.type, refused.code) == ("refused", "no_such_variant")


def test_a_seed_decides_the_reply(engine: Engine) -> None:
    one, two, other = (engine.ask("hi", max_tokens=20, temperature=1.5, seed=seed)[0] for seed in (5, 5, 6))
    assert one == two != other


def test_a_reply_ends_at_its_length_or_before_a_stop_text(engine: Engine) -> None:
    whole, ended = engine.ask("hello", variant="base", max_tokens=24, temperature=0)
    assert (ended.finish_reason, ended.completion_tokens) == ("length", 24)
    stop = next(one for one in whole[2:] if one.isascii() and one.isprintable())
    cut, stopped = engine.ask("hello", variant="base", max_tokens=24, temperature=0, stop=[stop])
    assert (cut, stopped.finish_reason) == (whole[: whole.index(stop)], "stop")


def test_what_does_not_fit_is_refused_with_its_figures(engine: Engine) -> None:
    _, refused = engine.ask("x" * 3000)
    assert refused.code == "context_length_exceeded"
    assert "2048 tokens" in refused.message
    _, refused = engine.ask("x", max_tokens=2048)
    assert (refused.code, refused.param) == ("context_length_exceeded", "messages")


def test_a_cancelled_reply_ends_and_the_next_is_written(engine: Engine) -> None:
    engine.tell(prompt("hello", "long", variant="base", max_tokens=2000, temperature=0))
    assert engine.hear().type == "piece"
    engine.tell(Cancel(id="long"))
    while (word := engine.hear()).type == "piece":
        pass
    assert (word.id, word.finish_reason) == ("long", "cancelled")
    assert word.completion_tokens < 2000
    assert engine.ask("hello", "next", max_tokens=2)[1].id == "next"


def test_a_changed_checkpoint_is_refused(tmp_path: Path) -> None:
    base = make_tiny(tmp_path / "base")
    checkpoint, digest = make_adapter(base, tmp_path / "checkpoint-3")
    (checkpoint / "adapter_config.json").write_text("{}")
    order = ServeOrder(model=ModelSource(name="tiny", source=str(base)), checkpoint=checkpoint, manifest_sha256=digest)
    with running(tmp_path / "run", order) as engine:
        word = engine.hear()
        assert (word.type, word.cause.code) == ("failed", "checkpoint_invalid")
        assert engine.process.wait(20) == 1


def test_an_engine_ends_with_its_input_and_when_nobody_asks(tmp_path: Path) -> None:
    source = ModelSource(name="tiny", source=str(make_tiny(tmp_path / "m")))
    with running(tmp_path / "idle", ServeOrder(model=source, idle_s=0.2)) as engine:
        assert engine.process.wait(30) == 0
    with running(tmp_path / "left", ServeOrder(model=source)) as engine:
        engine.hear()
        engine.tell(prompt("hello", variant="base", max_tokens=2000))
        assert engine.process.stdin is not None
        engine.process.stdin.close()
        engine.process.stdin = None
        assert engine.process.wait(30) == 0
