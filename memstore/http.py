"""What a client makes of paths and answers; the requests themselves are elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

from memstore.errors import InvalidInput, MemstoreError, ServiceError
from memstore.problems import MEDIA_TYPE, from_problem
from memstore.text import loads

__all__ = ["MERGE_TYPE", "PATCH_TYPE", "error_of", "memory_path", "read_answer"]

MERGE_TYPE = "application/merge-patch+json"
PATCH_TYPE = "application/json-patch+json"

T = TypeVar("T")


def memory_path(agent: str, user: str) -> str:
    """Write a memory's path; a dot is encoded too, lest it be read as a step in the path."""
    encoded = [quote(part, safe="").replace(".", "%2E") for part in (agent, user)]
    return f"/v1/agents/{encoded[0]}/users/{encoded[1]}"


def error_of(status: int, media_type: str, content: bytes) -> MemstoreError:
    """Read an answer that is an error."""
    if media_type.startswith(MEDIA_TYPE):
        try:
            problem = loads(content.decode("utf-8"))
            if problem["type"] != "about:blank":
                return from_problem(problem)
            return ServiceError(f"the server refuses ({status}): {problem['detail']}")
        except (InvalidInput, UnicodeDecodeError, KeyError, TypeError):
            pass
    return ServiceError(f"the server answered with status {status}")


def read_answer(content: bytes, how: Callable[[Any], T]) -> T:
    """Read an answer; raises `ServiceError` where it makes no sense."""
    try:
        value = loads(content.decode("utf-8"))
    except (InvalidInput, UnicodeDecodeError) as error:
        raise ServiceError("the server's answer is not JSON: is it a memstore server?") from error
    try:
        return how(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ServiceError("the server's answer makes no sense: is it of this version?") from error
