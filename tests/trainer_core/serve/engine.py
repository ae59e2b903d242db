"""An engine for tests: the program itself, spoken to as the service does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainer_core.serve.order import ORDER_NAME, WORDS, Cancel, Prompt, ServeOrder


class Engine:
    def __init__(self, folder: Path, order: ServeOrder) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ORDER_NAME).write_text(order.model_dump_json())
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainer_core", "serve", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return WORDS.validate_json(self.process.stdout.readline())

    def tell(self, wish: Prompt | Cancel) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(wish.model_dump_json().encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, text: str, prompt_id: str = "one", **options: Any) -> tuple[str, Any]:
        """The whole text of a reply, and how it ended."""
        self.tell(prompt(text, prompt_id, **options))
        whole = ""
        while (word := self.hear()).type == "piece":
            whole += word.text
        return whole, word


def prompt(text: str, prompt_id: str = "one", **options: Any) -> Prompt:
    sampling = {name: options.pop(name) for name in list(options) if name not in ("variant", "tools", "messages")}
    body = {"id": prompt_id, "messages": [{"role": "user", "content": text}], "sampling": sampling, **options}
    return Prompt.model_validate(body)


@contextmanager
def running(folder: Path, order: ServeOrder) -> Iterator[Engine]:
    engine = Engine(folder, order)
    try:
        yield engine
    finally:
        engine.process.kill()
        engine.process.communicate()
