"""Whether a trial is a measurement of the engine, and with what verdict.

INVALID, with the reason, where client, tokens, window or load were not what was planned; else PASS
or FAIL, a fact about this realisation at this rate. A reason begins with who was at fault, as far
as the records tell: client, network, engine, or the spec that planned it so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.goodput import bracket, decide, quantile
from tokenwatt_site.replicas import replica_of
from tokenwatt_site.run import SelfTest, Verdict
from tokenwatt_site.spec import MIN_WINDOW_S, Spec
from tokenwatt_site.trials import Trial
from tokenwatt_site.windows import Windows
from tokenwatt_site.workload import Realisation, require_rows, unplayable

MAX_LAG_NS = 1_000_000
LIMIT_SHARE = Fraction(5, 1000)
MIN_SENT_SHARE = Fraction(995, 1000)
MAX_LAST_SEND_SHARE = Fraction(1, 100)
MAX_CACHED_SHARE = Fraction(1, 100)
MAX_UNSCORED_FAILED_SHARE = Fraction(1, 100)
MIN_PACE, MAX_PACE = Fraction(1, 2), Fraction(2)
"""How dense the part of a trace may be that is played: beyond, it does not stand for the whole."""

MAX_HELD_SHARE = Fraction(1, 2)
"""Of what the client held in its self-test: what a trial may ask of it."""

MAX_POLL_GAP_NS = 2_000_000
"""The client polls every millisecond; a longer gap is its own lateness, whatever else happened."""

_ENGINE_S_WORD = frozenset(
    {Status.HTTP_ERROR, Status.STREAM_ERROR, Status.NO_USAGE, Status.SHORT_OUTPUT}
)
"""Failures that the engine itself told or made; of others a network may be the reason."""

MAX_CLOCK_STEP_NS = 1_000_000
"""Kernel stamps are of the wall clock: what it is set by in a trial, they are off by."""

MAX_CLOCK_OFFSET_NS = 1_000_000
"""By how much the clocks of several client processes may be apart: the load is of one clock."""

BUSY_PPM = 900_000
"""A client that uses more of its processor may itself be why something took long."""

Cause: TypeAlias = Literal["client", "network", "engine", "spec", "measurement"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a trial is no measurement.

    `causes`: who was at fault; several where the records do not tell which of them. `transient`:
    another try may do better.
    """

    causes: tuple[Cause, ...]
    what: str
    transient: bool = False

    @property
    def reason(self) -> str:
        return f"{' or '.join(self.causes)}: {self.what}"


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How late sends may be, and how uncertain stamps, at the 99th percentile (DESIGN 4)."""

    lag_ns: int
    stamp_ns: int

    @classmethod
    def of(cls, spec: Spec) -> Tolerances:
        limits = [o.limit_ns for o in spec.setup.slo if o.metric == "ttft"]
        share = math.floor(LIMIT_SHARE * min(limits)) if limits else MAX_LAG_NS
        return cls(lag_ns=max(MAX_LAG_NS, share), stamp_ns=share)


def highest_load_urps(test: SelfTest, realisation: Realisation) -> int:
    """Return the highest rate that asks half of what the client held, of events and of requests.

    An event is an output token: engines that put more than one into an event ask less.
    """
    by_events = Fraction(test.events_per_s * 1_000_000) / Fraction(realisation.mean_output_tokens)
    return math.floor(MAX_HELD_SHARE * min(by_events, Fraction(test.requests_urps)))


def highest_rate_urps(spec: Spec, realisation: Realisation, test: SelfTest | None) -> int:
    """Return the highest rate to offer: within what the mode, the spec and the client allow."""
    highest = _fullest_urps(spec, realisation)
    return highest if test is None else min(highest, highest_load_urps(test, realisation))


def _fullest_urps(spec: Spec, realisation: Realisation) -> int:
    """Return the highest rate at which this realisation fills engine and window as its mode asks.

    Rows are fixed, so a higher rate makes a shorter window. A chosen window fills both up to the
    rate that it was made for. Demo mode asks for nothing.
    """
    if spec.protocol.mode == "demo":
        return spec.protocol.max_urps
    if realisation.highest_urps is not None:
        return min(realisation.highest_urps, spec.protocol.max_urps)
    rows, base_urps = realisation.scored_rows, 1_000_000
    due = realisation.due_ns(base_urps)
    ratios = [Fraction(due[rows.stop - 1] - due[rows.start], MIN_WINDOW_S * 10**9)]
    if (lead_ns := fill_ns(spec)) > 0:
        ratios.append(Fraction(due[rows.start], lead_ns))
    # 1e-6 below: due times are rounded down.
    return min(math.floor(min(ratios) * base_urps) - 1, spec.protocol.max_urps)


def require_playable(spec: Spec, windows: Windows) -> None:
    """See that a trace is long enough, and that its parts stand for the whole of it.

    In every repeat the scored rows came about as densely as the whole trace, and in quick and full
    mode the lead-in comes about as densely as they do. Who chooses a part chooses no other load.

    Raises:
        SpecError: naming the repeat in which that is not so.
    """
    protocol, trace = spec.protocol, windows.workload.trace
    if trace is None:
        return
    [band] = windows.bands
    require_rows(trace, band.rows, repeats=protocol.repeats)
    for repeat in range(1, protocol.repeats + 1):
        part = windows.realisation(repeat, band)
        scored = trace.pace(part.scored_lines)
        _require_pace(f"the scored rows of repeat {repeat}", scored, "the whole trace")
        if protocol.mode != "demo":
            _require_pace(f"the lead-in of repeat {repeat}", part.lead_in_pace, "its scored rows")


def _require_pace(what: str, pace: Fraction | None, rate_of: str) -> None:
    if pace is None:
        raise unplayable(f"{what} takes no time")
    if not MIN_PACE <= pace <= MAX_PACE:
        raise unplayable(
            f"{what} came at {float(pace):.3g} times the rate of {rate_of};"
            f" {float(MIN_PACE):g} to {float(MAX_PACE):g} times it may be"
        )


def fill_ns(spec: Spec) -> int:
    """Return how long a lead-in must load the engine: 2 x longest answer x TPOT limit."""
    limits = [o.limit_ns for o in spec.setup.slo if o.metric == "tpot"]
    return 2 * spec.setup.output_tokens.longest * min(limits, default=0)


def fault(spec: Spec, trial: Trial) -> Fault | None:
    """Say why this trial is no measurement of the engine, or None. `method` lists the limits."""
    if trial.abandoned:
        return Fault(("measurement",), "broken off; the repeat was done again from its start")
    if not trial.engine_alive:
        return Fault(("engine",), trial.changed or "it died")
    return (
        _worker_fault(trial)
        or _overload(trial)
        or _send_fault(spec, trial)
        or _stamp_fault(spec, trial)
        or _token_fault(trial)
        or _window_fault(spec, trial)
        or _load_fault(spec, trial)
    )


def _overload(trial: Trial) -> Fault | None:
    highest = highest_load_urps(trial.self_test, trial.realisation)
    if trial.rate_urps <= highest:
        return None
    return Fault(
        ("client",),
        f"its self-test allows {highest / 1e6:g} requests/s, half of what it held;"
        f" {trial.rate_urps / 1e6:g} were offered",
    )


def _worker_fault(trial: Trial) -> Fault | None:
    """Say why several client processes did not send as one."""
    if trial.lost is not None:
        return Fault(("client",), trial.lost, transient=True)
    bound = max(trial.offset_bounds_ns, default=0)
    if bound <= MAX_CLOCK_OFFSET_NS:
        return None
    number = trial.offset_bounds_ns.index(bound) + 1
    return Fault(
        ("client",),
        f"the clock of worker {number} of {len(trial.offset_bounds_ns)} may have been off by"
        f" {bound / 1e6:.2f} ms, limit {MAX_CLOCK_OFFSET_NS / 1e6:.2f} ms",
        transient=True,
    )


def _send_fault(spec: Spec, trial: Trial) -> Fault | None:
    """Say what kept the load from being what was planned: requests unsent, or sent late."""
    records, limit = trial.records, Tolerances.of(spec).lag_ns
    unsent = [r for r in records if r.sent_ns is None and r.status is not Status.CENSORED]
    if len(records) - len(unsent) < MIN_SENT_SHARE * len(records):
        return _unsent(spec, trial, unsent)
    start, end = trial.window_ns
    # In a short window 1% is less than what any request may be late.
    latest = max(math.floor(MAX_LAST_SEND_SHARE * (end - start)), limit)
    return _late(spec, trial, "p99 dispatch lag", records, limit) or _late(
        spec, trial, "lateness of the last send", records[-1:], latest
    )


def _unsent(spec: Spec, trial: Trial, unsent: Sequence[RequestRecord]) -> Fault:
    """Say why requests were never sent. Of an answer that never came, this says nothing."""
    told = f"{len(unsent)} of {len(trial.records)} requests could not be sent"
    if alone := _of_one_replica(spec, unsent):
        told = f"{told}, {alone}"
    # Want of descriptors, ports or memory: `records.Status` has nothing else under NOT_SENT.
    own = sum(r.status is Status.NOT_SENT for r in unsent)
    if own == len(unsent):
        return _client(trial, f"{told}, for want of its own")
    if own:
        return Fault(
            ("client", "network", "engine"),
            f"{told}; {own} of them for want of the client's own, the others got no connection",
            transient=True,
        )
    return Fault(("network", "engine"), f"{told}: they got no connection", transient=True)


def _of_one_replica(spec: Spec, records: Sequence[RequestRecord]) -> str | None:
    """Say of which replica all these requests were; None: of several, or one engine is asked."""
    count = spec.endpoint.replicas
    places = {replica_of(record.row, count) for record in records}
    return f"all of replica {places.pop() + 1} of {count}" if count > 1 == len(places) else None


def _late(
    spec: Spec, trial: Trial, what: str, records: Sequence[RequestRecord], limit: int
) -> Fault | None:
    """Say who made requests late: what was not waited for a connection, the client was itself."""
    lag = quantile([lag_ns(r) for r in records], 0.99)
    if lag <= limit:
        return None
    text = f"{what} {lag / 1e6:.2f} ms, limit {limit / 1e6:.2f} ms"
    own = quantile([lag_ns(r) - connecting_ns(r) for r in records], 0.99)
    waited = quantile([connecting_ns(r) for r in records], 0.99)
    if own > limit:
        return _client(trial, text if own == lag else f"{text}; {own / 1e6:.2f} ms of it its own")
    told = (
        f"{text}; waiting for connections took {waited / 1e6:.2f} ms,"
        f" the client itself {own / 1e6:.2f} ms"
    )
    # A SYN may be lost on the way, or stand in the queue of an engine that does not accept.
    if (doubt := _doubt(spec, trial)) is None:
        return Fault(("network", "engine"), told, transient=True)
    return Fault(("client", "network", "engine"), f"{told}, but {doubt}", transient=True)


def _doubt(spec: Spec, trial: Trial) -> str | None:
    """Say why a connection that took long may have been ready before the client saw it, if so."""
    if spec.endpoint.over_tls:
        return "a TLS handshake takes its processor too"
    if trial.client_cpu_ppm > BUSY_PPM:
        return f"it used {trial.client_cpu_ppm / 1e4:.0f}% of its processor"
    if (found := stamp_ns(trial)) is not None and found > MAX_POLL_GAP_NS:
        return f"it did not look at its sockets for {found / 1e6:.2f} ms"
    return None


def lag_ns(record: RequestRecord) -> int:
    """Return how late a request was sent; of one that was not, how long it had not been."""
    return (record.end_ns if record.sent_ns is None else record.sent_ns) - record.due_ns


def connecting_ns(record: RequestRecord) -> int:
    """Return how long a request waited for its connection before it was first sent.

    One that had to be sent again has its second connection after that, and waited for none. One
    that was not sent waited from its dialling to its end.
    """
    dialled, connected, sent = record.dialled_ns, record.connected_ns, record.sent_ns
    if dialled is None:
        return 0
    if sent is None:
        return record.end_ns - dialled
    return connected - dialled if connected is not None and connected <= sent else 0


def stamp_ns(trial: Trial) -> int | None:
    """Return the p99 uncertainty of the stamps of first tokens; None where there are none."""
    stamps = [r.uncertainty_ns for r in trial.records if r.first_ns is not None]
    return quantile(stamps, 0.99) if stamps else None


def _stamp_fault(spec: Spec, trial: Trial) -> Fault | None:
    if trial.clock_step_ns > MAX_CLOCK_STEP_NS:
        step = f"{trial.clock_step_ns / 1e6:.2f} ms, limit {MAX_CLOCK_STEP_NS / 1e6:.2f} ms"
        what = f"its wall clock was set during the trial, by {step}, and the stamps with it"
        return Fault(("client",), what, transient=True)
    limit = Tolerances.of(spec).stamp_ns
    if (found := stamp_ns(trial)) is None or found <= limit:
        return None
    text = f"p99 stamp uncertainty {found / 1e6:.2f} ms, limit {limit / 1e6:.2f} ms"
    if found > MAX_POLL_GAP_NS:
        # Nothing arrived before the poll that last found the socket empty.
        return _client(trial, f"{text}, so long it did not look")
    if trial.stamps == "user space":
        return _client(trial, f"{text}; it has no stamps of the kernel")
    told = f"{text}: several tokens came in one read, though the client looked in time"
    return Fault(("network", "engine"), told, transient=True)


def _client(trial: Trial, what: str) -> Fault:
    """A fault of the client, with what it had of its processor. Other load may be gone next time.

    A thread that needs all of one is too slow for the load; one that does not was not let run.
    """
    used = f"; it used {trial.client_cpu_ppm / 1e4:.0f}% of its processor"
    return Fault(("client",), what + used, transient=True)


def _token_fault(trial: Trial) -> Fault | None:
    # What the engine adds may alone be longer than a short prompt; preflight measured it.
    least = trial.chat_overhead + 1 if trial.chat_overhead else 0
    told = [(r.prompt_tokens, max(r.prompt_asked, least)) for r in trial.records if r.prompt_tokens]
    off = [(found, asked) for found, asked in told if abs(found - asked) > max(2, asked // 100)]
    if off:
        found, asked = off[0]
        return Fault(
            ("engine",),
            f"{len(off)} prompts had another length (asked {asked} tokens, engine saw {found})",
        )
    more = sum((r.output_tokens or 0) > r.output_asked for r in trial.records)
    if more:
        return Fault(("engine",), f"{more} answers had more tokens than were asked for")
    return _cache_fault(trial, prompted=sum(found for found, _ in told))


def _cache_fault(trial: Trial, prompted: int) -> Fault | None:
    """Say that more came from the engine's cache than what earlier requests of the trial held."""
    excess = 0
    sent_before = trial.realisation.sent_before()
    for record, known in zip(trial.records, sent_before, strict=False):  # it may have ended early
        if record.prompt_tokens is None:
            continue  # nor is it in `prompted`
        # What the engine itself puts around a text, such as a chat template, it had before.
        explained = known + trial.chat_overhead
        excess += max(0, (record.cached_tokens or 0) - explained)
    if excess > MAX_CACHED_SHARE * prompted:
        beyond = " beyond what was sent before" if any(sent_before) else ""
        return Fault(
            ("engine",), f"{excess} of {prompted} prompt tokens came from its cache{beyond}"
        )
    return None


def _window_fault(spec: Spec, trial: Trial) -> Fault | None:
    if spec.protocol.mode == "demo":
        return None
    if (highest_urps := trial.realisation.highest_urps) is not None:
        return _beyond_fault(trial.rate_urps, highest_urps)
    start, end = trial.window_ns
    if end - start < MIN_WINDOW_S * 10**9:
        return Fault(
            ("spec",),
            f"window of {(end - start) / 1e9:.0f} s, at least {MIN_WINDOW_S} s are needed",
        )
    if start < fill_ns(spec):
        return Fault(
            ("spec",),
            f"lead-in of {start / 1e9:.0f} s, at least {fill_ns(spec) / 1e9:.0f} s are needed",
        )
    return None


def _beyond_fault(rate_urps: int, highest_urps: int) -> Fault | None:
    """Say that a chosen window was offered above the rates that it was chosen for."""
    if rate_urps <= highest_urps:
        return None
    return Fault(
        ("spec",),
        f"its window is for rates up to {highest_urps / 1e6:g} requests/s;"
        f" {rate_urps / 1e6:g} were offered",
    )


def _load_fault(spec: Spec, trial: Trial) -> Fault | None:
    """Say why a trial that did not fail was not under the load that was planned."""
    judgements = trial.judgements(spec.setup.slo)
    if unmeasured := [j.objective.label for j in judgements if not j.measured]:
        # Where answers of one token are asked for, or come as a whole, there is no time per token.
        what = f"{', '.join(unmeasured)} was measured on no request"
        return Fault(("spec", "engine"), what)
    if decide(judgements) == "FAIL":
        return None
    if trial.due_ns[-1] < trial.scored_end_ns:
        return Fault(
            ("spec",), "the tail ended before the last scored request; raise protocol.tail"
        )
    rows = trial.realisation.scored_rows
    others = [r for r in trial.records if r.row not in rows and r.status is not Status.CENSORED]
    failed = [r.status for r in others if r.status is not Status.OK]
    if len(failed) > MAX_UNSCORED_FAILED_SHARE * len(others):
        what = f"{len(failed)} of {len(others)} lead-in and tail requests failed"
        return Fault(
            ("engine",) if _ENGINE_S_WORD.issuperset(failed) else ("network", "engine"), what
        )
    return None


def verdict(spec: Spec, trial: Trial) -> tuple[Verdict, str | None]:
    """Return (PASS | FAIL | INVALID, reason)."""
    if found := fault(spec, trial):
        return "INVALID", found.reason
    failed = [
        f"{j.objective.label}: {j.misses} of {j.n} miss, {j.allowed} may"
        for j in trial.judgements(spec.setup.slo)
        if j.outcome == "FAIL"
    ]
    if not failed:
        return "PASS", None
    failed += [f"{n} {name.replace('_', ' ')}" for name, n in trial.failures.items()]
    ended_badly = [r for r in trial.records if r.status not in {Status.OK, Status.CENSORED}]
    if alone := _of_one_replica(spec, ended_badly):
        failed.append(alone)
    return "FAIL", "; ".join(failed)


def highest_passing(spec: Spec, trials: Sequence[Trial]) -> Trial | None:
    """Return the first trial at the highest passing rate of one repeat; None: none passed.

    On the rows that the repeat offered last: on others the engine may hold more, or less.
    """
    judged = [(t, verdict(spec, t)[0]) for t in trials if t.band == trials[-1].band]
    highest, _ = bracket(
        [trial.rate_urps for trial, outcome in judged if outcome == "PASS"],
        [trial.rate_urps for trial, outcome in judged if outcome == "FAIL"],
    )
    at_it = [t for t, outcome in judged if (outcome, t.rate_urps) == ("PASS", highest)]
    return at_it[0] if at_it else None
