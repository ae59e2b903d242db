"""Events, metrics and log lines as they are read: an iterator that can also become a table."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from trainyard.errors import MissingPackage

T = TypeVar("T")


class Feed(Iterator[T], Generic[T]):
    """Items in order, read as they are asked for."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items

    def __next__(self) -> T:
        return next(self._items)

    def to_pandas(self) -> Any:
        """The rest of it as a pandas DataFrame: one row an item; metrics get one column a figure."""
        return data_frame(self._items)


class AsyncFeed(AsyncIterator[T], Generic[T]):
    """Items in order, awaited as they are asked for."""

    def __init__(self, items: AsyncIterator[T]) -> None:
        self._items = items

    async def __anext__(self) -> T:
        return await anext(self._items)

    async def to_pandas(self) -> Any:
        """The rest of it as a pandas DataFrame: one row an item; metrics get one column a figure."""
        return data_frame([item async for item in self._items])


def data_frame(items: Iterable[Any]) -> Any:
    """A DataFrame of items. Raises MissingPackage without pandas, which the client does not need otherwise."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise MissingPackage("to_pandas() needs pandas: pip install 'trainyard[pandas]'") from error
    return pandas.DataFrame([_flat(item) for item in items])


def _flat(item: Mapping[str, Any]) -> dict[str, Any]:
    """A metric's figures beside its step; those that are not finite as the floats they are."""
    row = {name: value for name, value in item.items() if name not in ("values", "nonfinite")}
    figures = dict(item.get("values") or {})
    return row | figures | {name: float(text) for name, text in (item.get("nonfinite") or {}).items()}
