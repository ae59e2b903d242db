"""One rank of one run from config.json to exit code: reads the config, tells the method's story, records how it ended.

The only place in the trainer that catches everything; it knows no method by itself.
"""

from __future__ import annotations

import importlib
import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from trainer_core.contract import Cause, CauseCode, ExitCode, Failed, RunConfig, RunFolder, Stopped, StopRequest
from trainer_core.problems import from_validation_error
from trainer_core.run.events import EventWriter
from trainer_core.run.faults import StopAsked, cause_of
from trainer_core.run.launch_env import LaunchEnv, read_launch_env
from trainer_core.run.progress_log import TRAINER_LOG
from trainer_core.run.stop import leave_by_itself

# A rank that fails waits so long for rank 0 to tell of it: the launcher kills the others as soon as one has left.
PATIENCE_S = 3.0
RANK_0_TOLD = "rank0.told"


def main(folder: RunFolder) -> ExitCode:
    """Run this rank. Never raises; the cause of a failure is in events.jsonl (rank 0) or scratch/rank{N}.error.json."""
    ranks = read_launch_env()
    for path in (folder.checkpoints, folder.output, folder.scratch):
        path.mkdir(parents=True, exist_ok=True)
    if ranks.is_main:
        _set_former_files_aside(folder)
    events = EventWriter(folder.events, enabled=ranks.is_main)
    try:
        code = _run(folder, events, ranks)
    except StopAsked:
        code = ExitCode.STOPPED
        events.emit(Stopped, step=0, reason=_stop_reason(folder))
        _leave_after_rank_0(folder, ranks)
    except Exception as error:  # the whole run ends here, and the cause is recorded
        traceback.print_exc()
        code = _record_failure(error, folder, events, ranks)
    events.close()
    return code


def _run(folder: RunFolder, events: EventWriter, ranks: LaunchEnv) -> ExitCode:
    config = RunConfig.model_validate_json(folder.config.read_bytes())
    method = importlib.import_module(f"trainer_core.methods.{config.method}")
    return ExitCode(method.run(config, folder, events, ranks))


def _record_failure(error: Exception, folder: RunFolder, events: EventWriter, ranks: LaunchEnv) -> ExitCode:
    cause = _config_cause(error) if isinstance(error, ValidationError) else cause_of(error, ranks.rank)
    if not ranks.is_main:
        _error_file(folder, ranks.rank).write_text(cause.model_dump_json())
        _leave_after_rank_0(folder, ranks)
        return _code_for(cause)
    if cause.code is CauseCode.RANK_DIED:
        cause = _told_by_another(folder, ranks) or cause
    events.emit(Failed, cause=cause)
    _leave_after_rank_0(folder, ranks)
    return _code_for(cause)


def _leave_after_rank_0(folder: RunFolder, ranks: LaunchEnv) -> None:
    """Rank 0 has told how the run ended and marks it; the others wait for the mark, but not for ever."""
    leave_by_itself()
    mark = folder.scratch / RANK_0_TOLD
    if ranks.is_main:
        mark.touch()
    else:
        _wait_for(mark.exists)


def _code_for(cause: Cause) -> ExitCode:
    return ExitCode.CONFIG_INVALID if cause.code is CauseCode.CONFIG_INVALID else ExitCode.FAILED


def _told_by_another(folder: RunFolder, ranks: LaunchEnv) -> Cause | None:
    """The cause that the rank which went away left behind, if it could."""
    others = [_error_file(folder, rank) for rank in range(1, ranks.world_size)]
    _wait_for(lambda: any(path.exists() for path in others), patience_s=1.0)
    for path in others:
        if path.exists():
            return Cause.model_validate_json(path.read_text())
    return None


def _config_cause(error: ValidationError) -> Cause:
    first = from_validation_error(error, RunConfig)[0]
    return Cause(
        code=CauseCode.CONFIG_INVALID,
        message=f"config.json does not hold a run configuration: {first.param} {first.message}",
        hint=first.hint,
        param=first.param,
        details={"errors": json.loads(error.json(include_url=False, include_input=False, include_context=False))[:20]},
    )


def _set_former_files_aside(folder: RunFolder) -> None:
    """An earlier attempt in the same folder keeps its records, but under another name: `seq` starts at 1 again."""
    errors = folder.scratch.glob("rank*.error.json")
    for path in [folder.events, folder.output / TRAINER_LOG, folder.scratch / RANK_0_TOLD, *errors]:
        if path.exists():
            path.rename(folder.scratch / f"former-{time.time_ns()}-{path.name}")


def _stop_reason(folder: RunFolder) -> str:
    try:
        return StopRequest.model_validate_json(folder.stop.read_bytes()).reason
    except (OSError, ValidationError):
        return StopRequest().reason  # an empty file, made by `touch`


def _error_file(folder: RunFolder, rank: int) -> Path:
    return folder.scratch / f"rank{rank}.error.json"


def _wait_for(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
