"""What this machine has: its GPUs by NVML, else CPU slots; and facts about it for people.

Versions come from package metadata: importing torch here would cost seconds and a CUDA context.
"""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib import metadata

import psutil
import pynvml

from api.core.nodes import DeviceFact
from api.core.settings import Settings

PACKAGES = ("trainyard", "torch", "transformers", "accelerate", "deepspeed", "peft", "bitsandbytes")


def find_devices(settings: Settings) -> list[DeviceFact]:
    """The GPUs of this machine, or `cpu_slots` CPU slots where it has none."""
    return find_gpus() or [
        DeviceFact(index=index, kind="cpu", name=f"CPU slot {index}", uuid=None, memory_bytes=None)
        for index in range(settings.cpu_slots)
    ]


def find_gpus() -> list[DeviceFact]:
    """NVML's GPUs; none where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        return [_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
    finally:
        pynvml.nvmlShutdown()


def _gpu(index: int) -> DeviceFact:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return DeviceFact(
        index=index,
        kind="cuda",
        name=str(pynvml.nvmlDeviceGetName(handle)),
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
    )


def find_facts(settings: Settings) -> dict[str, object]:
    """Versions, cores, memory, free disk and load, as they are now."""
    memory = psutil.virtual_memory()
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "cores": n_cores(),
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "disk_free_bytes": psutil.disk_usage(str(settings.data_dir)).free,
        "load": list(os.getloadavg()),
    }


def n_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


@cache
def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
