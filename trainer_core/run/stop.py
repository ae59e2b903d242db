"""The STOP file: rank 0 looks, all ranks learn of it together, so that none waits for one that has left."""

from __future__ import annotations

import signal

from pydantic import ValidationError

from trainer_core.contract import RunFolder, StopRequest
from trainer_core.run.faults import StopAsked
from trainer_core.run.heartbeat import Heartbeat
from trainer_core.run.ranks import Ranks


class StopSign:
    """`request` is set on every rank from the moment they have agreed to stop."""

    def __init__(self, folder: RunFolder, ranks: Ranks) -> None:
        self._path = folder.stop
        self._ranks = ranks
        self._heartbeat = Heartbeat(folder.rank_beat(ranks.rank))
        self.request: StopRequest | None = None

    def seen(self) -> bool:
        """Does the file exist? Rank 0 alone looks; others answer False. Asked at every step and every evaluated batch,
        so it is this rank's sign of life too."""
        self._heartbeat.beat()
        return self._ranks.is_main and self._path.exists()

    def agree(self) -> bool:
        """Collective: has rank 0 seen the file? All ranks must call it at the same point."""
        return self.accept() if self._ranks.any_of(self.seen())[0] else False

    def accept(self) -> bool:
        """Take the request in after the ranks agreed. The file may be empty (made by `touch`): then it means cancel."""
        try:
            self.request = StopRequest.model_validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
            self.request = StopRequest()
        return True

    def leave_if_asked(self) -> None:
        """Between two stages: raises StopAsked on all ranks."""
        if self.agree():
            raise StopAsked


def leave_by_itself() -> None:
    """From here on this rank only ends, with the code it has come to. The launcher sends SIGTERM to all ranks as soon
    as one has left, and a rank that is milliseconds behind would lose its code to it; SIGKILL still follows."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
