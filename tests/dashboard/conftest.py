"""A real Chromium on the real service. Every page is watched: no console error, no foreign host, the policy intact."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response, sync_playwright

from tests.conftest import skip_or_fail
from tests.dashboard.filled import Filled, filled
from tests.live import Service, body, chat_rows, running, write_rows
from trainyard import Client

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"
]  # fmt: skip
POLICY = "default-src 'self'"
WAIT_MS = 60_000


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("dashboard")) as service:
        yield service


@pytest.fixture
def client(live: Service) -> Iterator[Client]:
    with live.client() as client:
        yield client


@pytest.fixture(scope="session")
def chat_file(live: Service) -> Path:
    return write_rows(live.folder / "forty.jsonl", chat_rows(40))


@pytest.fixture(scope="session")
def chat(live: Service, chat_file: Path) -> str:
    with live.client() as client:
        return str(client.push_dataset(chat_file)["id"])


@pytest.fixture(scope="session")
def running_job(live: Service, chat: str) -> str:
    """A job that trains until it is cancelled, with a checkpoint every 200 steps. Its name and notes are hostile."""
    spec = body(
        chat,
        name="</script><b>x",
        steps=100_000,
        training={"eval_steps": 200, "save_steps": 200, "logging_steps": 5},
        notes="<img src=x onerror=alert(1)>",
    )
    with live.client() as client:
        job_id = str(client.submit(spec)["id"])
    live.wait_for(job_id, "running", what=lambda job: job["best_step"] is not None)
    return job_id


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = os.environ.get("TRAINYARD_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        skip_or_fail("no Chromium: put it on the PATH or set TRAINYARD_CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


class Watch:
    """What no page may do, written down while it happens."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.faults: list[str] = []
        self.expected: set[str] = set()

    def on(self, page: Page) -> None:
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", self._asked)
        page.on("response", self._answered)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(part in message.text for part in self.expected):
            self.faults.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.url + "/", "data:")):
            self.faults.append(f"asked another host: {request.url}")

    def _answered(self, response: Response) -> None:
        if response.request.resource_type == "document" and not 300 <= response.status < 400:
            policy = response.headers.get("content-security-policy", "")
            if POLICY not in policy or "unsafe" in policy:
                self.faults.append(f"policy of {response.url}: {policy!r}")


@pytest.fixture
def watch(live: Service) -> Iterator[Watch]:
    watch = Watch(live.url)
    yield watch
    assert watch.faults == []


@pytest.fixture
def stranger(browser: Browser, live: Service, watch: Watch) -> Iterator[Page]:
    """A page of somebody who has not logged in."""
    context = browser.new_context(base_url=live.url, viewport={"width": 1440, "height": 900})
    yield watched(context, watch)
    context.close()


@pytest.fixture
def page(stranger: Page, live: Service) -> Page:
    """A page of somebody who has."""
    log_in(stranger, live)
    return stranger


def watched(context: BrowserContext, watch: Watch) -> Page:
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    watch.on(page)
    return page


def log_in(page: Page, live: Service, at: str = "/jobs") -> None:
    page.goto(at)
    page.get_by_label("API key").fill((live.data_dir / "api-key").read_text().strip())
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"**{at}")


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """The API over a database that tests fill; nothing is trained."""
    with filled(tmp_path_factory.mktemp("shelf")) as service:
        yield service


@pytest.fixture
def shelf_watch(shelf: Filled) -> Iterator[Watch]:
    watch = Watch(shelf.url)
    yield watch
    assert watch.faults == []


@pytest.fixture
def visitor(browser: Browser, shelf: Filled, shelf_watch: Watch) -> Iterator[Page]:
    """A page of the filled service, logged in and watched."""
    context = browser.new_context(base_url=shelf.url, viewport={"width": 1440, "height": 900}, accept_downloads=True)
    page = watched(context, shelf_watch)
    page.goto("/login")
    page.get_by_label("API key").fill(shelf.key)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/jobs")
    yield page
    context.close()
