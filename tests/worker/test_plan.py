"""From an attempt to a command line, an environment and a config: pure, so every rule is tried here."""

from __future__ import annotations

import base64
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.world import make_resolved, short_settings
from trainer_core.contract import RunConfig
from worker.detach import environ_of
from worker.launchers import LAUNCHERS, Launch
from worker.plan import MAX_TMPDIR, PASSED_ON, Inputs, PlacedDevice, RunPlan, make_config, make_plan, tmp_dir_for


def config(device: str = "cpu", launcher: str = "torchrun") -> RunConfig:
    resolved = make_resolved(2, steps=6, training={"max_steps": 6})
    parallel = resolved.parallel.model_copy(update={"launcher": launcher})
    return make_config(
        job_id="job_1",
        job_name="a job",
        attempt=3,
        resolved=resolved.model_copy(update={"parallel": parallel}),
        inputs=Inputs(train=Path("/data/rows.jsonl")),
        device=device,  # type: ignore[arg-type]
        planned_steps=6,
    )


def plan(tmp_path: Path, kind: str = "cpu", environ: dict[str, str] | None = None, **parts: Any) -> RunPlan:
    defaults: dict[str, Any] = {
        "config": config(kind),
        "attempt_id": "att_0123456789abcdefghij",
        "folder": tmp_path,
        "devices": [PlacedDevice(index=index, kind=kind) for index in (1, 3)],  # type: ignore[arg-type]
        "port": 4321,
        "settings": short_settings(tmp_path, "sqlite://", hub_online=False),
        "launchers": LAUNCHERS,
        "environ": environ or {},
        "n_cores": 8,
    }
    return make_plan(**(defaults | parts))


def test_cpu_runs_say_so_and_gpu_runs_do_not() -> None:
    assert config("cpu").training == {"max_steps": 6, "use_cpu": True}
    assert config("cuda").training == {"max_steps": 6}
    assert config("cuda").device == "cuda"


def test_a_gpu_run_sees_its_placed_devices_alone(tmp_path: Path) -> None:
    env = plan(tmp_path, "cuda").env
    assert (env["CUDA_VISIBLE_DEVICES"], env["CUDA_DEVICE_ORDER"]) == ("1,3", "PCI_BUS_ID")
    assert plan(tmp_path, "cpu").env["CUDA_VISIBLE_DEVICES"] == ""


def test_torchrun_takes_a_port_of_its_own_and_deepspeed_the_given_one(tmp_path: Path) -> None:
    argv = plan(tmp_path).argv
    assert argv[argv.index("--rdzv-endpoint") + 1] == "127.0.0.1:0"
    assert argv[argv.index("--nproc-per-node") + 1] == "2"
    assert argv[-3:] == ["trainer_core", "run", str(tmp_path)]
    argv = plan(tmp_path, config=config(launcher="deepspeed")).argv
    assert "--master_port=4321" in argv
    world = next(word.partition("=")[2] for word in argv if word.startswith("--world_info="))
    # The launcher makes the visible devices of these numbers.
    assert json.loads(base64.urlsafe_b64decode(world)) == {"localhost": [1, 3]}


@given(names=st.lists(st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", min_size=1, max_size=30), max_size=20))
def test_nothing_of_the_workers_environment_is_passed_on_unnamed(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    secret = dict.fromkeys([*names, "HF_TOKEN", "TRAINYARD_DATABASE_URL", "AWS_SECRET_ACCESS_KEY"], "hunter2")
    secret = {name: value for name, value in secret.items() if name not in PASSED_ON}
    env = plan(tmp_path_factory.mktemp("run"), environ=secret | {"PATH": "/bin", "HF_HOME": "/hub"}).env
    assert "hunter2" not in env.values()
    assert (env["PATH"], env["HF_HOME"], env["HF_HUB_OFFLINE"]) == ("/bin", "/hub", "1")
    assert env["OMP_NUM_THREADS"] == "4"
    assert [name for name in env if name.startswith("TRAINYARD_")] == ["TRAINYARD_RUN"]


def test_a_socket_fits_into_the_temporary_folder(tmp_path: Path) -> None:
    long = Path("/", *["a-rather-long-name"] * 5)
    for folder in (Path("/data/runs/job/attempt-1"), long):
        path = tmp_dir_for(folder, "att_0123456789abcdefghij")
        assert len(str(path)) <= MAX_TMPDIR
    with socket.socket(socket.AF_UNIX) as probe:
        probe.bind(str(tmp_path / "x"))
    assert tmp_dir_for(long, "att_a") != tmp_dir_for(long, "att_b")


def test_a_child_of_ours_reads_the_same_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = short_settings(
        tmp_path, "postgresql+psycopg://u:p%20w@host/db", cpu_threads_per_slot=3, hub_online=False, log_level="error",
        nvme_roots=(tmp_path / "a", tmp_path / "b c"),
    )  # fmt: skip
    for name, value in environ_of(settings, os.environ | {"TRAINYARD_PORT": "1"}).items():
        monkeypatch.setenv(name, value)
    assert type(settings)() == settings


@pytest.mark.parametrize("name", sorted(LAUNCHERS))
def test_every_launcher_of_the_job_form_is_known(name: str, tmp_path: Path) -> None:
    argv = LAUNCHERS[name](Launch(run_dir=tmp_path, run_id="x", devices=[0], port=1))
    assert Path(argv[0]).is_absolute()
