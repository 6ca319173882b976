from __future__ import annotations

import re

import pytest

from tokenwatt_site.pages.policy import (
    ALONE,
    SITE,
    KnownScripts,
    inline_scripts,
    policy,
    script_hash,
    with_policy,
)

PAGE = '<html><head><meta charset="utf-8"><script>a()</script></head></html>'


def test_f28_a_script_runs_by_its_digest_and_no_other_does() -> None:
    told = policy(SITE, ["a()", "b()", "a()"], own_files=True)
    assert told.count("sha256-") == 2
    assert f"script-src 'self' {script_hash('a()')} {script_hash('b()')}" in told.split("; ")


def test_f28_the_digest_is_the_one_of_the_specification() -> None:
    # printf "alert('Hello, world.');" | openssl dgst -sha256 -binary | openssl base64
    expected = "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='"
    assert script_hash("alert('Hello, world.');") == expected


def test_f28_a_page_alone_loads_nothing_and_sends_nothing() -> None:
    told = policy(ALONE, ["a()"], own_files=False).split("; ")
    assert "default-src 'none'" in told
    assert "form-action 'none'" in told
    assert f"script-src {script_hash('a()')}" in told


def test_f28_every_source_is_named_once() -> None:
    for sources in (SITE, ALONE):
        names = [part.split(" ", 1)[0] for part in policy(sources, [], own_files=True).split("; ")]
        assert len(names) == len(set(names))


def test_the_policy_stands_before_the_first_script() -> None:
    page = with_policy(PAGE, ["a()"])
    assert page is not None
    assert page.index("Content-Security-Policy") < page.index("<script")
    assert re.sub("<meta http-equiv[^>]*>", "", page) == PAGE
    assert with_policy("<html></html>", []) is None


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ("<script>a()</script>", ["a()"]),
        ("<SCRIPT>a()</script >", ["a()"]),
        ('<script id="x" async>\na()\n</script>', ["\na()\n"]),
        ('<script type="module">a()</script>', ["a()"]),
        ('<script src="a.js"></script>', []),
        ('<script type="application/json">{}</script>', []),
        ("<script type=application/ld+json>{}</script>", []),
        ("<p>a()</p>", []),
    ],
)
def test_data_and_files_are_no_scripts_inside_a_page(html: str, found: list[str]) -> None:
    assert list(inline_scripts(html)) == found


def test_a_theme_s_script_is_known_with_the_address_of_its_page() -> None:
    known = KnownScripts.of(['<script>scope=new URL("{{ base_url }}",location)</script>'])
    for base in (".", "..", "../..", "/", "/sub/"):
        assert f'scope=new URL("{base}",location)' in known


@pytest.mark.parametrize(
    "script",
    [
        "document.body.dataset.pwned=1",
        'scope=new URL("."),steal("",location)',
        'scope=new URL(".",location);steal()',
        'scope=new URL("${steal()}",location)',
        "",
    ],
)
def test_f28_another_script_than_the_theme_s_is_not_known(script: str) -> None:
    assert script not in KnownScripts.of(
        ['<script>scope=new URL("{{ base_url }}",location)</script>', "<script src=x></script>"]
    )


@pytest.mark.parametrize(
    "attributes",
    [
        'data-src="a.js"',
        'data-type="application/json"',
        'class="x" title="type=application/json"',
        'type="module" type="application/ld+json"',
        'type="text/javascript;json"',
        'type="importmap+json"',
    ],
)
def test_f28_an_attribute_that_only_looks_so_makes_no_script_data(attributes: str) -> None:
    assert list(inline_scripts(f"<script {attributes}>a()</script>")) == ["a()"]


def test_data_is_told_by_its_type_however_that_is_written() -> None:
    for attributes in ("TYPE='application/LD+JSON'", 'id=x type = " application/json "'):
        assert list(inline_scripts(f"<script {attributes}>{{}}</script>")) == []
