"""Who may import what: the contracts of pyproject.toml, and what they cannot say."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.test_sizes import REPOSITORY, sources

TRAINING_LIBRARIES = ("torch", "transformers", "accelerate", "deepspeed", "peft", "trl", "datasets", "tokenizers")
# What the service may import of the trainer: the contract, and modules that need no training library.
TORCH_FREE = (
    "trainer_core.contract",
    "trainer_core.problems",
    "trainer_core.numbers",
    "trainer_core.arguments.gone",
    "trainer_core.arguments.resolve",
    "trainer_core.arguments.table",
    "trainer_core.contract.adapters",
    "trainer_core.contract.method_options",
    "trainer_core.methods_table",
    "trainer_core.steps",
    "trainer_core.zero.config",
    "trainer_core.memory.estimate",
    "trainer_core.memory.strategies",
    "trainer_core.memory.ladder",
    "trainer_core.model.rules",
    "trainer_core.export.order",
    "trainer_core.serve.order",
    "trainer_core.data.rows",
    "trainer_core.data.fields",
    "trainer_core.data.mapping",
    "trainer_core.data.formats",
    "trainer_core.data.report",
    "trainer_core.data.problems",
)


def imports_of(file: Path) -> list[tuple[str, bool]]:
    """(module, whether it stands inside a function) of each import."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    inside = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.module, id(node) in inside))
    return found


@pytest.mark.parametrize("file", sources(), ids=lambda file: str(file.relative_to(REPOSITORY)))
def test_imports_stand_at_the_top(file: Path) -> None:
    inside = [module for module, is_inside in imports_of(file) if is_inside]
    assert not inside, f"imports inside functions: {inside}"


def test_the_service_uses_only_the_trainers_doors() -> None:
    for file in sources():
        if file.relative_to(REPOSITORY).parts[0] not in ("api", "worker"):
            continue
        for module, _ in imports_of(file):
            if module.startswith("trainer_core"):
                assert module in TORCH_FREE, f"{file.relative_to(REPOSITORY)} imports {module}"


def test_celery_is_imported_at_its_doors_only() -> None:
    doors = {"api/core/queue.py", "api/core/file_broker.py", "worker/app.py", "worker/tasks.py"}
    users = {
        str(file.relative_to(REPOSITORY))
        for file in sources()
        if any(module.split(".")[0] in ("celery", "kombu") for module, _ in imports_of(file))
    }
    assert users <= doors, f"Celery outside its doors: {users - doors}"


@pytest.mark.parametrize("module", ["api.app", "worker.agent", "worker.supervise", "worker.tasks", "trainyard.cli"])
def test_the_control_plane_loads_no_training_library(module: str) -> None:
    program = f"import sys, {module}; print(sorted(set({TRAINING_LIBRARIES!r}) & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert loaded.stdout.strip() == "[]"


def test_the_torch_free_doors_load_no_training_library() -> None:
    program = f"import sys, {', '.join(TORCH_FREE)}; print(sorted(set({TRAINING_LIBRARIES!r}) & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert loaded.stdout.strip() == "[]"
