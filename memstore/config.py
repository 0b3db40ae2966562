"""Every setting in one class, read from ``MEMSTORE_`` variables at the edge and passed in."""

from __future__ import annotations

import re
from pathlib import Path

from platformdirs import user_cache_path
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

DEFAULT_ENCODER = "all-MiniLM-L6-v2"
FEWEST_INDEXED = 1_000  # entries; an index of fewer vectors would not be faster than reading them

_SECRETS = r"(password|sslpassword|oauth_client_secret)"
_IN_AUTHORITY = re.compile(r"(?<=://)([^:@]*):.*@", re.DOTALL)
_IN_QUERY = re.compile(rf"(?<=[?&]){_SECRETS}=[^&]*")
_IN_CONNINFO = re.compile(rf"\b{_SECRETS}(\s*=\s*)('(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)+)", re.DOTALL)


class Settings(BaseSettings):
    """The settings of a store. Each is also a variable: `data_dir` is ``MEMSTORE_DATA_DIR``.

    libpq's own ``PG*`` variables fill in what `url` leaves out.
    """

    # An empty variable is none: as a folder it would be the current one.
    model_config = SettingsConfigDict(
        env_prefix="MEMSTORE_", env_ignore_empty=True, frozen=True, extra="ignore"
    )

    url: str | None = Field(
        default=None, description="Postgres to connect to; without it the embedded one is used"
    )
    data_dir: Path | None = Field(
        default=None,
        description="folder of the embedded Postgres; by default in the user's data folder",
    )
    cache_dir: Path = Field(
        default_factory=lambda: user_cache_path("memstore"),
        description="folder of exported encoders",
    )
    tenant: str = Field(default="default", description="the boundary between customers")
    encoder: str | None = Field(
        default=DEFAULT_ENCODER,
        description="a sentence-transformers model by name or path, or 'none'",
    )
    reranker: str | None = Field(
        default=None,
        description="a sentence-transformers cross-encoder that orders the best entries anew",
    )
    rerank: int = Field(
        default=50, ge=1, le=1_000, description="how many of the best entries the reranker orders"
    )
    encode_in_background: bool = Field(
        default=True, description="fill in vectors in a thread of this process"
    )
    record_traces: bool = Field(
        default=False, description="record what every resume was asked, considered and gave"
    )
    telemetry: bool = Field(
        default=False, description="make OpenTelemetry spans, of counts and times alone"
    )
    budget: int = Field(default=2048, ge=0, description="tokens of a resume that names none")
    state_share: float = Field(
        default=0.4, ge=0, le=1, description="the state's largest share of the budget"
    )
    tail_share: float = Field(
        default=0.35, ge=0, le=1, description="the tail's largest share of the budget"
    )
    pool_size: int = Field(default=8, ge=1, description="connections held at most")
    connect_timeout: float = Field(
        default=10.0, gt=0, description="seconds to wait for a connection"
    )
    prepare: bool = Field(
        default=True, description="prepare statements; off for a pooler that does not support it"
    )
    index_above: int = Field(
        default=20_000,
        ge=0,
        description="entries from which a memory's vectors get an index of their own; 0 for never",
    )
    lease_seconds: float = Field(
        default=30.0,
        gt=0,
        description="how long what a worker claimed stays its own after its last sign of life",
    )

    query_encoders: int | None = Field(
        default=None,
        ge=1,
        description="queries encoded at once; one without a place is answered by words alone",
    )
    query_patience: float = Field(
        default=1.0, gt=0, description="seconds that a query waits for a place at the encoder"
    )

    def without_thread(self) -> Settings:
        """Return a copy that encodes nothing in the background."""
        return self.model_copy(update={"encode_in_background": False})


def masked(url: str) -> str:
    """Return a libpq URL or conninfo with the passwords in it replaced by stars."""
    if url.startswith(("postgresql://", "postgres://")):
        # To the last @: of a password that should have been percent-encoded nothing shows either.
        return _IN_QUERY.sub(r"\1=***", _IN_AUTHORITY.sub(r"\1:***@", url))
    return _IN_CONNINFO.sub(r"\1\2***", url)
