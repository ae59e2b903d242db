"""Runs over HTTP where people were misled: best and last, cadences that never meet, no pad token, tool arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.live import Json, Service, body, write_rows
from tests.tiny import make_tiny
from trainyard import Client

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("cases")]


@pytest.fixture(scope="module")
def jobs(live: Service, chat: str, shared_data: Path) -> dict[str, Json]:
    """Sent together, so that both slots are busy."""
    lines = (shared_data / "openai_cookbook" / "drone_training.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [{"messages": json.loads(line)["messages"]} for line in lines[:20]]  # the tools alone are 3,000 bytes
    other = [json.loads(json.dumps(row)) for row in rows]
    for row in other:
        for message in row["messages"]:
            for call in message.get("tool_calls") or []:
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
                message["content"] = None
    unequal = [
        {"messages": [{"role": "user", "content": "Say"}, {"role": "assistant", "content": "so " * (1 + n % 7)}]}
        for n in range(20)
    ]
    # The loss falls, so that a job that calls the highest one best gets "worse" from its first checkpoint on.
    getting_worse: Json = {
        "greater_is_better": True,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "save_steps": 2,
        "eval_steps": 2,
    }
    with live.client() as client:
        client.add_model("padless", str(make_tiny(live.folder / "padless", pad=False)))
        sent = {name: client.push_dataset(write_rows(live.folder / f"{name}.jsonl", content))["id"]
                for name, content in {"text": rows, "object": other, "unequal": unequal}.items()}  # fmt: skip
        submitted = {
            "worse": client.submit(
                body(chat, name="worse", adapter=None, training=getting_worse | {"save_total_limit": 1, "max_steps": 8})
            ),
            "apart": client.submit(body(chat, name="apart", training={"eval_steps": 2, "save_steps": 3})),
            "padless": client.submit(body(sent["unequal"], name="padless") | {"model": "padless"}),
            "text": client.submit(with_room(body(sent["text"], name="text", steps=1))),
            "object": client.submit(with_room(body(sent["object"], name="object", steps=1))),
        }
    return {name: live.wait_for(job["id"], "succeeded") for name, job in submitted.items()}


def with_room(spec: Json) -> Json:
    return spec | {"dataset": spec["dataset"] | {"max_length": 2048}}


def test_best_and_last_are_kept_whatever_the_limit_and_a_run_goes_on_from_the_last(
    live: Service, trainyard: Client, jobs: dict[str, Json], tmp_path: Path
) -> None:
    job = jobs["worse"]
    listed = {checkpoint["step"]: checkpoint for checkpoint in trainyard.checkpoints(job["id"])}
    assert sorted(listed) == [job["best_step"], 8]
    assert job["best_step"] < 8
    for which, step in (("best", job["best_step"]), ("last", 8)):
        assert listed[step][f"is_{which}"]
        folder = trainyard.download(job["id"], tmp_path / which, which)
        assert json.loads((folder / "trainer_state.json").read_text())["global_step"] == step
    spec = body(str(job["dataset"]["train"]), name="on", adapter=None)
    spec["training"] = job["training"] | {"max_steps": 10}
    spec["continue_from"] = {"job": job["id"], "checkpoint": "last", "mode": "full"}
    on = live.wait_for(trainyard.submit(spec)["id"], "succeeded")
    steps = [row["step"] for row in trainyard.metrics(on["id"]) if "loss" in row["values"] and row["kind"] == "train"]
    assert steps == [9, 10]


def test_evaluating_and_saving_at_steps_that_never_meet_still_has_a_best(jobs: dict[str, Json]) -> None:
    job = jobs["apart"]
    assert job["best_step"] in (3, 6)
    assert job["step"] == job["planned_steps"] == 6
    assert any("Evaluation (2 steps) and saving (3 steps)" in note for note in job["resolved"]["notes"])


def test_a_model_without_a_pad_token_trains_and_says_what_pads(jobs: dict[str, Json]) -> None:
    job = jobs["padless"]
    assert job["step"] == job["planned_steps"]
    assert "pad" in json.dumps(job["preflight"]).lower()


def test_arguments_as_text_and_as_an_object_train_on_the_same_tokens(trainyard: Client, jobs: dict[str, Json]) -> None:
    text, as_object = jobs["text"]["preflight"], jobs["object"]["preflight"]
    for count in ("total_tokens", "trained_tokens"):
        assert text[count] == as_object[count] > 0
    assert text["sample"] == as_object["sample"]
    rendered = json.dumps(text["sample"])
    assert "None" not in rendered
    losses = [[row["values"]["loss"] for row in trainyard.metrics(jobs[name]["id"]) if "loss" in row["values"]]
              for name in ("text", "object")]  # fmt: skip
    assert losses[0] == losses[1]


def test_every_job_did_what_was_planned(trainyard: Client, jobs: dict[str, Json]) -> None:
    for job in jobs.values():
        rows = [row for row in trainyard.metrics(job["id"]) if row["kind"] == "train" and "loss" in row["values"]]
        assert [row["step"] for row in rows] == list(range(1, job["planned_steps"] + 1)), job["name"]
