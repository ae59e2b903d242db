"""The weights of an export: read from a checkpoint, merged or put together where asked, written, and loaded again.

Everything is computed in float32 on the CPU; parameters are rounded to the asked precision as they are written.
"""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from trainer_core.contract import CauseCode, Manifest, Quantization
from trainer_core.export.card import holds_adapter
from trainer_core.export.files import load_tokenizer
from trainer_core.export.order import ExportOrder
from trainer_core.export.proof import DEQUANTISED, ROUNDED, SAME, Prover
from trainer_core.methods_table import METHODS
from trainer_core.model.quantized import bits_and_bytes, dequantise, keep_packing
from trainer_core.run.events import EventWriter
from trainer_core.run.faults import Fault

ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"


class Exporter:
    """`write`, then `prove`, once each."""

    def __init__(self, order: ExportOrder, manifest: Manifest, output: Path, events: EventWriter) -> None:
        method = METHODS[order.config.method]
        self.prover = Prover(load_tokenizer(order, str(output)), is_seq2seq=method.kind == "seq2seq")
        self._has_labels = method.has_labels
        self._auto_class = getattr(transformers, method.auto_class)
        self._order = order
        self._is_adapter = holds_adapter(order, manifest)
        self._output = output
        self._events = events
        self._dtype = torch.float32
        self._expected: list[torch.Tensor] = []
        """Logits that what was written must give."""

    @property
    def dtype_name(self) -> str:
        return str(self._dtype).removeprefix("torch.")

    def write(self) -> None:
        """Raises Fault where merged or gathered weights are not what the checkpoint's are."""
        if self._is_adapter:
            self._write_adapter()
        else:
            self._write_whole(self._merged() if self._order.kind == "merged" else self._whole())

    def prove(self) -> None:
        """Load what was written by plain transformers and PEFT. Raises Fault(checkpoint_invalid) on a mismatch."""
        if self._is_adapter:
            model: Any = self._adapted(self._base(), self._output)
        else:
            model = self._load(str(self._output))
        self.prover.compare("reloaded", self._expected, self.prover.logits(model), SAME)

    # Adapters

    def _write_adapter(self) -> None:
        self._events.note("Reading the adapter")
        checkpoint = self._order.checkpoint
        config = json.loads((checkpoint / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        is_saved = (checkpoint / ADAPTER_WEIGHTS).is_file()
        weights = self._from_shards() if self._order.kind == "fp32" else load_file(checkpoint / ADAPTER_WEIGHTS)
        self._dtype = self._asked_dtype(next(iter(weights.values())).dtype)
        rounded = {name: tensor.to(self._dtype).contiguous() for name, tensor in weights.items()}
        save_file(rounded, self._output / ADAPTER_WEIGHTS, metadata={"format": "pt"})
        (self._output / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
        if self._has_labels:  # the names of the labels, which the base model does not know
            shutil.copyfile(checkpoint / "config.json", self._output / "config.json")
        # Without the gathered file there is nothing to compare with but the shards themselves.
        source = checkpoint if is_saved else self._output
        reference = self.prover.logits(self._adapted(self._base(), source))
        self._expected = self.prover.logits(self._adapted(self._base(), self._output))
        saved_as = next(iter(load_file(source / ADAPTER_WEIGHTS).values())).dtype
        self.prover.compare("on base", reference, self._expected, max(ROUNDED[self._dtype], ROUNDED[saved_as]))

    def _from_shards(self) -> dict[str, torch.Tensor]:
        """The trained weights by the names that PEFT saves them under."""
        state = self._read_shards(has_adapter=True)
        return {
            name.replace(".modules_to_save.default", "").replace(".default", ""): one for name, one in state.items()
        }

    # Whole models

    def _merged(self) -> Any:
        self._events.note("Loading the base model and merging the adapter into it")
        checkpoint, quantization = self._order.checkpoint, self._order.config.quantization
        base = self._base() if quantization is None else dequantise(self._base_in_bits(quantization))
        adapted = self._adapted(base, checkpoint)
        on_base = self.prover.logits(adapted)
        if quantization is not None:
            # Merged into quantised layers the update would be rounded with them; what they stand for takes it whole.
            trained_on = self.prover.logits(self._adapted(self._base_in_bits(quantization), checkpoint))
            self.prover.compare("dequantised", trained_on, on_base, DEQUANTISED[quantization.bits])
        self._dtype = self._asked_dtype(self._stored_dtype(self._order.config.model.source))
        merged = adapted.merge_and_unload(safe_merge=True)
        self._expected = self.prover.logits(merged)
        self.prover.compare("merged", on_base, self._expected, SAME)
        return merged

    def _whole(self) -> Any:
        source = str(self._order.checkpoint)
        if self._order.kind == "full":
            self._events.note("Loading the weights")
            model = self._load(source)
            self._dtype = self._asked_dtype(self._stored_dtype(source))
            self._expected = self.prover.logits(model)
            return model
        model = self._auto_class.from_config(AutoConfig.from_pretrained(source, local_files_only=True))
        self._fill(model.float(), self._read_shards(has_adapter=False))
        self._expected = self.prover.logits(model)
        if any(self._order.checkpoint.glob("model*.safetensors")):
            gathered = self._load(source)
            tolerance = ROUNDED[self._stored_dtype(source)]
            self.prover.compare("gathered", self.prover.logits(gathered), self._expected, tolerance)
        return model

    def _write_whole(self, model: Any) -> None:
        self._events.note(f"Writing the weights in {self.dtype_name}")
        reference = self._expected
        # Parameters alone: a rotary frequency in 16 bits would be another model.
        for parameter in model.parameters():
            parameter.data = parameter.data.to(self._dtype)
        model.save_pretrained(self._output, max_shard_size=self._order.max_shard_size)
        for parameter in model.parameters():
            parameter.data = parameter.data.float()
        self._expected = self.prover.logits(model)
        self.prover.compare("rounded", reference, self._expected, ROUNDED[self._dtype])

    @staticmethod
    def _fill(model: Any, state: dict[str, torch.Tensor]) -> None:
        whole = {name: tensor.contiguous().float() for name, tensor in state.items()}
        outcome = model.load_state_dict(whole, strict=False)
        model.tie_weights()
        tied = set(getattr(model, "_tied_weights_keys", None) or ())
        missing = [name for name in outcome.missing_keys if name not in tied and name in dict(model.named_parameters())]
        if missing or outcome.unexpected_keys:
            strange = [*missing, *outcome.unexpected_keys]
            message = f"The ZeRO shards do not fit the model: {strange[0]} ({len(strange)} in all)."
            raise Fault(CauseCode.CHECKPOINT_INVALID, message, param="checkpoint")

    # Reading

    def _read_shards(self, *, has_adapter: bool) -> dict[str, torch.Tensor]:
        self._events.note("Putting ZeRO's shards together")
        # By name: importing DeepSpeed takes seconds, and no other kind needs it.
        module = importlib.import_module("trainer_core.export.zero")
        state = module.read_fp32(self._order.checkpoint, has_adapter=has_adapter)
        return {name: tensor.contiguous() for name, tensor in state.items()}

    def _adapted(self, base: Any, folder: Path) -> Any:
        """The base with a folder's adapter on it. What pissa_niter takes out of the base depends on the seed."""
        torch.manual_seed(self._order.config.seed)
        return PeftModel.from_pretrained(base, folder)

    def _base_in_bits(self, quantization: Quantization) -> Any:
        """The base as the run trained on it; without bfloat16, which would only blur the comparison."""
        options = bits_and_bytes(quantization, torch.float32)
        base = self._base(quantization_config=options, device_map={"": "cpu"})
        keep_packing(base)
        return base

    def _base(self, **options: Any) -> Any:
        """The base model; where it has a head for the run's labels, with one of the checkpoint's size to be filled."""
        if not self._has_labels:
            return self._load(self._order.config.model.source, **options)
        config = AutoConfig.from_pretrained(self._order.checkpoint, local_files_only=True)
        torch.manual_seed(self._order.config.seed)  # what the adapter does not fill is the same every time
        return self._load(self._order.config.model.source, config=config, ignore_mismatched_sizes=True, **options)

    def _load(self, source: str, **options: Any) -> Any:
        model = self._order.config.model
        is_base = source == model.source
        try:
            return self._auto_class.from_pretrained(
                source,
                revision=model.revision if is_base else None,
                dtype=torch.float32,
                use_safetensors=True,
                local_files_only=Path(source).is_absolute(),
                trust_remote_code=model.trust_remote_code,
                **options,
            )
        except (OSError, ValueError, KeyError) as error:
            code = CauseCode.MODEL_UNAVAILABLE if is_base else CauseCode.CHECKPOINT_INVALID
            what = f"The base model {model.name}" if is_base else "What was saved"
            raise Fault(code, f"{what} cannot be loaded: {str(error).splitlines()[0][:300]}") from error

    def _stored_dtype(self, source: str) -> torch.dtype:
        model = self._order.config.model
        revision = model.revision if source == model.source else None
        config = AutoConfig.from_pretrained(source, revision=revision, local_files_only=Path(source).is_absolute())
        found = config.get_text_config().dtype or config.dtype
        return found if found in ROUNDED else torch.float32

    def _asked_dtype(self, stored: torch.dtype) -> torch.dtype:
        if self._order.kind == "fp32":
            return torch.float32
        return stored if self._order.dtype == "auto" else getattr(torch, self._order.dtype)
