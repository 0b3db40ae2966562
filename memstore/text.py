"""The one sanitiser: what Postgres and readers can hold is kept, all else is replaced or refused.

Text is mended, since a message must never be lost over one bad character; identifiers, times
and JSON are refused with the path of what is wrong, since a guess there would change meaning.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NoReturn, SupportsIndex, TypeVar
from uuid import UUID

from memstore.errors import InvalidInput
from memstore.types import JSON, ROLES, NewEvent

__all__ = [
    "MAX_CONTENT_BYTES",
    "MAX_ID_BYTES",
    "Limits",
    "body_digest",
    "check_batch_key",
    "check_id",
    "check_time",
    "check_uuid",
    "check_whole",
    "clean_json",
    "clean_text",
    "dumps",
    "loads",
    "prepare_event",
]

MAX_CONTENT_BYTES = 1_048_576
MAX_ID_BYTES = 512
#: Bytes of a batch's key: its events' own keys are made from it.
MAX_BATCH_KEY_BYTES = MAX_ID_BYTES - len(":9999")

T = TypeVar("T")

_REPLACEMENT = "\ufffd"
# A day of margin: a session in another time zone must still be able to print the instant.
_EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
_LATEST = datetime(9999, 12, 30, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a JSON document may measure: nested containers, digits of an integer, UTF-8 bytes."""

    depth: int = 64
    digits: int = 4_300
    bytes: int = 1_048_576


DEFAULT_LIMITS = Limits()


def clean_text(text: str) -> str:
    """Replace what a UTF-8 database cannot hold: NUL and lone surrogates become U+FFFD.

    The halves of a surrogate pair are joined. Everything else stays as given: no
    normalisation, no trimming. The result is a plain `str`, also for a subclass.
    """
    if type(text) is not str:
        if not isinstance(text, str):
            raise InvalidInput(f"must be a string, not {type(text).__name__}")
        text = str.__str__(text)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", _REPLACEMENT) if "\0" in text else text


def dumps(value: JSON) -> str:
    """Write compact JSON, as given by `clean_json`; characters are not escaped to ASCII."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def loads(text: str) -> JSON:
    """Read JSON strictly; InvalidInput on NaN, Infinity, overflowing numbers and bad syntax."""
    try:
        return json.loads(text, parse_float=_finite_float, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidInput("the JSON is nested too deeply") from None
    except ValueError as error:
        raise InvalidInput(f"not valid JSON: {error}") from None


def _finite_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise InvalidInput(f"the number {text[:40]} is too large")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidInput(f"{name} is not JSON")


def clean_json(value: JSON, *, limits: Limits = DEFAULT_LIMITS, path: str = "") -> JSON:
    """Return a sanitised copy made of plain dict, list, str, int, float, bool and None.

    Text is cleaned in keys and values; tuples become lists. InvalidInput names the JSON
    pointer (after `path`, the argument's name) of NaN, Infinity, sets, bytes and any other
    type, of keys that are not strings or collide once cleaned, and of what exceeds `limits`.
    The result is what a reader will see: it went through `dumps` and `loads`.
    """
    cleaned = _Walk(limits, path).clean(value, path, 0)
    try:
        text = dumps(cleaned)
    except ValueError as error:  # an interpreter whose limit of digits was lowered
        raise InvalidInput(str(error), path=path) from error
    if (size := _utf8_size(text)) > limits.bytes:
        raise InvalidInput(f"{size:,} bytes of JSON; the limit is {limits.bytes:,}", path=path)
    result = loads(text)
    if result != cleaned:
        raise InvalidInput("does not survive being written and read back", path=path)
    return result


class _Walk:
    """One pass over a document; `room` stops one that shares its parts a billion times."""

    def __init__(self, limits: Limits, path: str) -> None:
        self.limits = limits
        self.path = path
        self.room = limits.bytes

    def clean(self, value: JSON, path: str, depth: int) -> JSON:
        if isinstance(value, str):
            text = clean_text(value)
            self.spend(len(text) + 2)
            return text
        self.spend(1)
        if value is None or value is True or value is False:
            return value
        if isinstance(value, int):
            # Three bits a digit are too few, so small integers never meet the large power.
            digits = self.limits.digits
            if value.bit_length() > 3 * digits and abs(value) >= 10**digits:
                raise InvalidInput(f"an integer of more than {digits:,} digits", path=path)
            return int(value)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise InvalidInput(f"{float(value)} is not JSON", path=path)
            return float(value)
        if isinstance(value, (dict, list, tuple)):
            if depth == self.limits.depth:
                raise InvalidInput(f"nested deeper than {self.limits.depth} levels", path=path)
            if isinstance(value, dict):
                return self.clean_object(value, path, depth)
            return [
                self.clean(item, f"{path}/{index}", depth + 1) for index, item in enumerate(value)
            ]
        raise InvalidInput(f"a {type(value).__name__} is not JSON", path=path)

    def clean_object(self, value: dict[Any, Any], path: str, depth: int) -> dict[str, JSON]:
        result: dict[str, JSON] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidInput(
                    f"the key {key!r:.40} is a {type(key).__name__}; JSON keys are strings",
                    path=path,
                )
            name = clean_text(key)
            at = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
            if name in result:
                raise InvalidInput("two keys are the same once cleaned", path=at)
            self.spend(len(name) + 3)
            result[name] = self.clean(item, at, depth + 1)
        return result

    def spend(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise InvalidInput(
                f"more than {self.limits.bytes:,} bytes of JSON, which is the limit",
                path=self.path,
            )


def check_id(value: str, name: str) -> str:
    """Return an identifier of 1 to 512 UTF-8 bytes, to be compared exactly.

    NUL and lone surrogates are refused instead of replaced: two different identifiers must
    not become one. `name` is the argument's name, for the error.
    """
    if not isinstance(value, str):
        raise InvalidInput(f"must be a string, not {type(value).__name__}", path=name)
    cleaned = clean_text(value)
    if cleaned.count(_REPLACEMENT) != value.count(_REPLACEMENT):
        raise InvalidInput("must not contain NUL or half a surrogate pair", path=name)
    size = _utf8_size(cleaned)
    if not 1 <= size <= MAX_ID_BYTES:
        raise InvalidInput(f"must take 1 to {MAX_ID_BYTES} bytes of UTF-8, not {size}", path=name)
    return cleaned


def check_batch_key(value: str, name: str) -> str:
    """Return an idempotency key that names a batch: it leaves room for its events' numbers."""
    if _utf8_size(key := check_id(value, name)) > MAX_BATCH_KEY_BYTES:
        raise InvalidInput(
            f"of several events takes at most {MAX_BATCH_KEY_BYTES} bytes", path=name
        )
    return key


def check_uuid(value: UUID | str, name: str) -> UUID:
    """Return a UUID, also one that is written as a text."""
    try:
        return UUID(str(value))
    except ValueError as error:
        raise InvalidInput("must be a UUID", path=name) from error


def check_time(value: datetime, name: str) -> datetime:
    """Return an aware datetime in UTC; a naive one is refused, since it names no instant."""
    if not isinstance(value, datetime):
        raise InvalidInput(f"must be a datetime, not {type(value).__name__}", path=name)
    if value.utcoffset() is None:
        raise InvalidInput("must have a time zone, such as datetime.now(UTC)", path=name)
    try:
        instant = value.astimezone(UTC)
    except OverflowError:
        instant = None
    if instant is None or not _EARLIEST <= instant <= _LATEST:
        raise InvalidInput("must lie between the years 1 and 9999", path=name)
    if type(instant) is not datetime:  # a subclass, which the driver might write differently
        instant = datetime.combine(instant.date(), instant.time(), UTC)
    return instant


def check_whole(value: SupportsIndex, name: str) -> int:
    """Return a whole number, such as a position or a version; a bool or a float is none.

    The database would round a float and compare a text, or fail in its own words.
    """
    if not isinstance(value, bool):
        with suppress(TypeError):
            return operator.index(value)
    raise InvalidInput(f"must be a whole number, not {value!r:.40}", path=name)


def prepare_event(event: NewEvent) -> NewEvent:
    """Validate and clean every field of an event; where no actor is given it is the role."""
    if event.role not in ROLES:
        known = ", ".join(ROLES)
        raise InvalidInput(f"must be one of {known}, not {event.role!r:.40}", path="role")
    role = ROLES[ROLES.index(event.role)]  # a plain string, also for an enumeration's member
    if not isinstance(event.content, str):
        raise InvalidInput(f"must be a string, not {type(event.content).__name__}", path="content")
    content = clean_text(event.content)
    if (size := _utf8_size(content)) > MAX_CONTENT_BYTES:
        raise InvalidInput(f"{size:,} bytes; the limit is {MAX_CONTENT_BYTES:,}", path="content")
    payload = event.payload
    return replace(
        event,
        content=content,
        role=role,
        event_type=check_id(event.event_type, "event_type"),
        actor=_optional(check_id, event.actor, "actor") or role,
        session_id=_optional(check_id, event.session_id, "session_id"),
        occurred_at=_optional(check_time, event.occurred_at, "occurred_at"),
        payload=None if payload is None else clean_json(payload, path="payload"),
        correlation_id=_optional(check_id, event.correlation_id, "correlation_id"),
        idempotency_key=_optional(check_id, event.idempotency_key, "idempotency_key"),
    )


def _optional(check: Callable[[T, str], T], value: T | None, name: str) -> T | None:
    return None if value is None else check(value, name)


def body_digest(event: NewEvent) -> bytes:
    """Digest a prepared event to 16 bytes, to tell a retry from another body under its key.

    Covers every field but `idempotency_key`. The order of keys in the payload and the time
    zone of `occurred_at` do not matter; a time left out differs from any time given.
    """
    body = [
        event.content,
        event.role,
        event.event_type,
        event.actor,
        event.session_id,
        None if event.occurred_at is None else event.occurred_at.astimezone(UTC).isoformat(),
        event.payload,
        event.correlation_id,
    ]
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
