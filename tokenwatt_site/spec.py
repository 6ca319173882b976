"""What is asked for: setup, objectives, protocol, endpoint. And the id of a configuration.

A spec that exists is valid. The `setup` is identity: any change to one of its fields makes a
different configuration and a different report. Everything else may differ between runs that are
compared with each other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
    ValidationError,
    model_validator,
)

from tokenwatt_site.accuracy_spec import MAX_ANSWERS, NO_TASK, AccuracyGate, AccuracyPlan
from tokenwatt_site.canonical import (
    JsonValue,
    Lines,
    canonical_bytes,
    digest,
    load_yaml,
    read_file,
)
from tokenwatt_site.errors import Problem, SpecError
from tokenwatt_site.lengths import Conversation, Lengths, Traced
from tokenwatt_site.private import Private, host_of, without_host
from tokenwatt_site.schema import (
    Argument,
    GrowingModel,
    Line,
    Model,
    Sha256,
    file_name,
    is_secret_variable,
    publishable,
    validation_problems,
)

HIGHEST_URPS = 10**11
"""Rates are integers, in 1e-6 requests/s; none is above 100,000 requests/s."""

NOT_RECORDED: Literal["not recorded"] = "not recorded"
NotRecorded: TypeAlias = Literal["not recorded"]

Mode: TypeAlias = Literal["demo", "quick", "full"]
Role: TypeAlias = Literal["baseline", "candidate"]
Api: TypeAlias = Literal["completions", "chat"]

API_PATHS: Mapping[Api, str] = MappingProxyType(
    {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
)
"""Where each API answers, below the base of an engine's address."""


def _variable_name(text: str) -> str:
    # A key put here by mistake would be published, so what is no plain name is not shown either.
    if not re.fullmatch(r"[A-Z][A-Z0-9_]{0,99}", text):
        raise ValueError("the name of an environment variable (A-Z, 0-9, _), not the secret in it")
    return publishable(text)


VariableName: TypeAlias = Annotated[str, AfterValidator(_variable_name)]
BaseUrl: TypeAlias = Annotated[
    str,
    Field(pattern=r"^https?://[^\s/@]+(/[^\s@]*)?$", max_length=300),
    AfterValidator(publishable),
]


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
            if is_secret_variable(name):
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


PowerSensor: TypeAlias = Literal["nvml", "dcgm", "amd", "rapl", "redfish", "none"]
PowerScope: TypeAlias = Literal["gpu", "module", "cpu", "host", "none"]

GPU_SCOPES: frozenset[PowerScope] = frozenset({"gpu", "module"})
"""Those whose boards are the accelerators."""

SCOPES: Mapping[PowerSensor, frozenset[PowerScope]] = MappingProxyType(
    {
        "nvml": GPU_SCOPES,
        "dcgm": GPU_SCOPES,
        "amd": GPU_SCOPES,
        "rapl": frozenset({"cpu"}),
        "redfish": frozenset({"host"}),
        "none": frozenset({"none"}),
    }
)
"""What a reading of each sensor can cover."""


class PowerSource(Model):
    """Which instrument, what it covers, how often it is read.

    At most once a second: energy counters that are polled faster fall short. `scope`: the GPU
    boards; modules, with the processor beside each GPU; processor packages; or whole hosts.
    """

    sensor: PowerSensor
    scope: PowerScope
    rate_hz: Annotated[float, Field(ge=0, le=1)]

    @model_validator(mode="after")
    def _whole(self) -> PowerSource:
        told = (self.sensor != "none", self.scope != "none", self.rate_hz > 0)
        if len(set(told)) != 1:
            raise ValueError("sensor, scope and rate_hz go together: none, none and 0, or all set")
        if self.scope not in SCOPES[self.sensor]:
            scopes = " or ".join(sorted(SCOPES[self.sensor]))
            raise ValueError(f"sensor: {self.sensor} reads scope: {scopes}")
        return self


REMOTE_SENSORS: frozenset[PowerSensor] = frozenset({"dcgm", "redfish"})
"""Those that are asked over the network alone, so that there may be several: one per node."""

EXPORTED_SENSORS: frozenset[PowerSensor] = frozenset({"dcgm", "nvml", "amd"})
"""Those of which exporters tell: DCGM's own, nvidia_gpu_exporter, AMD's device-metrics-exporter."""


class Instrument(Model):
    """Where an instrument is asked. Not identity.

    Those of `setup.power.sensor` make the published energy; any other is read beside it and shown
    apart. `url` is that of an exporter's metrics or of a Redfish chassis; without it `nvml`, `amd`
    and `rapl` are this machine's own. The variables name what holds user and password, which are in
    no file.
    """

    sensor: Literal["nvml", "dcgm", "amd", "rapl", "redfish"]
    url: BaseUrl | None = None
    user_variable: VariableName | None = None
    password_variable: VariableName | None = None

    @model_validator(mode="after")
    def _asked_where_it_is(self) -> Instrument:
        if self.url is None and self.sensor in REMOTE_SENSORS:
            raise ValueError(f"sensor: {self.sensor} needs url, where it is asked")
        if self.url is not None and self.sensor not in REMOTE_SENSORS | EXPORTED_SENSORS:
            raise ValueError(f"sensor: {self.sensor} is read on this machine; remove url")
        if (self.user_variable is None) != (self.password_variable is None):
            raise ValueError("user_variable and password_variable go together")
        if self.user_variable is not None and self.sensor != "redfish":
            raise ValueError("user_variable and password_variable go with sensor: redfish")
        return self


BoardRole: TypeAlias = Literal["prefill", "decode"]

_BoardNames: TypeAlias = Annotated[tuple[Line, ...], Field(min_length=1, max_length=512)]


class BoardRoles(Model):
    """Which boards of a prefill/decode split take prompts, and which make tokens. Not identity.

    Boards are named by their UUID or its beginning, on whichever node they are.
    """

    prefill: _BoardNames
    decode: _BoardNames

    @model_validator(mode="after")
    def _one_role_each(self) -> BoardRoles:
        for name in self.prefill:
            for other in self.decode:
                if _begins(name, other) or _begins(other, name):
                    raise ValueError(f"{name} is named as prefill, and {other} as decode")
        return self

    def of(self, uuid: str) -> BoardRole | None:
        """Return the role of a board; None: it has none."""
        named: tuple[tuple[BoardRole, tuple[str, ...]], ...] = (
            ("prefill", self.prefill),
            ("decode", self.decode),
        )
        return next((role for role, own in named if any(_begins(uuid, n) for n in own)), None)

    def unused(self, uuids: Collection[str]) -> tuple[str, ...]:
        """Return the names that are of none of these boards."""
        every = (*self.prefill, *self.decode)
        return tuple(name for name in every if not any(_begins(uuid, name) for uuid in uuids))


def _begins(uuid: str, name: str) -> bool:
    return uuid.casefold().startswith(name.casefold())


class Setup(GrowingModel):
    """The identity of a configuration. `input_tokens` of a conversation are a turn's new tokens."""

    younger = frozenset({"conversation"})

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
    arrival: Literal["poisson", "trace"]
    conversation: Conversation | None = None
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

    @model_validator(mode="after")
    def _one_kind_of_arrival(self) -> Setup:
        traced = {isinstance(x, Traced) for x in (self.input_tokens, self.output_tokens)}
        if traced != {self.arrival == "trace"}:
            raise ValueError(
                "arrival: trace goes with kind: trace of input_tokens and of output_tokens"
            )
        if self.arrival == "trace" and self.conversation is not None:
            raise ValueError("the prompts of a trace are whole; conversation goes with poisson")
        return self

    @property
    def longest_prompt(self) -> int:
        """Tokens of the longest prompt that the workload can ask for."""
        new, answer = self.input_tokens.longest, self.output_tokens.longest
        return self.conversation.longest_prompt(new, answer) if self.conversation else new

    @property
    def is_cpu(self) -> bool:
        return self.accelerator.model.upper() == "CPU"


def _relative_path(text: str) -> str:
    # All of a spec is published: an absolute path would tell how a machine is laid out.
    if re.match(r"[/\\~]|[A-Za-z]:", text):
        raise ValueError("a path from the folder of the command, such as models/x/tokenizer.json")
    return text


MAX_REPLICAS = 64
"""Of one engine that are asked apart."""


class Endpoint(GrowingModel):
    """Where the engine answers, and how it is asked. Not identity: a port changes no result.

    `urls`, in the place of `url`, are of replicas that are asked apart: row i of a trial is sent to
    number i mod R of them, without a balancer.
    `api_key_variable` names the environment variable with the key; the key is in no file.
    `prompt` is what completions are asked with, token ids where it is absent; chat takes text.
    `tokenizer` is the model's tokenizer.json, by which text has exact lengths: a path from the
    folder in which the command runs. Where it is absent the engine's own /tokenize is asked.
    `model_files` is the folder of the model's config.json, by which bytes per step are modelled, a
    path from that folder too. `restart` is a command, without a shell, that ends an attached engine
    and starts it anew; it must return once that is under way.
    """

    younger = frozenset({"urls"})

    start: Literal["launch", "attach"]
    url: BaseUrl | None = None
    urls: Annotated[tuple[BaseUrl, ...], Field(min_length=2, max_length=MAX_REPLICAS)] | None = None
    api: Api
    model: Line
    vocabulary: Annotated[int, Field(ge=1000, le=10_000_000)]
    ready_timeout_s: Annotated[int, Field(ge=1, le=7200)] = 600
    api_key_variable: VariableName | None = None
    prompt: Literal["ids", "text"] | None = None
    tokenizer: Annotated[Line, AfterValidator(_relative_path)] | None = None
    model_files: Annotated[Line, AfterValidator(_relative_path)] | None = None
    restart: Annotated[tuple[Argument, ...], Field(min_length=1, max_length=100)] | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it is attached: one, or one of each replica; empty where it is launched."""
        return self.urls or (() if self.url is None else (self.url,))

    @property
    def replicas(self) -> int:
        """How many are asked apart; 1: one address is asked, whatever stands behind it."""
        return max(1, len(self.addresses))

    @property
    def over_tls(self) -> bool:
        """Whether any of it is."""
        return any(url.startswith("https:") for url in self.addresses)

    @property
    def prompt_kind(self) -> Literal["ids", "text"]:
        return self.prompt or ("text" if self.api == "chat" else "ids")

    @model_validator(mode="after")
    def _prompts_go_together(self) -> Endpoint:
        if self.api == "chat" and self.prompt == "ids":
            raise ValueError("api: chat takes text; remove prompt: ids, or use api: completions")
        if self.tokenizer is not None and self.prompt_kind == "ids":
            raise ValueError("token ids need no tokenizer; remove tokenizer, or add prompt: text")
        return self

    @model_validator(mode="after")
    def _url_when_attached(self) -> Endpoint:
        if self.start == "attach" and not self.addresses:
            raise ValueError("start: attach needs url, or urls of its replicas")
        if self.url is not None and self.urls is not None:
            raise ValueError("url is of one engine, urls are of its replicas: give one of them")
        if any(url.rstrip("/").endswith("/v1") for url in self.addresses):
            raise ValueError("url is the base of the API, without /v1")
        if self.start == "launch" and self.addresses:
            raise ValueError("start: launch chooses its own port; remove url")
        return self

    @model_validator(mode="after")
    def _each_replica_once(self) -> Endpoint:
        bases = [url.rstrip("/") for url in self.addresses]
        for base in bases:
            if bases.count(base) > 1:
                raise ValueError(f"urls names {base} more than once")
        return self

    @model_validator(mode="after")
    def _restart_when_attached(self) -> Endpoint:
        if self.start == "launch" and self.restart is not None:
            raise ValueError("start: launch starts the engine for each repeat; remove restart")
        return self


class Protocol(Model):
    """How it is measured.

    `lead_in`, `scored` and `tail` are the rows of every trial; without them they are those of the
    windows that were chosen for the workload. Without `max_rate` the client alone sets an end.
    """

    mode: Mode
    repeats: Annotated[int, Field(ge=1, le=100)]
    lead_in: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    scored: Annotated[int, Field(ge=10, le=1_000_000)] | None = None
    tail: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    start_rate: Annotated[float, Field(ge=0.001, le=HIGHEST_URPS / 1e6)]
    max_rate: Annotated[float, Field(ge=0.001, le=HIGHEST_URPS / 1e6)] | None = None
    request_timeout_s: Annotated[float, Field(gt=0, le=7200)]

    @model_validator(mode="after")
    def _consistent(self) -> Protocol:
        if self.start_rate * 1e6 > self.max_urps:
            raise ValueError("start_rate is above max_rate")
        rows = [count for count in (self.lead_in, self.scored, self.tail) if count is not None]
        if 0 < len(rows) < 3:
            raise ValueError("lead_in, scored and tail go together: give all, or none")
        if self.mode == "demo" and not rows:
            raise ValueError("mode demo needs lead_in, scored and tail")
        if sum(rows) > (limit := min(MAX_ROWS, MAX_RUN_ROWS // self.repeats)):
            raise ValueError(f"lead_in, scored and tail together may be {limit:,} rows")
        if self.mode != "demo" and self.scored is not None and self.scored < MIN_SCORED:
            raise ValueError(f"mode {self.mode} needs at least {MIN_SCORED} scored requests")
        if self.mode == "quick" and self.repeats != 2:
            raise ValueError("mode quick means 2 repeats")
        if self.mode == "full" and self.repeats < 3:
            raise ValueError("mode full means at least 3 repeats")
        return self

    @property
    def start_urps(self) -> int:
        """`start_rate` in 1e-6 requests/s."""
        return round(self.start_rate * 1e6)

    @property
    def max_urps(self) -> int:
        """`max_rate` in 1e-6 requests/s."""
        return HIGHEST_URPS if self.max_rate is None else round(self.max_rate * 1e6)

    @property
    def bracket_ratio(self) -> float:
        """The search stops when lowest fail / highest pass is at most this."""
        return {"full": 1.02, "quick": 1.05, "demo": 1.15}[self.mode]


MAX_ROWS = 50_000
"""Of one realisation. Who verifies a run draws its realisations again: 500,000 rows take 5 s."""

MAX_RUN_ROWS = 500_000
MIN_SCORED = 600
MIN_WINDOW_S = 120


_TRACE_PATH = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]*/)*[A-Za-z0-9_][A-Za-z0-9._-]*")


def _below_the_spec(text: str) -> str:
    # The spec is signed and published: no path of this machine, nothing outside its folder.
    if not _TRACE_PATH.fullmatch(text):
        raise ValueError("a path below the spec's own folder, such as traces/office.jsonl")
    return publishable(text)


class Spec(GrowingModel):
    """What is asked for. `trace` names the file of `arrival: trace`, beside or below the spec.

    It is no identity: the workload's hash names the file's contents.
    """

    younger = frozenset({"board_roles"})

    spec_schema: Literal[1]
    title: Line
    label: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$"), AfterValidator(file_name)]
    role: Role | None = None
    note: Annotated[str, Field(max_length=4000), AfterValidator(publishable)] = ""
    setup: Setup
    endpoint: Endpoint
    protocol: Protocol
    trace: Annotated[str, Field(max_length=200), AfterValidator(_below_the_spec)] | None = None
    instruments: Annotated[tuple[Instrument, ...], Field(max_length=64)] = ()
    accuracy: AccuracyPlan = AccuracyPlan()
    board_roles: BoardRoles | None = None

    @model_validator(mode="after")
    def _accuracy_within_the_plan(self) -> Spec:
        gate, plan = self.setup.accuracy_gate, self.accuracy
        if gate.task == NO_TASK and plan != AccuracyPlan():
            raise ValueError("accuracy says how a task is asked; setup.accuracy_gate.task is none")
        if plan.repeats > self.protocol.repeats:
            raise ValueError("accuracy.repeats is above protocol.repeats")
        if gate.asked is not None and int(gate.questions) * plan.repeats > MAX_ANSWERS:
            raise ValueError(f"more than {MAX_ANSWERS:,} answers: ask in fewer accuracy.repeats")
        if gate.asked is not None and gate.asked.api != self.endpoint.api:
            raise ValueError("setup.accuracy_gate.asked.api is not endpoint.api")
        return self

    @model_validator(mode="after")
    def _quantiles_are_carried(self) -> Spec:
        scored = self.protocol.scored
        for objective in self.setup.slo:
            # As many of n may miss as lie above the quantile; where none does, it is the maximum.
            fewest = math.ceil(1 / (1 - Fraction(repr(objective.quantile))))
            if scored is not None and scored < fewest:
                raise ValueError(
                    f"{objective.label} needs at least {fewest:,} scored requests, for one of them"
                    f" to be allowed to miss; protocol.scored is {scored:,}"
                )
        return self

    @model_validator(mode="after")
    def _launchable(self) -> Spec:
        argv = self.setup.engine.argv
        if self.endpoint.start == "launch" and not any("{port}" in part for part in argv):
            raise ValueError("endpoint.start: launch needs setup.engine.argv with {port} in it")
        return self

    @model_validator(mode="after")
    def _replicas_are_those_of_the_setup(self) -> Spec:
        asked, declared = self.endpoint.urls, self.setup.parallelism.replicas
        if asked is not None and len(asked) != declared:
            raise ValueError(
                f"endpoint.urls names {len(asked)} replicas, and setup.parallelism.replicas is"
                f" {declared}"
            )
        return self

    @model_validator(mode="after")
    def _source_of_power_is_known(self) -> Spec:
        sensor = self.setup.power.sensor
        if sensor in REMOTE_SENSORS and sensor not in {i.sensor for i in self.instruments}:
            raise ValueError(f"setup.power.sensor: {sensor} needs an instrument that says its url")
        return self

    @model_validator(mode="after")
    def _each_instrument_once(self) -> Spec:
        places = [(i.sensor, (i.url or "").rstrip("/")) for i in self.instruments]
        for sensor, url in places:
            if places.count((sensor, url)) > 1:
                # Read twice, it would be counted twice.
                raise ValueError(f"instruments names {f'{sensor} {url}'.strip()} more than once")
        return self

    @model_validator(mode="after")
    def _roles_of_boards_that_are_split(self) -> Spec:
        if self.board_roles is None:
            return self
        if self.setup.parallelism.prefill_decode_split in {"none", NOT_RECORDED}:
            raise ValueError(
                "board_roles goes with setup.parallelism.prefill_decode_split, which declares none"
            )
        if self.setup.power.scope not in GPU_SCOPES:
            raise ValueError("board_roles goes with setup.power.scope: gpu or module")
        return self

    @model_validator(mode="after")
    def _trace_where_it_is_played(self) -> Spec:
        if (self.setup.arrival == "trace") != (self.trace is not None):
            raise ValueError("setup.arrival: trace goes with trace: FILE, and with nothing else")
        return self

    @property
    def configuration_id(self) -> str:
        return configuration_id(self.setup)

    @property
    def hosts(self) -> frozenset[str]:
        """Names and addresses of the machines that are asked."""
        urls = (*self.endpoint.addresses, *(each.url for each in self.instruments if each.url))
        return frozenset(filter(None, map(host_of, urls)))

    def published(self) -> Spec:
        """Return what a run says of it: machines are not named, which nobody else has anyway."""
        told = Private(hosts=self.hosts)
        restart, urls = self.endpoint.restart, self.endpoint.urls
        endpoint = self.endpoint.model_copy(
            update={
                "url": _without_host(self.endpoint.url),
                "urls": None if urls is None else tuple(map(without_host, urls)),
                "restart": None if restart is None else tuple(map(told.text, restart)),
            }
        )
        instruments = tuple(
            each.model_copy(update={"url": _without_host(each.url)}) for each in self.instruments
        )
        return self.model_copy(update={"endpoint": endpoint, "instruments": instruments})


def _without_host(url: str | None) -> str | None:
    return None if url is None else without_host(url)


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


def json_schema() -> JsonValue:
    """Return the JSON Schema (2020-12) of a spec file, for editors.

    It knows fields, types and ranges. What goes together with what, only `load_spec` checks.
    """
    schema: dict[str, JsonValue] = Spec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def parse_spec(value: JsonValue, *, source: str, lines: Lines | None = None) -> Spec:
    """Check plain values against the schema; see `load_spec`."""
    try:
        return Spec.model_validate_json(canonical_bytes(value))
    except ValidationError as error:
        problems = validation_problems(error, source=source, lines=lines)
        raise SpecError(*(_with_remedy(problem) for problem in problems)) from error


def _with_remedy(problem: Problem) -> Problem:
    if problem.field != "setup.workload.hash":
        return problem
    # It cannot be guessed, and need not be: once its form is right, the right one is told.
    return replace(problem, remedy="Write 64 zeros; `spec check` then says which hash it is.")
