"""The JSON schema of a job body, for editors and checkers: the body's model, with every training option spelled out.

It says what a file may hold. What a job of this service may ask for (its rows, models, devices) is checked at submit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from api.core.specs import JobSpec
from trainer_core.arguments.gone import RENAMED
from trainer_core.arguments.table import ACCEPTED, Option

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NUMBERS = ("number", "whole", "cadence", "warmup", "max_steps")
TYPES: dict[str, Any] = {
    "bool": "boolean",
    "whole": "integer",
    "number": "number",
    "cadence": "number",
    "warmup": "number",
    "max_steps": "integer",
    "choice": "string",
    "text": ["string", "array"],
    "object": "object",
    "generation": "object",
}
BOUNDS = {"at_least": "minimum", "over": "exclusiveMinimum", "at_most": "maximum", "under": "exclusiveMaximum"}


@lru_cache(maxsize=1)
def job_schema() -> dict[str, Any]:
    """The schema of the body of POST /v1/jobs."""
    schema = JobSpec.model_json_schema()
    schema["$schema"] = DIALECT
    schema["title"] = "Trainyard job"
    properties = {name: _option(option) for name, option in ACCEPTED.items()}
    properties |= {old: _renamed(new) for old, new in RENAMED.items() if old not in properties}
    schema["properties"]["training"] |= {"properties": properties, "additionalProperties": False}
    return schema


def _option(option: Option) -> dict[str, Any]:
    kinds = TYPES[option.kind]
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    shown: dict[str, Any] = {"description": option.doc}
    # Numbers may be text too (YAML 1.1 reads 1e-4 as text), and null leaves an option as if it was not given.
    shown["type"] = [*kinds, *(["string"] if option.kind in NUMBERS else []), "null"]
    if option.choices:
        shown["enum"] = [*option.choices, None]
    if option.default is not None:
        shown["default"] = option.default
    found = {key: getattr(option, name) for name, key in BOUNDS.items()}
    return shown | {key: bound for key, bound in found.items() if bound is not None}


def _renamed(new: str) -> dict[str, Any]:
    return {"description": f"An older name: use {new}.", "deprecated": True}
