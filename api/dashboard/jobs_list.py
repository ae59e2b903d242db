"""The list of jobs: filter, sort, page; the table alone for its refresh. Everything it shows is in the address."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy.orm import Session
from starlette.responses import Response

from api.core.auth import Actor, Permission
from api.core.jobs import Filters
from api.core.settings import Settings
from api.core.states import State
from api.dashboard import job_rows
from api.dashboard.access import allow_page
from api.dashboard.render import page
from api.deps import ReadSession, SettingsDep
from api.job_shown import describe_jobs

router = APIRouter(include_in_schema=False)

A_PAGE = 50
VIEWS = (
    ("All", ""),
    ("Under way", "state=validating&state=starting&state=running&state=pausing&state=cancelling"),
    ("Waiting", "state=queued&state=paused"),
    ("Failed", "state=failed"),
    ("Best first", "state=succeeded&sort=best&dir=asc"),
)
COLUMNS = (
    ("name", "Name"), ("state", "State"), ("progress", "Progress"), ("loss", "Loss"), ("best", "Best"),
    ("left", "Time left"), ("created", "Created"),
)  # fmt: skip

Reader = Annotated[Actor, allow_page(Permission.JOBS_READ)]
Text = Annotated[str, Query(max_length=300)]


@dataclass(frozen=True)
class View:
    """What is shown: filters, order, page."""

    name: str = ""
    state: tuple[str, ...] = ()
    label: str = ""
    sort: str = "created"
    dir: str = "desc"
    page: int = 1

    @property
    def query(self) -> str:
        """The address of this view, without what is as usual."""
        usual = asdict(View())
        return urlencode({name: value for name, value in asdict(self).items() if value != usual[name]}, doseq=True)

    def sorted_by(self, column: str) -> View:
        first = "desc" if column in ("progress", "created") else "asc"
        other = "asc" if self.dir == "desc" else "desc"
        return replace(self, sort=column, dir=other if column == self.sort else first, page=1)

    def at(self, number: int) -> View:
        return replace(self, page=number)


def _view(
    name: Text = "",
    state: Annotated[list[str] | None, Query(max_length=20)] = None,
    label: Text = "",
    sort: Text = "created",
    dir: Text = "desc",
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> View:
    known = tuple(text for text in state or () if text in set(State))
    column = sort if sort in job_rows.SORTS else "created"
    return View(name, known, label, column, "asc" if dir == "asc" else "desc", page)


ViewDep = Annotated[View, Depends(_view)]


@router.get("/jobs")
def show_jobs(request: Request, session: ReadSession, settings: SettingsDep, actor: Reader, view: ViewDep) -> Response:
    return page("jobs.html", request, actor, states=[*State], views=VIEWS, **_listed(session, settings, view))


@router.get("/jobs/table")
def show_jobs_table(
    request: Request, session: ReadSession, settings: SettingsDep, actor: Reader, view: ViewDep
) -> Response:
    """The table alone, for the page's refresh."""
    return page("_jobs_table.html", request, actor, **_listed(session, settings, view))


def _listed(session: Session, settings: Settings, view: View) -> dict[str, Any]:
    key, colon, value = view.label.partition(":")
    filters = Filters(
        states=[State(text) for text in view.state], labels={key: value} if colon else {}, name=view.name or None
    )
    n_jobs = job_rows.count(session, filters)
    n_pages = max(1, -(-n_jobs // A_PAGE))
    skip = (min(view.page, n_pages) - 1) * A_PAGE
    found = job_rows.find(session, filters, view.sort, is_descending=view.dir == "desc", skip=skip, limit=A_PAGE)
    return {
        "jobs": describe_jobs(session, found, settings),
        "curves": job_rows.sparklines(session, [job for job, _ in found]),
        "view": view.at(min(view.page, n_pages)),
        "columns": COLUMNS,
        "n_jobs": n_jobs,
        "n_pages": n_pages,
    }
