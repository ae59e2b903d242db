"""The contract between the service and the trainer: the run folder, its config, its records and its exit codes.

This is the one door into `trainer_core` for the service. It imports pydantic only: no torch, no transformers,
no database, no server. A person can write a `config.json` by hand and run it: `python -m trainer_core run RUN_DIR`.
"""

from trainer_core.contract.adapters import Adapter as Adapter
from trainer_core.contract.adapters import AnyAdapter as AnyAdapter
from trainer_core.contract.adapters import LoraAdapter as LoraAdapter
from trainer_core.contract.adapters import peft_part as peft_part
from trainer_core.contract.causes import Cause as Cause
from trainer_core.contract.causes import CauseCode as CauseCode
from trainer_core.contract.config import DataSource as DataSource
from trainer_core.contract.config import ModelSource as ModelSource
from trainer_core.contract.config import ResumePoint as ResumePoint
from trainer_core.contract.config import Retention as Retention
from trainer_core.contract.config import RowFormat as RowFormat
from trainer_core.contract.config import RunConfig as RunConfig
from trainer_core.contract.folder import MANIFEST_NAME as MANIFEST_NAME
from trainer_core.contract.folder import STACKS_SIGNAL as STACKS_SIGNAL
from trainer_core.contract.folder import ExitCode as ExitCode
from trainer_core.contract.folder import RunFolder as RunFolder
from trainer_core.contract.folder import StopRequest as StopRequest
from trainer_core.contract.job import Columns as Columns
from trainer_core.contract.job import FieldName as FieldName
from trainer_core.contract.job import JsonScalar as JsonScalar
from trainer_core.contract.job import ParallelSpec as ParallelSpec
from trainer_core.contract.manifest import Manifest as Manifest
from trainer_core.contract.manifest import ManifestFile as ManifestFile
from trainer_core.contract.quantization import Quantization as Quantization
from trainer_core.contract.records import AnyRecord as AnyRecord
from trainer_core.contract.records import CheckpointRemoved as CheckpointRemoved
from trainer_core.contract.records import CheckpointSaved as CheckpointSaved
from trainer_core.contract.records import Done as Done
from trainer_core.contract.records import Evaluated as Evaluated
from trainer_core.contract.records import Failed as Failed
from trainer_core.contract.records import Metrics as Metrics
from trainer_core.contract.records import Note as Note
from trainer_core.contract.records import Phase as Phase
from trainer_core.contract.records import PhaseChanged as PhaseChanged
from trainer_core.contract.records import Planned as Planned
from trainer_core.contract.records import Record as Record
from trainer_core.contract.records import Started as Started
from trainer_core.contract.records import Stopped as Stopped
from trainer_core.contract.records import parse_record as parse_record
from trainer_core.contract.records import record_adapter as record_adapter
from trainer_core.contract.report import PreflightReport as PreflightReport
from trainer_core.contract.report import SampleToken as SampleToken
from trainer_core.contract.report import TokenHistogram as TokenHistogram
from trainer_core.frozen import Frozen as Frozen

CONTRACT_VERSION = 1
