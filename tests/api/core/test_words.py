"""The small pure modules: text that every database takes, progress from a pace, records in words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.core.clean import clean_json, clean_text
from api.core.messages import event_for, size
from api.core.progress import Mark, eta_s
from tests.api.core.rows import T0, after, metrics_record, started_record
from trainer_core.contract import Phase, PhaseChanged, Stopped

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(codec=None)))
documents = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(documents)
def test_cleaned_json_is_strict_and_storable(document: object) -> None:
    text = json.dumps(clean_json(document), allow_nan=False, ensure_ascii=False)
    assert "\\u0000" not in text
    text.encode("utf-8")


@given(st.text())
def test_clean_text_changes_nothing_that_can_be_stored(text: str) -> None:
    assert clean_text(text) == text.replace("\x00", "\ufffd")


@pytest.mark.parametrize(
    ("n_bytes", "words"),
    [
        (0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (12_345_678, "12.3 MB"), (999_960_000, "1.0 GB"),
        (5 * 10**12, "5.0 TB"), (5 * 10**15, "5000.0 TB"),
    ],
)  # fmt: skip
def test_sizes_in_words(n_bytes: int, words: str) -> None:
    assert size(n_bytes) == words


def test_an_eta_needs_a_plan_and_a_pace() -> None:
    newest = Mark(after(100), 50)
    assert eta_s(None, newest, Mark(T0, 0), None) is None
    assert eta_s(100, newest, None, None) is None
    assert eta_s(100, newest, newest, None) is None
    assert eta_s(100, newest, Mark(after(95), 40), Mark(T0, 0)) == pytest.approx(50 * 0.5)
    assert eta_s(100, newest, newest, Mark(after(50), 0)) == pytest.approx(50)
    assert eta_s(50, newest, None, None) == 0
    assert eta_s(40, newest, None, None) == 0


def test_a_resumed_run_is_judged_by_its_own_steps() -> None:
    assert eta_s(1000, Mark(after(20), 910), None, Mark(T0, 900)) == pytest.approx(180)


def test_records_in_words() -> None:
    said = [
        event_for(started_record(resumed_from_step=1200)),
        event_for(PhaseChanged(seq=2, at=T0, phase=Phase.LOADING)),
        event_for(Stopped(seq=3, at=T0, step=7, reason="cancel")),
        event_for(Stopped(seq=3, at=T0, step=7, reason="drain", checkpoint_step=7)),
    ]
    assert [event.message for event in said if event] == [
        "Running in 2 processes on cpu, resumed from step 1,200",
        "Phase: loading",
        "Stopped at step 7 (cancel)",
        "Stopped at step 7 (drain); checkpoint at step 7",
    ]
    assert event_for(metrics_record(4, 1)) is None
