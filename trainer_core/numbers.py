"""The one rule by which a number in a job is read, wherever it stands: adapter, training, parallel, DeepSpeed block.

Pydantic's own rule is too kind: it takes `true`, `"nan"` and infinity as floats and `true` and `1000.0` as whole
numbers. Torch-free; pydantic and the standard library only.
"""

from __future__ import annotations

import math
import re
from typing import Annotated

from pydantic import BeforeValidator, Field

LARGEST_WHOLE = 2**63 - 1
"""What a database column and a JSON reader in another language still hold."""

_LITERAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WHOLE_LITERAL = re.compile(r"[+-]?[0-9]+")
_LONGEST_LITERAL = 64


def as_number(value: object) -> float:
    """A finite number: a JSON number, or text that is a plain decimal or scientific literal such as `1e-4`.

    Text is taken because YAML reads `1e-4` as text. Raises ValueError on booleans, NaN, infinities, numbers beyond
    a double (`1e400`), and any other text (spaces, underscores, hexadecimal, units).
    """
    if isinstance(value, str):
        if len(value) > _LONGEST_LITERAL or not _LITERAL.fullmatch(value):
            raise ValueError("expected a number such as 0.0001 or 1e-4, found text that is not one")
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected a number, found {_kind(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("expected a finite number, found NaN, an infinity or a number too large for a double")
    return number


def as_whole(value: object) -> int:
    """A whole number: a JSON integer, or text of digits alone such as `8`.

    Raises ValueError on booleans, on every number with a fraction or exponent (`3.7`, `1000.0`, `1e3`: whoever writes
    them may mean something else), and on whole numbers beyond 64 bits.
    """
    if isinstance(value, str):
        if len(value) > _LONGEST_LITERAL or not _WHOLE_LITERAL.fullmatch(value):
            raise ValueError("expected a whole number in digits such as 8, found text that is not one")
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected a whole number written without point or exponent, found {_kind(value)}")
    if abs(value) > LARGEST_WHOLE:
        raise ValueError("expected a whole number of at most 64 bits, found a larger one")
    return value


def as_count(value: object) -> int:
    """A whole number in a DeepSpeed block, where `2e8` is the usual way to write a bucket size.

    Like `as_whole`, and also takes JSON numbers and text whose value is whole. Raises ValueError otherwise.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return as_whole(value)
    number = as_number(value)
    if number != int(number):
        raise ValueError("expected a whole number, found one with a fraction")
    return as_whole(int(number))


def same_number(left: object, right: object) -> bool:
    """Whether two values are one number by the rule above: 8, "8" and 8.0 are, and nothing equals what is no number."""
    try:
        return as_number(left) == as_number(right)
    except ValueError:
        return False


def _kind(value: object) -> str:
    """The found kind in JSON's words; the value itself is shown by whoever reports the problem."""
    if value is None:
        return "null"
    kinds = {bool: "true or false", float: "a number with a point", str: "text", list: "a list", dict: "an object"}
    return kinds.get(type(value), type(value).__name__)


Number = Annotated[float, BeforeValidator(as_number)]
PositiveNumber = Annotated[float, BeforeValidator(as_number), Field(gt=0)]
NonNegativeNumber = Annotated[float, BeforeValidator(as_number), Field(ge=0)]
Fraction = Annotated[float, BeforeValidator(as_number), Field(ge=0, lt=1)]
"""At least 0 and under 1, such as a dropout."""
OpenFraction = Annotated[float, BeforeValidator(as_number), Field(gt=0, lt=1)]
"""Over 0 and under 1, such as a share of the rows."""
WholeNumber = Annotated[int, BeforeValidator(as_whole)]
PositiveWholeNumber = Annotated[int, BeforeValidator(as_whole), Field(ge=1)]
NonNegativeWholeNumber = Annotated[int, BeforeValidator(as_whole), Field(ge=0)]
