"""Routes of state schemas in JSON Schema: register, try out, list, read."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from memstore import AccessDenied, AsyncSchemas
from memstore.wire import definition_to, report_to
from memstore_api import bodies, examples
from memstore_api.access import Principal
from memstore_api.replies import Json
from memstore_api.routes import admitted, answer, bearer, body_of, service_of

router = APIRouter(tags=["schemas"])

SCHEMA = "/v1/schemas/{name}"
VERSION = SCHEMA + "/versions/{version}"
MOST_TRIED = 2_000  # documents of one trial; the command line tries them all

Name = Annotated[str, Path(description="The schema's name", examples=["desk"])]
Version = Annotated[int, Path(ge=1, le=bodies.MAX_INT, description="From 1 on", examples=[2])]
Admitted = Annotated[Principal, Depends(admitted)]
Bearer = Annotated[Any, Depends(bearer)]


async def schemas_of(request: Request, principal: Principal) -> AsyncSchemas:
    return (await service_of(request).for_tenant(principal.tenant)).schemas


async def administered(request: Request, principal: Principal, name: str) -> AsyncSchemas:
    """Give the schemas to who may add to them; they are every agent's, so a bound key may not."""
    principal.demand("admin")
    if principal.agents is not None or principal.users is not None:
        raise AccessDenied("the key is bound to some agents or users")
    service_of(request).refuse_imported(name)
    return await schemas_of(request, principal)


@router.put(
    VERSION,
    summary="Register a version of a state's schema, as JSON Schema",
    description="Versions follow one another from 1 on and never change. From 2 on `migration` "
    "is the JSON Patch that leads there from the version before.",
    responses={
        **answer(examples.DEFINITION, "It was registered before, with the same body"),
        **answer(examples.DEFINITION, "It is registered", 201),
    },
    openapi_extra=body_of(bodies.DefinitionBody.model_json_schema(), examples.NEW_DEFINITION),
)
async def register(
    request: Request, name: Name, version: Version, principal: Admitted, _: Bearer
) -> Response:
    name = bodies.decoded(name, "name")
    schemas = await administered(request, principal, name)
    body = await bodies.read_body(request, bodies.DefinitionBody)
    definition, new = await schemas.add(
        name, version, body.schema_, migration=body.migration, initial=body.initial
    )
    return Json(definition_to(definition), 201 if new else 200)


@router.post(
    VERSION + "/trial",
    summary="Try a version on the stored states before it is registered",
    description=f"Nothing is written. Up to {MOST_TRIED:,} stored documents are tried.",
    responses=answer(examples.REPORT, "What would fail, by memory, version, step and path"),
    openapi_extra=body_of(bodies.TrialBody.model_json_schema(), examples.NEW_DEFINITION),
)
async def trial(
    request: Request, name: Name, version: Version, principal: Admitted, _: Bearer
) -> Response:
    name = bodies.decoded(name, "name")
    schemas = await administered(request, principal, name)
    body = await bodies.read_body(request, bodies.TrialBody)
    report = await schemas.trial(
        name,
        version,
        body.schema_,
        migration=body.migration,
        initial=body.initial,
        limit=MOST_TRIED if body.limit is None else min(body.limit, MOST_TRIED),
    )
    return Json(report_to(report))


@router.get(
    "/v1/schemas",
    summary="List the registered schemas, each in its newest version",
    responses=answer({"schemas": [examples.DEFINITION]}, "By name"),
)
async def registered(request: Request, principal: Admitted, _: Bearer) -> Response:
    principal.demand("read")
    found = await (await schemas_of(request, principal)).registered()
    return Json({"schemas": [definition_to(one) for one in found]})


@router.get(
    SCHEMA,
    summary="Read a schema with all its versions",
    responses=answer({"schemas": [examples.DEFINITION]}, "From the first version on"),
)
async def versions(
    request: Request,
    name: Name,
    principal: Admitted,
    _: Bearer,
    version: Annotated[
        int | None, Query(ge=1, le=bodies.MAX_INT, description="Up to this one")
    ] = None,
) -> Response:
    principal.demand("read")
    schemas = await schemas_of(request, principal)
    found = await schemas.versions(bodies.decoded(name, "name"), version)
    return Json({"schemas": [definition_to(one) for one in found]})
