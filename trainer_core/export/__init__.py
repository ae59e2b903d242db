"""Weights out of a checkpoint: put together, merged, proved by logits, and described."""
