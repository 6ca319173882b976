"""What is asked for: setup, objectives, protocol, endpoint. And the id of a configuration.

A spec that exists is valid. The `setup` is identity: any change to one of its fields makes a
different configuration and a different report. Everything else may differ between runs that are
compared with each other.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from tokenwatt_site.canonical import (
    JsonValue,
    Lines,
    canonical_bytes,
    digest,
    load_yaml,
    read_file,
)
from tokenwatt_site.errors import Problem, SpecError

NOT_RECORDED: Literal["not recorded"] = "not recorded"
NotRecorded: TypeAlias = Literal["not recorded"]

SETUP_SCHEMA = 1

# What no prose looks like: real tokens are longer than 16, folders are named hf_models.
_SECRET_SHAPE = re.compile(
    r"\b(hf_[A-Za-z0-9]{16}|(sk-|ghp_|github_pat_|glpat-|xox[abp]-)[\w-]{16})|\bAKIA[A-Z0-9]{16}"
    r"|\bbearer\s+\S{8,}|://[^/\s:@]+:[^/\s@]+@|[?&][\w-]*(key|token|secret|auth)[\w-]*=",
    re.IGNORECASE,
)
_SECRET_ARGUMENT = re.compile(
    r"token\s*[=:]|(api[-_]?key|secret|passw(or)?d|authorization)[\"']?\s*[=:]|api[-_]key\s+\S"
    r"|^--?[\w-]*(key|token|secret|passw(or)?d|auth)(-file)?(=|$)",
    re.IGNORECASE,
)
_SECRET_VARIABLE = re.compile(
    r"(^|_)(token|secret|pass(w(or)?d)?|credentials?|auth|(\w*_)?(api)?key)(_|$)|pwd$",
    re.IGNORECASE,
)


def _one_line(text: str) -> str:
    if "\n" in text:
        raise ValueError("must be one line")
    return text


def _no_secret(text: str) -> str:
    if _SECRET_SHAPE.search(text):
        raise ValueError(_PUBLISHED)
    return text


def _no_secret_argument(text: str) -> str:
    if _SECRET_ARGUMENT.search(text):
        raise ValueError(_PUBLISHED)
    return text


_PUBLISHED = "text without a secret: it is published, and this looks like one"

Line = Annotated[
    str,
    Field(min_length=1, max_length=300),
    AfterValidator(_one_line),
    AfterValidator(_no_secret),
]
Argument = Annotated[
    str,
    Field(max_length=2000),
    AfterValidator(_one_line),
    AfterValidator(_no_secret),
    AfterValidator(_no_secret_argument),
]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Mode: TypeAlias = Literal["demo", "quick", "full"]
Role: TypeAlias = Literal["baseline", "candidate"]


class Model(BaseModel):
    """Base of all values that are read from or written to files: frozen and exact."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    def to_json(self) -> JsonValue:
        """Return plain JSON values, as they are hashed and written."""
        return self.model_dump(mode="json")


class Accelerator(Model):
    """The boards, per replica set as a whole. `model: CPU` is a class of its own."""

    model: Line
    count: Annotated[int, Field(ge=0, le=100_000)]
    memory_gib: Annotated[int, Field(gt=0)] | NotRecorded
    rated_bandwidth_gb_s: Annotated[float, Field(gt=0)] | NotRecorded
    power_limit_w: Annotated[float, Field(gt=0)] | NotRecorded


class Engine(Model):
    """The server and how it was started. `argv` is launched as written when we start it.

    `{python}` and `{port}` stand for the interpreter and the port chosen at launch.
    """

    name: Line
    version: Line
    build: Line
    image_digest: Line
    argv: tuple[Argument, ...] | NotRecorded
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], Argument]

    @model_validator(mode="after")
    def _no_secret_variables(self) -> Engine:
        for name in self.environment:
            if _SECRET_VARIABLE.search(name):
                raise ValueError(f"environment.{name} looks like a secret, and this is published")
        return self


class ModelIdentity(Model):
    name: Line
    revision: Line
    architecture: Literal["dense", "moe"] | NotRecorded
    digest: Line


class Quantization(Model):
    weights: Line
    kv_cache: Line


class Parallelism(Model):
    replicas: Annotated[int, Field(ge=1)]
    tensor: Annotated[int, Field(ge=1)]
    pipeline: Annotated[int, Field(ge=1)]
    expert: Annotated[int, Field(ge=1)]
    data: Annotated[int, Field(ge=1)]
    prefill_decode_split: Line


class WorkloadIdentity(Model):
    """`hash` is the digest of the generator's definition (`workload.Workload.hash`)."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    version: Annotated[int, Field(ge=1)]
    hash: Sha256


class Lognormal(Model):
    """Token counts: lognormal with this median and 90th percentile, clipped to [min, max]."""

    kind: Literal["lognormal"]
    median: Annotated[int, Field(ge=1, le=1_000_000)]
    p90: Annotated[int, Field(ge=1, le=10_000_000)]
    min: Annotated[int, Field(ge=1)]
    max: Annotated[int, Field(ge=1, le=10_000_000)]

    @property
    def longest(self) -> int:
        return self.max

    @model_validator(mode="after")
    def _ordered(self) -> Lognormal:
        if not self.min <= self.median < self.p90 <= self.max:
            raise ValueError("needs min <= median < p90 <= max")
        return self


class Fixed(Model):
    """Every request has this many tokens."""

    kind: Literal["fixed"]
    tokens: Annotated[int, Field(ge=1, le=10_000_000)]

    @property
    def longest(self) -> int:
        return self.tokens


Lengths: TypeAlias = Annotated[Lognormal | Fixed, Field(discriminator="kind")]


class Objective(Model):
    """At most n - ceil(quantile * n) of n scored requests exceed `limit_ms`."""

    metric: Literal["ttft", "tpot", "e2e"]
    quantile: Annotated[float, Field(gt=0, lt=1)]
    limit_ms: Annotated[float, Field(gt=0)]

    @property
    def limit_ns(self) -> int:
        return round(self.limit_ms * 1_000_000)

    @property
    def label(self) -> str:
        """Such as "TTFT p99": the quantile is the spec's own."""
        return f"{self.metric.upper()} p{self.quantile * 100:g}"


METRIC_ORDER = ("ttft", "tpot", "e2e")


class PowerSource(Model):
    """Which instrument, what it covers, how often it is read.

    At most once a second: energy counters that are polled faster fall short.
    """

    sensor: Literal["nvml", "none"]
    scope: Literal["gpu", "module", "none"]
    rate_hz: Annotated[float, Field(ge=0, le=1)]

    @model_validator(mode="after")
    def _whole(self) -> PowerSource:
        told = (self.sensor != "none", self.scope != "none", self.rate_hz > 0)
        if len(set(told)) != 1:
            raise ValueError("sensor, scope and rate_hz go together: none, none and 0, or all set")
        return self


class AccuracyGate(Model):
    """Which task the same server must pass. `task: none` says that no gate is asked for."""

    task: Line
    shots: Annotated[int, Field(ge=0)]
    questions: Annotated[int, Field(ge=0)] | NotRecorded
    max_drop_points: Annotated[float, Field(ge=0)]


class Setup(Model):
    """The identity of a configuration."""

    setup_schema: Literal[1]
    accelerator: Accelerator
    driver: Line
    host_kind: Line
    engine: Engine
    kernel_libraries: tuple[Line, ...] | NotRecorded
    model: ModelIdentity
    quantization: Quantization
    parallelism: Parallelism
    workload: WorkloadIdentity
    input_tokens: Lengths
    output_tokens: Lengths
    arrival: Literal["poisson"]
    slo: Annotated[tuple[Objective, ...], Field(min_length=1, max_length=8)]
    power: PowerSource
    accuracy_gate: AccuracyGate

    @model_validator(mode="after")
    def _objectives_in_order(self) -> Setup:
        order = [(METRIC_ORDER.index(o.metric), o.quantile) for o in self.slo]
        if any(b <= a for a, b in pairwise(order)):
            # One SLO, one way to write it: another order would be another configuration.
            raise ValueError("slo must list ttft, tpot, e2e in this order, each quantile once")
        return self

    @property
    def is_cpu(self) -> bool:
        return self.accelerator.model.upper() == "CPU"


class Endpoint(Model):
    """Where the engine answers. Not identity: a port does not change a result."""

    start: Literal["launch", "attach"]
    url: (
        Annotated[
            str,
            Field(pattern=r"^http://[^\s/@]+(/[^\s@]*)?$", max_length=300),
            AfterValidator(_no_secret),
        ]
        | None
    ) = None
    api: Literal["completions", "chat"]
    model: Line
    vocabulary: Annotated[int, Field(ge=1000, le=10_000_000)]
    ready_timeout_s: Annotated[int, Field(ge=1, le=7200)] = 600

    @model_validator(mode="after")
    def _url_when_attached(self) -> Endpoint:
        if self.start == "attach" and self.url is None:
            raise ValueError("start: attach needs url")
        if self.url is not None and self.url.rstrip("/").endswith("/v1"):
            raise ValueError("url is the base of the API, without /v1")
        if self.start == "launch" and self.url is not None:
            raise ValueError("start: launch chooses its own port; remove url")
        return self


class Protocol(Model):
    """How it is measured. `scored` and `lead_in` are the same at every rate of one mode."""

    mode: Mode
    repeats: Annotated[int, Field(ge=1, le=100)]
    lead_in: Annotated[int, Field(ge=0, le=1_000_000)]
    scored: Annotated[int, Field(ge=10, le=1_000_000)]
    tail: Annotated[int, Field(ge=1, le=1_000_000)]
    start_rate: Annotated[float, Field(ge=0.001, le=1_000_000)]
    max_rate: Annotated[float, Field(ge=0.001, le=1_000_000)]
    request_timeout_s: Annotated[float, Field(gt=0, le=7200)]

    @model_validator(mode="after")
    def _consistent(self) -> Protocol:
        if self.start_rate > self.max_rate:
            raise ValueError("start_rate is above max_rate")
        rows = self.lead_in + self.scored + self.tail
        if rows > (limit := min(MAX_ROWS, MAX_RUN_ROWS // self.repeats)):
            raise ValueError(f"lead_in, scored and tail together may be {limit:,} rows")
        if self.mode != "demo" and self.scored < MIN_SCORED:
            raise ValueError(f"mode {self.mode} needs at least {MIN_SCORED} scored requests")
        if self.mode == "quick" and self.repeats != 2:
            raise ValueError("mode quick means 2 repeats")
        if self.mode == "full" and self.repeats < 3:
            raise ValueError("mode full means at least 3 repeats")
        return self

    @property
    def bracket_ratio(self) -> float:
        """The search stops when lowest fail / highest pass is at most this."""
        return {"full": 1.02, "quick": 1.05, "demo": 1.15}[self.mode]


MAX_ROWS = 50_000
"""Of one realisation. Who verifies a run draws its realisations again: 500,000 rows take 5 s."""

MAX_RUN_ROWS = 500_000
MIN_SCORED = 600
MIN_WINDOW_S = 120


class Spec(Model):
    spec_schema: Literal[1]
    title: Line
    label: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    role: Role | None = None
    note: Annotated[str, Field(max_length=4000), AfterValidator(_no_secret)] = ""
    setup: Setup
    endpoint: Endpoint
    protocol: Protocol

    @model_validator(mode="after")
    def _launchable(self) -> Spec:
        argv = self.setup.engine.argv
        if self.endpoint.start == "launch" and not any("{port}" in part for part in argv):
            raise ValueError("endpoint.start: launch needs setup.engine.argv with {port} in it")
        return self

    @property
    def configuration_id(self) -> str:
        return configuration_id(self.setup)


def configuration_id(setup: Setup) -> str:
    """Return `<slug>-<12 hex of sha256(JCS(setup))>`; at most 64 of [a-z0-9-]."""
    boards = f"{setup.accelerator.count}x {setup.accelerator.model}"
    words = f"{setup.model.name} {boards if not setup.is_cpu else 'cpu'} {setup.engine.name}"
    slug = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:51].strip("-")
    return f"{slug or 'configuration'}-{digest(setup.to_json())[:12]}"


def load_spec(path: Path) -> Spec:
    """Read and check a spec file.

    Raises:
        InputError: not readable, or not the YAML subset of `canonical.load_yaml`.
        SpecError: every field that is wrong, with file, line, found and expected.
    """
    value, lines = load_yaml(read_file(path), source=str(path))
    return parse_spec(value, source=str(path), lines=lines)


def parse_spec(value: JsonValue, *, source: str, lines: Lines | None = None) -> Spec:
    """Check plain values against the schema; see `load_spec`."""
    try:
        return Spec.model_validate_json(canonical_bytes(value))
    except ValidationError as error:
        raise SpecError(*validation_problems(error, source=source, lines=lines)) from error


def validation_problems(
    error: ValidationError, *, source: str, lines: Lines | None = None
) -> tuple[Problem, ...]:
    """Turn a schema error into problems that a reader can act on, one per field."""
    problems: dict[str, Problem] = {}
    for item in error.errors(include_url=False):
        # Union branches add their own name to the path; only what is in the file is shown.
        path = tuple(part for part in item["loc"] if not _is_branch(part))
        field = ".".join(map(str, path))
        missing = item["type"] == "missing"
        expected = item["msg"].removeprefix("Value error, ")
        found = _shown(item["input"])
        if missing or item["type"] == "extra_forbidden" or "secret" in expected:
            found = None
        if known := problems.get(field):
            problems[field] = Problem(
                known.what,
                file=source,
                line=known.line,
                field=field,
                found=known.found,
                expected=f"{known.expected}, or: {expected}",
            )
            continue
        problems[field] = Problem(
            "is missing"
            if missing
            else "is not a field of the schema"
            if item["type"] == "extra_forbidden"
            else "is not valid",
            file=source,
            line=_line_of(path, lines),
            field=field or "document",
            found=found,
            expected=None if missing or item["type"] == "extra_forbidden" else expected,
            remedy='Where the value is not known, most fields take "not recorded".'
            if missing and path[0] == "setup" and len(path) > 1
            else None,
        )
    # A list with a bad item is also "too short" and not "not recorded"; the item says it all.
    return tuple(
        problem
        for field, problem in problems.items()
        if not any(other.startswith(f"{field}.") for other in problems)
    )


_BRANCH = re.compile(
    r"^(constrained-\w+|literal\[.*\]|int|float|str|tuple\[.*\]|function-.*|lognormal|fixed)$"
)


def _is_branch(part: int | str) -> bool:
    return isinstance(part, str) and _BRANCH.match(part) is not None


def _line_of(path: tuple[int | str, ...], lines: Lines | None) -> int | None:
    if lines is None:
        return None
    for length in range(len(path), -1, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def _shown(value: object) -> str | None:
    if isinstance(value, dict):
        return None
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
