"""What is dear to compute and may be a little old: computed anew at most a tenth of the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
OLD_AFTER = 10  # times as long as computing it took: milliseconds for a short queue, seconds for an endless one


@dataclass
class _Entry(Generic[T]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    value: T | None = None
    until: float = 0.0


class Remembered(Generic[T]):
    """One value an owner, forgotten with it; who asks while it is computed waits for that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: WeakKeyDictionary[object, _Entry[T]] = WeakKeyDictionary()

    def get(self, owner: object, compute: Callable[[], T]) -> T:
        with self._lock:
            entry = self._entries.setdefault(owner, _Entry())
        with entry.lock:
            began = time.monotonic()
            if entry.value is None or began >= entry.until:
                entry.value = compute()
                ended = time.monotonic()
                entry.until = ended + OLD_AFTER * (ended - began)
            return entry.value
