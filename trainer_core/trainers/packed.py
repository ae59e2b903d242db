"""The Trainer of packed rows, which proves on the model itself that no sequence of a row looks into another."""

from __future__ import annotations

from typing import Any

import torch

from trainer_core.contract import CauseCode
from trainer_core.run.faults import Fault
from trainer_core.trainers.trainer import RunTrainerMixin

# Three sequences a row, so that the last has two before it that it may not see.
LENGTHS = (5, 3, 4)


class PackedTrainer(RunTrainerMixin):
    """Attention that ignores where sequences end would train on rows that see each other, and nobody would notice."""

    def __init__(self, *, is_packed: bool, option: str, **arguments: Any) -> None:
        self._is_packed = is_packed
        self._option = option
        super().__init__(**arguments)

    def check_ready(self) -> None:
        """Collective. Raises the same Fault(config_invalid) on every rank."""
        if self._is_packed and self.ranks.any_of(not keeps_apart(self.model_wrapped, self.args))[0]:
            implementation = getattr(self.model.config, "_attn_implementation", None)
            raise Fault(
                CauseCode.CONFIG_INVALID,
                f"This model lets the sequences of a packed row look into each other (attention: {implementation}).",
                hint=f"Leave {self._option} out, or choose a model or an attention that keeps them apart.",
                param=self._option,
            )


def keeps_apart(model: torch.nn.Module, args: Any) -> bool:
    """Whether the last sequence of a packed row gets the same logits whatever stands before it in the row.

    Collective under ZeRO-3. Batches are as large as the run's: some attentions heed positions in rows alone.
    """
    generator = torch.Generator().manual_seed(0)
    position_ids = torch.cat([torch.arange(length) for length in LENGTHS]).expand(args.train_batch_size, -1)
    shape = (args.train_batch_size, sum(LENGTHS))
    one, other = (torch.randint(3, 30, shape, generator=generator) for _ in range(2))
    other[:, -LENGTHS[-1] :] = one[:, -LENGTHS[-1] :]
    was_training = model.training
    model.eval()
    try:
        seen = [_last_logits(model, ids, position_ids, args) for ids in (one, other)]
    except TypeError:  # the model takes no position_ids
        return False
    finally:
        model.train(was_training)
    return torch.allclose(*seen, rtol=1e-5, atol=1e-5)


def _last_logits(model: torch.nn.Module, ids: torch.Tensor, positions: torch.Tensor, args: Any) -> torch.Tensor:
    """(B, T, V) of the last sequence of each row, in float32."""
    device = args.device
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=bool(args.bf16)):
        logits = model(input_ids=ids.to(device), position_ids=positions.to(device)).logits
    last: torch.Tensor = logits[:, -LENGTHS[-1] :].float()
    return last
