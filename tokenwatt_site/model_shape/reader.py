"""Reading a config.json without a guess.

A key is read and checked, known to be harmless, or refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.errors import InputError, Problem

MAX_LAYERS = 1024
_MAX_NUMBER = 2**31
_TOLD = 10
"""Unknown keys that are named; an error is published as the reason for a missing number."""

# Words of keys that may change what a step reads, in a key that no family here asks for.
_STRUCTURAL = re.compile(
    r"expert|moe|sparse|rank|lora|head|kv_|layer|hidden|intermediate|window|chunk|dim|size|width"
    r"|state|ssm|mamba|conv|index|compress|shared|block|topk|vocab|pattern|hash|memory|engram"
    r"|altup|laurel|sink|bias|gate|qk_norm"
)
# Keys that such a word finds, and that change no byte of a step.
_HARMLESS = frozenset(
    {
        *("chunk_size", "expand", "max_window_layers", "num_logits_to_keep", "norm_topk_prob"),
        *(
            "hidden_act",
            "hidden_activation",
            "mlp_hidden_act",
            "mamba_hidden_act",
            "hidden_dropout",
        ),
        *("topk_group", "topk_method", "output_hidden_states", "output_router_logits"),
        *("rescale_prenorm_residual", "layer_norm_epsilon", "layer_norm_eps", "scale_fmt"),
        *("use_mamba_kernels", "ep_size", "attention_dropout", "rope_dim", "rotary_dim"),
        *("partial_rotary_factor", "use_routing_bias", "mamba_ssm_dtype", "residual_in_fp32"),
        *(
            "moe_router_dtype",
            "num_expert_group",
            "moe_shared_expert_overlap",
            "chunk_size_feed_forward",
            "mtp_use_dedicated_embeddings",
        ),
        *("cross_attention_hidden_size", "add_cross_attention", "num_return_sequences"),
        *(
            "no_repeat_ngram_size",
            "encoder_no_repeat_ngram_size",
            "scale_attn_by_inverse_layer_idx",
        ),
    }
)


class Reader:
    """The part of a config that describes the decoder; remembers which keys were asked for.

    `outer` is the whole document, where keys stand that `text_config` lacks.
    """

    def __init__(self, config: JsonValue) -> None:
        if not isinstance(config, dict):
            raise InputError(Problem("is no JSON object", file="config.json", found=_short(config)))
        inner = config.get("text_config", config)
        if not isinstance(inner, dict):
            raise refused("text_config", inner, "an object")
        self.outer: dict[str, JsonValue] = config
        self.inner: dict[str, JsonValue] = inner
        self._asked: set[str] = set()

    def get(self, key: str) -> JsonValue:
        """Return the value of `key`, None where it is missing."""
        self._asked.add(key)
        return self.inner.get(key)

    def whole(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """Return the whole number under the first of `keys` that is there.

        Raises:
            InputError: none is and there is no default, or it is no number of a model.
        """
        found = [(key, self.get(key)) for key in keys]
        key, value = next((pair for pair in found if pair[1] is not None), (keys[0], default))
        if type(value) is not int or not least <= value < _MAX_NUMBER:
            raise refused(key, value, f"a whole number from {least}")
        return value

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Return a truth value.

        Raises:
            InputError: it is none.
        """
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise refused(key, value, "true or false")
        return value

    def one_of(self, key: str, known: Iterable[str], default: str) -> str:
        """Return a word out of `known`.

        Raises:
            InputError: it is another.
        """
        value = self.get(key)
        choices = sorted(known)
        if value is None:
            return default
        if value not in choices:
            raise refused(key, value, f"one of {', '.join(choices)}")
        return str(value)

    def wholes(self, key: str) -> tuple[int, ...]:
        """Return a list of whole numbers, empty where it is missing.

        Raises:
            InputError: it is none, or longer than layers are many.
        """
        value = self.get(key)
        if value is None:
            return ()
        listed = isinstance(value, list) and len(value) <= MAX_LAYERS
        if not listed or any(type(each) is not int for each in value):
            raise refused(key, value, f"a list of at most {MAX_LAYERS} whole numbers")
        return tuple(value)

    def each_layer(self, key: str, layers: int) -> tuple[str, ...] | None:
        """Return the word that a list has for each layer, None where it is missing.

        Raises:
            InputError: it is no list of `layers` words.
        """
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != layers:
            raise refused(key, value, f"a list with one word for each of {layers} layers")
        if not all(isinstance(each, str) for each in value):
            raise refused(key, value, "words")
        return tuple(value)

    def harmless(self, *keys: str) -> None:
        """Say of keys that this family knows them, and that they change no byte of a step."""
        self._asked.update(keys)

    def refuse_the_rest(self, name: str) -> None:
        """Refuse keys that sound as if they changed what a step reads, and that nobody asked for.

        Raises:
            InputError: with the first of them.
        """
        unknown: list[Problem | str] = [
            Problem(
                f"changes what a step of {name!r} may read, and is not modelled",
                file="config.json",
                field=key[:100],
                found=_short(value),
                expected="a key that this version knows, or null",
            )
            for key, value in sorted(self.inner.items())
            if key not in self._asked | _HARMLESS
            and value not in (None, False, 0, "", [], {})
            and not isinstance(value, float)
            and _STRUCTURAL.search(key)
            and not key.endswith(("_token_id", "_token_index", "_loss_coef"))
        ]
        if unknown:
            more = len(unknown) - _TOLD
            raise InputError(*unknown[:_TOLD], *([f"and {more} more keys"] if more > 0 else []))


def refused(key: str, value: JsonValue, expected: str) -> InputError:
    """Return the error for a value that is not what the key promises."""
    what = "is missing" if value is None else "is not understood"
    return InputError(
        Problem(what, file="config.json", field=key, found=_short(value), expected=expected)
    )


def _short(value: JsonValue) -> str:
    return repr(value)[:200]
