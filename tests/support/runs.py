"""Makes valid specs and whole signed run folders for tests."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tokenwatt_site.accuracy_spec import AskedTask
from tokenwatt_site.canonical import sha256_hex
from tokenwatt_site.claims.derive import Evidence, derive
from tokenwatt_site.engine_model.boundary import find_edges
from tokenwatt_site.engine_model.document import Boundary, Fit, ModelFit, encode_model_fit
from tokenwatt_site.engine_model.load import Load, Played, play
from tokenwatt_site.engine_model.long_run import find_windows_95, long_load
from tokenwatt_site.engine_model.model import EngineModel, Family, Prices
from tokenwatt_site.evidence.answer_flags import flags_of
from tokenwatt_site.evidence.answers import (
    FORMAT,
    AccuracyLog,
    Answer,
    Header,
    digest_of_digests,
    encode_accuracy,
    kept_text,
    text_digest,
)
from tokenwatt_site.evidence.engine import EngineLog, EngineSample, encode_engine
from tokenwatt_site.evidence.power import Board, PowerLog, PowerSample, encode_power
from tokenwatt_site.evidence.records import RequestRecord, Status, encode_requests
from tokenwatt_site.evidence.store import store
from tokenwatt_site.evidence.under_load import (
    Compared,
    UnderLoadLog,
    encode_under_load,
    sampled_rows,
)
from tokenwatt_site.goodput import decide, judge
from tokenwatt_site.journal import GENESIS, Entry, Event, Journal
from tokenwatt_site.lengths import Conversation
from tokenwatt_site.model_shape.document import ModelDocument, encode_model
from tokenwatt_site.prompts import COMMON_WORDS, SEED_RULE, Ids, Prompts, Words, common_words
from tokenwatt_site.replicas import Replica
from tokenwatt_site.run import SIMULATED_ENGINE, Conditions, Run, SelfTest, signed_bytes
from tokenwatt_site.spec import Objective, Spec, parse_spec
from tokenwatt_site.trace import Trace, TraceLine, encode, parse
from tokenwatt_site.trials import Trial, read_trials
from tokenwatt_site.trust.keyring import Keyring, own_id
from tokenwatt_site.trust.registration import (
    Registration,
    file_name,
    register,
    revoke,
    to_bytes,
    with_revocation,
)
from tokenwatt_site.trust.signature import sign
from tokenwatt_site.validity import verdict
from tokenwatt_site.windows import Windows
from tokenwatt_site.workload import NAMED, Realisation, Row, Workload, workload_of

_WORKLOAD = NAMED["demo-mix-v1"]

SMALL_SPEC: dict[str, Any] = {
    "spec_schema": 1,
    "title": "Toy model on a CPU",
    "label": "toy-cpu",
    "role": "baseline",
    "note": "",
    "setup": {
        "setup_schema": 1,
        "accelerator": {
            "model": "CPU",
            "count": 0,
            "memory_gib": "not recorded",
            "rated_bandwidth_gb_s": "not recorded",
            "power_limit_w": "not recorded",
        },
        "driver": "none",
        "host_kind": "test machine",
        "engine": {
            "name": "toy",
            "version": "1.0",
            "build": "test",
            "image_digest": "none",
            "argv": ["{python}", "-m", "toy", "--port", "{port}"],
            "environment": {},
        },
        "kernel_libraries": ["none"],
        "model": {
            "name": "toy-135m",
            "revision": "r1",
            "architecture": "dense",
            "digest": "sha256:" + "1" * 64,
        },
        "quantization": {"weights": "Q8_0", "kv_cache": "f16"},
        "parallelism": {
            "replicas": 1,
            "tensor": 1,
            "pipeline": 1,
            "expert": 1,
            "data": 1,
            "prefill_decode_split": "none",
        },
        "workload": {"name": _WORKLOAD.name, "version": _WORKLOAD.version, "hash": _WORKLOAD.hash},
        "input_tokens": _WORKLOAD.input_tokens.to_json(),
        "output_tokens": _WORKLOAD.output_tokens.to_json(),
        "arrival": "poisson",
        "slo": [
            {"metric": "ttft", "quantile": 0.9, "limit_ms": 1500.0},
            {"metric": "tpot", "quantile": 0.9, "limit_ms": 150.0},
        ],
        "power": {"sensor": "none", "scope": "none", "rate_hz": 0.0},
        "accuracy_gate": {"task": "none", "shots": 0, "questions": 0, "max_drop_points": 0.0},
    },
    "endpoint": {
        "start": "launch",
        "api": "completions",
        "model": "toy-135m",
        "vocabulary": 32000,
        "ready_timeout_s": 60,
    },
    "protocol": {
        "mode": "demo",
        "repeats": 1,
        "lead_in": 5,
        "scored": 20,
        "tail": 60,
        "start_rate": 1.0,
        "max_rate": 64.0,
        "request_timeout_s": 30.0,
    },
}


def small_spec_dict(**changes: Any) -> dict[str, Any]:
    """Return a valid spec as plain values; `setup__driver="x"` changes a nested field."""
    spec = copy.deepcopy(SMALL_SPEC)
    for path, value in changes.items():
        place = spec
        *parents, last = path.split("__")
        for parent in parents:
            place = place[parent]
        place[last] = value
    return spec


def small_spec(**changes: Any) -> Spec:
    """Return `small_spec_dict` as a `Spec`."""
    return parse_spec(small_spec_dict(**changes), source="small_spec")


def replica_spec(count: int, **changes: Any) -> Spec:
    """Return a small spec of so many replicas that are asked apart, by ports from 9001 on."""
    urls = [f"http://127.0.0.1:{9001 + place}" for place in range(count)]
    own = {"endpoint__start": "attach", "endpoint__urls": urls}
    return small_spec(**{**own, "setup__parallelism__replicas": count, **changes})


def as_written(spec: Spec) -> str:
    """Return a spec file of `spec`: what it leaves out is not there, as null has no spelling."""

    def told(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: told(item) for key, item in value.items() if item is not None}
        return [told(item) for item in value] if isinstance(value, list) else value

    return json.dumps(told(spec.to_json()))


MODES: dict[str, dict[str, Any]] = {
    "demo": {},
    "quick": {"mode": "quick", "repeats": 2, "scored": 600, "lead_in": 80, "tail": 120},
    "full": {"mode": "full", "repeats": 3, "scored": 600, "lead_in": 80, "tail": 120},
}
"""Changes to the protocol of `SMALL_SPEC` that make it valid in each mode."""


def spec_in_mode(mode: str, **changes: Any) -> Spec:
    """Return a small spec in this mode, with the repeats that the mode asks for."""
    protocol = {f"protocol__{key}": value for key, value in MODES[mode].items()}
    return small_spec(**protocol, **changes)


@dataclass(frozen=True)
class ToyEngine:
    """Serves requests in the order of arrival in a fixed number of slots, each at a fixed pace."""

    slots: int = 4
    prefill_ns: int = 200_000_000
    step_ns: int = 60_000_000

    def serve(
        self, realisation: Realisation, rate_urps: int, *, repeat: int, trial: int
    ) -> Iterator[RequestRecord]:
        """Yield the record of every row; the trial runs until all have ended."""
        free_ns = [0] * self.slots
        for number, (row, due_ns) in enumerate(
            zip(realisation.rows, realisation.due_ns(rate_urps), strict=True)
        ):
            slot = min(range(self.slots), key=free_ns.__getitem__)
            first = max(due_ns + 20_000, free_ns[slot]) + self.prefill_ns
            last = first + (row.output_tokens - 1) * self.step_ns
            free_ns[slot] = last
            yield answered_whole(
                (repeat, trial), number, row, due_ns=due_ns, first_ns=first, last_ns=last
            )

    def at_pace(self, pace: float) -> ToyEngine:
        return replace(self, step_ns=round(self.step_ns * pace))


LATEST_TTFT_NS = 1_400_000_000


@dataclass(frozen=True)
class ModelEngine:
    """Serves requests as the engine model does, so that the model is right about it.

    With `late_ns` every second one begins to be answered so long after the next one does, where
    that is within LATEST_TTFT_NS, and ends so much later: the model is wrong about the order alone.
    """

    pace: float = 1.0
    late_ns: int = 0

    @property
    def model(self) -> EngineModel:
        prices = (30_000_000_000, 12_000_000_000, 500_000_000, 1_000_000)
        base, sequence, prompt, context = (round(price * self.pace) for price in prices)
        return EngineModel(
            Family(prefill="chunked", token_budget=512, max_batch=64),
            Prices(
                base_ps=base,
                sequence_ps=sequence,
                prompt_token_ps=prompt,
                context_token_ps=context,
            ),
        )

    def at_pace(self, pace: float) -> ModelEngine:
        return replace(self, pace=pace)

    def serve(
        self, realisation: Realisation, rate_urps: int, *, repeat: int, trial: int
    ) -> Iterator[RequestRecord]:
        """Yield the record of every row; the trial runs until all have ended."""
        played = play(self.model, Load.of(realisation), rate_urps)
        times = zip(realisation.rows, *times_of(played), strict=True)
        firsts = played.first_ns.tolist()
        for number, (row, due, first, last) in enumerate(times):
            wait = 0
            if self.late_ns and number % 2 == 0 and number + 1 < len(firsts):
                wait = firsts[number + 1] + self.late_ns - first
                wait = wait if first + wait - due <= LATEST_TTFT_NS else 0
            yield answered_whole(
                (repeat, trial),
                number,
                row,
                due_ns=due,
                first_ns=first + wait,
                last_ns=last + wait,
            )


def times_of(played: Played) -> tuple[list[int], list[int], list[int]]:
    """Return when requests came due, and when their first and last tokens came."""
    return played.due_ns.tolist(), played.first_ns.tolist(), played.last_ns.tolist()


def answered_whole(
    of: tuple[int, int], number: int, row: Row, *, due_ns: int, first_ns: int, last_ns: int
) -> RequestRecord:
    """Return the record of a request that was answered whole; `of`: repeat and trial."""
    repeat, trial = of
    return RequestRecord(
        repeat=repeat,
        trial=trial,
        row=number,
        due_ns=due_ns,
        dialled_ns=None,
        connected_ns=None,
        sent_ns=due_ns + 20_000,
        first_ns=first_ns,
        last_ns=last_ns,
        end_ns=last_ns + 10_000,
        prompt_asked=row.input_tokens,
        prompt_tokens=row.input_tokens,
        cached_tokens=0,
        output_asked=row.output_tokens,
        output_tokens=row.output_tokens,
        first_tokens=1,
        events=row.output_tokens,
        uncertainty_ns=0,
        status=Status.OK,
    )


def a_key(seed: int = 1) -> Ed25519PrivateKey:
    """Return a signing key that is the same for the same seed."""
    return Ed25519PrivateKey.from_private_bytes(bytes([seed] * 32))


KEYID = own_id(a_key())
"""Of the key that signs what a `RunBuilder` writes, if no other is asked for."""


def keyring_of(folder: Path, *keys: Ed25519PrivateKey) -> Keyring:
    """Register `keys` as "Lab 1", "Lab 2" ... in `folder`, and load it."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, key in enumerate(keys, start=1):
        registration = register(key, name=f"Lab {number}")
        (folder / file_name(registration.keyid)).write_bytes(to_bytes(registration))
    return Keyring.load(folder)


def revoked_key(registration: Registration, **said: Any) -> Registration:
    """Return a registration with its key revoked in these words."""
    return with_revocation(registration, revoke(registration, **said))


HELD = SelfTest(
    events_per_s=80_000,
    requests_urps=4_000_000_000,
    first_token_error_p99_ns=40_000,
    dispatch_lag_p99_ns=200_000,
    stamps="kernel",
    limited_by="asked",
)
"""A client that holds more than any spec here asks."""


@cache
def _drawn(workload: Workload, repeat: int, lead_in: int, scored: int, tail: int) -> Realisation:
    return workload.realisation(repeat, lead_in=lead_in, scored=scored, tail=tail)


@cache
def _boundary(
    engine: ToyEngine | ModelEngine, drawn: Realisation, slo: tuple[Objective, ...], ratio: float
) -> tuple[int, int]:
    """Return the rates on both sides of the boundary, found once for many runs."""

    def passes(rate_urps: int) -> bool:
        records = list(engine.serve(drawn, rate_urps, repeat=drawn.number, trial=0))
        scored = records[drawn.lead_in :][: drawn.scored]
        return decide([judge(objective, scored) for objective in slo]) == "PASS"

    low, high = 100_000, 100_000_000
    while high > low * ratio:
        middle = math.isqrt(low * high)
        if passes(middle):
            low = middle
        else:
            high = middle
    return low, high


@cache
def fit_of(
    model: EngineModel,
    workload: Workload,
    slo: tuple[Objective, ...],
    drawn: tuple[Realisation, ...],
) -> ModelFit:
    """Return a fit whose models, all the same, state the boundaries that they have."""
    long = long_load(Windows(workload, (), chosen=False))
    assert long is not None
    edges = find_edges(model, long, slo, 3_000_000)
    assert edges is not None
    loads = {0: long} | {each.number: Load.of(each) for each in drawn}
    found = []
    for repeat, load in loads.items():
        at = find_edges(model, load, slo, edges.boundary_urps)
        assert at is not None
        found.append(Boundary(repeat=repeat, pass_urps=at.pass_urps, fail_urps=at.fail_urps))
    fits = [Fit(left_out=0, **_told(model), boundaries=tuple(found))]
    if len(drawn) > 1:
        fits += [
            Fit(left_out=each.repeat, **_told(model), boundaries=(each,)) for each in found[1:]
        ]
    return ModelFit(
        format="tokenwatt/engine-model/1",
        fits=tuple(fits),
        windows_95=find_windows_95(model, long, slo, edges.boundary_urps),
    )


def _told(model: EngineModel) -> dict[str, Any]:
    return {"family": model.family, "prices": model.prices}


NONCE = "00" * 32

_NO_SENSOR = "the machine of this test has no power sensor"

JournalPlan = list[tuple[Event, dict[str, Any]]]


@dataclass(frozen=True)
class RunBuilder:
    """Makes a whole run folder: evidence, journal, derived claims, a signed run file.

    Every repeat offers `rates_urps` (where empty: half the boundary, and both sides of it) to its
    own toy engine, whose step time is multiplied by the repeat's entry of `spread`. The `edit_*`
    functions change what is written after the claims were derived, before it is signed: a
    publisher who lies.

    With `idle_s` the journal tells of so many seconds without load, before and after the trials of
    each repeat. `beside`, `counters` and `model` become evidence as `power` does, and so do
    `accuracy`, `reference` and `under_load`, of which the journal tells as their answers do: of
    each repeat, with its parts. `answers_of` and `under_load_of` make them.
    """

    spec: Spec = field(default_factory=small_spec)
    simulated: bool = True
    long_run: bool = False
    """Whether an engine model was fitted. The engine is then a ModelEngine, and so the fit right,
    unless `engine` is one that is late; trials are minutes apart, and brackets as narrow as those
    of full mode."""
    status: Literal["complete", "interrupted"] = "complete"
    engine: ToyEngine | ModelEngine = ToyEngine()
    model_fit: ModelFit | None = None
    rates_urps: tuple[int, ...] = ()
    spread: tuple[float, ...] = (1.0, 1.01, 0.99, 1.005, 0.995)
    power: PowerLog | None = None
    idle_s: int = 0
    beside: tuple[PowerLog, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    """Why an instrument beside the power was not read, by its sensor."""
    counters: EngineLog | None = None
    model: ModelDocument | None = None
    trace: Trace | None = None
    accuracy: AccuracyLog | None = None
    reference: AccuracyLog | None = None
    reference_run: str = "e" * 64
    reference_configuration: str = "toy-reference-000000000000"
    under_load: UnderLoadLog | None = None
    self_test: SelfTest = HELD
    key: Ed25519PrivateKey = field(default_factory=a_key)
    tells_key: bool = True
    """Whether the journal tells which key signs; runs of before it did can be signed again."""
    day: int = 1
    first_trial: int = 1
    published: Mapping[str, Any] = field(default_factory=dict)
    """What is written in the place of `power`, `accuracy` and so on, as the `edit_*` do."""
    edit_requests: Callable[[list[RequestRecord]], list[RequestRecord]] | None = None
    edit_journal: Callable[[JournalPlan], JournalPlan] | None = None
    edit_document: Callable[[dict[str, Any]], None] | None = None

    def write(self, folder: Path, name: str = "run.json") -> Path:
        """Write the run file and its evidence into `folder`, and return the run file's path."""
        folder.mkdir(parents=True, exist_ok=True)
        requests, plan = self.requests(), self.journal_plan()
        journal = self._journal(folder, plan)
        lines = tuple(journal.lines)
        claims = derive(self.spec, self.evidence(lines, requests))
        if self.edit_requests:
            requests = self.edit_requests(requests)
        if self.edit_journal:
            journal = self._journal(folder, self.edit_journal(plan))
        evidence = folder / "evidence"
        journal_file = folder / "journal.jsonl"
        files = [
            store(evidence, "requests", encode_requests(requests)),
            store(evidence, "journal", journal_file.read_bytes()),
        ]
        journal_file.unlink()
        readings = replace(self, **self.published)._readings()
        files += [store(evidence, role, data) for role, data in readings]
        run = Run(
            run_schema="tokenwatt/run/1",
            simulated=self.simulated,
            status=self.status,
            spec=self.spec,
            configuration=self.spec.configuration_id,
            conditions=self._conditions(journal),
            claims=claims,
            evidence=tuple(files),
            journal_head=journal.head,
        )
        document = run.to_json()
        if self.edit_document:
            self.edit_document(document)
        return write_signed(folder / name, document, self.key)

    def _readings(self) -> Iterator[tuple[str, bytes]]:
        if self.power:
            yield "power", encode_power(self.power)
        for number, log in enumerate(self.beside, start=1):
            yield f"power-beside-{number}", encode_power(log)
        if self.counters:
            yield "engine", encode_engine(self.counters)
        if self.model:
            yield "model", encode_model(self.model)
        if self.trace:
            yield "trace", self.trace.data
        if self.accuracy:
            yield "accuracy", encode_accuracy(self.accuracy)
        if self.reference:
            yield "reference", encode_accuracy(self.reference)
        if self.under_load:
            yield "under-load", encode_under_load(self.under_load)
        if self.fitted:
            yield "engine-model", encode_model_fit(self.fitted)

    def evidence(self, journal: Sequence[Entry], requests: Sequence[RequestRecord]) -> Evidence:
        """Return what is derived from."""
        return Evidence(
            tuple(journal),
            tuple(requests),
            self.power,
            self.trace,
            self.beside,
            self.counters,
            self.model,
            self.accuracy,
            self.reference,
            self.under_load,
            self.fitted,
        )

    @property
    def fitted(self) -> ModelFit | None:
        """The engine model in the evidence."""
        if not self.long_run:
            return self.model_fit
        workload = workload_of(self.spec.setup, self.trace)
        drawn = tuple(self._realisation(repeat) for repeat in self._repeats)
        return fit_of(ModelEngine().model, workload, self.spec.setup.slo, drawn)

    def trials(self) -> tuple[Trial, ...]:
        """Return the trials as they are read from the evidence."""
        lines = [
            Entry(seq=seq, at=self._at(seq), event=event, prev=GENESIS, data=data)
            for seq, (event, data) in enumerate(self.journal_plan())
        ]
        return read_trials(self.spec, self.evidence(lines, self.requests()))

    def requests(self) -> list[RequestRecord]:
        """Return the records of every trial, in order."""
        return [
            record
            for repeat, trial, rate in self._trials()
            for record in self._offer(repeat, trial, rate)
        ]

    def journal_plan(self) -> JournalPlan:
        """Return the events of the journal, before they are chained."""
        plan: JournalPlan = [
            (
                "open",
                {
                    "configuration": self.spec.configuration_id,
                    "spec": self.spec.to_json(),
                    **({"keyid": own_id(self.key)} if self.tells_key else {}),
                    "seed_rule": SEED_RULE,
                    "nonce": NONCE,
                    "power_reason": None if self.power else _NO_SENSOR,
                    "instruments": [
                        {"sensor": i.sensor, "reason": self.unread.get(i.sensor)}
                        for i in self.spec.instruments
                    ],
                    "reference": self._reference(),
                },
            )
        ]
        trials = self._trials()
        for repeat in self._repeats:
            plan.append(("launch", self._launch(repeat)))
            plan += self._idle(repeat, "before")
            realisation = self._realisation(repeat)
            for trial, rate in [(t, rate) for r, t, rate in trials if r == repeat]:
                number = {"repeat": repeat, "trial": trial}
                start = {
                    "band": 0,
                    "rate_urps": rate,
                    "realisation": realisation.number,
                    "realisation_hash": realisation.hash,
                }
                end = {
                    "epoch_ns": trial * 10**12,
                    "engine_alive": True,
                    "stamps": "kernel",
                    "client_cpu_ppm": 123_456,
                    "clock_step_ns": 0,
                    **self._replicas(repeat),
                }
                plan.append(("trial_start", {**number, **start}))
                plan.append(("trial_end", {**number, **end}))
            plan += self._idle(repeat, "after")
            plan.append(("repeat_end", {"repeat": repeat}))
            plan += self._answered(repeat)
        plan.append(("close" if self.status == "complete" else "interrupted", {}))
        return plan

    def _reference(self) -> dict[str, str] | None:
        if self.reference is None:
            return None
        return {
            "run": self.reference_run,
            "configuration": self.reference_configuration,
            "accuracy": sha256_hex(encode_accuracy(self.reference)),
        }

    def _answered(self, repeat: int) -> JournalPlan:
        """Tell of the answers after a repeat; each part but the first is of another launch."""
        plan: JournalPlan = []
        compared = self.under_load.compared if self.under_load else ()
        for trial in sorted({each.trial for each in compared if each.repeat == repeat}):
            plan.append(("under_load", {"repeat": repeat, "trial": trial}))
        answers = self.accuracy.of_repeat(repeat) if self.accuracy else ()
        last = max((answer.part for answer in answers), default=0)
        for part in range(1, last + 1):
            started = self._launch(repeat)["engine_started"]
            if part > 1:
                plan.append(("interrupted", {}))
                started = started.replace("T00:", f"T{part:02}:")
            start = {"same_launch": part == 1, "engine_started": started}
            plan.append(("accuracy_start", {"repeat": repeat, "part": part, **start}))
        if answers:
            plan.append(("accuracy_end", {"repeat": repeat, "part": last}))
        return plan

    def _idle(self, repeat: int, when: str) -> JournalPlan:
        if not self.idle_s:
            return []
        start_ns, end_ns = self.idle_span(repeat, when)
        return [("idle", {"repeat": repeat, "when": when, "start_ns": start_ns, "end_ns": end_ns})]

    def idle_span(self, repeat: int, when: str) -> tuple[int, int]:
        """Return where `idle_s` seconds fit 100 s before the first trial, or after the last."""
        own = [(trial, rate) for r, trial, rate in self._trials() if r == repeat]
        start_ns = own[0][0] * 10**12 - 100 * 10**9
        if when == "after":
            start_ns = own[-1][0] * 10**12 + 10 * 10**9
            start_ns += max(r.end_ns for r in self._offer(repeat, *own[-1]))
        return start_ns, start_ns + self.idle_s * 10**9

    def loads(self) -> list[tuple[int, int]]:
        """Return from when to when there was load: the trials, on the clock of their epochs."""
        return [
            (
                trial * 10**12,
                trial * 10**12 + max(r.end_ns for r in self._offer(repeat, trial, rate)),
            )
            for repeat, trial, rate in self._trials()
        ]

    def _launch(self, repeat: int) -> dict[str, Any]:
        return {
            "repeat": repeat,
            "engine_started": f"2026-01-{self.day:02}T00:00:00.{repeat:06}Z",
            "engine": SIMULATED_ENGINE if self.simulated else self.spec.setup.engine.name,
            "read_back": [],
            "prompts": self._prompts().to_json(),
            "chat_overhead": 0,
            "accepts_unknown_model": False,
            "repeat_cached_tokens": 0,
            "longest_asked": True,
            "self_test": self.self_test.to_json(),
            **self._replicas(repeat),
        }

    def _replicas(self, repeat: int) -> dict[str, Any]:
        """Tell of the replicas that the spec asks apart: all as it declares, and alike."""
        if (count := self.spec.endpoint.replicas) == 1:
            return {}
        engine, model = self.spec.setup.engine, self.spec.endpoint.model
        return {
            "replicas": [
                Replica(
                    engine=engine.name,
                    version=engine.version,
                    build=engine.build,
                    models=(model,),
                    started=f"2026-01-{self.day:02}T00:00:{place:02}.{repeat:06}Z",
                ).to_json()
                for place in range(count)
            ]
        }

    def _prompts(self) -> Prompts:
        endpoint = self.spec.endpoint
        if endpoint.prompt_kind == "ids":
            return Ids(endpoint.vocabulary)
        if endpoint.tokenizer is None:
            return common_words()
        return Words(COMMON_WORDS, "tokenizer file", tokenizer_sha256="5" * 64)

    @property
    def _repeats(self) -> range:
        return range(1, self.spec.protocol.repeats + 1)

    def _trials(self) -> list[tuple[int, int, int]]:
        """Return (repeat, trial, rate) of all trials; trials are numbered through."""
        offered = [
            (repeat, rate)
            for repeat in self._repeats
            for rate in self.rates_urps or self._around_the_boundary(repeat)
        ]
        return [
            (repeat, trial, rate)
            for trial, (repeat, rate) in enumerate(offered, start=self.first_trial)
        ]

    def _around_the_boundary(self, repeat: int) -> tuple[int, int, int]:
        spec = self.spec
        drawn = self._realisation(repeat)
        ratio = 1.02 if self.long_run else spec.protocol.bracket_ratio
        low, high = _boundary(self._engine(repeat), drawn, spec.setup.slo, ratio)
        return low // 2, low, high

    def _offer(self, repeat: int, trial: int, rate_urps: int) -> list[RequestRecord]:
        drawn = self._realisation(repeat)
        return list(self._engine(repeat).serve(drawn, rate_urps, repeat=repeat, trial=trial))

    def _engine(self, repeat: int) -> ToyEngine | ModelEngine:
        engine = self.engine
        if self.long_run and isinstance(engine, ToyEngine):
            engine = ModelEngine()
        return engine.at_pace(self.spread[(repeat - 1) % len(self.spread)])

    def _realisation(self, repeat: int) -> Realisation:
        protocol = self.spec.protocol
        workload = workload_of(self.spec.setup, self.trace)
        return _drawn(workload, repeat, protocol.lead_in, protocol.scored, protocol.tail)

    def _conditions(self, journal: Journal) -> Conditions:
        return Conditions(
            started=journal.lines[0].at if journal.lines else self._at(0),
            ended=journal.lines[-1].at if journal.lines else self._at(0),
            platform="Linux-test",
            processors=2,
            python="3.11",
            tool_version="0.0",
            board_uuids=tuple(board.uuid for board in self.power.boards) if self.power else (),
            read_back=(),
            stamps="kernel",
            self_test=self.self_test,
        )

    def _journal(self, folder: Path, plan: JournalPlan) -> Journal:
        path = folder / "journal.jsonl"
        path.unlink(missing_ok=True)
        seconds = iter(range(10**6))
        journal = Journal(path, lambda: self._at(next(seconds)))
        for event, data in plan:
            journal.append(event, **data)
        return journal

    def _at(self, second: int) -> str:
        minutes, seconds = divmod(second * (300 if self.long_run else 1), 60)
        hours, minutes = divmod(minutes, 60)
        return f"2026-01-{self.day:02}T{hours:02}:{minutes:02}:{seconds:02}.000000Z"


def gated_spec(questions: int = 20, *, max_drop_points: float = 1.0, **changes: Any) -> Spec:
    """Return a small spec with a gate of so many made-up questions, which `answers_of` answers."""
    asked = AskedTask(
        harness="lm-eval 0.4.9",
        task_version="1",
        api="completions",
        metric="exact_match",
        filter="first-line",
        max_tokens=64,
        stop=("\n\n",),
        data=digest_of_digests([_data(n) for n in range(questions)]),
        prompts=digest_of_digests([_prompt(n) for n in range(questions)]),
    )
    gate = {
        "task": "sums",
        "shots": 0,
        "questions": questions,
        "max_drop_points": max_drop_points,
        "asked": asked.to_json(),
    }
    return small_spec(**{"setup__accuracy_gate": gate, **changes})


def _data(question: int) -> str:
    return text_digest(f"question {question}")


def _prompt(question: int) -> str:
    return text_digest(f"prompt {question}")


def answers_of(spec: Spec, *correct: Sequence[bool], texts: bool = True) -> AccuracyLog:
    """Return the answers of a `gated_spec`: for each repeat, which of its questions are right."""
    gate = spec.setup.accuracy_gate
    assert gate.asked is not None
    return AccuracyLog(
        Header(format=FORMAT, task=gate.task, shots=gate.shots, asked=gate.asked, texts=texts),
        tuple(
            an_answer(repeat, question, right, texts=texts)
            for repeat, each in enumerate(correct, start=1)
            for question, right in enumerate(each)
        ),
    )


def an_answer(
    repeat: int, question: int, right: bool, *, text: str | None = None, texts: bool = True
) -> Answer:
    """Return an answer; `text` is what the engine wrote, where it does not matter left out."""
    written = f"It is {question if right else -1}." if text is None else text
    return Answer(
        repeat=repeat,
        question=question,
        data=_data(question),
        prompt=_prompt(question),
        answer=text_digest(written),
        text=kept_text(written) if texts else None,
        extracted=str(question if right else -1),
        correct=right,
        prompt_tokens=12,
        tokens=5,
        finish="stop",
        failure=None,
        flags=flags_of(written),
        part=1,
    )


def a_failure(repeat: int, question: int, why: str = "the engine answered 400") -> Answer:
    """Return what is kept of a question that has no answer."""
    return an_answer(repeat, question, right=False).model_copy(
        update={
            "answer": None,
            "text": None,
            "extracted": None,
            "prompt_tokens": None,
            "tokens": None,
            "finish": None,
            "failure": why,
        }
    )


def with_answers(log: AccuracyLog, *answers: Answer) -> AccuracyLog:
    """Return `log` with these in the place of those to the same questions."""
    others = {(answer.repeat, answer.question): answer for answer in answers}
    kept = tuple(others.get((each.repeat, each.question), each) for each in log.answers)
    return replace(log, answers=kept)


def under_load_of(builder: RunBuilder, *, differing: int = 0, repeats: int = 1) -> UnderLoadLog:
    """Return what is compared of the highest passing trials; the first `differing` rows differ."""
    compared = []
    for repeat in range(1, repeats + 1):
        passed = [t for t in builder.trials() if verdict(builder.spec, t)[0] == "PASS"]
        top = max((t for t in passed if t.repeat == repeat), key=lambda t: t.rate_urps)
        rows = sampled_rows(NONCE, repeat, top.realisation.scored_rows, builder.spec.protocol.mode)
        for place, row in enumerate(rows):
            alone = text_digest(f"answer {row}")
            differs = place < differing
            compared.append(
                Compared(
                    repeat=repeat,
                    trial=top.number,
                    row=row,
                    loaded=text_digest(f"answer {row}, other") if differs else alone,
                    alone=alone,
                    again=alone,
                    same_chars=50 if differs else 100,
                    chars=100,
                    cached_tokens=0,
                )
            )
    return UnderLoadLog(tuple(compared))


def gpu_spec(**changes: Any) -> Spec:
    """Return a small spec of two made-up boards whose power is read."""
    board = {
        "model": "Toy GPU",
        "count": 2,
        "memory_gib": 80,
        "rated_bandwidth_gb_s": 2000.0,
        "power_limit_w": 400.0,
    }
    power = {"sensor": "nvml", "scope": "gpu", "rate_hz": 1.0}
    return small_spec(**{"setup__accelerator": board, "setup__power": power, **changes})


def split_spec(**changes: Any) -> Spec:
    """Return `gpu_spec` with one board that takes prompts, and one that makes tokens."""
    roles = {"prefill": ["GPU-0"], "decode": ["gpu-1"]}
    split = {"board_roles": roles, "setup__parallelism__prefill_decode_split": "1P1D"}
    return gpu_spec(**{**split, **changes})


def a_trace(rows: int = 400, *, every_ns: int = 500_000_000, bursts: int = 4) -> Trace:
    """Return a trace of bursts: `bursts` requests at once, then a pause as long as they take."""
    return parse(
        encode(
            [
                TraceLine(n // bursts * bursts * every_ns, 20 + n * 7 % 40, 4 + n * 5 % 20)
                for n in range(rows)
            ]
        ),
        source="a trace",
    )


def trace_spec(trace: Trace, /, **changes: Any) -> Spec:
    """Return a small spec that plays `trace`."""
    lengths = trace.lengths("input_tokens"), trace.lengths("output_tokens")
    workload = Workload("toy-trace", 1, *lengths, trace=trace)
    return small_spec(
        **{
            "trace": "toy-trace.jsonl",
            "setup__arrival": "trace",
            "setup__input_tokens": lengths[0].to_json(),
            "setup__output_tokens": lengths[1].to_json(),
            "setup__workload": _identity(workload),
            **changes,
        }
    )


def conversation_spec(turns: int, spread: int, shared: int, **changes: Any) -> Spec:
    """Return a small spec whose rows are turns of conversations."""
    conversation = Conversation(turns=turns, spread=spread, shared_prefix_tokens=shared)
    lengths = _WORKLOAD.input_tokens, _WORKLOAD.output_tokens
    workload = Workload("toy-chat", 1, *lengths, conversation)
    return small_spec(
        setup__conversation=conversation.to_json(),
        setup__workload=_identity(workload),
        **changes,
    )


def _identity(workload: Workload) -> dict[str, Any]:
    return {"name": workload.name, "version": workload.version, "hash": workload.hash}


def steady_power(seconds: int, *, boards: int = 2, power_mw: int = 300_000) -> PowerLog:
    """Return one sample a second of boards that draw the same all the time.

    Trial t of a `RunBuilder` starts at second 1,000 t of this clock.
    """
    return PowerLog(
        sensor="nvml",
        scope="gpu",
        period_ns=10**9,
        averaging_ns=10**9,
        boards=tuple(
            Board(uuid=f"GPU-{index}", name="Toy GPU", limit_mw=400_000) for index in range(boards)
        ),
        samples=tuple(
            PowerSample(second * 10**9, board, power_mw, second * power_mw)
            for second in range(seconds)
            for board in range(boards)
        ),
    )


def played_power(
    builder: RunBuilder,
    *,
    load_mw: int = 300_000,
    idle_mw: int = 100_000,
    boards: int = 2,
    **changes: Any,
) -> PowerLog:
    """Return one sample a second of boards that draw `load_mw` in trials and `idle_mw` between.

    The counter is the exact integral; the watts are those of the moment. `changes` are of the log.
    """
    loads = builder.loads()
    end_s = loads[-1][1] // 10**9 + builder.idle_s + 30
    samples, counter_mj = [], 0.0
    for second in range(loads[0][0] // 10**9 - 110, end_s):
        at_ns = second * 10**9
        inside = sum(max(0, min(b, at_ns) - max(a, at_ns - 10**9)) for a, b in loads)
        counter_mj += idle_mw + (load_mw - idle_mw) * inside / 1e9
        power_mw = load_mw if any(a <= at_ns < b for a, b in loads) else idle_mw
        samples += [PowerSample(at_ns, n, power_mw, round(counter_mj)) for n in range(boards)]
    log = PowerLog(
        sensor="nvml",
        scope="gpu",
        period_ns=10**9,
        averaging_ns=None,
        boards=steady_power(0, boards=boards).boards,
        samples=tuple(samples),
    )
    return replace(log, **changes)


def host_power(builder: RunBuilder, *, power_mw: int = 1_500_000, **changes: Any) -> PowerLog:
    """Return what a management controller tells of a host, once a second; it has no counter."""
    played = played_power(builder, load_mw=power_mw, idle_mw=power_mw // 2, boards=1)
    log = replace(
        played,
        sensor="redfish",
        scope="host",
        boards=(Board(uuid="chassis-1", name="Toy host"),),
        samples=tuple(replace(sample, energy_mj=None) for sample in played.samples),
    )
    return replace(log, **changes)


def processor_power(builder: RunBuilder, *, power_mw: int = 200_000) -> PowerLog:
    """Return what the counters of two processor packages tell, once a second."""
    played = played_power(builder, load_mw=power_mw, idle_mw=power_mw // 2)
    return replace(
        played,
        sensor="rapl",
        scope="cpu",
        boards=tuple(Board(uuid=f"package-{n}", name="Toy package") for n in range(2)),
        samples=tuple(replace(sample, power_mw=None) for sample in played.samples),
    )


def played_counters(builder: RunBuilder, *, steps_per_s: int = 20) -> EngineLog:
    """Return an engine's counters once a second in every trial; they start again at each launch."""
    samples: list[EngineSample] = []
    for (repeat, _, _), (start_ns, end_ns) in zip(builder._trials(), builder.loads(), strict=True):
        launched_ns = min(trial * 10**12 for r, trial, _ in builder._trials() if r == repeat)
        for at_ns in range(start_ns, end_ns + 10**9, 10**9):
            steps = (at_ns - launched_ns) // 10**9 * steps_per_s
            samples.append(
                EngineSample(
                    at_ns,
                    steps=steps,
                    prompt_tokens=10 * steps,
                    output_tokens=3 * steps,
                    running=3,
                    waiting=0,
                )
            )
    return EngineLog({"steps": "vllm:iteration_tokens_total_count"}, tuple(samples))


def write_signed(path: Path, document: dict[str, Any], key: Ed25519PrivateKey) -> Path:
    """Sign `document` as it is, right or wrong, and write it indented."""
    signature = sign(signed_bytes(document), key)
    document = {**document, "signatures": [signature.to_json()]}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path
