"""Prompts answered by jobs that really ran: over the API, OpenAI's client and the command; nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import openai
import pytest

from tests.live import REPOSITORY, Json, Service, command_line, living, until
from trainyard import Client
from trainyard.calls import Call
from trainyard.trying import generate

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("e2e")]

HELLO = [{"role": "user", "content": "Say 7"}]


@pytest.fixture(scope="module")
def lora(finished: dict[str, Json]) -> str:
    return str(finished["lora"]["id"])


def openai_client(live: Service) -> openai.OpenAI:
    key = (live.data_dir / "api-key").read_text().strip()
    return openai.OpenAI(base_url=f"{live.url}/openai/v1", api_key=key, max_retries=0, _strict_response_validation=True)


def engine_pids(live: Service) -> list[int]:
    mine = str(live.data_dir)
    return [pid for pid in living() if " serve " in command_line(pid) and mine in command_line(pid)]


def test_base_and_checkpoint_answer_by_one_engine(live: Service, client: Client, lora: str) -> None:
    replies = {}
    for variant in ("tuned", "base"):
        words = list(generate(client, lora, HELLO, variant=variant, max_tokens=12, temperature=0))
        assert {word["type"] for word in words} >= {"piece", "done"}
        replies[variant] = "".join(word["text"] for word in words if word["type"] == "piece")
        assert words[-1]["finish_reason"] in ("stop", "length")
        assert 0 < words[-1]["completion_tokens"] <= 12
    assert replies["tuned"] != replies["base"]
    assert len(engine_pids(live)) == 1


def test_the_official_client_is_answered_and_streamed_to(live: Service, lora: str) -> None:
    with openai_client(live) as chat:
        name = next(model.id for model in chat.models.list() if model.id.startswith("ft:") and lora[4:] in model.id)
        asked = {"model": name, "messages": HELLO, "max_tokens": 12, "seed": 3}
        whole = chat.chat.completions.create(**asked)  # type: ignore[call-overload]
        assert whole.model == name
        assert whole.choices[0].finish_reason in ("stop", "length")
        assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
        chunks = list(
            chat.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})  # type: ignore[call-overload]
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == whole.choices[0].message.content
        assert chunks[-1].usage == whole.usage
        assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def test_refusals_have_the_contract_s_shape(live: Service, lora: str) -> None:
    long = [{"role": "user", "content": "x" * 5000}]
    with openai_client(live) as chat:
        name = next(model.id for model in chat.models.list() if lora[4:] in model.id)
        with pytest.raises(openai.BadRequestError) as refused:
            chat.chat.completions.create(model=name, messages=long)  # type: ignore[arg-type]
        assert refused.value.code == "context_length_exceeded"
        assert "2048" in refused.value.message
        with pytest.raises(openai.NotFoundError) as missing:
            chat.chat.completions.create(model="nothing", messages=HELLO)  # type: ignore[arg-type]
        assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.BadRequestError, match="frequency_penalty"):
            chat.chat.completions.create(model=name, messages=HELLO, frequency_penalty=1)  # type: ignore[arg-type]


def test_the_command_answers_once(live: Service, lora: str) -> None:
    done = live.cli("try", lora, "--prompt", "Say 7", "--max-tokens", "8", "--temperature", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
    refused = live.cli("try", "nothing", "--prompt", "x")
    assert refused.returncode == 1
    assert "no model is registered" in " ".join(refused.stderr.split())


def test_the_document_s_examples_run(live: Service, lora: str) -> None:
    text = (REPOSITORY / "docs" / "try-it.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert {kind for kind, _ in blocks} == {"sh", "python"}
    for kind, block in blocks:
        command = ["bash", "-euc", block] if kind == "sh" else [sys.executable, "-c", f"JOB = {lora!r}\n{block}"]
        env = live.env | {"JOB": lora, "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(command, cwd=live.folder, env=env, capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr.decode()
        assert done.stdout


def test_whoever_hangs_up_cancels(client: Client, live: Service, lora: str) -> None:
    words = generate(client, lora, HELLO, max_tokens=1900, stop=None)
    until(lambda: next(words)["type"] == "piece", "the first piece")
    words.close()
    # The next is answered long before the first would have been through.
    after = list(generate(client, lora, HELLO, max_tokens=2))
    assert after[-1]["type"] == "done"


def test_a_killed_engine_and_a_killed_agent_leave_nothing(live: Service, client: Client, lora: str) -> None:
    list(generate(client, lora, HELLO, max_tokens=2))
    [pid] = engine_pids(live)
    os.kill(pid, signal.SIGKILL)
    until(lambda: live_engines(client) == [], "the engine's end to be told")
    ended = client._call(Call("GET", "/engines"))["data"][0]
    assert "-9" in ended["cause"]["message"]
    list(generate(client, lora, HELLO, max_tokens=2))
    [pid] = engine_pids(live)
    lines = ((one, command_line(one)) for one in live.processes())
    agents = [one for one, line in lines if "-m worker run" in line or "-m worker celery" in line]
    for agent in agents:
        os.kill(agent, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists() or pid not in living(), "the engine to die with its agent")
    after = list(generate(client, lora, HELLO, max_tokens=2))
    assert after[-1]["type"] == "done"


def live_engines(client: Client) -> list[Json]:
    return [one for one in client._call(Call("GET", "/engines"))["data"] if one["state"] != "ended"]
