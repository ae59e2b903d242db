"""The proof of an export: logits on fixed prompts, before and after, within a stated tolerance."""

from __future__ import annotations

from typing import Any

import torch

from trainer_core.contract import CauseCode
from trainer_core.run.faults import Fault

PROMPTS = (
    "The capital of France is Paris, and the capital of Italy is",
    "def add(a: int, b: int) -> int:\n    return",
    "1, 2, 3, 5, 8, 13,",
)
# Parts of the largest logit. Sums of float32 in another order; weights rounded to 16 bits (8 and 11 bits of mantissa).
SAME = 1e-4
ROUNDED = {torch.float32: SAME, torch.float16: 1e-2, torch.bfloat16: 5e-2}
# Quantised layers and the numbers they stand for: 4-bit ones compute with just these, int8 rounds its inputs as well.
DEQUANTISED = {"nf4": 1e-3, "fp4": 1e-3, "int8": 5e-2}


class Prover:
    """Compares models by their logits on the same prompts and keeps what it found."""

    def __init__(self, tokenizer: Any, *, is_seq2seq: bool) -> None:
        self.found: dict[str, dict[str, float]] = {}
        self._is_seq2seq = is_seq2seq
        self._prompts = [tokenizer(prompt, return_tensors="pt")["input_ids"] for prompt in PROMPTS]

    def logits(self, model: Any) -> list[torch.Tensor]:
        """One tensor a prompt, float32. The model is put into evaluation mode, without dropout."""
        model.eval()
        with torch.no_grad():
            return [model(**self._inputs(ids_BT)).logits.float() for ids_BT in self._prompts]

    def compare(self, name: str, expected: list[torch.Tensor], found: list[torch.Tensor], tolerance: float) -> None:
        """Raises Fault(checkpoint_invalid) where they differ by more than `tolerance` times the largest logit."""
        if not all(torch.isfinite(tensor).all() for tensor in [*expected, *found]):
            raise _refused(f"{name}: the model answers with NaN or infinity")
        scale = max(float(tensor.abs().max()) for tensor in expected)
        difference = max(
            float((left - right).abs().max()) if left.shape == right.shape else float("inf")
            for left, right in zip(expected, found, strict=True)
        )
        allowed = tolerance * scale
        if difference > allowed:
            raise _refused(
                f"{name}: logits differ by {difference:.3g}, and at most {allowed:.3g} may come of rounding",
                {"difference": difference, "allowed": allowed, "n_prompts": len(PROMPTS)},
            )
        self.found[name] = {"difference": difference, "allowed": allowed}

    def _inputs(self, ids_BT: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"input_ids": ids_BT, **({"decoder_input_ids": ids_BT} if self._is_seq2seq else {})}


def _refused(message: str, details: dict[str, Any] | None = None) -> Fault:
    return Fault(
        CauseCode.CHECKPOINT_INVALID,
        f"The export is not what the checkpoint is. {message}.",
        hint="Export another checkpoint, or in float32; nothing was kept of this one.",
        details=details or {},
    )
