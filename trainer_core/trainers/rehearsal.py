"""The longest batch forward and backward, and one save of the weights, before the first step: what would fail hours
later for want of memory, for a shape or for a disk fails in seconds.

Nothing of it stays: random numbers, buffers, gradients and what the trainer counts are as before, and the optimizer and
the order of the rows are not touched. Under DeepSpeed the batch goes forward alone: its engine counts, reduces and
partitions with every backward pass, and could not be left as it was.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from trainer_core.trainers.trainer import RunTrainerMixin


def rehearse(trainer: RunTrainerMixin) -> None:
    """Collective. Raises what the step or the save would raise."""
    rows: Any = trainer.train_dataset
    if not isinstance(rows, Sequence) or not rows:
        return
    started = time.monotonic()
    longest = sorted(rows, key=lambda row: len(row.ids), reverse=True)[: trainer.args.per_device_train_batch_size]
    with _as_before(trainer):
        _pass(trainer, longest)
        _save(trainer)
    way = "forward" if trainer.is_deepspeed_enabled else "forward and back"
    trainer.events.note(
        f"Rehearsed in {time.monotonic() - started:.1f} s: {len(longest)} rows of up to {len(longest[0].ids)} tokens "
        f"went {way}, and the weights were saved.",
        n_rows=len(longest),
        n_tokens=len(longest[0].ids),
    )


def _pass(trainer: RunTrainerMixin, rows: Sequence[Any]) -> None:
    model = trainer.model_wrapped
    batch = trainer.data_collator(list(rows))
    (batch,), n_items = trainer.batches_of([batch])
    inputs = trainer._prepare_inputs(batch)
    if trainer.is_deepspeed_enabled:
        model.eval()
        with torch.no_grad(), trainer.compute_loss_context_manager():
            trainer.compute_loss(model, inputs, num_items_in_batch=n_items)
        return
    model.train()
    # Without the exchange of gradients, which would make a rank wait for one that has no room.
    with trainer.accelerator.no_sync(model):
        with trainer.compute_loss_context_manager():
            loss = trainer.compute_loss(model, inputs, num_items_in_batch=n_items)
        loss.backward()


def _save(trainer: RunTrainerMixin) -> None:
    """Weights alone: the optimizer has no state yet. Under the name that whoever clears up after a crash knows."""
    place = trainer.store.saving_root(0)
    try:
        trainer.require_room()
        trainer.save_model(str(place / "rehearsal"), _internal_call=True)
        trainer.ranks.wait_for_all()
    finally:
        if trainer.ranks.is_main:
            shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def _as_before(trainer: RunTrainerMixin) -> Iterator[None]:
    model = trainer.model_wrapped
    attributes, was_training = dict(trainer.__dict__), model.training
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    python, numpy = random.getstate(), np.random.get_state()
    devices = [trainer.args.device] if trainer.args.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        yield
    random.setstate(python)
    np.random.set_state(numpy)
    with torch.no_grad():
        for buffer, kept in buffers:
            buffer.copy_(kept)
    if not trainer.is_deepspeed_enabled:  # there none was made, and the engine has its own
        model.zero_grad(set_to_none=True)
    model.train(was_training)
    trainer.__dict__.update(attributes)
    if devices:
        torch.cuda.empty_cache()
