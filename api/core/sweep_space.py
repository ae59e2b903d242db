"""The values of trials: a grid's by their number, random ones by seed and number. Pure; for tpe see `sweep_tpe`."""

from __future__ import annotations

import copy
import itertools
import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

from api.core.sweep_specs import Space

Values = dict[str, Any]


def choices(space: Space) -> list[Any] | None:
    """Every value of a finite space, in order; null for a range without `step` and `n_points`."""
    if space.values is not None:
        return list(space.values)
    least, most = space.bounds
    if space.n_steps is not None and space.step is not None:
        found = [least + index * space.step for index in range(space.n_steps)]
        return [tidy(space, value) for value in found]
    if space.n_points is not None:
        shares = [index / (space.n_points - 1) for index in range(space.n_points)]
        return list(dict.fromkeys(tidy(space, _at(space, share)) for share in shares))
    if space.is_int and not space.log:
        return list(range(int(least), int(most) + 1)) if most - least < 1000 else None
    return None


def grid_size(spaces: Mapping[str, Space]) -> int:
    """Number of combinations; every space must be finite."""
    return math.prod(len(choices(space) or ()) for space in spaces.values())


def grid_point(spaces: Mapping[str, Space], number: int) -> Values:
    """The combination of that number, from 0; the last parameter changes fastest."""
    values: Values = {}
    for path in reversed(list(spaces)):
        listed = choices(spaces[path]) or []
        number, index = divmod(number, len(listed))
        values[path] = listed[index]
    return {path: values[path] for path in spaces}


def random_point(spaces: Mapping[str, Space], seed: int, number: int) -> Values:
    """The same for the same seed and number, whatever was drawn before and wherever."""
    draw = random.Random(f"{seed}:{number}")
    return {path: _draw(space, draw) for path, space in spaces.items()}


def _draw(space: Space, draw: random.Random) -> Any:
    listed = choices(space)
    if listed is not None:
        return draw.choice(listed)
    return tidy(space, _at(space, draw.random()))


def _at(space: Space, share: float) -> float:
    """The place at `share` of the way from `min` to `max`."""
    least, most = space.bounds
    if space.log:
        low, high = math.log(least), math.log(most)
        return math.exp(low + share * (high - low))
    return least + share * (most - least)


def tidy(space: Space, value: float) -> int | float:
    """Within the bounds, whole where it must be, and without the last digits that only rounding made."""
    least, most = space.bounds
    if space.is_int:
        return min(max(round(value), int(least)), int(most))
    return min(max(float(f"{value:.12g}"), float(least)), float(most))


def corners(spaces: Mapping[str, Space], most: int) -> Iterator[Values]:
    """Points at which a body is tried before anything runs, at most `most`: all combinations of the outermost values
    where they are few, else each parameter's outermost values with the others at their first."""
    outer = {path: _outermost(space) for path, space in spaces.items()}
    if math.prod(len(values) for values in outer.values()) <= most:
        for combination in itertools.product(*outer.values()):
            yield dict(zip(outer, combination, strict=True))
        return
    first = {path: values[0] for path, values in outer.items()}
    last = {path: values[-1] for path, values in outer.items()}
    singles = ({**first, path: value} for path, values in outer.items() for value in values[1:])
    yield from itertools.islice(itertools.chain([first, last], singles), most)


def _outermost(space: Space) -> list[Any]:
    """All listed values, of a range both ends."""
    if space.values is not None:
        return list(space.values)
    least, most = space.bounds
    listed = choices(space)
    return [listed[0], listed[-1]] if listed else [tidy(space, least), tidy(space, most)]


def body_with(job: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """The job's body with the values put at their paths; objects on the way are made where there are none."""
    body = copy.deepcopy(dict(job))
    for path, value in values.items():
        *parents, last = path.split(".")
        here = body
        for name in parents:
            if not isinstance(here.get(name), dict):
                here[name] = {}
            here = here[name]
        here[last] = copy.deepcopy(value)
    return body
