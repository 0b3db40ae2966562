"""Requests that Schemathesis makes up from the OpenAPI document: none is answered with a 5xx."""

from __future__ import annotations

import json
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from tests.serving import WordEncoder, application, running

FIT = GenerationMode.POSITIVE
UNFIT = GenerationMode.NEGATIVE
KNOWN = {200, 201, 204, 400, 404, 405, 408, 409, 412, 413, 415, 422, 428}


def test_no_request_makes_the_server_fail(database_url: str) -> None:
    app = application(database_url, encoder=WordEncoder(), insecure=True, rate=1e6, burst=1_000_000)
    with running(app) as address:
        schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
        walked = 0
        for found in schema.get_all_operations():
            assert isinstance(found, Ok)
            operation = found.ok()
            walked += 1
            # Without parameters there is nothing that could be unfit.
            for mode in (FIT, UNFIT) if "{" in operation.path else (FIT,):
                ask(operation.as_strategy(mode))
        assert walked == sum(map(len, app.openapi()["paths"].values()))


def ask(cases: Any) -> None:
    """Send what the strategy makes, the same each time."""

    @settings(
        max_examples=12,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def run(case: Any) -> None:
        answer = case.call()
        told = f"{case.as_curl_command()}\n{answer.status_code} {answer.content[:300]!r}"
        assert answer.status_code in KNOWN, told
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == ["application/problem+json"], told
            assert json.loads(answer.content)["title"]

    run()
