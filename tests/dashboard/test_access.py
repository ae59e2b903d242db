"""Every page, at a desk and on a phone, light and dark: axe finds nothing serious, nothing scrolls sideways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.dashboard.filled import Filled
from tests.dashboard.rooms import Rooms, furnish

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("dashboard")]

AXE = (Path(__file__).parent / "vendor" / "axe-core-4.14.1" / "axe.min.js").read_text(encoding="utf-8")
GRAVE = ("serious", "critical")


@pytest.fixture(scope="module")
def rooms(shelf: Filled) -> Rooms:
    return furnish(shelf)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 375), ("dark", 1440), ("light", 375)])
def test_every_page_can_be_used_by_everybody(visitor: Page, rooms: Rooms, scheme: Any, width: int) -> None:
    visitor.emulate_media(color_scheme=scheme)
    visitor.set_viewport_size({"width": width, "height": 900})
    found = []
    for name, path in rooms.paths.items():
        visitor.goto(path)
        visitor.wait_for_load_state("load")
        if name in ("job", "diff", "compare"):
            visitor.wait_for_selector("canvas")
        if name in ("new", "clone"):
            visitor.wait_for_selector("#option-list li", state="attached")
        faults = visitor.evaluate(f"{AXE}\n;axe.run(document, {{resultTypes: ['violations']}})")["violations"]
        found += [
            f"{name}: {fault['id']}: {fault['nodes'][0]['html'][:200]} {fault['nodes'][0]['failureSummary'][:300]}"
            for fault in faults
            if fault["impact"] in GRAVE
        ]
        wide = visitor.evaluate("document.documentElement.scrollWidth")
        if wide > width:
            found.append(f"{name} is {wide} pixels wide")
        if visitor.locator("main b:text-is('x'), main script:not([type])").count():
            found.append(f"{name}: a text became markup")
    assert not found, "\n".join(found)
