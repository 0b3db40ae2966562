"""Reading records from memory, as a file has them."""

from __future__ import annotations

import io
import json
from typing import Any

from memstore.importing import read_events
from memstore.types import NewEvent


def jsonl(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def read(data: bytes | str | list[Any] | dict[str, Any], **options: Any) -> list[NewEvent]:
    if not isinstance(data, (bytes, str)):
        data = json.dumps(data, indent=1)
    raw = data.encode() if isinstance(data, str) else data
    return list(read_events(io.BytesIO(raw), **({"name": "chat.jsonl"} | options)))
