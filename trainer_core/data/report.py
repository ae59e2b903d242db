"""The report that upload keeps beside an accepted dataset, and the limits that it was read under.

Pure: pydantic only.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainer_core.contract import Frozen

# The formats that become text which a language model learns to write, and all formats.
SftFormat = Literal["messages", "prompt_completion", "instruction", "text"]
TrainFormat = Literal[
    "messages", "prompt_completion", "instruction", "text", "preference", "feedback", "classification",
    "token_classification", "prompts",
]  # fmt: skip
DatasetFormat = TrainFormat | Literal["columns"]
LabelKind = Literal["string", "integer", "number", "boolean", "list"]

MIB = 1024 * 1024


class Limits(Frozen):
    """Bounds on an upload, all held while streaming."""

    max_bytes: Annotated[int, Field(ge=1, description="Bytes of the content, after decompression.")] = 16 * 1024 * MIB
    max_ratio: Annotated[float, Field(gt=1, description="Content bytes a byte of gzip; text is rarely over 30.")] = (
        200.0
    )
    ratio_from_bytes: Annotated[
        int, Field(ge=0, description="Content below this size may have any ratio: few equal rows pack very well.")
    ] = 4 * MIB
    max_line_bytes: Annotated[int, Field(ge=16, description="Bytes of one row.")] = 16 * MIB
    max_rows: Annotated[int, Field(ge=1)] = 50_000_000


class DatasetReport(Frozen):
    """What was found in a file that was accepted."""

    format: DatasetFormat = Field(description="`columns`: no known format; a job must map the columns.")
    n_rows: int
    n_blank_lines: int = 0
    columns: dict[str, list[str]] = Field(description="Column -> JSON types seen in it, in alphabetical order.")
    size_bytes: int = Field(description="Of the normalised content.")
    sha256: str = Field(description="Of the normalised content.")
    n_rows_with_tools: int = 0
    labels: dict[str, int] = Field(
        default_factory=dict, description="Label or tag -> how often; empty over 1,000 of them, and for numbers."
    )
    n_labels: int = Field(default=0, description="Distinct labels; counting stops at 10,000.")
    label_kind: LabelKind | None = Field(
        default=None, description="What the labels are; texts that all stand for numbers or truth values count as such."
    )
    notes: list[str] = Field(default_factory=list, description="What was changed or left out on the way in.")
