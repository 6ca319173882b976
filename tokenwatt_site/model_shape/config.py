"""From a model's own files to its shape and its bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.model_shape import tensors
from tokenwatt_site.model_shape.document import ModelDocument
from tokenwatt_site.model_shape.families import ARCHITECTURES, MODEL_TYPES, LayerOf
from tokenwatt_site.model_shape.quantization import Storage, storage_of
from tokenwatt_site.model_shape.reader import MAX_LAYERS, Reader, refused
from tokenwatt_site.model_shape.shape import (
    AttentionLayers,
    ExpertLayers,
    ModelShape,
    StoredBytes,
)
from tokenwatt_site.model_shape.tensors import Sums
from tokenwatt_site.model_shape.weights import Decoder

_CHUNKED = "start of a chunk of attention: chunks count as windows of their length, an upper bound"
_ASSUMED = "data type of what is not quantised: no file names it, and two bytes a value are taken"


def describe(document: ModelDocument) -> tuple[ModelShape, StoredBytes]:
    """Return what a step of a model reads: its shape, and its parts in bytes.

    Bytes are those of the tensors where the document has their headers, else what the config and
    its quantisation imply.

    Raises:
        InputError: an architecture, a quantisation or a key that is not modelled, by name; or
            tensors that are not those of the config.
    """
    decoder = decoder_of(document.config)
    storage = storage_of(document)
    for experts in {layer.experts for layer in decoder.layers if layer.experts}:
        storage.check_experts(experts)
    headers = bool(document.tensors)
    if headers:
        sums = tensors.stored(decoder, storage, document.tensors)
    else:
        sums = tensors.implied(decoder, storage)
    return _assembled(decoder, storage, sums, headers=headers)


def _assembled(
    decoder: Decoder, storage: Storage, sums: Sums, *, headers: bool
) -> tuple[ModelShape, StoredBytes]:
    experts = _experts(decoder, sums)
    rows = decoder.vocabulary * decoder.hidden
    dense, dense_bytes = sums.of("dense")
    assumed = (_ASSUMED,) if storage.assumed and not headers else ()
    shape = ModelShape(
        name=decoder.name,
        vocabulary=decoder.vocabulary,
        hidden=decoder.hidden,
        layers=len(decoder.layers),
        max_context=decoder.max_context,
        attention=_attention(decoder),
        experts=tuple(group for group, _ in experts),
        embedding=rows,
        head=rows,
        tied=decoder.tied,
        dense=dense,
        attention_parameters=sums.attention_parameters,
        replicated=sums.replicated_parameters,
        left_out=(*decoder.left_out, *assumed),
    )
    return shape, StoredBytes(
        source="safetensors headers" if headers else "config",
        embedding=sums.of("embedding")[1],
        head=sums.of("head")[1],
        dense=dense_bytes,
        attention=sums.attention_bytes,
        replicated=sums.replicated_bytes,
        expert=tuple(size for _, size in experts),
        kv_value=_kv_value(storage),
    )


def _kv_value(storage: Storage) -> float | None:
    if storage.kv_value is not None:
        return storage.kv_value
    return None if storage.assumed else float(storage.value_bytes)


def _attention(decoder: Decoder) -> tuple[AttentionLayers, ...]:
    alike = Counter(layer.attention for layer in decoder.layers if layer.attention is not None)
    return tuple(replace(each, layers=count) for each, count in alike.items())


def _experts(decoder: Decoder, sums: Sums) -> list[tuple[ExpertLayers, float]]:
    """Return layers whose experts are of one size and stored in as many bytes, in groups."""
    alike: Counter[tuple[int, int, int, float]] = Counter()
    for index, layer in enumerate(decoder.layers):
        if layer.experts:
            parameters = sums.parameters["expert", index] // layer.experts
            size = sums.bytes["expert", index] / layer.experts
            alike[layer.experts, layer.per_token, parameters, size] += 1
    return [
        (ExpertLayers(count, experts, per_token, parameters), size)
        for (experts, per_token, parameters, size), count in alike.items()
    ]


def decoder_of(config: JsonValue) -> Decoder:
    """Return the decoder that a config.json describes.

    Raises:
        InputError: an architecture that is not modelled, a missing or odd value, or a key that
            may change what a step reads and is not understood.
    """
    r = Reader(config)
    name, layer_of = _family(r)
    layers = r.whole("num_hidden_layers", default=_length(r, "hybrid_override_pattern"))
    if layers > MAX_LAYERS:
        raise refused("num_hidden_layers", layers, f"at most {MAX_LAYERS} layers")
    built = tuple(layer_of(r, index, layers) for index in range(layers))
    drafts, left_out = _left_out(r)
    tied = r.get("tie_word_embeddings")
    if tied is None:
        tied = r.outer.get("tie_word_embeddings", False)
    if not isinstance(tied, bool):
        raise refused("tie_word_embeddings", tied, "true or false")
    longest = r.get("max_position_embeddings")
    decoder = Decoder(
        name=name,
        vocabulary=r.whole("vocab_size"),
        hidden=r.whole("hidden_size"),
        max_context=None if longest is None else r.whole("max_position_embeddings"),
        tied=tied,
        layers=built,
        draft_layers=drafts,
        left_out=tuple(left_out),
    )
    r.refuse_the_rest(name)
    return decoder


def _length(r: Reader, key: str) -> int | None:
    value = r.get(key)
    return len(value) if isinstance(value, str) else None


def _left_out(r: Reader) -> tuple[int, list[str]]:
    """Return how many layers of a draft there are, and all that is no part of the decoder."""
    left_out = []
    drafts = 0
    for key in ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"):
        drafts = max(drafts, r.whole(key, default=0, least=0))
    r.harmless("use_mtp", "mtp_transformer_layers")
    if drafts:
        left_out.append(f"{drafts} draft layers (multi-token prediction)")
    towers = {
        "vision_config": "tower for images",
        "audio_config": "tower for sound",
        "speech_config": "tower for sound",
    }
    left_out += [text for key, text in towers.items() if r.outer.get(key)]
    if r.inner.get("attention_chunk_size"):
        left_out.append(_CHUNKED)
    return drafts, left_out


def _family(r: Reader) -> tuple[str, LayerOf]:
    name = r.get("model_type")
    if isinstance(name, str) and name in MODEL_TYPES:
        return name, MODEL_TYPES[name]
    named = r.outer.get("architectures")
    architectures = [n for n in named if isinstance(n, str)] if isinstance(named, list) else []
    for each in architectures:
        if each in ARCHITECTURES:
            told = name if isinstance(name, str) else ARCHITECTURES[each]
            return told[:100], MODEL_TYPES[ARCHITECTURES[each]]
    raise InputError(
        Problem(
            "this architecture is not modelled",
            file="config.json",
            field="model_type",
            found=f"{str(name)[:100]} ({', '.join(architectures)[:200] or 'no architecture'})",
            expected=f"one of {', '.join(sorted(MODEL_TYPES))}",
            remedy="Its bytes per step are not guessed; everything else is measured.",
        )
    )
