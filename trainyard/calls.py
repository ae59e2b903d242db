"""What the client asks of the service, as values: who makes the call, and whether it waits for it, is not known here.

A route is a method that describes its call. Looked up on `Client` it makes the call, on `AsyncClient` it is awaited;
so every route is written once, with its types and its docstring.
"""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload
from urllib.parse import quote

from trainyard.errors import ApiError

if TYPE_CHECKING:
    from trainyard.feeds import AsyncFeed, Feed
    from trainyard.job import AsyncJob, Job

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request; its JSON answer is a T."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None


@dataclass(frozen=True)
class Pages(Generic[T]):
    """A list, read page by page to its end; an item is a T."""

    path: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Following(Generic[T]):
    """Something that grows: read to its present end, or followed until the service says that it is over."""

    path: str
    follow: bool
    after: int


@dataclass(frozen=True)
class Sleep:
    seconds: float


@dataclass(frozen=True)
class Fetch:
    """The bytes of `path` from where `part` ends, added to it."""

    path: str
    part: Path
    on_bytes: Callable[[int], None]


# Several calls with waits between them: it yields what is to be done and is sent the answer, or thrown the error.
Step = Call[Any] | Pages[Any] | Sleep | Fetch
Flow = Generator[Step, Any, T]


class Sync:
    """Base of what makes calls and returns their answers."""


class Async:
    """Base of what makes calls and is awaited."""


class Route(Generic[P, S, A]):
    """A described call as a method: S on a `Sync`, A on an `Async`. `run` names the method that carries it out."""

    def __init__(self, describe: Callable[..., Any], run: str) -> None:
        self.describe = describe
        self.run = run
        functools.update_wrapper(self, describe)  # type: ignore[arg-type]

    @overload
    def __get__(self, caller: None, owner: Any) -> Route[P, S, A]: ...
    @overload
    def __get__(self, caller: Sync, owner: Any) -> Callable[P, S]: ...
    @overload
    def __get__(self, caller: Async, owner: Any) -> Callable[P, A]: ...
    def __get__(self, caller: Any, owner: Any) -> Any:
        if caller is None:
            return self

        @functools.wraps(self.describe)
        def call(*args: Any, **named: Any) -> Any:
            return getattr(caller, self.run)(self.describe(caller, *args, **named))

        return call


class OfJob(Generic[Q, S, A]):
    """A route whose first argument is a job's id, as a method of that job."""

    def __init__(self, route: Route[Concatenate[str, Q], S, A]) -> None:
        self.route: Any = route
        functools.update_wrapper(self, route.describe)  # type: ignore[arg-type]

    @overload
    def __get__(self, job: None, owner: Any) -> OfJob[Q, S, A]: ...
    @overload
    def __get__(self, job: Sync, owner: Any) -> Callable[Q, S]: ...
    @overload
    def __get__(self, job: Async, owner: Any) -> Callable[Q, A]: ...
    def __get__(self, job: Any, owner: Any) -> Any:
        return self if job is None else functools.partial(self.route.__get__(job.client, None), job["id"])


def call(describe: Callable[Concatenate[Any, P], Call[T]]) -> Route[P, T, Awaitable[T]]:
    return Route(describe, "_call")


def job_call(describe: Callable[Concatenate[Any, P], Call[Any]]) -> Route[P, Job, Awaitable[AsyncJob]]:
    return Route(describe, "_job")


def pages(describe: Callable[Concatenate[Any, P], Pages[T]]) -> Route[P, Iterator[T], AsyncIterator[T]]:
    return Route(describe, "_pages")


def job_pages(describe: Callable[Concatenate[Any, P], Pages[Any]]) -> Route[P, Iterator[Job], AsyncIterator[AsyncJob]]:
    return Route(describe, "_jobs")


def listed(describe: Callable[Concatenate[Any, P], Pages[T]]) -> Route[P, list[T], Awaitable[list[T]]]:
    return Route(describe, "_list")


def feed(describe: Callable[Concatenate[Any, P], Following[T]]) -> Route[P, Feed[T], AsyncFeed[T]]:
    return Route(describe, "_feed")


def flow(describe: Callable[Concatenate[Any, P], Flow[T]]) -> Route[P, T, Awaitable[T]]:
    return Route(describe, "_run")


def job_flow(describe: Callable[Concatenate[Any, P], Flow[Any]]) -> Route[P, Job, Awaitable[AsyncJob]]:
    return Route(describe, "_run_job")


def once(idempotency_key: str | None) -> dict[str, str]:
    """The header that makes a repeated request answer what the first one made."""
    return {"Idempotency-Key": idempotency_key} if idempotency_key else {}


def segment(named: str | Mapping[str, Any]) -> str:
    """One path segment, of an id or of what has one: it is quoted, so that it can never name another route."""
    text = named if isinstance(named, str) else str(named["id"])
    if not re.fullmatch(r"[\w.-]{1,200}", text) or text in {".", ".."}:
        raise ApiError(404, "not_found", f"expected an id such as job_01..., found {text[:60]!r}")
    return quote(text, safe="")
