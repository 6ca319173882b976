from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.errors import InputError
from tokenwatt_site.model_shape.patterns import Patterns
from tokenwatt_site.model_shape.weights import short_name


def matches(pattern: str, name: str) -> bool:
    return Patterns([pattern], field="ignore").match(short_name(name))


@pytest.mark.parametrize(
    ("pattern", "named", "other"),
    [
        ("lm_head", "lm_head", "model.lm_header"),
        ("gate", "model.layers.3.mlp.gate", "model.layers.3.mlp.gate_proj"),
        ("model.layers.1.mlp.gate", "model.layers.1.mlp.gate", "model.layers.11.mlp.gate"),
        ("model.layers.0.self_attn", "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.gate"),
        ("layers.0.mlp", "model.language_model.layers.0.mlp.gate", "model.layers.10.mlp.gate"),
        ("model.layers.61*", "model.layers.61.mlp.gate", "model.layers.6.mlp.gate"),
        (
            "model.layers.*.self_attn",
            "model.layers.7.self_attn.o_proj",
            "model.layers.7.mlp.router",
        ),
        ("*self_attn*", "model.layers.7.self_attn.o_proj", "model.layers.7.mlp.router"),
        ("*.mlp.gate", "model.layers.7.mlp.gate", "model.layers.7.mlp.gate_proj"),
        ("re:.*mlp.gate$", "model.layers.7.mlp.gate", "model.layers.7.mlp.gate_proj"),
        ("re:.*lm_head", "lm_head", "model.embed_tokens"),
        ("re:model.layers.0.*", "model.layers.0.mlp.gate", "model.layers.1.mlp.gate"),
        (
            r"re:^model\.layers\.\d+\.mlp\.experts.*",
            "model.layers.7.mlp.experts.0.up_proj",
            "lm_head",
        ),
        (
            "re:.*(q|k|v)_proj$",
            "model.layers.7.self_attn.k_proj",
            "model.layers.7.self_attn.o_proj",
        ),
        ("re:.*[.]linear_attn[.].*", "layers.1.linear_attn.out_proj", "layers.1.self_attn.o_proj"),
    ],
)
def test_each_dialect_names_the_modules_it_means(pattern: str, named: str, other: str) -> None:
    assert matches(pattern, named)
    assert not matches(pattern, other)


@given(
    st.lists(
        st.sampled_from(["layers", "0", "1", "mlp", "gate", "up_proj"]), min_size=1, max_size=4
    ),
    st.lists(
        st.sampled_from(["layers", "0", "1", "mlp", "gate", "up_proj"]), min_size=1, max_size=6
    ),
)
def test_a_plain_pattern_is_a_run_of_whole_pieces(pattern: list[str], name: list[str]) -> None:
    width = len(pattern)
    naive = any(name[at : at + width] == pattern for at in range(len(name)))
    assert matches(".".join(pattern), ".".join(name)) == naive


pieces = st.sampled_from(["layers", ".*", r"\.", ".", "mlp", "(up|down)", "gate", "$"])


@given(st.lists(pieces, min_size=1, max_size=6), st.text("layersmpud.gt", max_size=14))
def test_a_regular_expression_that_is_understood_means_the_same(
    parts: list[str], name: str
) -> None:
    pattern = "".join(p for p in parts[:-1] if p != "$") + parts[-1]
    if short_name(name) != name:
        return
    assert matches(f"re:{pattern}", name) == (re.match(pattern, name) is not None)


@pytest.mark.parametrize(
    "pattern",
    ["re:(a+)+$", "re:.*(?!gate)", "re:[a-z]+x", r"re:\w+", "re:a{99}", "re:((a))", "a" * 301],
)
def test_a_pattern_that_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(InputError, match="is not understood"):
        Patterns([pattern], field="ignore")


def test_many_patterns_are_refused_before_they_cost_time() -> None:
    with pytest.raises(InputError, match="short patterns"):
        Patterns(map(str, range(100_001)), field="ignore")
    with pytest.raises(InputError, match="with wildcards"):
        Patterns((f"*a{n}*" for n in range(300)), field="ignore")
    with pytest.raises(InputError, match="choices"):
        Patterns(["re:" + "(a|b)" * 7], field="ignore")


def test_stars_without_end_do_not_take_time_without_end() -> None:
    assert not matches("*a" * 140 + "*x", "a" * 250)  # would not end, were it to backtrack


def test_some_experts_of_a_layer_are_refused_and_all_of_them_are_not() -> None:
    front = "model.layers.0.mlp.experts"
    some = Patterns([f"{front}.{n}.up_proj" for n in range(3)], field="ignore")
    some.check_experts(3, field="ignore")
    with pytest.raises(InputError, match="of 3 experts'; expected all 4 or none"):
        some.check_experts(4, field="ignore")
    with pytest.raises(InputError, match="all experts of a layer"):
        Patterns([f"{front}.1*"], field="ignore")
