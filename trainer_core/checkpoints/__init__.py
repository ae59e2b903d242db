"""Checkpoints on disk: saved aside, proved whole, renamed into place, kept or let go, and started from."""
