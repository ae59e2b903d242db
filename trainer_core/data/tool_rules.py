"""Tool definitions and tool calls in their many spellings, turned into one that chat templates render alike.

Pure: standard library only.
"""

from __future__ import annotations

from typing import Any

from trainer_core.data.decode import json_type, parse_inner
from trainer_core.data.problems import RowFault


def normalise_tools(value: object, field: str) -> list[dict[str, Any]] | None:
    """A row's tools as [{"type": "function", "function": {...}}], or None where there are none. Raises RowFault.

    Takes a list, a list written as a JSON string, and functions with or without the wrapper.
    """
    if isinstance(value, str):
        value = _inner_json(value, "tools_not_json", field) if value.strip() else None
    if value is None:
        return None
    if not isinstance(value, list):
        raise RowFault("bad_tools", f"tools must be a list of functions, found {json_type(value)}", field)
    return [_tool(tool, f"{field}[{index}]") for index, tool in enumerate(value)] or None


def _tool(value: object, field: str) -> dict[str, Any]:
    function = value.get("function", value) if isinstance(value, dict) else value
    if not isinstance(function, dict) or not _is_name(function.get("name")):
        raise RowFault("bad_tools", "a tool must be an object with a function that has a name", field)
    if isinstance(value, dict) and function is not value and value.get("type", "function") != "function":
        raise RowFault("bad_tools", 'a tool\'s type must be "function"', f"{field}.type")
    return {"type": "function", "function": {key: inner for key, inner in function.items() if inner is not None}}


def normalise_tool_calls(value: object, field: str) -> list[dict[str, Any]]:
    """An assistant's tool calls with their arguments as an object; empty where there are none. Raises RowFault."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise RowFault("bad_tool_call", f"tool_calls must be a list, found {json_type(value)}", field)
    return [_tool_call(call, f"{field}[{index}]") for index, call in enumerate(value)]


def _tool_call(value: object, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RowFault("bad_tool_call", f"a tool call must be an object, found {json_type(value)}", field)
    if value.get("type", "function") not in ("function", None):
        raise RowFault("bad_tool_call", 'a tool call\'s type must be "function"', f"{field}.type")
    function, place = (value["function"], f"{field}.function") if "function" in value else (value, field)
    call: dict[str, Any] = {"type": "function", "function": normalise_function_call(function, place)}
    identity = value.get("id")
    if identity is not None:
        if not isinstance(identity, str):
            raise RowFault(
                "bad_tool_call", f"a tool call's id must be a string, found {json_type(identity)}", f"{field}.id"
            )
        call["id"] = identity
    return call


def normalise_function_call(value: object, field: str) -> dict[str, Any]:
    """{"name", "arguments"} with the arguments as an object, whether they came as one or as a JSON string."""
    if not isinstance(value, dict) or not _is_name(value.get("name")):
        raise RowFault("bad_tool_call", "a function call must be an object with a name", field)
    place = f"{field}.arguments"
    arguments = value.get("arguments")
    if isinstance(arguments, str):
        arguments = _inner_json(arguments, "arguments_not_json", place) if arguments.strip() else {}
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise RowFault(
            "arguments_not_object", f"a call's arguments must be an object, found {json_type(arguments)}", place
        )
    return {"name": value["name"], "arguments": arguments}


def parse_written_calls(text: str, field: str) -> list[dict[str, Any]]:
    """ShareGPT's function_call turn: one call, or a list of calls, written as JSON text. Raises RowFault."""
    value = _inner_json(text, "arguments_not_json", field)
    calls = normalise_tool_calls(value if isinstance(value, list) else [value], field)
    if not calls:
        raise RowFault("empty_reply", "the list of function calls is empty", field)
    return calls


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _inner_json(text: str, code: str, field: str) -> object:
    try:
        return parse_inner(text)
    except RowFault as fault:
        # A broken emoji or a repeated key keeps its own code; mere syntax is told as what it was meant to be.
        is_syntax = fault.position is not None
        raise RowFault(code if is_syntax else fault.code, f"the JSON in this string: {fault.message}", field) from None
