"""Every setting, read in one place: from the environment, as `KERNELWRIGHT_<NAME>`."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from agent.llm.address import check_address
from evaluator.cores import cores
from kernel_library.job import Budget
from kernel_library.store import Store, open_store


def default_home() -> Path:
    """`kernelwright` in the folder that XDG sets aside for a user's data."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "kernelwright"


class Settings(BaseSettings):
    """What an operator may set. docs/settings.md has the table; a test holds the two together."""

    model_config = SettingsConfigDict(env_prefix="KERNELWRIGHT_", frozen=True)

    home: Path = Field(default_factory=default_home)
    database_url: SecretStr | None = None
    database_url_file: Path | None = None
    artifacts: Path | None = None
    device_file: Path | None = None

    host: str = "127.0.0.1"
    port: int = Field(default=8765, ge=0, le=65535)
    source_bytes: int = Field(default=256 * 1024, gt=0)

    llm_url: str | None = None
    llm_model: str | None = None
    llm_key: SecretStr | None = None
    llm_key_file: Path | None = None
    llm_price_in: float = Field(default=0.0, ge=0)
    llm_price_out: float = Field(default=0.0, ge=0)

    budget_seconds: float = Field(default=Budget().seconds, gt=0)
    budget_attempts: int = Field(default=Budget().attempts, gt=0)
    budget_tokens: int = Field(default=Budget().tokens, ge=0)
    budget_dollars: float = Field(default=Budget().dollars, ge=0)
    max_seconds: float = Field(default=3600.0, gt=0)
    max_attempts: int = Field(default=1000, gt=0)
    max_tokens: int = Field(default=2_000_000, ge=0)
    max_dollars: float = Field(default=50.0, ge=0)

    together: int | None = Field(default=None, gt=0)
    lease_seconds: float = Field(default=60.0, ge=1)
    poll_seconds: float = Field(default=1.0, gt=0)

    @field_validator("host")
    @classmethod
    def _is_loopback(cls, host: str) -> str:
        if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
            raise ValueError("there is no login yet, so only a loopback address may be served")
        return host

    @field_validator("llm_url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        if url is not None:
            check_address(url)
        return url

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        for name in ("seconds", "attempts", "tokens", "dollars"):
            if getattr(self, f"budget_{name}") > getattr(self, f"max_{name}"):
                raise ValueError(f"budget_{name} is above max_{name}")
        if (self.llm_url is None) != (self.llm_model is None):
            raise ValueError("llm_url and llm_model go together: set both, or neither")
        for name in ("database_url", "llm_key"):
            if getattr(self, name) and getattr(self, f"{name}_file"):
                raise ValueError(f"set {name} or {name}_file, not both")
        return self

    @property
    def default_budget(self) -> Budget:
        """What a job may spend that does not say."""
        return Budget(
            self.budget_seconds, self.budget_attempts, self.budget_tokens, self.budget_dollars
        )

    @property
    def largest_budget(self) -> Budget:
        """What no job may ask more than."""
        return Budget(self.max_seconds, self.max_attempts, self.max_tokens, self.max_dollars)

    @property
    def key(self) -> SecretStr | None:
        """The model endpoint's key, from the setting or its file. Raises OSError."""
        return _secret(self.llm_key, self.llm_key_file)

    @property
    def side_by_side(self) -> int:
        """Candidates of a job that are judged at a time: half of the cores compile, half play."""
        return self.together or max(1, min(8, cores() // 2))

    @property
    def device_path(self) -> Path:
        """Where `calibrate` writes what it measured."""
        return self.device_file or self.home / "device.json"

    def store(self) -> Store:
        """The store that these settings name; its tables may not be there yet. Raises OSError."""
        url = _secret(self.database_url, self.database_url_file)
        in_home = f"sqlite:///{self.home.absolute() / 'kernelwright.db'}"
        return open_store(
            url.get_secret_value() if url else in_home, self.artifacts or self.home / "artifacts"
        )


def _secret(value: SecretStr | None, file: Path | None) -> SecretStr | None:
    return SecretStr(file.read_text().strip()) if file else value
