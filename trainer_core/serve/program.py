"""`python -m trainer_core serve RUN_DIR`: answers prompts that come as JSON lines, see order.py.

One reply at a time, in the order of the prompts. Ends when its input ends, or when nothing was asked for idle_s.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import traceback
from typing import Any, BinaryIO

from pydantic import ValidationError

from trainer_core.contract import Cause, CauseCode, RunFolder
from trainer_core.run.faults import cause_of
from trainer_core.serve.loading import Models, load
from trainer_core.serve.order import ORDER_NAME, WISHES, Failed, Prompt, Ready, Refused, ServeOrder
from trainer_core.serve.rendering import Unfit
from trainer_core.serve.replies import Reply


class Mouth:
    """Standard output, kept to ourselves: what libraries print goes to standard error instead."""

    def __init__(self) -> None:
        self._file: BinaryIO = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def say(self, word: Any) -> None:
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._file.write(word.model_dump_json().encode() + b"\n")


class Ears(threading.Thread):
    """Hears wishes while a reply is being written; what waits is bounded."""

    def __init__(self, order: ServeOrder, mouth: Mouth) -> None:
        super().__init__(daemon=True, name="ears")
        self.waiting: queue.Queue[Prompt | None] = queue.Queue(order.max_waiting)
        self._mouth = mouth
        self._lock = threading.Lock()
        self._cancelled: set[str] = set()
        self._reply: tuple[str, Reply] | None = None

    def run(self) -> None:
        for line in sys.stdin.buffer:
            try:
                wish = WISHES.validate_json(line)
            except ValidationError as error:
                self._mouth.say(Refused(id="", code="invalid", message=str(error.errors(include_url=False)[0]["msg"])))
                continue
            if isinstance(wish, Prompt):
                self._take(wish)
            else:
                self._cancel(wish.id)
        self._end()

    def begin(self, prompt: Prompt, reply: Reply) -> None:
        with self._lock:
            self._reply = (prompt.id, reply)
            if prompt.id in self._cancelled:
                reply.cancel()

    def finish(self, prompt: Prompt) -> None:
        with self._lock:
            self._reply = None
            self._cancelled.discard(prompt.id)

    def _take(self, prompt: Prompt) -> None:
        try:
            self.waiting.put_nowait(prompt)
        except queue.Full:
            message = f"{self.waiting.maxsize} prompts wait for this engine already; try again in a moment"
            self._mouth.say(Refused(id=prompt.id, code="engine_busy", message=message))

    def _cancel(self, prompt_id: str) -> None:
        with self._lock:
            self._cancelled.add(prompt_id)
            if self._reply is not None and self._reply[0] == prompt_id:
                self._reply[1].cancel()

    def _end(self) -> None:
        """Whoever asked is gone: nobody waits for a reply any more."""
        with self._lock:
            if self._reply is not None:
                self._reply[1].cancel()
        while True:
            try:
                self.waiting.put(None, timeout=0.1)
                return
            except queue.Full:
                with contextlib.suppress(queue.Empty):
                    self.waiting.get_nowait()


def main(folder: RunFolder) -> int:
    """0 when it ended because nobody asked any more."""
    mouth = Mouth()
    try:
        order = ServeOrder.model_validate_json((folder.root / ORDER_NAME).read_bytes())
        models = load(order)
    except ValidationError as error:
        message = f"{ORDER_NAME} is no order: {error.errors(include_url=False)[0]['msg']}"
        mouth.say(Failed(cause=Cause(code=CauseCode.CONFIG_INVALID, message=message)))
        return 1
    except Exception as error:  # the engine ends here, and the cause is told
        traceback.print_exc()
        mouth.say(Failed(cause=cause_of(error)))
        return 1
    mouth.say(Ready(variants=models.variants, context_length=models.context_length, notes=models.notes))
    ears = Ears(order, mouth)
    ears.start()
    while True:
        try:
            prompt = ears.waiting.get(timeout=order.idle_s)
        except queue.Empty:
            return 0
        if prompt is None:
            return 0
        _answer(order, models, prompt, ears, mouth)


def _answer(order: ServeOrder, models: Models, prompt: Prompt, ears: Ears, mouth: Mouth) -> None:
    reply = Reply(order, models, prompt)
    ears.begin(prompt, reply)
    try:
        reply.write(mouth.say)
    except Unfit as error:
        mouth.say(Refused(id=prompt.id, code=error.code, message=str(error), param=error.param))
    except Exception as error:  # this reply ends; the next may do better
        traceback.print_exc()
        cause = cause_of(error)
        mouth.say(Refused(id=prompt.id, code=cause.code.value, message=cause.message))
    finally:
        ears.finish(prompt)
