"""`python -m api simulate`: what it reads, what it refuses, what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from api import simulate
from api.core.errors import Invalid
from api.core.planning.simulation import TraceJob
from api.core.planning.traces import read_nodes, read_trace

REPOSITORY = Path(__file__).resolve().parents[2]


def written(folder: Path, text: str, name: str = "trace.jsonl") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    rows = [
        {
            "id": "a",
            "submit_s": 0,
            "devices": 2,
            "duration_s": 60.5,
            "project": "p",
            "priority": 3,
            "preemptible": True,
        },
        {"id": "b", "submit_s": 5, "devices": 1, "duration_s": 1, "time_limit_s": 9, "device": "cuda"},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    table = (
        "id,submit_s,devices,duration_s,project,priority,preemptible,time_limit_s,device\n"
        "a,0,2,60.5,p,3,true,,\nb,5,1,1,,,,9,cuda\n"
    )
    expected = [
        TraceJob("a", 0, 2, 60.5, "p", priority=3, is_preemptible=True),
        TraceJob("b", 5, 1, 1, limit_s=9, kind="cuda"),
    ]
    assert read_trace(written(tmp_path, lines)) == expected
    assert read_trace(written(tmp_path, table, "trace.csv")) == expected


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("[]", "line 1: expected an object"),
        ("{", "line 1: is not JSON"),
        ('{"submit_s": 0, "devices": 1}', "line 1: lacks duration_s"),
        ('{"submit_s": 0, "devices": 1.5, "duration_s": 1}', "devices: expected a whole number"),
        ('{"submit_s": NaN, "devices": 1, "duration_s": 1}', "submit_s: expected a number of at least 0"),
        ('{"submit_s": 0, "devices": 1, "duration_s": true}', "duration_s: expected a number"),
        ('{"submit_s": 0, "devices": 1, "duration_s": 1, "gpu": 1}', "knows no field 'gpu'"),
        ('{"submit_s": 0, "devices": 1, "duration_s": 1, "preemptible": "perhaps"}', "expected true or false"),
        ("", "holds no jobs"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_trace(written(tmp_path, row))
    assert said in refused.value.message


def test_nodes_in_short() -> None:
    nodes = read_nodes("2x8, 1x4:cuda")
    assert [(len(node.devices), node.kind) for node in nodes] == [(8, "cpu"), (8, "cpu"), (4, "cuda")]
    with pytest.raises(Invalid, match="COUNTxDEVICES"):
        read_nodes("8")


def test_the_example_is_served_more_evenly_than_first_in_first_out(capsys: pytest.CaptureFixture[str]) -> None:
    trace = REPOSITORY / "examples" / "day.csv"
    assert simulate.replay(trace, "4x8", half_life_s=604_800, look_every_s=30, spans_nodes=False) == 0
    shown = {line[:26].strip(): line[26:].split("  ") for line in capsys.readouterr().out.splitlines()}
    ours, plain = (float(value) for value in shown["fairness (Jain, 1 is even)"] if value.strip())
    assert ours > plain
    assert {"utilisation", "wait, median", "wait, 95th percentile"} <= set(shown)
