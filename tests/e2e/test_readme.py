"""What README shows is run as it stands there: commands, job file and Python, so that it cannot drift from the code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.live import PATIENCE_S, REPOSITORY, Json, Service
from tests.tiny import make_tiny
from trainyard import Client

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("e2e")]

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def block(language: str, containing: str) -> str:
    """The one fenced block of that language with that text in it."""
    found: list[str] = [
        text for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if containing in text
    ]
    assert len(found) == 1, f"README has {len(found)} {language} blocks with {containing!r}; expected one"
    return found[0]


def commands(text: str) -> list[list[str]]:
    """Each line as its words, without its comment."""
    lines = [line.split("  #")[0].split("    #")[0].strip() for line in text.splitlines()]
    return [line.split() for line in lines if line]


def typed(live: Service, words: Sequence[str], **env: str) -> subprocess.CompletedProcess[str]:
    """A command of README in the repository, as written."""
    done = subprocess.run(
        list(words),
        cwd=REPOSITORY,
        env=live.env | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="module")
def smollm2(live: Service) -> Path:
    """A tiny model in the place of the one README names."""
    return make_tiny(live.folder / "SmolLM2-135M-Instruct")


def test_the_commands_of_the_first_job(live: Service, smollm2: Path, tmp_path: Path) -> None:
    export, *lines = commands(block("bash", "models add smollm2"))
    assert export == ["export", "TRAINYARD_DATA_DIR=~/trainyard"]
    assert [line[1:3] for line in lines] == [
        ["models", "add"],
        ["datasets", "push"],
        ["submit", "examples/job.yaml"],
        ["download", "JOB"],
    ]
    add, push, submit, download = lines
    assert add[-1] == "/path/to/SmolLM2-135M-Instruct"
    typed(live, [*add[:-1], str(smollm2)])
    assert "320 rows" in typed(live, push).stdout
    followed = typed(live, submit).stdout
    assert "Succeeded" in followed
    job_id = re.search(r"job_\w+", followed)
    assert job_id
    done = typed(live, [word.replace("JOB", job_id[0]) for word in [*download, "--to", str(tmp_path / "tuned")]])
    assert Path(done.stdout.strip(), "adapter_config.json").is_file()


def test_the_shown_job_file_is_the_one_in_examples() -> None:
    shown = yaml.safe_load(block("yaml", "model: smollm2"))
    assert shown == yaml.safe_load((REPOSITORY / "examples" / "job.yaml").read_text())


def test_the_python_of_the_first_job(live: Service, smollm2: Path, client: Client, tmp_path: Path) -> None:
    client.add_model("smollm2", str(smollm2))
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("*.py"))
    program = tmp_path / "first_job.py"
    program.write_text(block("python", "from trainyard import Client"))
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=live.env | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tuned" / "adapter_model.safetensors").is_file()


def test_the_commands_of_a_teams_installation_exist(live: Service) -> None:
    export, *lines = commands(block("bash", "trainyard migrate"))
    assert [words[:2] for words in lines] == [["trainyard", "migrate"], ["trainyard", "api"], ["trainyard", "worker"]]
    named = dict(word.split("=", 1) for word in export[1:])
    shown: Json = {"database_url": named["TRAINYARD_DATABASE_URL"], "broker_url": named["TRAINYARD_BROKER_URL"]}
    said = typed(live, ["trainyard", "config"], **named).stdout
    for value in shown.values():
        assert value in said
    for words in lines:
        assert "Usage" in typed(live, [*words, "--help"]).stdout


def test_what_up_is_told_in_readme_it_understands(live: Service) -> None:
    [up] = [words for words in commands(block("bash", "trainyard up")) if words[:2] == ["trainyard", "up"]]
    assert up[2::2] == ["--data-dir", "--port"]
    usage = typed(live, ["trainyard", "up", "--help"], COLUMNS="200").stdout
    assert "--data-dir" in usage
    assert "--port" in usage
