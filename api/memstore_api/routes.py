"""What the routes share: finding the memory that a path names, for who asks and may."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from memstore import AsyncMemory, InvalidInput
from memstore.keys import Scope
from memstore_api.access import Principal
from memstore_api.bodies import MAX_INT, decoded
from memstore_api.service import Service

MEMORY = "/v1/agents/{agent}/users/{user}"

bearer = HTTPBearer(auto_error=False, description="An API key, or a JWT")
Agent = Annotated[str, Path(description="The agent's id, percent-encoded", examples=["research"])]
User = Annotated[str, Path(description="The user's id, percent-encoded", examples=["u-17"])]
SchemaName = Annotated[
    str | None, Query(description="The state's schema; left out, it is the default one")
]
SchemaVersion = Annotated[
    int | None,
    Query(
        ge=1,
        le=MAX_INT,
        description="Of a registered schema; left out, it is the newest one",
    ),
]
Memory = AsyncMemory[Any]

#: A write that passed over one of these would do what its sender had ruled out.
CONDITIONS = {name.lower(): name for name in ("If-Match", "If-None-Match", "Idempotency-Key")}


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def admitted(request: Request) -> Principal:
    """Let a request in, or refuse it."""
    service = service_of(request)
    refuse_unheeded(request, "query", request.query_params.keys())
    principal = await service.gate.admit(request, service.store)
    request.state.principal_id = principal.id
    return principal


def refuse_unheeded(request: Request, kind: str, given: Iterable[str]) -> None:
    """Refuse what a route would pass over, as if it held: a misspelt filter, a precondition."""
    for name in sorted(set(given) - declared(request.scope["route"], kind)):
        raise InvalidInput("this route takes no such parameter", path=CONDITIONS.get(name, name))


def declared(route: APIRoute, kind: str) -> frozenset[str]:
    """List what a route and all that it depends on read from the query or from headers."""
    found, left = set[str](), [route.dependant]
    while left:
        one = left.pop()
        left += one.dependencies
        fields = one.query_params if kind == "query" else one.header_params
        found |= {field.alias if kind == "query" else field.alias.lower() for field in fields}
    return frozenset(found)


def memory_for(scope: Scope) -> Callable[..., Awaitable[Memory]]:
    """Make a dependency that gives the path's memory to who may do this with it."""

    async def find(
        request: Request,
        agent: Agent,
        user: User,
        principal: Annotated[Principal, Depends(admitted)],
        _: Annotated[Any, Depends(bearer)],
        schema: SchemaName = None,
        schema_version: SchemaVersion = None,
    ) -> Memory:
        agent, user = decoded(agent, "agent"), decoded(user, "user")
        principal.demand(scope, agent, user)
        if scope != "read":
            refuse_unheeded(request, "header", set(CONDITIONS) & set(request.headers.keys()))
        service = service_of(request)
        store = await service.for_tenant(principal.tenant)
        chosen = await service.schema(schema, schema_version, store)
        return store.memory(agent=agent, user=user, schema=chosen)

    return find


Readable = Annotated[Memory, Depends(memory_for("read"))]
Writable = Annotated[Memory, Depends(memory_for("write"))]
Erasable = Annotated[Memory, Depends(memory_for("admin"))]


def body_of(
    schema: dict[str, Any], example: Any, *types: str, description: str = ""
) -> dict[str, Any]:
    """Describe a body that a route reads itself."""
    content = {"schema": schema, "example": example}
    return {
        "requestBody": {
            "required": True,
            "description": description,
            "content": dict.fromkeys(types or ("application/json",), content),
        }
    }


def answer(example: Any, description: str, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Describe an answer by example."""
    content = {"application/json": {"example": example}}
    return {status: {"description": description, "content": content}}
