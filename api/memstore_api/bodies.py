"""Reading requests: JSON bodies, NDJSON, patches, tags and ids, each refused with its path."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote_to_bytes

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
)
from starlette.requests import Request

from memstore import Budget, InvalidInput
from memstore.documents import join_pointer
from memstore.text import loads
from memstore.wire import time_from
from memstore_api.replies import NDJSON

JSON_TYPE = "application/json"
MAX_INT = 2**31 - 1
MAX_POSITION = 2**63 - 1
MAX_LINE = 4_194_304

B = TypeVar("B", bound="Body")


class UnsupportedType(Exception):
    """A body of another media type than those taken, or compressed."""

    def __init__(self, *taken: str, header: str = "Content-Type", told: str = "Accept") -> None:
        super().__init__()
        self.taken = taken
        self.header = header
        self.told = told  # the header that says what is taken


class Malformed(Exception):
    """A body that is not JSON at all."""

    def __init__(self, error: InvalidInput) -> None:
        super().__init__()
        self.error = error


def _text(value: object) -> str:
    # Pydantic's own strings refuse lone surrogates; here what is wrong is mended as elsewhere.
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


Text = Annotated[str, PlainValidator(_text), WithJsonSchema({"type": "string"})]
TextOrTexts = Annotated[
    Any,
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
Position = Annotated[int, Field(ge=0, le=MAX_POSITION, strict=True)]
Number = Annotated[int, Field(ge=0, le=MAX_INT, strict=True)]


class Body(BaseModel):
    """A JSON object with no other members than those declared."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class Noted(Body):
    """Who changes the state, and why."""

    author: Text | None = None
    reason: Text | None = None


class SaveBody(Noted):
    document: dict[str, Any]
    log_position: Position | None = None


class CommitBody(Noted):
    events: list[Any] = Field(default_factory=list)
    state: dict[str, Any] | None = None
    patch: dict[str, Any] | list[Any] | None = None
    log_position: Position | None = None


class RevertBody(Noted):
    to: Number


class ConfirmBody(Noted):
    path: Text


class FlagBody(Body):
    path: Text
    reason: Text
    author: Text | None = None


class SearchBody(Body):
    query: Text
    k: Annotated[int, Field(ge=1, le=1_000, strict=True)] = 10
    session: TextOrTexts = None
    actor: TextOrTexts = None
    role: TextOrTexts = None
    event_type: TextOrTexts = None
    correlation_id: TextOrTexts = None
    since: Text | None = None
    until: Text | None = None
    after: Position | None = None
    before: Position | None = None
    now: Text | None = None

    def tags(self) -> dict[str, Any]:
        """Return the filters given, as `search` takes them."""
        found: dict[str, Any] = {}
        for name in ("session", "actor", "role", "event_type", "correlation_id"):
            if (value := getattr(self, name)) is not None:
                found[name] = texts(value, name)
        for name in ("since", "until", "now"):
            if (value := getattr(self, name)) is not None:
                found[name] = time_from(value, name)
        return found | {n: v for n in ("after", "before") if (v := getattr(self, n)) is not None}


class ResumeBody(Body):
    task: Text | None = None
    budget: Number | None = None
    state_share: float | None = None
    tail_share: float | None = None
    record: bool | None = None
    render: Text | None = None
    now: Text | None = None

    def moment(self) -> datetime | None:
        return None if self.now is None else time_from(self.now, "now")

    def chosen(self, default: Budget, most: int) -> Budget:
        total = min(default.total, most) if self.budget is None else self.budget
        if total > most:
            raise InvalidInput(f"at most {most} tokens", path="budget")
        state = default.state_share if self.state_share is None else self.state_share
        tail = default.tail_share if self.tail_share is None else self.tail_share
        return Budget(total, state, tail)


class FeedbackBody(Body):
    used: list[Position]


class DefinitionBody(Body):
    schema_: dict[str, Any] = Field(alias="schema", description="JSON Schema, draft 2020-12")
    migration: list[Any] | None = Field(
        default=None, description="JSON Patch (RFC 6902) from the version before"
    )
    initial: dict[str, Any] | None = Field(
        default=None, description="The state of a memory that has none yet"
    )


class TrialBody(DefinitionBody):
    limit: Number | None = None


def texts(value: Any, name: str) -> list[str]:
    """Read one string or several."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise InvalidInput("one string or a list of them", path=name)
    return found


def media_type(request: Request) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def demand_type(request: Request, *taken: str) -> None:
    """Refuse a body of another media type, or a compressed one."""
    if media_type(request) not in taken:
        raise UnsupportedType(*taken)
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise UnsupportedType("identity", header="Content-Encoding", told="Accept-Encoding")


def wants_lines(request: Request) -> bool:
    """Tell whether a stream of lines is asked for, whatever else may come instead of it."""
    asked = request.headers.get("Accept", "").split(",")
    types = {one.partition(";")[0].strip().lower() for one in asked}
    return NDJSON in types and JSON_TYPE not in types


async def read_json(request: Request, *types: str) -> Any:
    """Read a body as JSON; `types` are the media types taken, by default JSON's."""
    demand_type(request, *(types or (JSON_TYPE,)))
    return parsed(await request.body(), "body")


def parsed(raw: bytes, path: str) -> Any:
    try:
        return loads(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise Malformed(InvalidInput("not UTF-8", path=path)) from None
    except InvalidInput as error:
        raise Malformed(InvalidInput(str(error), path=path)) from None


async def read_body(request: Request, model: type[B]) -> B:
    """Read a body as one of the shapes above."""
    value = await read_json(request)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        path = join_pointer([str(part) for part in first["loc"]])
        raise InvalidInput(first["msg"], path=path or "body") from None


async def lines(request: Request) -> AsyncIterator[Any]:
    """Read NDJSON as it comes, a value a line; blank lines are skipped."""
    demand_type(request, NDJSON)
    rest, number = b"", 0
    async for chunk in request.stream():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            if line.strip():
                yield parsed(line, f"line {number}")
        if len(rest) > MAX_LINE:
            raise InvalidInput(f"a line takes {MAX_LINE:,} bytes at most", path="body")
    if rest.strip():
        yield parsed(rest, f"line {number + 1}")


def decoded(part: str, name: str) -> str:
    """Decode an id from a path, where it stands percent-encoded."""
    try:
        return unquote_to_bytes(part).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput("percent-encode its UTF-8", path=name) from None


def query_time(text: str | None, name: str) -> Any:
    """Read a time from a query, where a plus sign often arrives as a space."""
    return (
        None if text is None else time_from(text.replace(" ", "+") if "T" in text else text, name)
    )


def precondition(request: Request) -> int | None:
    """Read If-Match: a version, or None where any will do."""
    header = request.headers.get("If-Match")
    if header is None or header.strip() == "*":
        return None
    text = header.strip().removeprefix('"').removesuffix('"')
    if not (text.isascii() and text.isdigit() and len(text) <= 10) or int(text) > MAX_INT:
        raise InvalidInput('one version, as in "7"', path="If-Match")
    return int(text)
