"""The HTTP API is as it is described: no request that the description allows makes the gateway fail, and each refusal
is a problem. Streams are left out: they do not end. schemathesis is imported late, for that takes half a second."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openapi_spec_validator import OpenAPIV31SpecValidator

from mqttlite.config import Config, ListenerOptions
from mqttlite.config.http import HttpOptions
from mqttlite.security.api_keys import FILE_NAME, add
from mqttlite.server import Broker

if TYPE_CHECKING:
    import schemathesis

STREAMS = r"^/events$|/subscribe$|/live$|/stream"
"""Paths whose answers do not end."""


def try_operation(operation: schemathesis.APIOperation, key: str) -> None:
    """Send some requests of one operation. Raises what is wrong."""

    @settings(max_examples=5, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def try_request(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy())
        response = case.call(headers={"Authorization": f"Bearer {key}"}, timeout=10)
        kind = response.headers.get("content-type", [""])[0]
        assert response.status_code < 500 or response.status_code in (501, 503), response.text
        described = operation.definition.raw["responses"]
        answer = described.get(str(response.status_code), described.get(f"{response.status_code // 100}XX"))
        assert answer is not None, f"{response.status_code} is not described"
        kinds = tuple(answer.get("content", [""]))
        assert "*/*" in kinds or kind.startswith(kinds), f"{kind} is not described"
        if response.status_code >= 400 and operation.path.startswith("/v1/"):  # in the shape of Google's
            assert (kind, response.json()["error"]["code"]) == ("application/json", response.status_code)
        elif response.status_code >= 400 and not operation.path.startswith("/registry"):
            assert (kind, response.json()["status"]) == ("application/problem+json", response.status_code)

    try_request()


@pytest.mark.slow
def test_no_request_that_is_described_makes_the_gateway_fail(tmp_path: Path) -> None:
    import schemathesis

    key = add(tmp_path / FILE_NAME, "admin", "ann", None)[0]
    options = HttpOptions(port=0, requests_per_s=0)
    config = Config(listeners=(ListenerOptions(port=0),), http=options, data_dir=str(tmp_path))
    with Broker(config) as broker:
        assert broker.gateway is not None
        url = f"http://localhost:{broker.gateway.port}/openapi.json"
        schema = schemathesis.openapi.from_url(url).exclude(method="GET", path_regex=STREAMS)
        OpenAPIV31SpecValidator(schema.raw_schema).validate()
        operations = [result.ok() for result in schema.get_all_operations()]
        assert len(operations) > 10
        failures: list[str] = []
        for operation in operations:
            try:
                try_operation(operation, key)
            except Exception as error:
                failures.append(f"{operation.method.upper()} {operation.path}: {error!r}"[:800])
    assert failures == []
