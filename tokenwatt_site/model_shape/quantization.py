"""Which weights of a model are quantised, and how, as its own files say.

Read are `quantization_config` of config.json (fp8, mxfp4, gptq, awq, compressed-tensors, modelopt),
`quantization` as MLX writes it, and hf_quant_config.json of ModelOpt. A method that is not known is
refused by name. Matrices of linear layers are quantised, apart from those that the files except;
norms, biases, convolutions and routers that are no linear layer are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.model_shape import schemes
from tokenwatt_site.model_shape.document import ModelDocument
from tokenwatt_site.model_shape.patterns import Patterns
from tokenwatt_site.model_shape.schemes import Scheme
from tokenwatt_site.model_shape.weights import Weight, place, short_name

_DTYPES = {"bfloat16": 2, "float16": 2, "float32": 4}
_MAX_GROUPS = 8
"""With patterns of their own, that every module is held against; files have one or two."""
_SIDECAR = "hf_quant_config.json"
_CONFIG = "config.json: quantization_config"


@dataclass(frozen=True)
class Storage:
    """How the weights of one model are stored.

    Attributes:
        value_bytes: of a value that is not quantised.
        assumed: whether no file names its type.
        groups: schemes, each with the modules that it is for (None: all linear layers); the first
            that names a module holds.
        skipped: modules that are left alone.
        one_by_one: modules with a scheme of their own (None: not quantised).
        head: whether the output matrix counts among the linear layers.
        embedding: whether the input embedding does.
        experts_only: whether nothing but experts is quantised.
        kv_value: bytes of a value of the KV cache that the files ask for, None: they do not.
    """

    value_bytes: int
    assumed: bool = False
    groups: tuple[tuple[Scheme, Patterns | None], ...] = ()
    skipped: Patterns = field(default_factory=lambda: Patterns((), field=""))
    one_by_one: Mapping[str, Scheme | None] = field(default_factory=dict)
    head: bool = False
    embedding: bool = False
    experts_only: bool = False
    kv_value: float | None = None

    @property
    def narrowest_bits(self) -> int:
        """Bits of the narrowest weights, scales apart."""
        own = [scheme.bits for scheme in self.one_by_one.values() if scheme is not None]
        bits = [scheme.bits for scheme, _ in self.groups] + own
        return min(bits, default=8 * self.value_bytes)

    def scheme_of(self, name: str) -> Scheme | None:
        """Return how the matrix of the module of this short name is quantised; None: it is not."""
        pieces = name.split(".")
        for end in range(len(pieces), 0, -1):
            if (part_of := ".".join(pieces[:end])) in self.one_by_one:
                return self.one_by_one[part_of]
        where = place(name)
        part = None if where is None else where.part
        if (part == "head" and not self.head) or (part == "embedding" and not self.embedding):
            return None
        if (self.experts_only and part != "expert") or self.skipped.match(name):
            return None
        for scheme, wanted in self.groups:
            if wanted is None or wanted.match(name):
                return scheme
        return None

    def check_experts(self, experts: int) -> None:
        """Refuse rules that name some of the `experts` of a layer and not all.

        Raises:
            InputError: there are such.
        """
        self.skipped.check_experts(experts, field="modules that are not quantised")

    def bytes_of(self, weight: Weight) -> float:
        """Return the bytes of all `count` of a weight that the config implies."""
        quantised = weight.linear or place(weight.name) in _EMBEDDED
        scheme = self.scheme_of(weight.name) if quantised else None
        if scheme is None:
            return weight.parameters * (weight.value_bytes or self.value_bytes)
        return weight.count * scheme.bytes_of(weight.shape)


_EMBEDDED = (place("embed_tokens"),)


def storage_of(document: ModelDocument) -> Storage:
    """Return how the files say that the weights are stored.

    Raises:
        InputError: a method, an algorithm or a pattern that is not known.
    """
    config = document.config if isinstance(document.config, dict) else {}
    value_bytes = _value_bytes(config)
    plain = Storage(value_bytes or 2, assumed=value_bytes is None)
    sidecar = document.quantization
    if sidecar is not None:
        told = _object(sidecar, _SIDECAR).get("quantization")
        if told is not None:
            return _modelopt(_object(told, f"{_SIDECAR}: quantization"), plain, _SIDECAR)
    inner = config.get("text_config")
    inner = inner if isinstance(inner, dict) else {}
    told = config.get("quantization_config") or inner.get("quantization_config")
    mlx = config.get("quantization")
    if mlx and (not told or "quant_method" not in _object(told, _CONFIG)):
        return _mlx(_object(mlx, "config.json: quantization"), plain)
    if not told:
        return plain
    rules = _object(told, _CONFIG)
    method = rules.get("quant_method")
    known = _METHODS.get(method) if isinstance(method, str) else None
    if known is None:
        raise _refused(f"{_CONFIG}.quant_method", method, f"one of {', '.join(sorted(_METHODS))}")
    return known(rules, plain)


def _fp8(rules: dict[str, JsonValue], plain: Storage) -> Storage:
    block = rules.get("weight_block_size")
    if block is None:
        scheme = schemes.tensor_fp8(static=rules.get("activation_scheme") == "static")
    elif isinstance(block, list) and len(block) == 2:
        rows, columns = (_whole(each, f"{_CONFIG}.weight_block_size") for each in block)
        scheme = schemes.block_fp8(rows, columns)
    else:
        raise _refused(f"{_CONFIG}.weight_block_size", block, "two whole numbers")
    return _with(plain, [(scheme, None)], skipped=_skipped(rules))


def _mxfp4(rules: dict[str, JsonValue], plain: Storage) -> Storage:
    return _with(plain, [(schemes.MXFP4, None)], skipped=_skipped(rules), experts_only=True)


def _gptq(rules: dict[str, JsonValue], plain: Storage) -> Storage:
    if rules.get("dynamic"):
        raise _refused(f"{_CONFIG}.dynamic", rules["dynamic"], "one rule for all modules")
    bits = _bits(rules.get("bits"), f"{_CONFIG}.bits")
    group = rules.get("group_size")
    group = 0 if group == -1 else _whole(group, f"{_CONFIG}.group_size")
    # One fp16 scale and one packed zero for a group, and for each input the number of its group.
    scheme = schemes.grouped(bits, group, 2 + bits / 8, input_bytes=4)
    head = rules.get("lm_head") is True
    return _with(plain, [(scheme, None)], skipped=_skipped(rules), head=head)


def _awq(rules: dict[str, JsonValue], plain: Storage) -> Storage:
    bits = _bits(rules.get("bits", rules.get("w_bit")), f"{_CONFIG}.bits")
    group = _whole(rules.get("group_size", rules.get("q_group_size")), f"{_CONFIG}.group_size")
    zero = bits / 8 if rules.get("zero_point", True) else 0
    scheme = schemes.grouped(bits, group, 2 + zero)
    return _with(plain, [(scheme, None)], skipped=_skipped(rules))


def _mlx(rules: dict[str, JsonValue], plain: Storage) -> Storage:
    where = "config.json: quantization"
    own = {
        short_name(name): _mlx_scheme(value, f"{where}.{name}") if value is not False else None
        for name, value in rules.items()
        if isinstance(value, dict) or (value is False and "." in name)
    }
    scheme = _mlx_scheme(rules, where)
    return _with(plain, [(scheme, None)], one_by_one=own, head=True, embedding=True)


def _mlx_scheme(rules: dict[str, JsonValue], where: str) -> Scheme:
    mode = rules.get("mode", "affine")
    if mode in ("mxfp4", "mxfp8"):
        return schemes.MXFP4 if mode == "mxfp4" else schemes.MXFP8
    if mode != "affine":
        raise _refused(f"{where}.mode", mode, "affine, mxfp4 or mxfp8")
    bits = _bits(rules.get("bits"), f"{where}.bits")
    # A scale and a bias of two bytes for each group.
    return schemes.grouped(bits, _whole(rules.get("group_size"), f"{where}.group_size"), 4)


def _modelopt(
    rules: dict[str, JsonValue], plain: Storage, where: str = "config.json: quantization_config"
) -> Storage:
    kv = _kv_of_algorithm(rules, where)
    algorithm = rules.get("quant_algo")
    group = rules.get("group_size")
    excluded = rules.get("exclude_modules", rules.get("ignore", rules.get("ignored_layers")))
    skipped = _patterns(excluded, f"{where}: exclude_modules")
    if algorithm is None:
        return _with(plain, [], skipped=skipped, kv_value=kv)
    if algorithm == "MIXED_PRECISION":
        listed = _object(rules.get("quantized_layers"), f"{where}: quantized_layers")
        own: dict[str, Scheme | None] = {}
        for name, value in listed.items():
            each = _object(value, f"{where}: quantized_layers.{name}")
            own[short_name(name)] = _algorithm(
                each.get("quant_algo"), each.get("group_size", group), where
            )
        return _with(plain, [], one_by_one=own, kv_value=kv)
    scheme = _algorithm(algorithm, group, where)
    # The head is a linear layer to ModelOpt, and its files except it by name.
    return _with(plain, [(scheme, None)], skipped=skipped, head=True, kv_value=kv)


def _algorithm(name: JsonValue, group: JsonValue, where: str) -> Scheme:
    match name:
        case "FP8":
            return schemes.tensor_fp8(static=True)
        case "FP8_PB_WO":
            return schemes.block_fp8(128, 128)
        case "FP8_PER_CHANNEL_PER_TOKEN":
            return schemes.channel(8, 4)
        case "NVFP4" | "NVFP4_AWQ":
            if group not in (None, 16):
                raise _refused(f"{where}: group_size", group, "16, which NVFP4 has")
            return schemes.NVFP4
        case "MXFP8":
            return schemes.MXFP8
        case "W4A16_AWQ" | "W4A8_AWQ":
            size = 128 if group is None else _whole(group, f"{where}: group_size")
            return schemes.grouped(4, size, 2)
        case _:
            raise _refused(
                f"{where}: quant_algo",
                name,
                "FP8, FP8_PB_WO, FP8_PER_CHANNEL_PER_TOKEN, NVFP4, NVFP4_AWQ, MXFP8, W4A16_AWQ, "
                "W4A8_AWQ or MIXED_PRECISION",
            )


def _compressed(rules: dict[str, JsonValue], plain: Storage) -> Storage:
    sparsity = rules.get("sparsity_config")
    if isinstance(sparsity, dict) and sparsity.get("format") not in (None, "dense"):
        raise _refused(f"{_CONFIG}.sparsity_config.format", sparsity.get("format"), "dense")
    where = f"{_CONFIG}.config_groups"
    groups: list[tuple[Scheme, Patterns | None]] = []
    listed = _object(rules.get("config_groups"), where)
    if len(listed) > _MAX_GROUPS:
        raise _refused(where, f"{len(listed)} groups", f"at most {_MAX_GROUPS}")
    for name, value in sorted(listed.items()):
        group = _object(value, f"{where}.{name}")
        targets = group.get("targets")
        if not isinstance(targets, list) or not all(isinstance(t, str) for t in targets):
            raise _refused(f"{where}.{name}.targets", targets, "a list of names")
        wanted = None if "Linear" in targets else Patterns(targets, field=f"{where}.{name}")
        weights = group.get("weights")
        if weights is None:
            raise _refused(f"{where}.{name}.weights", None, "how weights are stored")
        told = _object(weights, f"{where}.{name}.weights")
        groups.append((_compressed_scheme(told, plain, f"{where}.{name}.weights"), wanted))
    groups.sort(key=lambda each: each[1] is None)  # names stand before classes
    kv = _kv_of_scheme(rules.get("kv_cache_scheme"))
    ignored = _patterns(rules.get("ignore"), f"{_CONFIG}.ignore")
    return _with(plain, groups, skipped=ignored, head=True, kv_value=kv)


def _compressed_scheme(told: dict[str, JsonValue], plain: Storage, where: str) -> Scheme:
    bits = _bits(told.get("num_bits"), f"{where}.num_bits")
    floating = told.get("type") == "float"
    scale = plain.value_bytes + (0 if told.get("symmetric", True) else bits / 8)
    match told.get("strategy"):
        case "tensor" if bits == 8:
            return schemes.tensor_fp8(static=False)
        case "channel":
            return schemes.channel(bits, scale)
        case "block" if bits == 8 and isinstance(told.get("block_structure"), list):
            rows, columns = [*told["block_structure"], None, None][:2]
            return schemes.block_fp8(
                _whole(rows, f"{where}.block_structure"),
                _whole(columns, f"{where}.block_structure"),
            )
        case "tensor_group" if floating and bits == 4 and told.get("group_size") == 16:
            return schemes.NVFP4
        case "group" if floating and bits in (4, 8) and told.get("group_size") == 32:
            return schemes.MXFP4 if bits == 4 else schemes.MXFP8
        case "group" if not floating:
            group = _whole(told.get("group_size"), f"{where}.group_size")
            return schemes.grouped(bits, group, scale)
        case other:
            found = f"{other!r} of {bits} bits, type {told.get('type')!r}"
            raise _refused(f"{where}.strategy", found, "one whose scales are known here")


_METHODS: dict[str, Callable[[dict[str, JsonValue], Storage], Storage]] = {
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "gptq": _gptq,
    "awq": _awq,
    "modelopt": _modelopt,
    "compressed-tensors": _compressed,
}


def _kv_of_algorithm(rules: dict[str, JsonValue], where: str) -> float | None:
    match rules.get("kv_cache_quant_algo"):
        case None:
            return _kv_of_scheme(rules.get("kv_cache_scheme"))
        case "FP8" | "INT8":
            return 1.0
        case "NVFP4":
            return 0.5625
        case other:
            raise _refused(f"{where}: kv_cache_quant_algo", other, "FP8, INT8, NVFP4 or null")


def _kv_of_scheme(scheme: JsonValue) -> float | None:
    if scheme is None:
        return None
    where = f"{_CONFIG}.kv_cache_scheme"
    return _bits(_object(scheme, where).get("num_bits"), f"{where}.num_bits") / 8


def _with(
    plain: Storage,
    groups: list[tuple[Scheme, Patterns | None]],
    *,
    skipped: Patterns | None = None,
    one_by_one: dict[str, Scheme | None] | None = None,
    head: bool = False,
    embedding: bool = False,
    experts_only: bool = False,
    kv_value: float | None = None,
) -> Storage:
    return Storage(
        value_bytes=plain.value_bytes,
        assumed=plain.assumed,
        groups=tuple(groups),
        skipped=skipped or plain.skipped,
        one_by_one=one_by_one or {},
        head=head,
        embedding=embedding,
        experts_only=experts_only,
        kv_value=kv_value,
    )


def _skipped(rules: dict[str, JsonValue]) -> Patterns:
    for key in ("modules_to_not_convert", "ignored_layers"):
        if rules.get(key) is not None:
            return _patterns(rules[key], f"{_CONFIG}.{key}")
    return Patterns((), field="")


def _patterns(value: JsonValue, where: str) -> Patterns:
    if value is None:
        return Patterns((), field=where)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _refused(where, value, "a list of names")
    return Patterns(value, field=where)


def _value_bytes(config: dict[str, JsonValue]) -> int | None:
    inner = config.get("text_config")
    for part in (inner if isinstance(inner, dict) else {}, config):
        for key in ("dtype", "torch_dtype"):
            value = part.get(key)
            if value is None or value == "auto":
                continue
            name = value.removeprefix("torch.") if isinstance(value, str) else None
            if name not in _DTYPES:
                raise _refused(f"config.json: {key}", value, f"one of {', '.join(_DTYPES)}")
            return _DTYPES[name]
    return None


def _bits(value: JsonValue, where: str) -> int:
    if type(value) is not int or value not in (2, 3, 4, 5, 6, 8, 16):
        raise _refused(where, value, "2, 3, 4, 5, 6, 8 or 16")
    return value


def _whole(value: JsonValue, where: str) -> int:
    if type(value) is not int or not 1 <= value <= 1 << 20:
        raise _refused(where, value, "a whole number from 1")
    return value


def _object(value: JsonValue, where: str) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise _refused(where, value, "an object")
    return value


def _refused(where: str, value: JsonValue, expected: str) -> InputError:
    file, _, name = where.partition(": ")
    return InputError(
        Problem(
            "is missing" if value is None else "is not understood",
            file=file,
            field=name[:200] or None,
            found=repr(value)[:200],
            expected=expected,
        )
    )
