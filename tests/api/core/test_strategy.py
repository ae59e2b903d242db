"""Strategy auto: the fastest that fits every node, else some node; refused on CUDA alone, with the numbers."""

from __future__ import annotations

from typing import Any

import pytest

from api.core.capacity import Room
from api.core.strategy import USABLE, choose, fits, in_gib
from tests.trainer_core.test_strategies import load
from trainer_core.memory.strategies import BY_SPEED, Need, Strategy, needs

PLENTY = 10**15


def need_of(strategy: Strategy, **changes: Any) -> Need:
    return needs(load(**changes), [strategy])[0]


def room(device_bytes: float | None, host_bytes: int | None = PLENTY, name: str = "n1") -> Room:
    return Room(name, None if device_bytes is None else int(device_bytes), host_bytes)


@pytest.mark.parametrize("strategy", BY_SPEED, ids=str)
def test_the_fastest_that_fits_is_chosen(strategy: Strategy) -> None:
    """With just the memory that a strategy needs: itself, or a faster one that needs no more."""
    limit = need_of(strategy).memory.device_bytes
    expected = next(one for one in BY_SPEED if need_of(one).memory.device_bytes <= limit)
    choice = choose(load(), [room(limit / USABLE + 2)])
    assert (choice.strategy, choice.problem) == (expected, None)
    assert f"auto is {expected}" in choice.notes[0]
    assert in_gib(need_of(expected).memory.device_bytes) in choice.notes[0]


def test_nothing_fits_and_all_numbers_are_told() -> None:
    choice = choose(load(), [room(1024**3)])
    assert choice.problem is not None
    assert (choice.problem.param, choice.problem.code) == ("parallel.strategy", "out_of_range")
    for strategy in BY_SPEED:
        assert f"{strategy} {in_gib(need_of(strategy).memory.device_bytes)}" in choice.problem.message
    assert "1.0 GiB" in choice.problem.message


def test_a_host_too_small_for_offload_rules_it_out() -> None:
    small = need_of(Strategy(3, "all")).memory.device_bytes / USABLE + 2
    assert choose(load(), [room(small)]).problem is None
    assert choose(load(), [room(small, host_bytes=1024**3)]).problem is not None
    assert choose(load(), [room(small, host_bytes=None)]).problem is None


def test_it_has_to_fit_every_node_that_may_take_it() -> None:
    small = need_of(Strategy(3)).memory.device_bytes / USABLE + 2
    assert choose(load(), [room(PLENTY, 0), room(small, 0, name="n2")]).strategy == Strategy(3)
    only = choose(load(), [room(PLENTY), room(1024, name="n2")])
    assert only.strategy == Strategy(None)
    assert only.notes[0].endswith("It fits on n1 alone.")


@pytest.mark.parametrize("rooms", [[], [room(None)], [room(1), room(None)]])
def test_without_known_memory_it_is_ddp_and_nothing_is_said(rooms: list[Room]) -> None:
    choice = choose(load(), rooms)
    assert (choice.strategy, choice.notes, choice.problem) == (Strategy(None), (), None)


def test_cpu_slots_never_refuse_and_never_offload() -> None:
    choice = choose(load(device="cpu"), [room(1024**2)])
    assert (choice.strategy, choice.problem) == (Strategy(3), None)
    assert "may run out" in choice.notes[0]


def test_a_room_of_unknown_memory_fits_nothing() -> None:
    assert not fits(need_of(Strategy(3)), room(None))
