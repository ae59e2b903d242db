"""`make bench`: ratios and figures, printed and written to bench-results/bench.json. A benchmark, not a timed test.

python tests/bench/run.py [overhead] [beside] [start] [reads] [intake] [api]
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.control_plane import api_start, metric_intake, status_reads
from tests.bench.training import first_step, overhead
from tests.bench.windows import beside

BENCHES: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "overhead": overhead,
    "beside": beside,
    "start": first_step,
    "reads": status_reads,
    "intake": metric_intake,
    "api": api_start,
}
RESULTS = Path(__file__).resolve().parents[2] / "bench-results"


def main() -> None:
    chosen = sys.argv[1:] or list(BENCHES)
    unknown = set(chosen) - set(BENCHES)
    if unknown:
        raise SystemExit(f"no bench called {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    rows = [row for name in chosen for row in BENCHES[name]()]
    table = Table("what", "min", "median", "max", "unit", "aim")
    for row in rows:
        values = row["values"]
        shown = [f"{figure:.4g}" for figure in (min(values), statistics.median(values), max(values))]
        table.add_row(row["what"], *shown, row["unit"], row.get("aim", ""))
    Console(width=120).print(table)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "bench.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
