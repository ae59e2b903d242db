"""Fine-tunes on both databases: made once, listed once, their events in one order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, func, select

from api.core import file_listing, fine_tune_events, fine_tunes
from api.core.auth import Actor
from api.core.db import Database
from api.core.fine_tune_events import Item
from api.core.fine_tunes import Asked
from api.core.ids import new_id
from api.core.openai_tables import FineTuneCreate
from api.core.settings import Settings
from api.core.specs import DatasetSpec, JobSpec
from api.core.states import State
from api.core.tables import BaseModel, Dataset, Event, Job, JobLabel, MetricRow
from tests.api.core.rows import T0, after, job_of, make_job, together
from trainer_core.data.report import DatasetReport

ACTOR = Actor("key_a", "a", "admin")


def make_dataset(database: Database, at: float = 0) -> str:
    report = DatasetReport(
        format="prompt_completion",
        n_rows=100,
        columns={"prompt": ["string"], "completion": ["string"]},
        size_bytes=10,
        sha256="0" * 64,
    )
    row = Dataset(
        id=new_id("ds"),
        name="rows.jsonl",
        format="prompt_completion",
        n_rows=100,
        size_bytes=10,
        sha256="0" * 64,
        storage_key="datasets/x/rows.jsonl",
        report=report.model_dump(mode="json"),
        created_by="test",
        created_at=after(at),
    )
    with database.session() as session:
        session.add(row)
    return row.id


def test_equal_requests_at_the_same_moment_make_one_job(database: Database, tmp_path: Any) -> None:
    with database.session() as session:
        session.add(BaseModel(id=new_id("model"), name="tiny", source="/models/tiny", details={}))
    spec = JobSpec(model="tiny", dataset=DatasetSpec(train=make_dataset(database)))

    def create() -> str:
        with database.session() as session:
            asked = Asked(body={"a": 1}, sha256="0" * 64)
            return fine_tunes.create(session, spec, asked, ACTOR, Settings(data_dir=tmp_path))[0].id

    first = set(together([create] * 6))
    with database.session() as session:  # the row is there now, and too old to count
        session.scalars(select(FineTuneCreate)).one().created_at = T0
    second = set(together([create] * 6))
    assert (len(first), len(second), len(first | second)) == (1, 1, 2)
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(Job)) == 2


def test_jobs_are_found_by_all_of_their_metadata(database: Database) -> None:
    both, one, bare = (make_job(database, labels=labels) for labels in ({"a": "1", "b": "2"}, {"a": "1"}, {}))
    with database.session() as session:
        session.add_all([JobLabel(job_id=both, key=key, value=value) for key, value in (("a", "1"), ("b", "2"))])
        session.add(JobLabel(job_id=one, key="a", value="1"))
    found = {}
    with database.reading() as session:
        for name, wanted in (("a", {"a": "1"}), ("ab", {"a": "1", "b": "2"}), ("none", {"a": "2"})):
            found[name] = {tuned.job.id for tuned in fine_tunes.page(session, None, 10, wanted)[0]}
        only, _ = fine_tunes.page(session, None, 10, None, only_bare=True)
    assert found == {"a": {both, one}, "ab": {both}, "none": set()}
    assert [tuned.job.id for tuned in only] == [bare]


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_files_of_both_kinds_are_paged_in_one_order(database: Database, order: Any, limit: int) -> None:
    made = []
    for second in range(4):  # of two at the same instant neither is lost
        made.append(make_dataset(database, second))
        made.append(make_job(database, State.SUCCEEDED, finished_at=after(second), last_metric_n=1))
    make_job(database, State.RUNNING, last_metric_n=1)
    make_job(database, State.FAILED, finished_at=T0)
    found: list[str] = []
    cursor: Dataset | Job | None = None
    has_more = True
    with database.reading() as session:
        while has_more:
            page, has_more = file_listing.page(session, file_listing.PURPOSES, cursor, limit, order)
            assert len(page) <= limit
            found += [row.id for row in page]
            cursor = file_listing.find(session, found[-1])
    assert found == (made if order == "asc" else made[::-1])


# Events and figures --------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(st.integers(0, 12), max_size=9),
    figures=st.lists(st.integers(0, 12), max_size=9).map(sorted),
    limit=st.integers(1, 5),
)
def test_no_page_loses_or_repeats_an_item(
    database: Database, events: list[int], figures: list[int], limit: int
) -> None:
    """Events come from two clocks and may lie out of order by a bit; figures have one clock."""
    job_id = make_job(database, State.RUNNING)
    with database.session() as session:
        session.execute(delete(MetricRow))
        session.add_all(
            Event(job_id=job_id, n=n, at=after(at), level="info", kind="note", message="m")
            for n, at in enumerate(events, 1)
        )
        session.add_all(
            MetricRow(job_id=job_id, n=n, at=after(at), attempt=1, seq=n, kind="train", step=n, values={"loss": 1.0})
            for n, at in enumerate(figures, 1)
        )
    whole, _ = pages(database, job_id, 100)
    assert len(whole) == len(set(whole)) == len(events) + len(figures)
    assert [item for item in whole if item[0] is Event] == [(Event, n) for n in range(len(events), 0, -1)]
    assert [item for item in whole if item[0] is MetricRow] == [(MetricRow, n) for n in range(len(figures), 0, -1)]
    assert pages(database, job_id, limit)[0] == whole


def pages(database: Database, job_id: str, limit: int) -> tuple[list[tuple[type, int]], int]:
    found: list[tuple[type, int]] = []
    cursor: Item | None = None
    has_more, n_pages = True, 0
    with database.reading() as session:
        job = session.get_one(Job, job_id)
        while has_more:
            page, has_more = fine_tune_events.page(session, job, cursor, limit)
            found += [(type(item), item.n) for item in page]
            cursor, n_pages = page[-1] if page else None, n_pages + 1
            assert n_pages < 100, "the pages have no end"
    return found, n_pages


def test_figures_that_were_done_again_are_left_out(database: Database) -> None:
    job_id = make_job(database, State.RUNNING)
    with database.session() as session:
        for n in (1, 2):
            row = MetricRow(job_id=job_id, n=n, at=after(n), attempt=n, seq=1, kind="train", step=1, values={})
            row.is_superseded = n == 1
            session.add(row)
    assert pages(database, job_id, 10)[0] == [(MetricRow, 2)]


def test_a_name_holds_only_what_a_url_takes(database: Database) -> None:
    job = job_of(database, make_job(database))
    name = fine_tunes.model_name(job, "  a/b: ç?  ", 7)
    assert name == f"ft:tiny:trainyard:a-b:{job.id.removeprefix('job_')}:ckpt-step-7"
    assert fine_tunes.model_name(job, None).count("::") == 1
