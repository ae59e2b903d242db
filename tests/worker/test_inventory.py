"""What a machine has: GPUs as the driver lists them, else CPU slots."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from tests.worker.world import short_settings
from worker.inventory import find_devices, find_facts


def no_driver() -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


def test_a_machine_without_a_driver_offers_its_cpu_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    found = find_devices(short_settings(tmp_path, "sqlite://", cpu_slots=3))
    assert [(device.index, device.kind) for device in found] == [(0, "cpu"), (1, "cpu"), (2, "cpu")]


def test_gpus_are_offered_instead_of_cpu_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda _handle: "A GPU",
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetMemoryInfo": lambda _handle: SimpleNamespace(total=80 * 1024**3),
    }.items():
        monkeypatch.setattr(pynvml, name, value)
    found = find_devices(short_settings(tmp_path, "sqlite://"))
    assert [(device.kind, device.uuid, device.memory_bytes) for device in found] == [
        ("cuda", "GPU-0", 80 * 1024**3),
        ("cuda", "GPU-1", 80 * 1024**3),
    ]


def test_facts_need_no_training_library(tmp_path: Path) -> None:
    facts = find_facts(short_settings(tmp_path, "sqlite://"))
    assert facts["cores"] >= 1  # type: ignore[operator]
    assert "python" in facts["versions"]  # type: ignore[operator]
    code = "import sys, worker.node, worker.app, worker.supervision; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_supervisor_loads_no_celery() -> None:
    code = "import sys, worker.supervision; print('celery' in sys.modules, 'psutil' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"
