"""What is asked for: setup, objectives, protocol, and what they go with. And a configuration's id.

A spec that exists is valid. The `setup` is identity: any change to one of its fields makes a
different configuration and a different report. Everything else may differ between runs that are
compared with each other.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
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
from tokenwatt_site.endpoint import Endpoint
from tokenwatt_site.errors import Problem, SpecError
from tokenwatt_site.lengths import Conversation, Lengths, Traced
from tokenwatt_site.meters import GPU_SCOPES, REMOTE_SENSORS, BoardRoles, Instrument, PowerSource
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
