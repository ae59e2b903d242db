"""The broker that needs no server: kombu's file transport, with messages that appear and are taken in one rename.

kombu's own writes a message in place, so a reader may find half of one and its worker ends on the JSON error; and it
takes one by moving it to the system's temporary folder, which copies where that is another file system, so two
workers may take the same. Message files of queues that nobody reads are bounded: a message is only a nudge.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.transport import filesystem
from kombu.utils.json import dumps, loads

MAX_WAITING = 1000  # messages of one queue; more of them would say nothing new


class Channel(filesystem.Channel):  # type: ignore[misc]  # kombu has no types
    def _put(self, queue: str, payload: Any, **_options: Any) -> None:
        if self._size(queue) >= MAX_WAITING:
            return
        folder = Path(self.data_folder_out)
        # Wall clock, not monotonic: messages outlive a restart of the machine, and the oldest is taken first.
        name = f"{time.time_ns() // 1_000_000:016d}_{uuid.uuid4()}.{queue}.msg"
        hidden = folder / f".{name}.new"
        hidden.write_text(dumps(payload), encoding="utf-8")
        hidden.rename(folder / name)

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        folder = Path(self.data_folder_in)
        for name in sorted(os.listdir(folder)):
            if name.startswith(".") or name.partition(".")[2] != f"{queue}.msg":
                continue
            taken = folder / f".{name}.{uuid.uuid4()}.taken"
            try:
                (folder / name).rename(taken)
            except FileNotFoundError:
                continue  # another worker was faster
            text = taken.read_text(encoding="utf-8")
            taken.unlink()
            return loads(text)
        raise Empty


class Transport(filesystem.Transport):  # type: ignore[misc]  # kombu has no types
    Channel = Channel
