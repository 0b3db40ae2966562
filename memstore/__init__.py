"""The memory that an agent keeps when its process does not survive.

Structured state on one track, an append-only log on the other, both in Postgres; at a restart
the agent gets its state, the log's tail and the entries that bear on its task, within a token
budget.
"""

from __future__ import annotations

from memstore._async.client import AsyncClient
from memstore._async.memory import AsyncMemory
from memstore._async.migrations import migrate as migrate_async
from memstore._async.remote import AsyncRemoteMemory
from memstore._async.remote_schemas import AsyncRemoteSchemas
from memstore._async.schemas import AsyncSchemas
from memstore._async.store import AsyncMemoryStore
from memstore._sync.client import Client
from memstore._sync.memory import Memory
from memstore._sync.migrations import migrate
from memstore._sync.remote import RemoteMemory
from memstore._sync.remote_schemas import RemoteSchemas
from memstore._sync.schemas import Schemas
from memstore._sync.store import MemoryStore
from memstore.annotations import Cue, Fresh
from memstore.budget import Budget
from memstore.config import Settings
from memstore.context import Context, Dropped, Tokens
from memstore.default_schema import DEFAULT_SCHEMA, ActiveTask, AgentState, ConfirmedFact, Issue
from memstore.diagnosis import Backlog, Check
from memstore.documents import Change
from memstore.encoding import load_encoder
from memstore.errors import (
    AccessDenied,
    ConfigurationError,
    EncoderFailed,
    EncoderMismatch,
    IdempotencyConflict,
    InvalidInput,
    MemstoreError,
    MigrationFailed,
    MigrationRequired,
    MissingExtra,
    NewerSchema,
    NotFound,
    SchemaConflict,
    SchemaError,
    ServiceError,
    StateConflict,
    StorageError,
    TooBusy,
)
from memstore.freshness import Stale
from memstore.json_schema import Definition, JsonSchema, JsonState
from memstore.keys import ApiKey, NewKey
from memstore.ranking import Settings as Ranking
from memstore.render import Entry
from memstore.schema import StateSchema
from memstore.space import Indexed, Space
from memstore.state import Committed, MigrationReport, State, Version
from memstore.tokens import o200k
from memstore.trace import Trace
from memstore.tuning import Tuned
from memstore.types import (
    Appended,
    Encoder,
    Event,
    Hit,
    Identity,
    LegScore,
    NewEvent,
    Reranker,
    Role,
    SearchResult,
    TokenCounter,
)

__all__ = [
    "DEFAULT_SCHEMA",
    "AccessDenied",
    "ActiveTask",
    "AgentState",
    "ApiKey",
    "Appended",
    "AsyncClient",
    "AsyncMemory",
    "AsyncMemoryStore",
    "AsyncRemoteMemory",
    "AsyncRemoteSchemas",
    "AsyncSchemas",
    "Backlog",
    "Budget",
    "Change",
    "Check",
    "Client",
    "Committed",
    "ConfigurationError",
    "ConfirmedFact",
    "Context",
    "Cue",
    "Definition",
    "Dropped",
    "Encoder",
    "EncoderFailed",
    "EncoderMismatch",
    "Entry",
    "Event",
    "Fresh",
    "Hit",
    "IdempotencyConflict",
    "Identity",
    "Indexed",
    "InvalidInput",
    "Issue",
    "JsonSchema",
    "JsonState",
    "LegScore",
    "Memory",
    "MemoryStore",
    "MemstoreError",
    "MigrationFailed",
    "MigrationReport",
    "MigrationRequired",
    "MissingExtra",
    "NewEvent",
    "NewKey",
    "NewerSchema",
    "NotFound",
    "Ranking",
    "RemoteMemory",
    "RemoteSchemas",
    "Reranker",
    "Role",
    "SchemaConflict",
    "SchemaError",
    "Schemas",
    "SearchResult",
    "ServiceError",
    "Settings",
    "Space",
    "Stale",
    "State",
    "StateConflict",
    "StateSchema",
    "StorageError",
    "TokenCounter",
    "Tokens",
    "TooBusy",
    "Trace",
    "Tuned",
    "Version",
    "load_encoder",
    "migrate",
    "migrate_async",
    "o200k",
]
