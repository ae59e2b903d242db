"""Events, metrics and logs by page; and as streams of jobs that are over, which end by themselves."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from api.core.db import Database
from api.core.tables import MetricRow
from tests.api.http.conftest import error_of
from tests.api.http.feeds import Sent, end, log, measure, parse, say, strict

STREAM = {"Accept": "text/event-stream"}


def stream_of(client: TestClient, path: str, **headers: str) -> list[Sent]:
    answer = client.get(path, headers=STREAM | headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-accel-buffering"] == "no"
    return list(parse(answer.text.split("\n")))


def test_events_are_paged_by_the_last_number_seen(client: TestClient, job: dict[str, Any], database: Database) -> None:
    say(database, job["id"], *(f"note {n}" for n in range(7)))
    path = f"/v1/jobs/{job['id']}/events"
    first = client.get(path, params={"limit": 5}).json()
    assert [item["n"] for item in first["data"]] == [1, 2, 3, 4, 5]
    assert (first["has_more"], first["next"]) == (True, 5)
    rest = client.get(path, params={"after": first["next"]}).json()
    assert [item["message"] for item in rest["data"]] == ["note 4", "note 5", "note 6"]
    assert (rest["has_more"], rest["next"]) == (False, 8)
    nothing = client.get(path, params={"after": 8}).json()
    assert nothing == {"data": [], "has_more": False, "next": 8}


@pytest.mark.parametrize("feed", ["events", "metrics", "logs"])
@pytest.mark.parametrize("query", ["after=-1", "after=x", "limit=0", "limit=1001", "after=99999999999999999999"])
def test_a_bad_cursor_is_named(client: TestClient, job: dict[str, Any], feed: str, query: str) -> None:
    error = error_of(client.get(f"/v1/jobs/{job['id']}/{feed}?{query}"), 422)
    assert error["param"] == query.partition("=")[0]


def test_a_figure_that_is_not_finite_is_strict_json(
    client: TestClient, job: dict[str, Any], database: Database
) -> None:
    figures = {"loss": "NaN", "grad_norm": "Infinity", "low": "-Infinity", "a/b": 1.5, "k" * 10_000: 0.1}
    measure(database, job["id"], figures, {"loss": 0.1 + 0.2})
    answer = client.get(f"/v1/jobs/{job['id']}/metrics")
    row, second = strict(answer.text)["data"]
    assert row["values"] == {"loss": None, "grad_norm": None, "low": None, "a/b": 1.5, "k" * 10_000: 0.1}
    assert row["nonfinite"] == {"loss": "NaN", "grad_norm": "Infinity", "low": "-Infinity"}
    assert second["values"] == {"loss": 0.30000000000000004}
    series = strict(client.get(f"/v1/jobs/{job['id']}/metrics/series?names=loss").text)["series"]["loss"]
    assert series[0] == {"step": 1, "value": None, "nonfinite": "NaN"}
    end(database, job["id"])
    sent = stream_of(client, f"/v1/jobs/{job['id']}/metrics")
    assert [one.data for one in sent[:-1]] == [row, second]


def test_metrics_are_narrowed_by_name_and_kind(client: TestClient, job: dict[str, Any], database: Database) -> None:
    measure(database, job["id"], {"loss": 3.0}, {"loss": 2.0, "grad_norm": 1.0})
    measure(database, job["id"], {"eval_loss": 2.5}, kind="eval")
    path = f"/v1/jobs/{job['id']}/metrics"

    def found(query: str) -> list[int]:
        return [row["n"] for row in client.get(f"{path}?{query}").json()["data"]]

    assert found("names=grad_norm,eval_loss") == [2, 3]
    assert found("kind=eval") == [3]
    assert found("names=nothing") == []
    end(database, job["id"])
    assert [one.id for one in stream_of(client, f"{path}?kind=eval")] == ["3", None]
    assert [one.id for one in stream_of(client, f"{path}?names=grad_norm")] == ["2", None]


def test_rows_that_were_done_again_are_shown_on_request(
    client: TestClient, job: dict[str, Any], database: Database
) -> None:
    measure(database, job["id"], {"loss": 3.0}, {"loss": 2.0})
    with database.session() as session:
        session.get_one(MetricRow, (job["id"], 1)).is_superseded = True
    path = f"/v1/jobs/{job['id']}/metrics"
    assert [row["n"] for row in client.get(path).json()["data"]] == [2]
    assert [row["n"] for row in client.get(f"{path}?include_superseded=true").json()["data"]] == [1, 2]


def test_series_are_thinned_and_keep_the_extremes(client: TestClient, job: dict[str, Any], database: Database) -> None:
    measure(database, job["id"], *({"loss": 100.0 if n == 777 else 1.0} for n in range(1500)))
    series = client.get(f"/v1/jobs/{job['id']}/metrics/series?names=loss&max_points=50").json()["series"]["loss"]
    assert len(series) <= 52
    assert max(point["value"] for point in series) == 100.0
    assert error_of(client.get(f"/v1/jobs/{job['id']}/metrics/series?max_points=3"), 422)["param"] == "max_points"


def test_logs_are_searched_and_cut_to_the_newest(client: TestClient, job: dict[str, Any], database: Database) -> None:
    log(database, job["id"], "loading", "</script><b>x", "100% Done")
    log(database, job["id"], "other rank", rank=1)
    log(database, job["id"], "torchrun", rank=None)
    path = f"/v1/jobs/{job['id']}/logs"

    def found(query: str) -> list[str]:
        return [line["text"] for line in client.get(f"{path}?{query}").json()["data"]]

    assert found("") == ["loading", "</script><b>x", "100% Done", "other rank", "torchrun"]
    assert found("search=0%25+done") == ["100% Done"]
    assert found("rank=1") == ["other rank"]
    assert found("tail=2") == ["other rank", "torchrun"]
    answer = client.get(path)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    end(database, job["id"])
    sent = stream_of(client, f"{path}?rank=0&search=o")
    assert [one.data.get("text") for one in sent] == ["loading", "100% Done", None]
    assert [one.id for one in stream_of(client, f"{path}?tail=1")] == ["5", None]


def test_a_stream_says_the_same_as_the_pages(client: TestClient, job: dict[str, Any], database: Database) -> None:
    say(database, job["id"], *(f"line\nbreak {n} \u2028 報告" for n in range(1200)))
    log(database, job["id"], *(f"line {n}" for n in range(1200)))
    end(database, job["id"])
    for feed, name in (("events", "event"), ("logs", "log")):
        path = f"/v1/jobs/{job['id']}/{feed}"
        pages: list[Any] = []
        has_more, after = True, 0
        while has_more:
            page = client.get(path, params={"after": after, "limit": 1000}).json()
            pages += page["data"]
            has_more, after = page["has_more"], page["next"]
        *sent, last = stream_of(client, path)
        assert [one.data for one in sent] == pages
        assert {one.name for one in sent} == {name}
        assert [one.id for one in sent] == [str(item["n"]) for item in pages]
        assert last == Sent("end", None, {"job_id": job["id"], "n": pages[-1]["n"]})


def test_a_stream_goes_on_after_the_last_event_id(client: TestClient, job: dict[str, Any], database: Database) -> None:
    say(database, job["id"], *(f"note {n}" for n in range(5)))
    end(database, job["id"])
    path = f"/v1/jobs/{job['id']}/events"
    sent = stream_of(client, f"{path}?after=1", **{"Last-Event-ID": "4"})
    assert [one.id for one in sent] == ["5", "6", "7", None]
    assert [one.name for one in stream_of(client, path, **{"Last-Event-ID": "7"})] == ["end"]
    assert [one.id for one in stream_of(client, f"{path}?after=6")] == ["7", None]


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "9" * 30, "٣"])
def test_a_last_event_id_that_is_no_cursor_is_refused(client: TestClient, job: dict[str, Any], cursor: str) -> None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": cursor.encode("utf-8")}
    answer = client.get(f"/v1/jobs/{job['id']}/events", headers=headers)  # type: ignore[arg-type]
    assert error_of(answer, 422)["param"] == "Last-Event-ID"


def test_a_stream_of_an_unknown_job_is_an_error_and_no_stream(client: TestClient) -> None:
    error_of(client.get("/v1/jobs/job_0000000000000000000000/events", headers=STREAM), 404)
