"""The main job, start to end: base model, dataset, LoRA on two processes with ZeRO-2, download, scores side by side.

It uses the service as any person would: `trainyard up` in a folder of its own, then the Python client over HTTP.
Exit code 0 says that the downloaded model scored above the base model on rows neither has been trained on.

    make demo                                  SmolLM2-135M and the ticket dataset of this folder
    make demo MODEL=/path/or/hub-id DATA=my.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.table import Table

from trainer_core.data.examples import ChatExample, PromptExample
from trainer_core.data.formats import to_example
from trainer_core.data.rows import normalise, read_rows
from trainyard import Client
from trainyard.errors import ClientError
from trainyard.follow import follow_job
from trainyard.screen import duration, escape, out, print_error, print_job

REPOSITORY = Path(__file__).resolve().parents[1]
HOME = REPOSITORY / ".demo"
DATA_DIR = HOME / "data"
MODEL_NAME = "demo-base"
N_SAMPLES = 3
MAX_HELD_OUT = 40
READY_WITHIN_S = 90


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder with a causal language model, or a hub id")
    parser.add_argument("--data", type=Path, help="JSONL or JSON rows: chat, prompt/completion or instruction")
    options = parser.parse_args()
    started = time.monotonic()
    HOME.mkdir(exist_ok=True)

    model = options.model or str(base_model())
    train, held_out = split(options.data) if options.data else tickets()
    with service() as url, Client(url, data_dir=DATA_DIR) as client:
        job = run_job(client, model, train)
        if job["state"] != "succeeded":
            return 1
        weights = client.download(job["id"], HOME / "downloads" / job["id"])
        out.print(f"downloaded the best checkpoint to {weights}")
        base = score(model, held_out, "base")
        tuned = score(model, held_out, "tuned", weights)
        show(base, tuned)
        out.print(f"took {duration(time.monotonic() - started)}; job page: {url}/jobs/{job['id']}")
        out.print(f"the dashboard's key is in {DATA_DIR / 'api-key'}")
        linger()
    out.print(f"start the service again with: {sys.executable} -m trainyard up --data-dir {DATA_DIR}")
    return verdict(base["scores"], tuned["scores"])


def base_model() -> Path:
    folder = HOME / "models" / "smollm2-135m-instruct"
    run([sys.executable, str(REPOSITORY / "examples" / "obtain_model.py"), str(folder)])
    return folder


def tickets() -> tuple[Path, Path]:
    folder = REPOSITORY / "examples" / "tickets"
    return folder / "train.jsonl", folder / "heldout.jsonl"


def split(file: Path) -> tuple[Path, Path]:
    """A person's own rows as conversations: the last tenth, at most 40 rows, is held out."""
    if not file.is_file():
        raise SystemExit(f"DATA: there is no file at {file}")
    folder = Path(tempfile.mkdtemp(dir=HOME, prefix="own-data-"))
    report = normalise(file, folder / "rows.jsonl")
    if report.format in ("columns", "text"):
        raise SystemExit(
            "DATA: the demo scores answers, so it needs rows with a question and an answer (messages, "
            f"prompt/completion or instruction/output); found columns {', '.join(report.columns)}"
        )
    rows = [conversation(to_example(report.format, {}, row.value)) for row in read_rows(folder / "rows.jsonl")]
    rows = [row for row in rows if row is not None]
    n_held_out = min(MAX_HELD_OUT, len(rows) // 10)
    if n_held_out == 0:
        raise SystemExit(f"DATA: expected at least 10 rows that end in an answer, found {len(rows)}")
    halves = {"train": rows[:-n_held_out], "heldout": rows[-n_held_out:]}
    for name, part in halves.items():
        lines = "".join(json.dumps({"messages": row}) + "\n" for row in part)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return folder / "train.jsonl", folder / "heldout.jsonl"


def conversation(example: object) -> list[dict[str, Any]] | None:
    if isinstance(example, ChatExample):
        return list(example.messages) if example.messages[-1]["role"] == "assistant" else None
    assert isinstance(example, PromptExample)
    turns = {"system": example.system, "user": example.prompt, "assistant": example.completion}
    return [{"role": role, "content": content} for role, content in turns.items() if content]


@contextmanager
def service() -> Iterator[str]:
    """The service on a free port, stopped at the end."""
    port = free_port()
    command = [sys.executable, "-m", "trainyard", "up", "--data-dir", str(DATA_DIR), "--port", str(port)]
    log = HOME / "service.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        wait_until_up(process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def wait_until_up(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while "Trainyard is up" not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the service did not start; its last words ({log}):\n{log.read_text()[-2000:]}")
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_job(client: Client, model: str, train: Path) -> dict[str, Any]:
    """Pushes the rows, registers the model, submits the job and follows it to its end."""
    name = register(client, model)
    dataset = client.push_dataset(train)
    out.print(f"pushed {dataset['n_rows']} rows as {dataset['id']}")
    job = client.submit(job_body(name, dataset["id"]))
    out.print(f"submitted {job['id']}: {client.url}/jobs/{job['id']}")
    job = follow_job(client, job["id"])
    print_job(job)
    return job


def register(client: Client, model: str) -> str:
    """The name of the base model: an earlier registration of the same source is used again."""
    source = str(Path(model).resolve()) if Path(model).is_dir() else model
    for known in client.models():
        if known["source"] == source:
            return str(known["name"])
    name = f"{MODEL_NAME}-{len(list(client.models())) + 1}"
    client.add_model(name, source)
    return name


def job_body(model: str, dataset: str) -> dict[str, Any]:
    return {
        "name": "demo",
        "model": model,
        "method": "sft",
        "dataset": {"train": dataset, "eval_fraction": 0.1, "max_length": 512},
        "adapter": {"type": "lora", "r": 16, "lora_alpha": 32},
        "training": {
            "num_train_epochs": 1.5,
            "per_device_train_batch_size": 4,
            "learning_rate": 5e-4,
            "lr_scheduler_type": "cosine",
            "warmup_ratio": 0.05,
            "logging_steps": 2,
            "eval_steps": 18,
            "save_steps": 18,
        },
        "parallel": {"strategy": "deepspeed", "zero_stage": 2, "n_processes": 2},
        "labels": {"example": "demo"},
    }


def score(model: str, rows: Path, what: str, adapter: Path | None = None) -> dict[str, Any]:
    out.print(f"scoring the {what} model on {rows.name} ...")
    result = HOME / f"{what}.json"
    command = [sys.executable, str(REPOSITORY / "examples" / "score.py"), model, str(rows), str(result)]
    run(command + (["--adapter", str(adapter)] if adapter else []))
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def show(base: dict[str, Any], tuned: dict[str, Any]) -> None:
    answers = Table("question", "wanted", "base", "tuned", title="held-out rows", show_lines=True)
    for before, after in list(zip(base["samples"], tuned["samples"], strict=True))[:N_SAMPLES]:
        answers.add_row(*map(escape, (before["question"], before["reference"], before["answer"], after["answer"])))
    out.print(answers)
    scores = Table("score", "base", "tuned", title=f"{base['n']} held-out rows")
    for name in base["scores"]:
        scores.add_row(name, f"{base['scores'][name]:.3f}", f"{tuned['scores'][name]:.3f}")
    out.print(scores)


def verdict(base: dict[str, float], tuned: dict[str, float]) -> int:
    """0 when the tuned model is better: by exact answers, or by similarity where exact ones are equal."""
    is_better = (tuned["exact"], tuned["similar"]) > (base["exact"], base["similar"])
    out.print("[green]the tuned model is better[/green]" if is_better else "[red]the tuned model is not better[/red]")
    return 0 if is_better else 1


def linger() -> None:
    """On a terminal the dashboard stays up until the person has seen it."""
    if sys.stdin.isatty() and not os.environ.get("CI"):
        input("press Enter to stop the service ")


def run(command: list[str]) -> None:
    quiet = {**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}
    if subprocess.run(command, env=quiet, check=False).returncode != 0:
        raise SystemExit(f"failed: {' '.join(command)}")


def _end(_signal: int, _frame: object) -> None:
    sys.exit(143)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)  # so that a stopped demo stops its service too
    try:
        sys.exit(main())
    except ClientError as error:
        print_error(error)
        sys.exit(1)
