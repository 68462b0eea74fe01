"""The OpenAPI document has every answer that the front knows to give."""

from __future__ import annotations

from kimi_serve.launcher.front import openapi
from kimi_serve.schemas import errors


def _statuses(kind: type[errors.RequestError]) -> set[int]:
    found = {kind.status}
    return found.union(*(_statuses(each) for each in kind.__subclasses__()))


def test_every_error_of_a_request_is_documented() -> None:
    # 499 is only counted: its client is gone.
    known = _statuses(errors.RequestError) - {499}
    assert known <= set(openapi.PREPROCESS["responses"])


def test_every_route_says_what_stands_before_it() -> None:
    for route in (openapi.HEALTH, openapi.READY, openapi.MODELS, openapi.METRICS,
                  openapi.SERVER_INFO, openapi.TOKENIZE, openapi.PREPROCESS):  # fmt: skip
        assert {414, 431, 500} <= set(route["responses"])
