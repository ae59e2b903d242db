"""From an attempt and what it was resolved to, to a run: config.json, command line, environment. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from api.core.settings import Settings
from api.core.specs import Resolved
from api.core.stalls import StallLimits, StallSpec, limits_of
from trainer_core.contract import DataSource, Frozen, ModelSource, ResumePoint, RunConfig
from worker.launchers import Launch, Launcher
from worker.process import MARKER

# Of the worker's own environment a run gets these and no other: no settings, no keys, no stray switches.
PASSED_ON = frozenset(
    [
        *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "VIRTUAL_ENV"),
        *("HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
        # How this machine's network is to be used is its operator's to say.
        *("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "GLOO_SOCKET_IFNAME"),
    ]
)
# Unix sockets of data loaders lie in TMPDIR, and a socket's path may have 107 characters.
MAX_TMPDIR = 60


class PlacedDevice(Frozen):
    index: int
    kind: Literal["cpu", "cuda"]


class Inputs(Frozen):
    """Where on this machine the files of a run lie."""

    train: Path
    eval: Path | None = None
    resume: ResumePoint | None = None


class RunPlan(Frozen):
    """`launch.json`: all that a supervisor needs to start the run, and to know it again."""

    job_id: str
    attempt_id: str
    attempt: int
    run_dir: Path
    tmp_dir: Path
    argv: list[str]
    env: dict[str, str] = Field(repr=False)
    planned_steps: int | None = None
    stall: StallLimits = StallLimits()


def run_dir(settings: Settings, job_id: str, attempt: int) -> Path:
    return settings.runs_dir / job_id / f"attempt-{attempt}"


def make_config(
    *,
    job_id: str,
    job_name: str,
    attempt: int,
    resolved: Resolved,
    inputs: Inputs,
    device: Literal["cpu", "cuda"],
    planned_steps: int | None,
) -> RunConfig:
    """config.json of one attempt."""
    training = dict(resolved.training)
    if device == "cpu":
        # Without it every rank trains alone, world size 1, and the launcher says success.
        training["use_cpu"] = True
    model, data = resolved.model, resolved.data
    return RunConfig(
        job_id=job_id,
        job_name=job_name,
        attempt=attempt,
        **resolved.blocks(),
        model=ModelSource(
            name=model.name, source=model.source, revision=model.revision, trust_remote_code=model.trust_remote_code
        ),
        data=DataSource(
            train=inputs.train,
            eval=inputs.eval,
            eval_fraction=data.eval_fraction,
            format=data.format,
            columns=data.columns,
            render=data.render,
            max_length=data.max_length,
            train_sha256=data.train.sha256,
            eval_sha256=data.eval.sha256 if data.eval else None,
        ),
        adapter=resolved.adapter,
        quantization=resolved.quantization,
        training=training,
        parallel=resolved.parallel,
        device=device,
        seed=resolved.seed,
        metric_for_best=resolved.metric_for_best,
        greater_is_better=resolved.greater_is_better,
        retention=resolved.retention,
        resume=inputs.resume,
        planned_steps=planned_steps,
    )


def make_plan(
    *,
    config: RunConfig,
    attempt_id: str,
    folder: Path,
    devices: Sequence[PlacedDevice],
    port: int,
    settings: Settings,
    launchers: Mapping[str, Launcher],
    environ: Mapping[str, str],
    n_cores: int,
    stall: StallSpec = StallSpec(),
) -> RunPlan:
    """The command line and environment that start `config` on `devices`."""
    indexes = [device.index for device in devices]
    tmp_dir = tmp_dir_for(folder, attempt_id)
    env = make_env(settings, environ, folder=folder, tmp_dir=tmp_dir, n_cores=n_cores)
    env[MARKER] = attempt_id
    if devices[0].kind == "cuda":
        # NVML and CUDA count devices in the same order only by their place on the bus.
        env |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, indexes))}
    else:
        env |= {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
    launch = Launch(run_dir=folder, run_id=attempt_id, devices=indexes, port=port)
    return RunPlan(
        job_id=config.job_id,
        attempt_id=attempt_id,
        attempt=config.attempt,
        run_dir=folder,
        tmp_dir=tmp_dir,
        argv=launchers[config.parallel.launcher](launch),
        env=env,
        planned_steps=config.planned_steps,
        stall=limits_of(stall, settings),
    )


def make_env(
    settings: Settings, environ: Mapping[str, str], *, folder: Path, tmp_dir: Path, n_cores: int
) -> dict[str, str]:
    """A clean environment for a run or a preflight, with temporary and cache folders of its own."""
    threads = settings.cpu_threads_per_slot or max(1, n_cores // max(1, settings.cpu_slots))
    caches = folder / "cache"
    env = {name: value for name, value in environ.items() if name in PASSED_ON}
    env.setdefault("PATH", os.defpath)
    env.setdefault("LANG", "C.UTF-8")
    env |= {
        "TMPDIR": str(tmp_dir),
        "XDG_CACHE_HOME": str(caches),
        "MPLCONFIGDIR": str(caches / "matplotlib"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        # Shared: what DeepSpeed compiles takes minutes, and torch locks it while it is built.
        "TORCH_EXTENSIONS_DIR": str(settings.data_dir / "cache" / "torch_extensions"),
        # The library's own default, said aloud because XDG_CACHE_HOME would move it.
        "HF_HOME": env.get("HF_HOME") or str(Path(env.get("HOME") or settings.data_dir) / ".cache" / "huggingface"),
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
    }
    if not settings.hub_online:
        env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    return env


def tmp_dir_for(folder: Path, run_id: str) -> Path:
    """Inside the run folder where its path is short enough, else beside the system's other temporary folders."""
    inside = folder / "tmp"
    return inside if len(str(inside)) <= MAX_TMPDIR else Path("/tmp") / f"trainyard-{run_id[-13:]}"
