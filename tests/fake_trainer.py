"""A launcher and a trainer that honour the contract and learn nothing: for tests of the worker alone.

`launch RUN_DIR N` starts N ranks and reports a dead one in torchrun's words; `run RUN_DIR` is one rank. What a run
does beside counting steps is said in config.training["fake"]: see `Fake`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from trainer_core.checkpoints.manifests import describe_files, read_manifest, write_manifest
from trainer_core.contract import (
    Cause,
    CauseCode,
    CheckpointRemoved,
    CheckpointSaved,
    Done,
    ExitCode,
    Failed,
    Manifest,
    Metrics,
    Phase,
    Planned,
    RunConfig,
    RunFolder,
    Started,
    Stopped,
    StopRequest,
)
from trainer_core.run.events import EventWriter
from trainer_core.run.heartbeat import write_stacks_on_signal


@dataclass(frozen=True)
class Fake:
    """What a fake run does."""

    steps: int = 5
    step_s: float = 0.02
    load_s: float = 0.0  # before it trains, and before it looks at STOP
    save_every: int = 2
    keep_last: int = 2
    is_deaf: bool = False  # does not look at STOP and ignores SIGTERM
    loaders: int = 0  # children a rank starts, in sessions of their own, with nothing of the launcher in their parents
    fail_at: int | None = None  # ends with an error record
    die_at: int | None = None  # rank 1 (or the only one) kills itself with SIGKILL, once in the job's life
    freeze_at: int | None = (
        None  # the last rank stops itself as a frozen process would, in the first attempt; rank 0 waits
    )
    freeze_loader_at: int | None = None  # rank 0 waits for a loader process of its own that is frozen
    oom_above: int | None = None  # out of memory at step 2 with a larger micro-batch
    oom_below_zero: int | None = None  # out of memory at step 4 with a lower ZeRO stage, or none
    nap_at: int | None = None  # every rank sleeps `nap_s` before this step, and goes on
    nap_s: float = 0.0
    exits_silently: bool = False  # the first attempt leaves after the last save, without a word
    print_bytes: int = 0  # a line so long


def launch(run_dir: Path, n_ranks: int) -> int:
    """Start the ranks; when one fails, end the others as torchrun does, and tell of it in torchrun's words."""
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "run", str(run_dir)],
            env=os.environ | {"RANK": str(rank), "WORLD_SIZE": str(n_ranks)},
        )
        for rank in range(n_ranks)
    ]
    signal.signal(signal.SIGTERM, lambda *_: [process.terminate() for process in ranks])
    while True:
        codes = [process.poll() for process in ranks]
        failed = [rank for rank, code in enumerate(codes) if code not in (None, 0)]
        if failed:
            return _report(ranks, failed[0])
        if all(code == 0 for code in codes):
            return 0
        time.sleep(0.02)


def _report(ranks: list[subprocess.Popen[bytes]], root: int) -> int:
    code = ranks[root].returncode
    for process in ranks:
        process.terminate()
    for process in ranks:
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
    print(
        f"Root Cause (first observed failure):\n[0]:\n  rank      : {root} (local_rank: {root})\n"
        f"  exitcode  : {code} (pid: {ranks[root].pid})\n",
        flush=True,
    )
    return 1


def run(folder: RunFolder) -> int:
    """One rank."""
    config = RunConfig.model_validate_json(folder.config.read_bytes())
    fake = Fake(**config.training.get("fake", {}))
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    _send_output(folder.rank_log(rank))
    write_stacks_on_signal(folder.rank_stacks(rank))
    if fake.is_deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(fake.loaders):
        _start_loader()
    events = EventWriter(folder.events, enabled=rank == 0)
    first = read_manifest(config.resume.checkpoint).step if config.resume else 0
    events.emit(Started, world_size=world_size, device="cpu", pids=[os.getpid()], resumed_from_step=first or None)
    _plan(events, fake)
    time.sleep(fake.load_s)
    events.phase(Phase.TRAINING)
    code = _steps(config, folder, fake, events, rank, first)
    events.close()
    return code


def _steps(config: RunConfig, folder: RunFolder, fake: Fake, events: EventWriter, rank: int, first: int) -> int:
    print("x" * fake.print_bytes, flush=True)
    for step in range(first + 1, fake.steps + 1):
        time.sleep(fake.step_s)
        if folder.stop.exists() and not fake.is_deaf:
            return _stop(config, folder, events, rank, step - 1)
        _maybe_die(config, folder, fake, rank, step)
        _maybe_freeze(config, fake, rank, step)
        if _is_too_large(config, fake, step):
            cause = Cause(code=CauseCode.GPU_OOM, message="The device ran out of memory: tried to allocate 2 GiB")
            events.emit(Failed, step=step, cause=cause)
            return ExitCode.FAILED
        if step == fake.fail_at:
            cause = Cause(code=CauseCode.NON_FINITE_LOSS, message=f"The loss at step {step} is NaN.")
            events.emit(Failed, step=step, cause=cause)
            return ExitCode.FAILED
        print(f"step {step}", flush=True)
        events.emit(Metrics, step=step, epoch=step / fake.steps, values={"loss": 1 / step, "grad_norm": "NaN"})
        if step % fake.save_every == 0 or step == fake.steps:
            save(config, folder, events, rank, step, fake.keep_last)
    if fake.exits_silently and config.attempt == 1:
        return ExitCode.DONE
    events.emit(Done, step=fake.steps, total_steps=fake.steps, last_step=fake.steps, best_step=fake.steps)
    (folder.output / "train_results.json").write_text('{"train_loss": 0.5}') if rank == 0 else None
    return ExitCode.DONE


def save(config: RunConfig, folder: RunFolder, events: EventWriter, rank: int, step: int, keep_last: int) -> None:
    if rank != 0:
        return
    saving = folder.checkpoints / f".saving-{step}"
    saving.mkdir()
    (saving / "weights.bin").write_bytes(f"{config.job_id} {step}".encode() * 100)
    manifest = Manifest(
        job_id=config.job_id,
        attempt=config.attempt,
        step=step,
        world_size=1,
        strategy="deepspeed" if config.parallel.strategy == "deepspeed" else "ddp",
        zero_stage=config.parallel.zero_stage,
        total_steps=step,
        metrics={"loss": 1 / step},
        files=describe_files(saving),
    )
    sha256 = write_manifest(saving, manifest)
    saving.rename(folder.checkpoint(step))
    events.emit(
        CheckpointSaved,
        step=step,
        name=f"checkpoint-{step}",
        size_bytes=manifest.size_bytes,
        n_files=1,
        manifest_sha256=sha256,
        metrics=manifest.metrics,
        is_best=True,
    )
    steps = sorted(int(path.name.removeprefix("checkpoint-")) for path in folder.checkpoints.glob("checkpoint-*"))
    for old in steps[:-keep_last]:
        for path in folder.checkpoint(old).iterdir():
            path.unlink()
        folder.checkpoint(old).rmdir()
        events.emit(CheckpointRemoved, step=old)


def _stop(config: RunConfig, folder: RunFolder, events: EventWriter, rank: int, step: int) -> int:
    request = StopRequest.model_validate_json(folder.stop.read_bytes())
    if request.save_checkpoint and not folder.checkpoint(step).exists():
        save(config, folder, events, rank, step, keep_last=9)
    events.emit(Stopped, step=step, reason=request.reason, checkpoint_step=step if request.save_checkpoint else None)
    return ExitCode.STOPPED


def _maybe_die(config: RunConfig, folder: RunFolder, fake: Fake, rank: int, step: int) -> None:
    """The last rank dies in a save at this step, once the first is there and waits as for a peer in a collective."""
    if step != fake.die_at or config.attempt > 1:
        return
    is_victim = rank == int(os.environ["WORLD_SIZE"]) - 1
    there = folder.scratch / "rank0-waits"
    if rank == 0:
        there.touch()
    while not (is_victim and there.exists()):
        time.sleep(0.01)
    half = folder.checkpoints / f".saving-{step}"
    half.mkdir()
    (half / "weights.bin").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)


def _is_too_large(config: RunConfig, fake: Fake, step: int) -> bool:
    batch, stage = config.training.get("per_device_train_batch_size", 8), config.parallel.zero_stage or 0
    if step == 2 and fake.oom_above is not None:
        return bool(batch > fake.oom_above)
    return step == 4 and fake.oom_below_zero is not None and stage < fake.oom_below_zero


def _maybe_freeze(config: RunConfig, fake: Fake, rank: int, step: int) -> None:
    if step == fake.nap_at:
        time.sleep(fake.nap_s)
    if config.attempt > 1:
        return
    if step == fake.freeze_loader_at:
        wait_for_a_loader()
    if step == fake.freeze_at:
        if rank == int(os.environ["WORLD_SIZE"]) - 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        wait_for_a_peer()


def wait_for_a_peer() -> None:
    time.sleep(1000)


def wait_for_a_loader() -> None:
    loader = subprocess.Popen([sys.executable, "-S", "-c", "import os; os.kill(os.getpid(), 19)"])
    loader.wait()


def _plan(events: EventWriter, fake: Fake) -> None:
    events.emit(
        Planned,
        total_steps=fake.steps,
        n_train_rows=10,
        n_eval_rows=0,
        n_epochs=1.0,
        global_batch_size=2,
        trainable_parameters=10,
        total_parameters=10,
        trained_tokens_per_epoch=100,
        wrapped_model="Fake",
        optimizer="Fake",
        precision="fp32",
    )


def _start_loader() -> None:
    """A grandchild in a session of its own whose parent is gone: what a naive kill leaves behind."""
    code = "import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(300)"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


def _send_output(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)


def preflight(folder: RunFolder) -> int:
    """Writes the report that config.training["fake_preflight"] holds; without one it crashes."""
    config = json.loads(folder.config.read_text())
    behaviour = config["training"].get("fake_preflight", {})
    time.sleep(behaviour.pop("sleep_s", 0))
    if not behaviour:
        raise SystemExit("the fake preflight crashes as asked")
    folder.preflight.write_text(json.dumps(behaviour))
    return 0


if __name__ == "__main__":
    command, place = sys.argv[1], Path(sys.argv[2])
    if command == "launch":
        sys.exit(launch(place, int(sys.argv[3])))
    sys.exit(run(RunFolder(place)) if command == "run" else preflight(RunFolder(place)))
