"""Examples and shapes for the OpenAPI document."""

from __future__ import annotations

from typing import Any

EVENT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "content": {"type": "string", "description": "Up to 1 MB of UTF-8"},
        "role": {"type": "string", "enum": ["user", "assistant", "system", "tool"]},
        "event_type": {"type": "string", "minLength": 1, "default": "message"},
        "actor": {"type": ["string", "null"], "minLength": 1},
        "session_id": {"type": ["string", "null"], "minLength": 1},
        "occurred_at": {"type": ["string", "null"], "format": "date-time"},
        "payload": {"description": "Any JSON, up to 1 MB"},
        "correlation_id": {"type": ["string", "null"], "minLength": 1},
        "idempotency_key": {"type": ["string", "null"], "minLength": 1},
    },
}
MERGE_SCHEMA: dict[str, Any] = {"type": "object", "description": "RFC 7396"}
PATCH_SCHEMA: dict[str, Any] = {
    "type": "array",
    "description": "RFC 6902",
    "items": {"type": "object", "required": ["op", "path"]},
}
NEW_EVENT = {
    "role": "user",
    "content": "We settled on Postgres for the pilot.",
    "session_id": "2026-04-28",
    "occurred_at": "2026-04-28T09:30:00-04:00",
}
EVENT = {
    "position": 17,
    "session_id": "2026-04-28",
    "actor": "user",
    "role": "user",
    "event_type": "message",
    "occurred_at": "2026-04-28T13:30:00Z",
    "recorded_at": "2026-04-28T13:30:01.520000Z",
    "content": "We settled on Postgres for the pilot.",
    "payload": None,
    "correlation_id": None,
    "idempotency_key": None,
}
APPENDED = {"positions": [17], "repeated": [], "unindexed": {}}
PAGE = {"events": [EVENT], "next": 17}
DOCUMENT = {
    "user_preferences": {"timezone": "America/New_York"},
    "confirmed_facts": [],
    "active_task": {"description": "benchmark hybrid search", "status": "in progress"},
    "unresolved_issues": [],
}
MERGE = {"user_preferences": {"timezone": "America/New_York"}}
PATCH = [{"op": "add", "path": "/user_preferences/timezone", "value": "America/New_York"}]
STATE = {
    "version": 7,
    "document": DOCUMENT,
    "document_version": 1,
    "schema_name": "agent",
    "schema_version": 1,
    "log_position": 17,
    "log_end": 17,
    "stale": [],
    "marks": {"/user_preferences/timezone": {"since": "2026-04-28T13:30:02Z"}},
    "kind": "save",
    "author": "research",
    "reason": None,
    "created_at": "2026-04-28T13:30:02Z",
}
COMMITTED = {"events": APPENDED, "state": STATE}
VERSION = {
    name: STATE[name]
    for name in (
        "version",
        "schema_name",
        "schema_version",
        "log_position",
        "kind",
        "author",
        "reason",
        "created_at",
    )
}
CHANGE = {
    "path": "/user_preferences/timezone",
    "op": "add",
    "old": None,
    "new": "America/New_York",
}
SEARCH = {
    "hits": [
        {
            "event": EVENT,
            "score": 0.93,
            "legs": {"lexical": {"rank": 1, "score": 4.2}, "vector": {"rank": 1, "score": 0.61}},
            "reasons": ["lexical #1 (postgres)", "vector #1"],
            "span": None,
        }
    ],
    "leg_hits": {"lexical": 4, "vector": 100},
    "unencoded": 0,
    "degraded": "",
    "milliseconds": {"encode": 3.6, "lexical": 1.1, "vector": 2.0},
}
CONTEXT_ID = "6f1c0d0e-3b1f-4f0e-9a6e-0f3b5f1f2a10"
CONTEXT = {
    "id": CONTEXT_ID,
    "task": "benchmark hybrid search",
    "state": STATE,
    "outline": ["# State: agent v1, version 7, up to entry 17"],
    "tail": [],
    "retrieved": [],
    "dropped": [],
    "tokens": {
        "state": 61,
        "tail": 0,
        "retrieved": 0,
        "overhead": 92,
        "total": 153,
        "text": 146,
        "openai": 152,
        "anthropic": 153,
    },
    "search": {"leg_hits": {"lexical": 4}, "unencoded": 0, "degraded": "", "milliseconds": {}},
    "degraded": "",
    "milliseconds": {"state": 0.7, "encode": 3.4, "assemble": 6.0},
    "log_end": 17,
    "made_at": "2026-04-29T08:00:00Z",
    "bare": False,
    "rendered": "<recalled>…</recalled>",
}
TRACE = {
    "context_id": CONTEXT_ID,
    "created_at": "2026-04-29T08:00:00Z",
    "task": "benchmark hybrid search",
    "budget": 2048,
    "tokens": {"total": 153},
    "log_end": 17,
    "considered": [17, 3],
    "given": [3, 17],
    "used": [17],
}
NEW_DEFINITION = {
    "schema": {
        "type": "object",
        "properties": {
            "address": {"type": ["string", "null"], "default": None, "x-fresh": "P90D"},
            "tickets": {"type": "array", "items": {"type": "string"}, "default": []},
        },
        "required": ["tickets"],
        "additionalProperties": False,
    }
}
DEFINITION = {
    "name": "desk",
    "version": 1,
    **NEW_DEFINITION,
    "migration": None,
    "initial": None,
    "created_at": "2026-04-28T13:30:02Z",
}
REPORT = {
    "schema_name": "desk",
    "schema_version": 2,
    "tried": 12,
    "outdated": 12,
    "migrated": 0,
    "failures": [],
    "history_failures": [],
    "dry_run": True,
    "complete": True,
}
PROBLEM = {
    "type": "urn:memstore:error:state-conflict",
    "title": "Another writer saved a state first",
    "status": 412,
    "detail": "the state is at version 8, not 7; load it again and retry",
    "instance": "urn:memstore:request:9f86d081884c7d65",
    "expected_version": 7,
    "actual_version": 8,
}
