"""Tests of trust.predicates."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from tokenwatt_site.trust.predicates import KINDS, PREDICATES, HttpsUrl, Kind, Said

URL: TypeAdapter[str] = TypeAdapter(HttpsUrl)


def test_every_kind_has_its_predicate_and_its_type() -> None:
    assert tuple(PREDICATES) == get_args(Kind) == tuple(KINDS.values())
    assert KINDS["urn:tokenwatt:disputed:1"] == "disputed"
    assert all(issubclass(model, Said) for model in PREDICATES.values())


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org",
        "https://example.org:8443/a/b.html?issue=3#comment-4",
        "https://xn--exmple-cua.org/%E4",
    ],
)
def test_f17_links_over_https_are_taken(url: str) -> None:
    assert URL.validate_python(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "HTTPS://example.org/",
        "//example.org/",
        "data:text/html,x",
        "javascript:alert(1)//https://",
        "https://user@example.org/",
        "https://example.org/<script>",
        "https://example.org/'\"",
        "https://example.org/\n",
        "https://ex\u0430mple.org/",
        "https://example.org/?api_key=1",
        "https://example.org/" + "a" * 1000,
    ],
)
def test_f17_other_links_are_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        URL.validate_python(url)
