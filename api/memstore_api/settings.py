"""The server's settings, beside the store's own."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from memstore import Settings


class ServerSettings(Settings):
    """The settings of a server. Each is also a variable: `port` is ``MEMSTORE_PORT``."""

    host: str = Field(default="127.0.0.1", description="address to listen at")
    port: int = Field(default=8077, ge=0, le=65_535, description="port to listen at; 0 takes any")
    insecure: bool = Field(
        default=False, description="ask for no key; then only loopback is listened at"
    )
    jwt_issuer: str | None = Field(default=None, description="the JWTs' issuer (iss)")
    jwt_audience: str | None = Field(default=None, description="the JWTs' audience (aud)")
    jwt_keys: Path | None = Field(
        default=None, description="file of public keys (JWKS); with it JWTs are taken beside keys"
    )
    schemas: tuple[str, ...] = Field(
        default=(), description="state schemas to serve beside the default one, as module:NAME"
    )
    query_encoders: int | None = Field(
        default=2, ge=1, description="queries encoded at once; others are answered by words alone"
    )
    rate: float = Field(default=100.0, gt=0, description="requests a second for each key")
    burst: int = Field(default=200, ge=1, description="requests at once for each key")
    max_requests: int = Field(default=64, ge=1, description="requests under way at once")
    max_body: int = Field(default=16_777_216, ge=1_024, description="bytes of a request's body")
    max_batch: int = Field(default=1_000, ge=1, description="events of one append or commit")
    max_page: int = Field(default=1_000, ge=1, description="entries of one page")
    max_budget: int = Field(default=200_000, ge=1, description="tokens of one resume")
    body_timeout: float = Field(
        default=30.0, gt=0, description="seconds that a client may pause within a body"
    )
    send_timeout: float = Field(
        default=30.0, gt=0, description="seconds that a client may leave an answer untaken"
    )
    shutdown_timeout: int = Field(
        default=30, ge=1, description="seconds that requests under way have to finish"
    )
