"""Strict JSON in JavaScript against Python's: the same vectors, and texts that nobody wrote."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.checker import open_checker
from tokenwatt_site.canonical import canonical_bytes, load_json, sha256_hex
from tokenwatt_site.errors import InputError

pytestmark = pytest.mark.browser

VECTORS = Path(__file__).parents[1] / "fixtures" / "strict-json.vectors.json"
CASES = 3000

READ = """
all => all.map(text => {
  const data = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  try { return TokenwattJson.canonical(TokenwattJson.load(data)); } catch (error) {
    if (error instanceof TokenwattJson.Refused) { return null; }
    throw error;
  }
})
"""

PIECES = [
    *'{}[],:"\\ 0',
    *("-0", "1", "-1", "0.5", "1e2", "1e400", "-1e-400", "01", "9007199254740992", "0.0", "1."),
    *("NaN", "true", "null", "tru", "\n", "\t", "\ufeff", "\x00", "\u202e", "\u00a0", "\x7f"),
    *('"a"', '"a":1', '"\\ud800"', '"\\ud83d\\ude00"', '"e\u0301"', '"__proto__":1', '"\u200b"'),
    *('"b":', '{"a":1}', "[1]", '"\\u0041"', '"\\x"', '"\U0001f600"', '""'),
]


@pytest.fixture(scope="module")
def page(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    opened = open_checker(chromium, tmp_path_factory.mktemp("strict"))
    yield opened
    opened.close()


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


def in_python(data: bytes) -> str | None:
    try:
        return canonical_bytes(load_json(data, source="x")).decode()
    except InputError:
        return None


def test_f1_f2_f3_f4_the_shared_vectors_are_refused_or_read_alike(page: Page) -> None:
    vectors: dict[str, Any] = json.loads(VECTORS.read_text(encoding="utf-8"))
    refused = vectors["refused"]
    told = dict(zip(refused, page.evaluate(READ, list(refused.values())), strict=True))
    assert {name: found for name, found in told.items() if found is not None} == {}
    read = page.evaluate(READ, [one["data"] for one in vectors["read"]])
    assert read == [one["canonical"] for one in vectors["read"]]


def test_texts_of_any_kind_are_refused_by_both_or_by_none(page: Page) -> None:
    rng = random.Random(7)
    texts = ["".join(rng.choices(PIECES, k=rng.randint(1, 9))) for _ in range(CASES)]
    # Most of those are none; of these most are.
    texts += [f"[{','.join(rng.choices(PIECES[10:], k=3))}]" for _ in range(CASES)]
    data = [text.encode() for text in texts]
    wanted = [in_python(one) for one in data]
    assert sum(found is not None for found in wanted) > CASES // 20
    assert page.evaluate(READ, [packed(one) for one in data]) == wanted


def test_a_document_with_one_byte_changed_is_read_alike(page: Page) -> None:
    rng = random.Random(8)
    whole = canonical_bytes({"a": [1, 2.5, None, True], "é": {"b": "x\n😀", "c": -7e-7}, "": []})
    data = []
    for _ in range(CASES):
        changed = bytearray(whole)
        changed[rng.randrange(len(changed))] = rng.randrange(256)
        data.append(bytes(changed))
    assert page.evaluate(READ, [packed(one) for one in data]) == [in_python(one) for one in data]


def test_numbers_are_written_as_python_writes_them(page: Page) -> None:
    rng = random.Random(9)
    numbers = [rng.uniform(-1, 1) * 10 ** rng.randint(-300, 15) for _ in range(CASES)]
    data = [canonical_bytes([number]) for number in numbers]
    assert page.evaluate(READ, [packed(one) for one in data]) == [one.decode() for one in data]


def test_sha256_is_that_of_python_at_every_length_around_a_block(page: Page) -> None:
    rng = random.Random(10)
    data = [rng.randbytes(n) for n in [*range(140), 1000, 100_000]]
    found = page.evaluate(
        "all => all.map(t => TokenwattJson.sha256(Uint8Array.from(atob(t), c => c.charCodeAt(0))))",
        [packed(one) for one in data],
    )
    assert found == [sha256_hex(one) for one in data]


def test_a_file_larger_than_a_document_is_refused_unread(page: Page) -> None:
    words = page.evaluate(
        "() => { try { TokenwattJson.load(new Uint8Array(2097153)); }"
        " catch (error) { return error.message; } }"
    )
    assert words == "is larger than 2,097,152 bytes"
