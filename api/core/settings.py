"""Settings of the service: environment (`TRAINYARD_*`) over a TOML file over defaults, frozen, read once.

The file is `$TRAINYARD_CONFIG`, else `trainyard.toml` in the data folder. Nothing here is read at import.
"""

from __future__ import annotations

import os
import re
import socket
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

GIB = 1024**3


def default_data_dir() -> Path:
    return Path(os.environ.get("TRAINYARD_DATA_DIR") or Path.home() / ".trainyard")


class Settings(BaseSettings):
    """Every setting, its unit and its default. `trainyard config` prints the resolved ones with secrets hidden."""

    model_config = SettingsConfigDict(env_prefix="TRAINYARD_", extra="forbid", frozen=True, validate_default=True)

    data_dir: Path = Field(
        default_factory=default_data_dir, description="Everything the service keeps on this machine."
    )
    database_url: SecretStr = Field(
        default=SecretStr(""),
        description="SQLAlchemy URL; empty: SQLite in the data folder. PostgreSQL: postgresql+psycopg://",
    )
    broker_url: SecretStr = Field(
        default=SecretStr(""), description="Celery broker; empty: files in the data folder. A team: redis://host:6379/0"
    )

    host: str = Field(default="127.0.0.1", description="Address the API binds to.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port of the API; 0 takes a free one.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="How much the service logs."
    )

    max_upload_bytes: int = Field(default=50 * GIB, ge=1, description="Largest dataset file accepted, as sent.")
    max_dataset_bytes: int = Field(default=200 * GIB, ge=1, description="Largest dataset after decompression.")
    max_body_bytes: int = Field(default=4 * 1024**2, ge=1024, description="Largest JSON body.")
    min_free_disk_bytes: int = Field(default=256 * 1024**2, ge=0, description="Uploads and launches stop below this.")
    allow_remote_code: bool = Field(default=False, description="Let jobs set trust_remote_code.")
    nvme_roots: tuple[Path, ...] = Field(
        default=(), description="Folders of the nodes that runs may offload to by NVMe, as a JSON list; empty: none."
    )
    hub_online: bool = Field(default=True, description="Whether runs may fetch models from the Hugging Face hub.")

    webhook_private_targets: bool = Field(
        default=False, description="Let webhooks be sent to private and loopback addresses."
    )
    webhook_key: SecretStr = Field(
        default=SecretStr(""),
        description="What the secrets of webhooks are made from; empty: a key in the data folder.",
    )

    node_name: str = Field(default_factory=socket.gethostname, description="This machine's name among the nodes.")
    cpu_slots: int = Field(default=2, ge=0, description="Processes a node without GPUs runs at once; one device each.")
    cpu_threads_per_slot: int | None = Field(
        default=None, ge=1, description="OMP threads a CPU process; null: cores / slots."
    )
    beat_every_s: float = Field(default=2.0, gt=0, description="How often a supervisor and an agent report.")
    look_every_s: float = Field(
        default=2.0, gt=0, description="How often agent and scheduler look without being nudged."
    )
    ship_every_s: float = Field(default=1.0, gt=0, description="How often a supervisor ships records and log lines.")
    attempt_lease_s: float = Field(default=60.0, gt=0, description="Silence after which a run is called unreachable.")
    lost_after_s: float = Field(
        default=300.0, gt=0, description="Silence after which a run is fenced off and requeued."
    )
    stop_grace_s: float = Field(default=8.0, ge=0, description="After STOP, before SIGTERM.")
    term_grace_s: float = Field(default=5.0, ge=0, description="After SIGTERM, before SIGKILL.")
    stall_after_s: float = Field(
        default=900.0, gt=0, description="A run that makes no step for so long is stalled; a job may say otherwise."
    )
    stall_slow_after_s: float = Field(
        default=3600.0, gt=0, description="The same while it loads, makes a first step, saves or exports."
    )
    preflight_timeout_s: float = Field(default=600.0, gt=0, description="How long reading and tokenising may take.")
    max_attempts_internal: int = Field(default=3, ge=1, description="Attempts when the fault is the service's own.")
    max_attempts_node: int = Field(default=3, ge=1, description="Attempts when the fault is a node's.")
    max_attempts_user: int = Field(
        default=1, ge=1, description="Attempts when the job's own settings may be at fault: memory, a loss gone NaN."
    )
    retry_backoff_s: float = Field(
        default=5.0, ge=0, description="Before the second attempt; doubled for each further."
    )
    retry_backoff_max_s: float = Field(default=300.0, ge=0, description="The longest wait between two attempts.")

    max_engines: int = Field(
        default=1, ge=0, description="Engines a node runs at once to answer prompts; each holds a model. 0: none."
    )
    engine_idle_s: float = Field(default=300.0, gt=0, description="An engine ends after this long without a prompt.")
    engine_queue: int = Field(default=16, ge=1, description="Prompts that may wait for one engine.")
    engine_wait_s: float = Field(
        default=60.0, gt=0, description="How long a prompt waits for a node that can run its engine."
    )
    engine_start_s: float = Field(default=600.0, gt=0, description="How long an engine may take to load its model.")

    share_half_life_s: float = Field(
        default=604_800.0, gt=0, description="What a project used counts half as much after this, in fair shares."
    )
    preempt: bool = Field(default=True, description="Stop preemptible runs at a checkpoint for a higher priority.")
    limit_window_s: float = Field(default=604_800.0, gt=0, description="Limits of device-hours count over this.")
    project_max_devices: int | None = Field(default=None, ge=0, description="Devices a project holds at once.")
    project_max_running: int | None = Field(default=None, ge=0, description="Jobs a project runs at once.")
    project_max_queued: int | None = Field(default=None, ge=0, description="Jobs of a project that wait; then refused.")
    project_max_device_hours: float | None = Field(default=None, ge=0, description="Of a project, in the window.")
    user_max_devices: int | None = Field(default=None, ge=0, description="Devices a user (an API key) holds at once.")
    user_max_running: int | None = Field(default=None, ge=0, description="Jobs a user runs at once.")
    user_max_queued: int | None = Field(default=None, ge=0, description="Jobs of a user that wait; then refused.")
    user_max_device_hours: float | None = Field(default=None, ge=0, description="Of a user, in the window.")

    @field_validator("data_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().resolve()

    @model_validator(mode="after")
    def _lease_outlives_beats(self) -> Settings:
        if self.lost_after_s < self.attempt_lease_s or self.attempt_lease_s < 2 * self.beat_every_s:
            raise ValueError(
                "expected 2 * beat_every_s <= attempt_lease_s <= lost_after_s, found "
                f"beat_every_s={self.beat_every_s}, attempt_lease_s={self.attempt_lease_s}, "
                f"lost_after_s={self.lost_after_s}"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = Path(os.environ.get("TRAINYARD_CONFIG") or default_data_dir() / "trainyard.toml")
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=file)

    # What follows from the settings above.

    @property
    def database(self) -> str:
        return self.database_url.get_secret_value() or f"sqlite:///{self.data_dir / 'trainyard.db'}"

    @property
    def broker(self) -> str:
        return self.broker_url.get_secret_value() or "filesystem://"

    @property
    def broker_folder(self) -> Path:
        """Where the file broker keeps its messages; a lost or doubled one changes nothing but a delay."""
        return self.data_dir / "broker"

    @property
    def storage_dir(self) -> Path:
        return self.data_dir / "storage"

    @property
    def runs_dir(self) -> Path:
        return self.data_dir / "runs"

    @property
    def incoming_dir(self) -> Path:
        """Private folder for uploads in flight; emptied at start."""
        return self.data_dir / "incoming"

    @property
    def key_file(self) -> Path:
        return self.data_dir / "api-key"

    def shown(self) -> dict[str, Any]:
        """The resolved settings for people: secrets are hidden, a URL keeps all but its password."""
        shown = self.model_dump(mode="json")
        shown["database_url"] = _without_password(self.database)
        shown["broker_url"] = _without_password(self.broker)
        return shown


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    credentials, at, host = rest.rpartition("@")
    user, colon, _password = credentials.partition(":")
    shown = f"{scheme}{separator}{user}{colon}{'***' if colon else ''}{at}{host}"
    return re.sub(r"(password=)[^&]*", r"\1***", shown)


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The settings of this process. Tests pass their own Settings instead."""
    return Settings()
