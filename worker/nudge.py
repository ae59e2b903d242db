"""`python -m worker nudge`: one message that something has changed and the scheduler should look.

A process of its own, because supervisors would hold Celery in memory for the length of a run only to send it.
"""

from __future__ import annotations

import argparse

from api.core.queue import nudge_schedule
from api.core.settings import Settings


def main(_options: argparse.Namespace, settings: Settings) -> int:
    nudge_schedule(settings)
    return 0
