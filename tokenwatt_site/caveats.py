"""What a run does not cover, and why: made from the spec and from what came out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.run import MetricClaim, NotCovered, RepeatClaim
from tokenwatt_site.spec import MIN_SCORED, MIN_WINDOW_S, NOT_RECORDED, Lengths, Lognormal, Spec


def caveats(
    spec: Spec, repeats: Sequence[RepeatClaim], metrics: Sequence[MetricClaim]
) -> tuple[NotCovered, ...]:
    """Return all caveats, the gravest first."""
    return tuple(NotCovered(what=what, why=why) for what, why in _all(spec, repeats, metrics))


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
    if protocol.mode == "demo":
        yield (
            "Anything but a demonstration",
            (
                f"Demo mode: {len(repeats)} launch, {protocol.scored} scored requests a trial. It"
                " shows that the path from measuring to publishing works."
            ),
        )
    if protocol.mode == "quick":
        yield (
            "Quick mode: short windows, few repeats — validation only, not for publishing",
            "2 launches give a range, not an interval.",
        )
    for metric in _once(metrics):
        if metric.value is None:
            yield METRICS[metric.key].label, f"Not measured: {metric.reason}."
    yield (
        "The long run",
        (
            "Goodput is what this one realisation kept. Misses cluster, so short windows overstate"
            " what the long run keeps, by about 10% at 611 requests; no correction was made."
        ),
    )
    windows = [r.window_s for r in repeats if r.window_s is not None]
    if windows and (min(windows) < MIN_WINDOW_S or protocol.scored < MIN_SCORED):
        yield (
            "Long windows",
            (
                f"The shortest scored window took {min(windows):.0f} s with {protocol.scored}"
                f" requests; quick and full mode ask for {MIN_WINDOW_S} s and {MIN_SCORED}."
            ),
        )
    if len(repeats) < 3:
        yield (
            "Spread between launches",
            (
                f"{len(repeats)} launch{'es' if len(repeats) != 1 else ''} measured; an interval"
                " needs 3. Another launch may differ by more than the digits shown suggest."
            ),
        )
    if setup.power.scope == "gpu":
        yield "Whole-node power", "Board power only: no CPU, memory, NICs, fans or PSU losses."
    yield (
        f"Context lengths beyond the {setup.workload.name} workload",
        (
            f"Longest prompt {_longest(setup.input_tokens):,} tokens, longest answer"
            f" {_longest(setup.output_tokens):,}."
        ),
    )
    yield (
        "Natural text",
        (
            "Prompts are random tokens, fresh in every trial, so that nothing can be cached. Expert"
            " routing and speculative acceptance differ from text."
        ),
    )
    if fields := not_recorded(setup.to_json()):
        yield "Setup fields that were not recorded", ", ".join(fields)


def _once(metrics: Sequence[MetricClaim]) -> Iterator[MetricClaim]:
    seen = set()
    for metric in metrics:
        if metric.key not in seen:
            seen.add(metric.key)
            yield metric


def _longest(lengths: Lengths) -> int:
    return lengths.max if isinstance(lengths, Lognormal) else lengths.tokens
