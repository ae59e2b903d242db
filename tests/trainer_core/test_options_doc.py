"""docs/options.md shows the tables the service reads, and its words name what exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainer_core.arguments.doc import main, rewrite, tables
from trainer_core.arguments.gone import REFUSED, RENAMED
from trainer_core.arguments.table import ACCEPTED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "options.md"


def test_page_shows_the_tables_as_they_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert rewrite(page) == page, "run: python -m trainer_core.arguments.doc docs/options.md"


def test_page_has_every_table_once() -> None:
    assert sorted(re.findall(r"<!-- table: ([a-z-]+) -->", PAGE.read_text(encoding="utf-8"))) == sorted(tables())


def test_every_option_has_its_row() -> None:
    made = tables()
    for table, names in (("accepted", ACCEPTED), ("refused", REFUSED), ("renamed", RENAMED)):
        assert {name for name in names if f"| `{name}` |" not in made[table]} == set()


def test_writing_replaces_an_old_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: owners -->\nold\n<!-- end -->\nafter\n")
    main(page)
    text = page.read_text()
    assert "old" not in text
    assert "`train_batch_size`" in text
    assert text.startswith("before\n")
    assert text.endswith("<!-- end -->\nafter\n")


def test_unknown_mark_is_an_error() -> None:
    with pytest.raises(KeyError):
        rewrite("<!-- table: nothing -->\n<!-- end -->")


def test_options_are_read_without_a_training_library() -> None:
    """The service imports these at submit; torch alone would cost it seconds and gigabytes."""
    program = (
        "import sys\n"
        "from trainer_core import numbers, problems, steps\n"
        "from trainer_core.arguments import doc, resolve\n"
        "from trainer_core.memory import estimate\n"
        "from trainer_core.zero import config\n"
        "print({'torch', 'transformers', 'deepspeed', 'peft', 'accelerate', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PAGE.parents[1]
    )
    assert done.stdout.strip() == "set()"
