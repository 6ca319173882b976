from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import safetensors_files as files
from tokenwatt_site.canonical import canonical_bytes, sha256_hex
from tokenwatt_site.errors import InputError
from tokenwatt_site.model_shape.document import (
    DTYPE_BITS,
    ModelDocument,
    Tensor,
    decode_model,
    encode_model,
    headers_digest,
)

scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text("ab.é", max_size=5)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz"), inner)
)
tensors = st.lists(
    st.builds(
        Tensor,
        name=st.text('abc.é"\\\n', min_size=1, max_size=9),
        dtype=st.sampled_from(sorted(DTYPE_BITS)),
        shape=st.lists(st.integers(0, 999), max_size=4).map(tuple),
    ),
    unique_by=lambda t: t.name,
    max_size=6,
).map(lambda found: tuple(sorted(found, key=lambda t: t.name)))
documents = st.builds(ModelDocument, config=values, quantization=values, tensors=tensors)


@given(documents)
def test_what_is_written_is_read_back(document: ModelDocument) -> None:
    assert decode_model(encode_model(document), source="m") == document


def test_the_first_line_holds_the_files_and_each_further_line_a_tensor() -> None:
    document = ModelDocument({"a": 1}, None, (Tensor("w", "BF16", (2, 3)),))
    first, second, rest = encode_model(document).split(b"\n")
    assert json.loads(first) == {
        "format": "tokenwatt/model/1",
        "config": {"a": 1},
        "quantization": None,
    }
    assert (second, rest) == (b'["w","BF16",[2,3]]', b"")


def test_the_digest_is_that_of_the_sorted_list_of_tensors_and_of_nothing_else() -> None:
    rows = sorted([name, dtype, shape] for name, (dtype, shape) in files.llama().items())
    found = tuple(Tensor(name, dtype, tuple(shape)) for name, dtype, shape in rows)
    one = ModelDocument({"a": 1}, None, found)
    assert headers_digest(one) == "sha256:" + sha256_hex(canonical_bytes(rows))
    assert headers_digest(ModelDocument({"a": 2}, None, found)) == headers_digest(one)
    assert headers_digest(ModelDocument({"a": 1}, None, found[1:])) != headers_digest(one)
    assert headers_digest(ModelDocument({"a": 1})) is None


HEAD = b'{"config":{},"format":"tokenwatt/model/1","quantization":null}\n'


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the last line is cut"),
        (HEAD[:-1], "the last line is cut"),
        (b"[]\n", "found None; expected .tokenwatt/model/1.\\. Read it with"),
        (HEAD.replace(b"model/1", b"model/2"), "format that this version does not read"),
        (HEAD.replace(b'"config":{},', b""), "is no header"),
        (HEAD.replace(b'"config"', b'"more":1,"config"'), "is no header"),
        (HEAD.replace(b"{}", b'{"a":1,"a":2}'), "twice"),
        (HEAD.replace(b"{}", b"NaN"), "NaN"),
        (HEAD + b'["a","F32"]\n', r"m:2: is no \[name, type, shape\]"),
        (HEAD + b'["a","F33",[1]]\n', "m:2: a: has a type that is not known"),
        (HEAD + b'["a","F32",1]\n', "has no shape"),
        (HEAD + b'["a","F32",[1.5]]\n', "has no shape"),
        (HEAD + b'["a","F32",[true]]\n', "has no shape"),
        (HEAD + b'["a","F32",[1,1,1,1,1,1,1,1,1]]\n', "has no shape"),
        (HEAD + b'["a","F32",[16777216,16777216]]\n', "is too large"),
        (HEAD + b'["","F32",[1]]\n', "is no name"),
        (HEAD + b'["a","F32",[1]]\n' * 2, "m:3: is not after the name before it"),
        (HEAD + b'["' + b"a" * 5000 + b'","F32",[1]]\n', "is too large"),
        (HEAD + b'["a\xe2\x80\xae","F32",[1]]\n', r"U\+202E"),
        (HEAD + b"\n" * 500_001, "has too many lines"),
    ],
)
def test_hostile_evidence_is_refused_with_its_line(data: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why):
        decode_model(data, source="m")


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_no_bytes_crash_the_reader(first: bytes, rest: bytes) -> None:
    for data in (first, HEAD + rest + b"\n", HEAD + b'["a",' + rest + b"]\n"):
        try:
            decode_model(data, source="m")
        except InputError:
            continue


@given(documents)
def test_lines_and_digest_are_of_canonical_bytes(document: ModelDocument) -> None:
    rows = [[t.name, t.dtype, list(t.shape)] for t in document.tensors]
    assert encode_model(document).split(b"\n")[1:-1] == [canonical_bytes(row) for row in rows]
    digest = f"sha256:{sha256_hex(canonical_bytes(rows))}" if rows else None
    assert headers_digest(document) == digest


def test_a_name_of_more_pieces_than_a_model_has_is_refused() -> None:
    name = b".".join([b"a"] * 33)
    with pytest.raises(InputError, match="is no name"):
        decode_model(HEAD + b'["' + name + b'","F32",[1]]\n', source="m")
    decode_model(HEAD + b'["' + name[2:] + b'","F32",[1]]\n', source="m")
