"""`try`: talk to a model or to a job's checkpoint, once or in a conversation."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from typing import Annotated, Any

import typer

from trainyard import screen
from trainyard.client import Client
from trainyard.commands.connection import connect
from trainyard.errors import ApiError
from trainyard.trying import generate

app = typer.Typer()

WAITS = {"queued": "waiting for a free engine", "starting": "loading the model"}


@app.command("try")
def try_it(
    model: Annotated[str, typer.Argument(help="A job's id, a registered model, or a fine-tuned model's name.")],
    checkpoint: Annotated[str, typer.Option("--checkpoint", help="Of a job: best, last or a step.")] = "best",
    prompt: Annotated[str | None, typer.Option("--prompt", help="Ask once; without it, a conversation.")] = None,
    system: Annotated[str | None, typer.Option("--system", help="The system message.")] = None,
    base: Annotated[bool, typer.Option("--base", help="Let the job's base model answer.")] = False,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Longest reply.")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", help="0: the likeliest token.")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", help="Smallest share of likely tokens.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="The same seed, the same reply.")] = None,
    stop: Annotated[list[str] | None, typer.Option("--stop", help="Ends the reply; up to four.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="auto, cpu or cuda.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The reply with its figures as JSON.")] = False,
) -> None:
    """Ask a model, or with no --prompt hold a conversation; an empty line or Ctrl-D ends it."""
    options: dict[str, Any] = {
        "checkpoint": checkpoint, "variant": "base" if base else None, "max_tokens": max_tokens,
        "temperature": temperature, "top_p": top_p, "seed": seed, "stop": stop or None, "device": device,
    }  # fmt: skip
    messages = [{"role": "system", "content": system}] if system else []
    with connect() as client:
        if prompt is not None:
            _answer(client, model, [*messages, {"role": "user", "content": prompt}], options, as_json=as_json)
            return
        _converse(client, model, messages, options)


def _converse(client: Client, model: str, messages: list[dict[str, str]], options: dict[str, Any]) -> None:
    while (line := _ask()).strip():
        messages.append({"role": "user", "content": line})
        try:
            reply = _answer(client, model, messages, options, as_json=False)
        except ApiError as error:  # the conversation goes on without what was refused
            screen.print_error(error)
            messages.pop()
        except KeyboardInterrupt:  # the reply is cancelled, not the conversation
            screen.err.print("\n(stopped)")
            messages.pop()
        else:
            messages.append({"role": "assistant", "content": reply})


def _ask() -> str:
    screen.err.print("> ", end="")
    try:
        return sys.stdin.readline()
    except KeyboardInterrupt:
        return ""


def _answer(
    client: Client, model: str, messages: list[dict[str, str]], options: dict[str, Any], *, as_json: bool
) -> str:
    text, last = "", {}
    with closing(generate(client, model, messages, **options)) as words:  # type: ignore[type-var]
        for word in words:
            if word["type"] == "engine" and word["state"] in WAITS:
                screen.err.print(f"({WAITS[word['state']]})")
            elif word["type"] == "piece":
                text += word["text"]
                if not as_json:
                    _write(word["text"])
            else:
                last = word
    if as_json:
        screen.print_json({"text": text} | {name: value for name, value in last.items() if name != "type"})
        return text
    for call in last.get("tool_calls", []):
        _write(json.dumps(call))
    _write("\n")
    return text


def _write(text: str) -> None:
    """As it is but for control characters, which a terminal would obey."""
    sys.stdout.write("".join(one for one in text if one in "\n\t" or one.isprintable()))
    sys.stdout.flush()
