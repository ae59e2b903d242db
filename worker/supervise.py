"""One detached process a run: starts it or finds it again, ships what it says, stops it when asked, tells how it ended.

It holds nothing that is not in the run folder or the database: killed at any moment, the next one goes on from there.
A database or storage that is away never ends a run; all is kept on disk and brought over later.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from api.core import attempts, events, stalls
from api.core.attempts import Answer, Lost, Outcome
from api.core.db import Database
from api.core.errors import TrainyardError
from api.core.events import NewEvent
from api.core.settings import Settings
from api.core.states import Health
from api.core.storage import Storage
from api.core.tables import Attempt, Checkpoint
from trainer_core.contract import RunFolder, StopRequest
from worker.evidence import gather
from worker.folder import BEAT_NOW_FILE, clear_half_saved
from worker.outcome import judge
from worker.patience import AWAY, Backoff, Pace
from worker.plan import RunPlan
from worker.process import Identity, Rung, Tree, rung_at, start_leader
from worker.ship import LogShipper, RecordShipper
from worker.stacks import take as take_stacks
from worker.stall import Report, Silence, StallWatch, keep_cause, kept_cause
from worker.upload import Listed, Uploader

log = logging.getLogger(__name__)

TICK_S = 0.1
# A run that was asked to save first is given the time a large checkpoint takes.
SAVE_GRACE_S = 600.0
# After so many seconds of SIGKILL whatever still lives is told of: it waits in the kernel, for a device or a disk.
UNKILLABLE_AFTER_S = 10.0


@dataclass
class Leaving:
    """Since when the run has been asked to leave, and how hard."""

    stop: str | None = None
    stop_at: float | None = None
    stop_grace_s: float = 0.0
    leave_at: float | None = None  # no grace: it is fenced off, or its launcher is gone
    is_told: bool = False

    def rung(self, now_s: float, term_grace_s: float) -> Rung:
        rungs = [Rung.ASK]
        if self.stop_at is not None:
            rungs.append(rung_at(now_s - self.stop_at, self.stop_grace_s, term_grace_s))
        if self.leave_at is not None:
            rungs.append(rung_at(now_s - self.leave_at, 0.0, term_grace_s))
        return max(rungs)

    def is_news(self, stop: str | None) -> bool:
        """A cancel does not wait for the checkpoint of a pause; any other wish after the first changes nothing."""
        return self.stop is None or (stop == "cancel" and self.stop != "cancel")

    def leave(self, now_s: float) -> None:
        self.leave_at = now_s if self.leave_at is None else self.leave_at


@dataclass
class Paces:
    beat: Pace
    ship: Pace
    stall: Pace
    report: Pace = field(default_factory=lambda: Pace(60.0, 60.0))


class Supervisor:
    """The supervisor of one attempt. `run` returns the outcome it wrote, or None when the attempt was lost to it."""

    def __init__(self, db: Database, storage: Storage, settings: Settings, plan: RunPlan) -> None:
        self._db = db
        self._settings = settings
        self._plan = plan
        self._folder = RunFolder(plan.run_dir)
        self._paces = Paces(
            Pace(settings.beat_every_s), Pace(settings.ship_every_s), Pace(min(5.0, plan.stall.after_s / 10))
        )
        self._leaving = Leaving()
        self._is_lost = False
        self._uploader = Uploader(db, storage, plan, patience_s=settings.lost_after_s)
        self._records = RecordShipper(db, plan.attempt_id, self._folder, self._uploader.take)
        self._stalls = StallWatch(self._folder, plan.stall, time.monotonic())
        self._tree: Tree

    def run(self) -> Outcome | None:
        # Started already as a rule: here only when whoever laid the folder out died before it could.
        leader = start_leader(self._folder.root, self._plan.argv, self._plan.env, self._folder.launcher_log)
        self._tree = Tree(leader, self._plan.attempt_id)
        self._patiently(lambda: self._introduce(leader))
        while not self._is_gone():
            self._tick()
            time.sleep(TICK_S)
        clear_half_saved(self._folder)
        if not self._is_lost:
            self._drain()
        return None if self._is_lost else self._settle()

    def _introduce(self, leader: Identity) -> None:
        """Tell the database who this is, and learn how far an earlier supervisor came."""
        me = Identity.of(os.getpid())
        query = select(Checkpoint).where(Checkpoint.job_id == self._plan.job_id)
        with self._db.session() as session:
            row = session.get_one(Attempt, self._plan.attempt_id)
            is_adopted = row.supervisor is not None
            attempts.record_process(session, row.id, supervisor=me.as_json() if me else None, launcher=leader.as_json())
            if is_adopted:
                how = "and the run goes on" if leader.is_alive() else "and the run had ended meanwhile"
                message = f"The supervisor was started anew, {how}."
                events.append(session, self._plan.job_id, [NewEvent("adopted", message, level="warning")])
            listed = {found.step: Listed(found.attempt, found.manifest_sha256) for found in session.scalars(query)}
        self._logs = LogShipper(self._db, self._plan.attempt_id, self._folder, row.shipped_logs)
        self._uploader.start(listed)

    # While it runs

    def _tick(self) -> None:
        now_s = time.monotonic()
        if self._is_called():
            self._paces.beat.hurry()
        self._every(self._paces.beat, self._beat)
        if not self._is_lost:
            self._every(self._paces.ship, self._ship)
            self._every(self._paces.stall, self._watch)
        if (self._folder.exit.exists() or not self._tree.leader.is_alive()) and not self._is_lost:
            self._leaving.leave(now_s)
        self._is_lost = self._is_lost or self._uploader.is_lost
        if self._is_lost:
            self._leaving.leave(now_s)
        self._tree.climb(self._leaving.rung(now_s, self._settings.term_grace_s))
        self._tell_of_what_stays(now_s)

    def _every(self, pace: Pace, step: Callable[[], None]) -> None:
        """One thing when it is due; what fails is put off, and nothing but a lost attempt ends the run."""
        now_s = time.monotonic()
        if not pace.is_due(now_s):
            return
        try:
            step()
        except Lost as error:
            log.warning("lost: %s", error)
            self._is_lost = True
        except (SQLAlchemyError, TrainyardError) as error:
            log.warning("put off by %.1f s: %s", pace.failed(now_s), error)
        else:
            pace.worked(now_s)

    def _is_called(self) -> bool:
        """Somebody has news for this run, and says so by a file."""
        try:
            (self._folder.root / BEAT_NOW_FILE).unlink()
        except FileNotFoundError:
            return False
        return True

    def _beat(self) -> None:
        with self._db.session() as session:
            answer = attempts.beat(session, self._plan.attempt_id)
        if answer.kind == "lost":
            raise Lost("the attempt was ended by somebody else; its processes are stopped and nothing is written")
        if answer.kind == "stop" and self._leaving.is_news(answer.stop):
            self._ask_to_stop(answer)

    def _ask_to_stop(self, answer: Answer) -> None:
        request = StopRequest.model_validate({"reason": answer.stop, "save_checkpoint": answer.stop != "cancel"})
        temporary = self._folder.stop.with_suffix(".new")
        temporary.write_text(request.model_dump_json())
        temporary.rename(self._folder.stop)
        self._leaving.stop, self._leaving.stop_at = request.reason, time.monotonic()
        # A trainer that still loads does not look at STOP, and has nothing yet that it could lose.
        grace_s = self._settings.stop_grace_s if self._records.told.has_trained else 0.0
        self._leaving.stop_grace_s = SAVE_GRACE_S if request.save_checkpoint else grace_s

    def _ship(self) -> None:
        # Read first, also while the database is away: a checkpoint must be held before the trainer lets it go.
        self._records.read()
        self._records.ship()
        self._logs.ship(time.monotonic())

    def _watch(self) -> None:
        """A run that was asked to leave has limits of its own; one that was ended for a stall is made to leave again
        by whoever supervises it next."""
        if self._leaving.stop is not None or self._leaving.leave_at is not None:
            return
        now_s = time.monotonic()
        if kept_cause(self._folder) is not None:
            self._leaving.leave(now_s)
            return
        was_stalled = self._stalls.is_stalled
        silence = self._stalls.look(self._records.told, now_s)
        if silence is not None:
            self._act_on(silence)
        elif was_stalled and not self._stalls.is_stalled:
            self._tell_health(NewEvent("moving", "The run makes progress again."), Health.OK)

    def _act_on(self, silence: Silence) -> None:
        report = Report(silence, take_stacks(self._tree.remains(), self._folder), self._plan.attempt)
        self._uploader.take_file(report.write(self._folder), report.name)
        if self._plan.stall.stops:
            keep_cause(self._folder, report.cause())
        self._tell_health(report.event(stops=self._plan.stall.stops), Health.STALLED)

    def _tell_health(self, event: NewEvent, health: Health) -> None:
        with self._db.session() as session:
            stalls.tell(session, self._plan.attempt_id, event, health)

    def _is_gone(self) -> bool:
        """The proof: neither the leader nor anything that came of it lives."""
        return not self._tree.leader.is_alive() and not self._tree.remains()

    def _tell_of_what_stays(self, now_s: float) -> None:
        begin = self._leaving.leave_at or (self._leaving.stop_at or now_s) + self._leaving.stop_grace_s
        patience_s = self._settings.term_grace_s + UNKILLABLE_AFTER_S
        if self._leaving.is_told or self._is_lost or now_s - begin < patience_s:
            return
        pids = [process.pid for process in self._tree.remains()]
        message = f"SIGKILL has not ended {len(pids)} processes of the run: {pids}. Its devices stay taken."
        event = NewEvent("unkillable", message, level="error", data={"pids": pids})
        self._every(self._paces.report, lambda: self._tell(event))

    def _tell(self, event: NewEvent) -> None:
        with self._db.session() as session:
            events.append(session, self._plan.job_id, [event])
        self._leaving.is_told = True

    # The end

    def _drain(self) -> None:
        """Bring over everything that is left. A fault of ours may not keep the job from its end for ever."""
        deadline = time.monotonic() + self._settings.lost_after_s
        backoff = Backoff(self._settings.ship_every_s, 10.0)
        while not self._is_lost:
            try:
                self._records.ship()
                self._logs.ship(time.monotonic(), is_last=True)
                break
            except Lost:
                self._is_lost = True
            except (SQLAlchemyError, TrainyardError) as error:
                log.warning("the last records and lines wait: %s", error)
                if not isinstance(error, AWAY) and time.monotonic() > deadline:
                    break
                time.sleep(backoff.failed())
        self._uploader.close()
        while not (self._is_lost or self._uploader.is_finished):
            self._every(self._paces.beat, self._beat)
            time.sleep(0.02)
        self._is_lost = self._is_lost or self._uploader.is_lost

    def _settle(self) -> Outcome | None:
        evidence = gather(
            self._folder,
            self._plan,
            self._tree.leader,
            told=self._records.told,
            uploader=self._uploader,
            stop=self._leaving.stop,
        )
        outcome = judge(evidence)
        log.info("outcome: %s", outcome)
        self._patiently(lambda: self._write_end(outcome))
        return None if self._is_lost else outcome

    def _write_end(self, outcome: Outcome) -> None:
        said = [NewEvent("upload_problem", text, level="warning") for text in self._uploader.warnings]
        with self._db.session() as session:
            events.append(session, self._plan.job_id, said)
            attempts.end(session, self._plan.attempt_id, outcome, settings=self._settings)

    def _patiently(self, step: Callable[[], None]) -> None:
        """Until it works, or the attempt is lost."""
        backoff = Backoff(0.1, 10.0)
        while not self._is_lost:
            try:
                step()
            except Lost as error:
                log.warning("lost: %s", error)
                self._is_lost = True
            except AWAY as error:
                log.warning("the database is away: %s", error)
                time.sleep(backoff.failed())
            else:
                return
