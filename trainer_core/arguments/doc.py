"""The tables of docs/options.md, made from the tables the service itself reads; a test holds the page to them.

`python -m trainer_core.arguments.doc docs/options.md` writes them into the page, between its marks. Torch-free.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainer_core.arguments.gone import REFUSED, RENAMED
from trainer_core.arguments.table import ACCEPTED, GENERATING, NEEDED_SCHEDULER_KEYS, OPTIMIZERS, SCHEDULERS, Option
from trainer_core.zero.schema import OWNERS, SCHEMA, Block, Key, Refused

_MARK = re.compile(r"(<!-- table: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rewrite(page: str) -> str:
    """The page with every marked table made anew. Raises KeyError on a mark that names no table."""
    made = tables()
    return _MARK.sub(lambda match: f"{match[1]}{made[match['name']]}{match[3]}", page)


def tables() -> dict[str, str]:
    """Name of the mark -> the table in Markdown."""
    return {
        "accepted": _table(("Option", "Takes", "Default", "What it does"), map(_accepted_row, ACCEPTED.values())),
        "generating": _table(("Option", "Takes", "Default", "What it does"), map(_accepted_row, GENERATING.values())),
        "renamed": _table(("Older name", "Taken as"), ((f"`{old}`", f"`{new}`") for old, new in RENAMED.items())),
        "refused": _table(("Option", "What happens", "Why"), _refused_rows()),
        "schedules": _table(("Schedule", "lr_scheduler_kwargs"), _schedule_rows()),
        "optimizers": _table(("Package", "Optimizers"), _optimizer_rows()),
        "owners": _table(("DeepSpeed key", "Owned by"), ((f"`{key}`", owner) for key, owner in OWNERS.items())),
        "deepspeed": _table(("DeepSpeed key", "Takes", "Acts"), _deepspeed_rows(SCHEMA)),
        "deepspeed-refused": _table(("DeepSpeed key", "Why it is refused", "Instead"), _deepspeed_refused(SCHEMA)),
    }


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def _accepted_row(option: Option) -> tuple[str, ...]:
    default = "" if option.default is None else f"`{_plain(option.default)}`"
    only = {"cuda": " CUDA only.", "ddp": " Without DeepSpeed only."}.get(option.only, "")
    return f"`{option.name}`", _takes(option), default, option.doc + only


def _takes(option: Option) -> str:
    words = {
        "bool": "true or false", "text": "text", "object": "an object", "generation": "an object",
        "cadence": "steps, or a share under 1",
        "warmup": "steps, or a share under 1", "max_steps": "whole number, at least 1",
    }  # fmt: skip
    if option.kind in words:
        return words[option.kind]
    if option.kind == "choice":
        return "one of its names" if len(option.choices) > 6 else ", ".join(f"`{choice}`" for choice in option.choices)
    bounds = (
        ("at least", option.at_least),
        ("over", option.over),
        ("at most", option.at_most),
        ("under", option.under),
    )
    wanted = " and ".join(f"{word} {bound:.12g}" for word, bound in bounds if bound is not None)
    return f"{'whole number' if option.kind == 'whole' else 'number'}, {wanted}"


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refused_rows() -> Iterator[tuple[str, ...]]:
    for name, rule in sorted(REFUSED.items()):
        yield f"`{name}`", "left out, with a note" if rule.noted else f"refused (`{rule.code}`)", rule.reason


def _schedule_rows() -> Iterator[tuple[str, ...]]:
    for name, keys in SCHEDULERS.items():
        needed = [" or ".join(f"`{key}`" for key in sorted(group)) for group in NEEDED_SCHEDULER_KEYS.get(name, ())]
        taken = ", ".join(f"`{key}`" for key in sorted(keys)) or "none"
        yield f"`{name}`", taken + (f"; needs {', '.join(needed)}" if needed else "")


def _optimizer_rows() -> Iterator[tuple[str, ...]]:
    packages = dict.fromkeys(OPTIMIZERS.values())
    for package in packages:
        names = ", ".join(f"`{name}`" for name, needs in OPTIMIZERS.items() if needs == package)
        yield f"`{package}`" if package else "none: always there", names


def _deepspeed_rows(block: Block, path: str = "") -> Iterator[tuple[str, ...]]:
    for name, node in block.items():
        if isinstance(node, Key):
            takes = ", ".join(f"`{choice}`" for choice in node.choices) or _KINDS[node.kind]
            stages = "" if len(node.stages) == 4 else f"stage {', '.join(map(str, node.stages))}"
            acts = ", ".join(part for part in (stages, "CUDA" if node.cuda_only else "") if part)
            yield f"`{path}{name}`", takes + (', `"auto"`' if node.auto else ""), acts or "always"
        elif isinstance(node, dict):
            yield from _deepspeed_rows(node, f"{path}{name}.")


_KINDS = {
    "bool": "true or false", "count": "whole number (`2e8` too)", "number": "number", "text": "text",
    "names": "list of names", "pair": "two numbers",
}  # fmt: skip


def _deepspeed_refused(block: Block, path: str = "") -> Iterator[tuple[str, ...]]:
    for name, node in block.items():
        if isinstance(node, Refused):
            yield f"`{path}{name}`", node.reason, f"`{node.successor}`" if node.successor else ""
        elif isinstance(node, dict):
            yield from _deepspeed_refused(node, f"{path}{name}.")


def main(path: Path) -> None:
    path.write_text(rewrite(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
