from __future__ import annotations

import pytest

from tokenwatt_site.errors import UsageError
from tokenwatt_site.simulate.script import named


@pytest.mark.parametrize(
    "names",
    [
        "nonsense",
        "multi",
        "multi:x",
        "multi:",
        "hang:-",
        "multi:0",
        "bursts:0",
        "markers:1",
        "template:-1",
        "http:99",
        "load-garbles:0",
    ],
)
def test_an_unknown_script_is_told_with_the_known_ones(names: str) -> None:
    with pytest.raises(UsageError, match="role-early"):
        named(names)


def test_names_add_up() -> None:
    script = named("role-early,multi:4,cached:2,")
    assert (script.role, script.tokens_per_event, script.cached_tokens) == ("early", 4, 2)
