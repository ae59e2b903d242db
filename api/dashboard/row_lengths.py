"""How long a dataset's rows are, from a sample spread over the file. In characters: tokens need the job's tokenizer,
which preflight uses; about four characters of English make one."""

from __future__ import annotations

from typing import Any

from api.core import datasets
from api.core.storage import Storage
from api.core.tables import Dataset

N_PARTS = 10
ROWS_A_PART = 50
N_BARS = 24


def sampled(storage: Storage, dataset: Dataset) -> dict[str, Any]:
    """{edges, counts, n_read, n_rows, longest, mean}: `counts[i]` rows are in [edges[i], edges[i + 1])."""
    stride = max(ROWS_A_PART, dataset.n_rows // N_PARTS)
    starts = [start for start in range(0, stride * N_PARTS, stride) if start < dataset.n_rows]
    lengths = [
        n_characters(row.row)
        for start in starts
        for row in datasets.preview(storage, dataset, start, ROWS_A_PART, is_full=True)[0]
    ]
    return {**histogram(lengths), "n_read": len(lengths), "n_rows": dataset.n_rows}


def n_characters(value: Any) -> int:
    """Of all texts in a row; names of columns are not counted."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(n_characters, value.values()))
    return sum(map(n_characters, value)) if isinstance(value, list) else 0


def histogram(lengths: list[int]) -> dict[str, Any]:
    longest = max(lengths, default=0)
    width = max(1, -(-(longest + 1) // N_BARS))
    counts = [0] * N_BARS
    for length in lengths:
        counts[length // width] += 1
    edges = [width * index for index in range(N_BARS + 1)]
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    return {"edges": edges, "counts": counts, "longest": longest, "mean": mean}
