"""Log lines as JSON, one a line."""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime

from memstore import telemetry


class JsonLines(logging.Formatter):
    """Writes a record's time, level, logger and message, with the fields that it carries."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, "fields", {}) | telemetry.ids()
        if record.exc_info and record.exc_info[0] is not None:
            kind, error, trace = record.exc_info
            line["error"] = f"{kind.__name__}: {error}"
            line["trace"] = "".join(traceback.format_tb(trace))
        return json.dumps(line)


def to_standard_error(level: int = logging.INFO) -> None:
    """Send every logger's lines to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
