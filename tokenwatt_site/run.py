"""The run file: what is signed, and the records that are only quoted.

One readable JSON document. `run_id` is the SHA-256 of the canonical bytes of the document without
`signatures`; the same bytes are what is signed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, Field

from tokenwatt_site.canonical import JsonValue, canonical_bytes, sha256_hex
from tokenwatt_site.evidence.store import EvidenceFile
from tokenwatt_site.meters import BoardRole
from tokenwatt_site.schema import GrowingModel, Line, Model, Sha256, file_name
from tokenwatt_site.spec import Spec

# History of the format. 1: first.
RUN_SCHEMA = "tokenwatt/run/1"
PAYLOAD_TYPE = "application/vnd.tokenwatt.run.v1+json"

SIMULATED_ENGINE = "tokenwatt-simulated"
"""How our simulated engine names itself; a run against it says `simulated` in the signed file."""

Verdict: TypeAlias = Literal["PASS", "FAIL", "INVALID"]


class ObjectiveResult(Model):
    """One objective in one trial.

    `value_ms` is the order statistic; null: too few are known, or so few there are that it would be
    their maximum.
    """

    label: str
    n: int
    undefined: int
    misses: int
    allowed: int
    value_ms: float | None
    passed: bool


class TrialClaim(Model):
    """One realisation offered at one rate, as it came out. Rates are in 1e-6 requests/s."""

    repeat: int
    trial: int
    rate_urps: int
    realisation: int
    verdict: Verdict
    reason: str | None
    stopped_early: bool
    scored: int
    complete: int
    within_all: int
    failures: dict[str, int]
    """How many of all its requests ended badly, by `records.Status` in lower case."""
    objectives: tuple[ObjectiveResult, ...]
    output_tokens_per_s: float | None
    lag_p99_ms: float | None
    uncertainty_p99_ms: float | None
    client_cpu_percent: float
    """Processor time of the thread that sent, of the time that the trial took."""
    energy_j: float | None
    """Of all boards over the scored window, idle share included; null: see `metrics`."""
    started: str


class RepeatClaim(Model):
    """One pass of the protocol on one launch. Null rates: no trial passed, or none failed.

    `band_urps` is where the band of rates begins whose rows it offered last, `scored` how many of
    those count.
    """

    repeat: int
    band_urps: int
    scored: int
    highest_pass_urps: int | None
    lowest_fail_urps: int | None
    boundary_urps: int | None
    window_s: float | None


class MetricClaim(Model):
    """One number over all repeats, or the reason why there is none.

    `label` is the registry's, with the quantile where there is one. `low` and `high` are the range
    of the repeats for n = 2 and the 95% interval of the mean from n = 3; null for n = 1.
    `new_launch_low/high` is where one further launch falls with 95%. Of answers, `low` and `high`
    are for the questions that were asked, at any n: their 95% interval as of a share.
    """

    key: str
    label: str
    value: float | None
    repeats: tuple[float, ...]
    low: float | None = None
    high: float | None = None
    new_launch_low: float | None = None
    new_launch_high: float | None = None
    reason: str | None = None

    @property
    def told(self) -> list[float | None]:
        """Its numbers."""
        ends = (self.low, self.high, self.new_launch_low, self.new_launch_high)
        return [self.value, *self.repeats, *ends]


class Distribution(Model):
    """Order statistics of one metric over the n scored requests at the highest passing rates.

    `values_ms[i]` is the quantile (i + 1) / 100. Requests that did not end well stand above all
    others, so there are fewer than 100 values where quantiles fall on them.
    """

    key: str
    n: int
    values_ms: tuple[float, ...]


class BoardClaim(GrowingModel):
    """One board over one repeat's window; null where the instrument does not tell.

    `node` is on which of several it is, and `role` what it does in a prefill/decode split; null:
    there is one node, or no split. `held_back` says in words why its clocks were below what they
    could be, with the share of the samples that say so.
    """

    younger: ClassVar[frozenset[str]] = frozenset({"node", "role"})

    repeat: int
    uuid: str
    name: str
    energy_j: float | None
    mean_power_w: float | None
    limit_w: float | None
    sm_mhz: float | None
    memory_mhz: float | None
    celsius: float | None
    held_back: tuple[tuple[str, float], ...]
    node: int | None = None
    role: BoardRole | None = None


class RoleClaim(Model):
    """What all boards of one role of a prefill/decode split drew over one repeat's whole window.

    `percent` is of the energy of all boards, `joules_per_token` over the output tokens of the
    window, whoever made them: so those of all roles add up to that of the run. Null: a board has no
    energy, or no token came.
    """

    repeat: int
    role: BoardRole
    boards: int
    energy_j: float | None
    mean_power_w: float | None
    percent: float | None
    joules_per_token: float | None


class ReplicaClaim(Model):
    """What one of the replicas asked apart did in the windows at the highest passing rates.

    `version` is what it said at its launches. `percent` is its share of the `requests` that are
    scored, `failed` of which did not end well. Null: no trial passed, or too few requests carry it.
    """

    number: int
    version: str | None
    requests: int
    percent: float | None
    failed: int
    ttft_p99_ms: float | None
    tpot_p99_ms: float | None


Level: TypeAlias = Literal["warn", "not reconciled", "withheld", "INVALID"]


class Outcome(Model):
    """What a check of physics said of a number: a metric's key, how grave, and why, in words.

    A withheld or INVALID number is not shown; a run with an INVALID one does not rank.
    """

    key: str
    level: Level
    text: str


class NotCovered(Model):
    what: str
    why: str


class AccuracyClaim(Model):
    """How the questions of the gate's task were answered in one repeat.

    `low` and `high` are the 95% interval (Wilson) of `percent`. `unanswered` are wrong, and among
    the others are those that were cut at the most tokens (`truncated`), gave nothing that the
    filter could take (`unextracted`), or are wrong on sight: `empty`, `repetitive` (one piece over
    and over) or with `markers` of a chat template in the text. `parts` is in how many sittings they
    were asked, `same_launch` whether all of them were of the launch that was loaded before; null:
    the engine does not tell.
    """

    repeat: int
    questions: int
    correct: int
    percent: float
    low: float
    high: float
    unanswered: int
    truncated: int
    unextracted: int
    empty: int
    repetitive: int
    markers: int
    mean_tokens: float | None
    parts: int
    same_launch: bool | None


GateOutcome: TypeAlias = Literal[
    "passed", "failed", "inconclusive", "reference", "no reference", "not run", "none"
]


class GateClaim(Model):
    """What the accuracy gate says, in a word and in a sentence.

    "reference": this run is what others are compared with. "none": no gate was asked for. "not
    run": one was, and there are no answers. Drops are in points of 100, with their 95% interval;
    where several repeats were asked, of the one that came out worst. `worse` questions were right
    in the reference alone, `better` in this run alone. `questions_needed` would settle what is
    inconclusive, with 80%; null: none would, or it is settled. Where the reference has no more
    right than may be lost, nothing is passed.
    """

    outcome: GateOutcome
    text: str
    reference_run: str | None = None
    reference_configuration: str | None = None
    reference_percent: float | None = None
    repeat: int | None = None
    paired: int | None = None
    worse: int | None = None
    better: int | None = None
    drop_points: float | None = None
    drop_low: float | None = None
    drop_high: float | None = None
    p_value: float | None = None
    questions_needed: int | None = None


class UnderLoadClaim(Model):
    """Answers of one trial that differ from those to the same prompts asked alone.

    `differing` of `compared` differ, with the 95% interval (Wilson) of their share in percent;
    `differing_alone` of `compared_alone` prompts gave two texts when asked alone twice.
    `same_percent` is the median, over those that differ under load, of the share of the text before
    the first difference.
    """

    repeat: int
    trial: int
    rate_urps: int
    compared: int
    differing: int
    percent: float | None
    low: float | None
    high: float | None
    compared_alone: int
    differing_alone: int
    same_percent: float | None
    cached: bool


class ModelTrial(Model):
    """How well the engine model tells one trial, over its requests that ended well.

    `ttft_percent` and `tpot_percent`: median of ln(seen / model), times 100; null: undefined.
    """

    repeat: int
    trial: int
    rate_urps: int
    requests: int
    ttft_percent: float | None
    tpot_percent: float | None


class ModelRepeat(Model):
    """One repeat's boundary: measured, and as the model has it on the same realisation.

    `left_out_urps` is that of the model which was fitted to the other repeats alone, and
    `error_percent` 100 x ln(measured / left out); null: there is no other repeat.
    """

    repeat: int
    measured_urps: int
    model_urps: int
    left_out_urps: int | None
    error_percent: float | None


LONG_RUN_METRICS = ("long_run_goodput", "long_run_rate")
"""Keys of the metrics that the replay of the engine model makes, in their order."""


class MissShare(Model):
    """What share of requests misses each objective, in their order, in the long run at a rate."""

    rate_urps: int
    percent: tuple[float, ...]


class LongRunClaim(Model):
    """What the misses keep to in the long run, by an engine model that replays it.

    `text` says in a sentence why it is accepted or refused, or why there is none; null fields: it
    says nothing. `rms_percent` is of the repeats' errors, `drift_percent` by how much the engine
    changed over the run as far as the model tells. Prices are in ps; see `engine_model`. The
    model's own boundary lies between `pass_urps` and `fail_urps`. `windows_kept_percent` and
    `hours_kept_percent` are the shares of 10-minute windows and of hours that keep the SLO at the
    long-run boundary; at `windows_95_urps` 95% of 10-minute windows do. All rates but those two
    edges are corrected: measured x model in the long run / model on the realisation.
    """

    outcome: Literal["accepted", "refused", "none"]
    text: str
    rms_percent: float | None = None
    drift_percent: float | None = None
    family: str | None = None
    base_ps: int | None = None
    sequence_ps: int | None = None
    prompt_token_ps: int | None = None
    context_token_ps: int | None = None
    pass_urps: int | None = None
    fail_urps: int | None = None
    windows_95_urps: int | None = None
    windows_kept_percent: float | None = None
    hours_kept_percent: float | None = None
    misses: tuple[MissShare, ...] = ()
    """At 2% below the boundary, at it, and 2% above, and at the rates of a curve; rising."""
    repeats: tuple[ModelRepeat, ...] = ()
    trials: tuple[ModelTrial, ...] = ()
    difference: str | None = None
    """How the long run differs from what was measured, in a sentence."""

    @property
    def told(self) -> list[float | None]:
        """Its numbers."""
        told = [self.rms_percent, self.drift_percent, self.windows_95_urps]
        told += [self.windows_kept_percent, self.hours_kept_percent]
        told += [number for each in self.misses for number in each.percent]
        told += [number for r in self.repeats for number in (r.model_urps, r.error_percent)]
        return told + [n for t in self.trials for n in (t.ttft_percent, t.tpot_percent)]


class Claims(GrowingModel):
    """Everything that `claims.derive` makes. Nothing else is published as a number."""

    younger: ClassVar[frozenset[str]] = frozenset({"replicas", "roles"})

    slo_met: bool
    trials: tuple[TrialClaim, ...]
    repeats: tuple[RepeatClaim, ...]
    metrics: tuple[MetricClaim, ...]
    distributions: tuple[Distribution, ...]
    boards: tuple[BoardClaim, ...]
    roles: tuple[RoleClaim, ...] | None = None
    """Of the boards of a prefill/decode split; null: the spec names none, or none was read."""
    replicas: tuple[ReplicaClaim, ...] | None = None
    """Where they were asked apart; null: one address was asked."""
    outcomes: tuple[Outcome, ...]
    accuracy: tuple[AccuracyClaim, ...]
    gate: GateClaim
    under_load: tuple[UnderLoadClaim, ...]
    long_run: LongRunClaim
    not_covered: tuple[NotCovered, ...]

    @property
    def window_rates(self) -> str | None:
        """In which windows latency, power and bandwidth were measured, in words; None: in none."""
        rates = [f"{r.highest_pass_urps / 1e6:.4g}" for r in self.repeats if r.highest_pass_urps]
        if not rates:
            return None
        told = " and ".join(filter(None, [", ".join(rates[:-1]), rates[-1]]))
        each = " of each repeat" if len(rates) > 1 else ""
        return f"at the highest passing rate{each}: {told} requests/s"

    @property
    def numbers(self) -> int:
        """How many numbers these are: what a recomputation has to give again."""
        told = [number for metric in self.metrics for number in metric.told]
        told += [objective.value_ms for trial in self.trials for objective in trial.objectives]
        told += [number for found in self.distributions for number in found.values_ms]
        told += [number for b in self.boards for number in (b.energy_j, b.mean_power_w)]
        told += [n for r in self.roles or () for n in (r.energy_j, r.mean_power_w, r.percent)]
        told += [r.joules_per_token for r in self.roles or ()]
        told += [n for r in self.replicas or () for n in (r.percent, r.ttft_p99_ms, r.tpot_p99_ms)]
        told += [number for a in self.accuracy for number in (a.percent, a.low, a.high)]
        told += [a.mean_tokens for a in self.accuracy]
        told += [self.gate.reference_percent, self.gate.drop_points, self.gate.p_value]
        told += [self.gate.drop_low, self.gate.drop_high]
        told += [number for u in self.under_load for number in (u.percent, u.low, u.high)]
        told += [u.same_percent for u in self.under_load]
        return _counted(told) + _counted(self.long_run.told)

    @property
    def replayed_numbers(self) -> int:
        """How many of them the replay of the engine model makes."""
        metrics = [metric for metric in self.metrics if metric.key in LONG_RUN_METRICS]
        return _counted([n for m in metrics for n in m.told]) + _counted(self.long_run.told)

    def metric(self, key: str) -> MetricClaim:
        """Return the first metric with this key; KeyError when there is none."""
        for metric in self.metrics:
            if metric.key == key:
                return metric
        raise KeyError(key)


def _counted(told: Sequence[float | None]) -> int:
    return sum(number is not None for number in told)


class ReadBack(Model):
    """A setup field and what the engine or driver itself said of it."""

    field: str
    declared: str
    observed: str | None
    state: Literal["read back", "declared"]


class SelfTest(Model):
    """What the measuring client held, before the load, against a server that knew the truth.

    Held: sent on time, stamped true and on time within the spec's own tolerances. Zero events/s:
    not even the lowest load tried was; the errors are then those of that load. Requests are in
    1e-6/s. `limited_by` says what ended the test: the client no longer held; or the test's server
    fell behind, or all that was asked was held, so that the client holds at least this.
    """

    events_per_s: Annotated[int, Field(ge=0)]
    requests_urps: Annotated[int, Field(ge=0)]
    first_token_error_p99_ns: Annotated[int, Field(ge=0)] | None
    dispatch_lag_p99_ns: Annotated[int, Field(ge=0)] | None
    stamps: Literal["kernel", "user space"]
    limited_by: Literal["client", "emitter", "asked"]


class Conditions(GrowingModel):
    """Recorded and compared, never identity."""

    younger: ClassVar[frozenset[str]] = frozenset({"workers"})

    started: str
    ended: str
    platform: Line
    processors: Annotated[int, Field(ge=0)]
    """0: the machine did not tell."""
    python: Line
    tool_version: Line
    board_uuids: tuple[str, ...]
    read_back: tuple[ReadBack, ...]
    stamps: Literal["kernel", "user space"]
    self_test: SelfTest
    """Of the repeat whose client held least."""
    workers: Annotated[int, Field(ge=2)] | None = None
    """Client processes of the trial that had most; null: one alone in all of them."""


class Signature(Model):
    keyid: Annotated[str, Field(pattern=r"^ed25519:[0-9a-f]{32}$")]
    public_key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    sig: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]


class Run(Model):
    """A signed run. `simulated` is true when the engine was ours and answered made-up tokens."""

    run_schema: Literal["tokenwatt/run/1"]
    simulated: bool
    status: Literal["complete", "interrupted"]
    spec: Spec
    configuration: str
    conditions: Conditions
    claims: Claims
    evidence: tuple[EvidenceFile, ...]
    journal_head: Sha256
    signatures: Annotated[tuple[Signature, ...], Field(max_length=1)] = ()

    def signed_bytes(self) -> bytes:
        """Return the canonical bytes without `signatures`."""
        return signed_bytes(self.to_json())

    @property
    def run_id(self) -> str:
        return sha256_hex(self.signed_bytes())


def signed_bytes(document: JsonValue) -> bytes:
    """Return the canonical bytes of a run document without its `signatures`."""
    return canonical_bytes({k: v for k, v in document.items() if k != "signatures"})


class QuotedValue(Model):
    """A value of an earlier publication in its own words; `number` places it on a chart."""

    metric: Line
    text: Line
    number: float | None = None
    unit: Line | None = None


class QuotedChart(Model):
    """A bar chart of the publication: one bar per configuration, its caption as published."""

    heading: Line
    value: QuotedValue
    axis_max: float | None = None
    caption: Line | None = None


class QuotedField(Model):
    field: Line
    text: Line


class ClaimsOnlyRecord(Model):
    """An earlier publication or another tool's result: quoted, not recomputed, never ranked."""

    record_schema: Literal["tokenwatt/claims-only/1"]
    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$"), AfterValidator(file_name)]
    title: Line
    published: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    source: Line
    column: Line
    summary: Annotated[str, Field(max_length=4000)]
    results_note: Line
    charts: Annotated[tuple[QuotedChart, ...], Field(max_length=12)]
    numbers_note: Line
    numbers: Annotated[tuple[QuotedValue, ...], Field(max_length=60)]
    setup_note: Line
    setup: Annotated[tuple[QuotedField, ...], Field(max_length=60)]
    not_covered_note: Line
    not_covered: Annotated[tuple[Line, ...], Field(max_length=60)]
    reproduce_note: Line
    reproduce: Annotated[tuple[Line, ...], Field(max_length=20)]
    our_notes: Annotated[tuple[Line, ...], Field(max_length=20)]
