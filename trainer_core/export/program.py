"""`python -m trainer_core export RUN_DIR`: weights out of a checkpoint, proved by reloading them, with a model card.

Carries out export.json on the CPU, writes the files into output/ and export-report.json last. What was written is
loaded again by plain transformers and PEFT, and its logits are compared, before the report says that it is well.
"""

from __future__ import annotations

import os
import traceback

from pydantic import ValidationError

from trainer_core.checkpoints.manifests import read_manifest, verify
from trainer_core.checkpoints.pickles import refuse_foreign_pickles
from trainer_core.contract import Cause, CauseCode, Manifest, RunFolder
from trainer_core.export.card import export_card, holds_adapter
from trainer_core.export.files import clean_configs, copy_tokenizer, refuse_paths
from trainer_core.export.order import ORDER_NAME, REPORT_NAME, ExportOrder, ExportReport, unfit
from trainer_core.export.proof import PROMPTS
from trainer_core.export.weights import Exporter
from trainer_core.run.events import EventWriter
from trainer_core.run.faults import Fault, cause_of


def main(folder: RunFolder) -> int:
    """Never raises; 0 when the report says ok."""
    folder.output.mkdir(parents=True, exist_ok=True)
    events = EventWriter(folder.events)
    try:
        order = ExportOrder.model_validate_json((folder.root / ORDER_NAME).read_bytes())
        report = ExportReport(ok=True, proof=export(order, folder, events))
    except ValidationError as error:
        message = f"{ORDER_NAME} is no order: {error.errors(include_url=False)[0]['msg']}"
        report = ExportReport(ok=False, cause=Cause(code=CauseCode.CONFIG_INVALID, message=message))
    except Exception as error:  # the whole export ends here, and the cause is recorded
        traceback.print_exc()
        report = ExportReport(ok=False, cause=cause_of(error))
    events.close()
    _write(folder, report)
    return 0 if report.ok else 1


def export(order: ExportOrder, folder: RunFolder, events: EventWriter) -> dict[str, dict[str, float]]:
    """What the proof found. Raises Fault, or what a library raises."""
    events.note("Verifying the checkpoint")
    manifest = read_manifest(order.checkpoint, order.manifest_sha256)
    verify(order.checkpoint, manifest)
    _check(order, manifest)
    if order.kind == "fp32":
        refuse_foreign_pickles(order.checkpoint)
    copy_tokenizer(order, folder.output)
    exporter = Exporter(order, manifest, folder.output, events)
    exporter.write()
    clean_configs(order, folder.output)
    events.note("Proving what was written")
    exporter.prove()
    prover = exporter.prover
    card = export_card(order, manifest, prover.found, exporter.dtype_name, len(PROMPTS))
    (folder.output / "README.md").write_text(card, encoding="utf-8")
    refuse_paths(folder.output, [str(folder.root), str(order.checkpoint), order.config.model.source])
    return prover.found


def _check(order: ExportOrder, manifest: Manifest) -> None:
    """Raises Fault(config_invalid) for a kind that the checkpoint cannot give."""
    why = unfit(order.kind, order.dtype, manifest)
    if why is not None:
        raise Fault(CauseCode.CONFIG_INVALID, why, param="kind")
    if holds_adapter(order, manifest) and order.config.adapter is None:
        raise Fault(CauseCode.CONFIG_INVALID, "The checkpoint holds an adapter and the run's config names none.")


def _write(folder: RunFolder, report: ExportReport) -> None:
    """Appears whole or not at all: the service looks for the file."""
    partial = folder.root / f".{REPORT_NAME}.partial"
    with partial.open("w", encoding="utf-8") as file:
        file.write(report.model_dump_json(indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder.root / REPORT_NAME)
