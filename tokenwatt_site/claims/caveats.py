"""What a run does not cover, and why: made from the spec and from what came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.journal import Entry
from tokenwatt_site.meters import PowerScope
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.prompts import Prompts, Words, prompts_of
from tokenwatt_site.run import (
    LongRunClaim,
    MetricClaim,
    NotCovered,
    RepeatClaim,
    SelfTest,
    TrialClaim,
)
from tokenwatt_site.spec import MIN_SCORED, MIN_WINDOW_S, NOT_RECORDED, Spec
from tokenwatt_site.trace import Trace
from tokenwatt_site.trials import Told, Trial
from tokenwatt_site.validity import fill_ns
from tokenwatt_site.windows import Windows
from tokenwatt_site.workload import Realisation


def caveats(
    spec: Spec, repeats: Sequence[RepeatClaim], metrics: Sequence[MetricClaim]
) -> tuple[NotCovered, ...]:
    """Return all caveats, the gravest first."""
    return tuple(NotCovered(what=what, why=why) for what, why in _all(spec, repeats, metrics))


def circumstances(
    spec: Spec, journal: Sequence[Entry], trials: Sequence[Trial], trace: Trace | None = None
) -> tuple[NotCovered, ...]:
    """Return the caveats that come from how this run went, not from what it measured."""
    drawn = {t.realisation.number: t.realisation for t in trials}.values()
    lines = [entry for entry in journal if entry.event == "launch"]
    launches = [entry.data for entry in lines]
    told = (
        *_of_engine(spec, launches),
        *_of_client(spec, Told.by(journal).self_test),
        *_of_prompts([prompts_of(line) for line in lines]),
        *_of_launches(launches),
        *_of_requests(spec, trials),
        *_of_conversations(spec, tuple(drawn)),
        *_of_trace(spec, trace, tuple(drawn)),
    )
    return tuple(NotCovered(what=what, why=why) for what, why in told)


def _of_engine(spec: Spec, launches: Sequence[dict[str, JsonValue]]) -> Iterator[tuple[str, str]]:
    if any(launch.get("accepts_unknown_model") for launch in launches):
        yield (
            "That the engine would refuse a wrong model name",
            f"It answers to any; its list of models holds {spec.endpoint.model}.",
        )
    if any(launch.get("repeat_cached_tokens", 0) is None for launch in launches):
        yield (
            "Prompt-cache hits",
            "The engine does not report them."
            + (" Every prompt was fresh." if spec.setup.conversation is None else ""),
        )
    if any(launch.get("longest_asked") is False for launch in launches):
        yield (
            "The longest prompt with the longest answer",
            "It was not tried beforehand, as it would have taken more than a minute.",
        )


def _of_client(spec: Spec, test: SelfTest) -> Iterator[tuple[str, str]]:
    if test.limited_by == "emitter":
        yield (
            "The most that the client could have held",
            (
                "The server of its self-test fell behind first, so that the client holds at least"
                " what is stated. Rates above half of that were not offered."
            ),
        )
    if spec.endpoint.over_tls:
        yield (
            "What the client could have held over TLS",
            "Its self-test was over plain HTTP; TLS takes more of its processor.",
        )


def _of_prompts(prompts: Sequence[Prompts]) -> Iterator[tuple[str, str]]:
    lists = [p for p in prompts if isinstance(p, Words)]
    if lists:
        counts = sorted({len(p.words) for p in lists})
        yield (
            "All tokens of the vocabulary",
            f"Prompts are random words, out of a list of {' or '.join(map(str, counts))}.",
        )
    if any(p.source == "common words" for p in lists):
        yield (
            "Prompts of exact length",
            (
                "No tokenizer was at hand. The words are common ones taken to be one token each;"
                " the engine's own counts were within 2 tokens, or 1%, of what was asked."
            ),
        )


def _of_launches(launches: Sequence[dict[str, JsonValue]]) -> Iterator[tuple[str, str]]:
    anew = [launch for launch in launches if launch.get("continues") is not True]
    for repeat, times in Counter(launch.get("repeat") for launch in anew).items():
        if times > 1:
            yield (
                "One launch for each repeat",
                f"Repeat {repeat} was launched {times} times; only the last launch counts.",
            )
    unknown = sum(launch.get("engine_started") is None for launch in launches)
    if unknown and len(launches) > 1:
        yield (
            "That each repeat was a new launch",
            "Declared by the publisher: the engine does not tell when its process started.",
        )


def _of_requests(spec: Spec, trials: Sequence[Trial]) -> Iterator[tuple[str, str]]:
    records = [r for trial in trials for r in trial.scored if r.status is Status.OK]
    assumed = sum(r.first_tokens == 1 and r.events < (r.output_tokens or 0) for r in records)
    if assumed:
        yield (
            "Tokens in the first event",
            (
                f"{assumed} of {len(records)} answers came in fewer events than tokens, and the"
                " engine did not tell how many the first one held; one was assumed for TPOT."
            ),
        )
    short = sum(r.prompt_asked <= t.chat_overhead for t in trials for r in t.scored)
    if short and spec.endpoint.api == "chat":
        yield (
            "Prompts shorter than the chat template",
            f"{short} requests asked for fewer prompt tokens than the template alone has.",
        )
    elif short:
        yield (
            "Prompts shorter than what begins them",
            f"{short} requests asked for no more prompt tokens than the engine adds to every text.",
        )
    fills = [trial.window_ns[0] for trial in trials]
    if fills and min(fills) < fill_ns(spec):
        yield (
            "An engine filled before the first scored request",
            (
                f"The shortest lead-in took {min(fills) / 1e9:.1f} s; twice the longest answer at"
                f" the TPOT limit is {fill_ns(spec) / 1e9:.1f} s."
            ),
        )


def _of_conversations(spec: Spec, drawn: Sequence[Realisation]) -> Iterator[tuple[str, str]]:
    if spec.setup.conversation is None:
        return
    if spec.setup.conversation.turns > 1:
        yield (
            "Conversations that wait for their answers",
            (
                "A turn comes on schedule, whether or not the answer before it was there, and its"
                f" history holds random {_drawn(spec)} in place of the engine's own answers: no"
                " cache has those before they are sent."
            ),
        )
    shares = [
        sum(r.sent_before()[r.lead_in : r.lead_in + r.scored]) / (r.mean_input_tokens * r.scored)
        for r in drawn
    ]
    yield (
        "An engine without a prompt cache",
        (
            f"Up to {max(shares, default=0.0):.1%} of the scored prompt tokens had been sent before"
            " in the same trial, as the setup declares. How much was cached stands under All"
            " numbers."
        ),
    )


def _of_trace(
    spec: Spec, trace: Trace | None, drawn: Sequence[Realisation]
) -> Iterator[tuple[str, str]]:
    if trace is None:
        return
    yield (
        "What the prompts of the trace had in common",
        f"It tells arrivals and lengths. Every prompt was of fresh random {_drawn(spec)}.",
    )
    paces = [(r.number, pace) for r in drawn if (pace := trace.pace(r.scored_lines)) is not None]
    told = ", ".join(f"{float(pace):.2f} in repeat {number}" for number, pace in paces)
    yield (
        "The trace at its own rate",
        (
            f"It had {len(trace.requests):,} requests at {trace.mean_rate:.3f} requests/s; its time"
            " was scaled so that the scored rows come at each rate. In the trace they had come at"
            f" so many times that rate: {told}."
        ),
    )


def not_recorded(setup: JsonValue, path: str = "") -> tuple[str, ...]:
    """Return the dotted names of the setup fields that say "not recorded"."""
    if setup == NOT_RECORDED:
        return (path,)
    if isinstance(setup, dict):
        items = [(f"{path}.{key}" if path else key, value) for key, value in setup.items()]
    elif isinstance(setup, list | tuple):
        items = [(f"{path}.{index}", value) for index, value in enumerate(setup)]
    else:
        return ()
    return tuple(name for key, value in items for name in not_recorded(value, key))


def _all(
    spec: Spec, repeats: Sequence[RepeatClaim], metrics: Sequence[MetricClaim]
) -> Iterator[tuple[str, str]]:
    protocol, setup = spec.protocol, spec.setup
    scored = min((repeat.scored for repeat in repeats), default=0)
    if protocol.mode == "demo":
        yield (
            "Anything but a demonstration",
            (
                f"Demo mode: {_launches(len(repeats))}, {scored} scored requests a trial."
                " It shows that the path from measuring to publishing works."
            ),
        )
    if protocol.mode == "quick":
        yield (
            "Quick mode: short windows, few repeats — validation only, not for publishing",
            "2 launches give a range, not an interval.",
        )
    for metric in _once(metrics):
        # That there is no long run has a caveat of its own.
        if metric.value is None and not metric.key.startswith("long_run"):
            yield METRICS[metric.key].label, _no_number(metric.reason or "no reason was recorded")
    windows = [r.window_s for r in repeats if r.window_s is not None]
    if windows and (min(windows) < MIN_WINDOW_S or scored < MIN_SCORED):
        yield (
            "Long windows",
            (
                f"The shortest scored window took {min(windows):.0f} s with {scored}"
                f" requests; quick and full mode ask for {MIN_WINDOW_S} s and {MIN_SCORED}."
            ),
        )
    if len(repeats) < 3:
        yield (
            "Spread between launches",
            (
                f"{_launches(len(repeats))} measured; an interval"
                " needs 3. Another launch may differ by more than the digits shown suggest."
            ),
        )
    yield from _whole_node(spec, metrics)
    yield (
        f"Context lengths beyond the {setup.workload.name} workload",
        (
            f"Longest prompt {setup.longest_prompt:,} tokens, longest answer"
            f" {setup.output_tokens.longest:,}."
        ),
    )
    beyond = "" if setup.conversation is None else "but what the conversations repeat "
    yield (
        "Natural text",
        (
            f"Prompts are random {_drawn(spec)}, fresh in every trial, so that nothing {beyond}can"
            " be cached. Expert routing and speculative acceptance differ from text."
        ),
    )
    if fields := not_recorded(setup.to_json()):
        yield "Setup fields that were not recorded", ", ".join(fields)


def of_long_run(
    spec: Spec, windows: Windows, claim: LongRunClaim, repeats: Sequence[RepeatClaim]
) -> tuple[NotCovered, ...]:
    """Return what is to be known of the long run, and of the windows that stand for it."""
    passed = [r.highest_pass_urps for r in repeats if r.highest_pass_urps is not None]
    told = _long_run(spec, windows, claim, min(passed, default=None))
    return tuple(NotCovered(what=what, why=why) for what, why in told)


def _long_run(
    spec: Spec, windows: Windows, claim: LongRunClaim, low_urps: int | None
) -> Iterator[tuple[str, str]]:
    if claim.outcome == "accepted":
        kept = claim.windows_kept_percent
        told = "" if kept is None else f" Of 10-minute windows at it {kept:.0f}% keep the SLO."
        yield (
            "Every hour of the long run",
            (
                "The long-run boundary is what the SLO's quantiles keep to over 200,000 requests."
                f" Misses cluster, so single hours miss it.{told}"
            ),
        )
    else:
        yield (
            "The long run",
            (
                "Goodput is what the realisations that were offered kept. Misses cluster, so short"
                " windows overstate what the long run keeps: in simulations by about 10% where 600"
                " requests were scored, and by more below. No correction was made: "
                f"{claim.text}."
            ),
        )
    if not windows.chosen:
        yield (
            "Windows chosen to stand for the long run",
            "Those offered are the workload's first draws: none was chosen, and none left out.",
        )
    elif low_urps is not None and low_urps < windows.bands[0].low_urps:
        yield (
            "Windows chosen for this rate",
            (
                f"The lowest were chosen for {windows.bands[0].low_urps / 1e6:g} requests/s and"
                " more; below, their rows are offered as any."
            ),
        )
    elif not windows.chosen_for(spec.setup.slo):
        yield (
            "Windows chosen for this SLO",
            (
                "They were chosen by engines under another SLO, on which short windows may weigh"
                " otherwise."
            ),
        )


def contradictions(
    trials: Sequence[Trial], claimed: Sequence[TrialClaim]
) -> tuple[NotCovered, ...]:
    """Tell of trials that failed below a rate that passed on the same rows in the same repeat."""
    judged = list(zip(trials, claimed, strict=True))
    told = []
    for trial, failed in judged:
        above = [
            str(claim.trial)
            for other, claim in judged
            if failed.verdict == "FAIL"
            and claim.verdict == "PASS"
            and claim.rate_urps > failed.rate_urps
            and (other.repeat, other.band) == (trial.repeat, trial.band)
        ]
        if above:
            told.append(
                f"In repeat {failed.repeat} trial {failed.trial} failed at"
                f" {failed.rate_urps / 1e6:g} requests/s, and trial {', '.join(above)} passed above"
                " it."
            )
    what = "A boundary below which every rate passes, and above which none does"
    why = " ".join(told) + " The lowest rate that failed decides."
    return (NotCovered(what=what, why=why),) if told else ()


def _no_number(reason: str) -> str:
    if reason.startswith(("withheld: ", "INVALID: ")):
        return f"{reason[0].upper()}{reason[1:]}."
    return f"Not measured: {reason}."


_LEFT_OUT: Mapping[PowerScope, str] = MappingProxyType(
    {
        "gpu": "Board power only: no CPU, memory, NICs, fans or PSU losses.",
        "module": "Module power only: boards with the processor and memory beside each; no NICs,"
        " fans or PSU losses.",
        "cpu": "Processor packages only: no memory beside them, NICs, disks, fans or PSU losses.",
    }
)


def _whole_node(spec: Spec, metrics: Sequence[MetricClaim]) -> Iterator[tuple[str, str]]:
    if (why := _LEFT_OUT.get(spec.setup.power.scope)) is None:
        return
    host = next((metric for metric in metrics if metric.key == "host_power"), None)
    if host is None:
        why += " No instrument of the host was asked for."
    elif host.value is not None:
        why += " Host power stands beside it, and in no number per token."
    yield "Whole-node power", why


def _drawn(spec: Spec) -> str:
    return "tokens" if spec.endpoint.prompt_kind == "ids" else "words"


def _launches(n: int) -> str:
    return f"{n} launch{'es' if n != 1 else ''}"


def _once(metrics: Sequence[MetricClaim]) -> Iterator[MetricClaim]:
    seen = set()
    for metric in metrics:
        if metric.key not in seen:
            seen.add(metric.key)
            yield metric
