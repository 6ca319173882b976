"""`plan`: what a measurement would take, told before anything runs."""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.commands.measure import WORK_FOLDER, read_spec, read_trace
from tokenwatt_site.errors import InputError, Problem, UsageError
from tokenwatt_site.files import whole_lines
from tokenwatt_site.journal import parse as parse_journal
from tokenwatt_site.measure.planning import TRIALS, Plan, PlannedRepeat, plan
from tokenwatt_site.measure.rehearsal import Span
from tokenwatt_site.spec import HIGHEST_URPS, Spec
from tokenwatt_site.statistics import MOST_REPEATS, repeats_needed
from tokenwatt_site.windows import Windows, windows_of

SPREAD_PERCENT = 1.5
"""Of single repeats where no other is given: simulated, launches that differ by 1% included."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked beside the plan itself; None: nothing.

    Attributes:
        rate: where the boundary is thought to be, in requests/s.
        budget_s: how long it may take.
        price: of a GPU-hour.
        interval: half the width of the wanted 95% interval, in percent.
        spread: standard deviation of single repeats, in percent.
    """

    rate: float | None = None
    budget_s: int | None = None
    price: float | None = None
    interval: float | None = None
    spread: float = SPREAD_PERCENT

    def __post_init__(self) -> None:
        for field, value, least in (
            ("--rate", self.rate, 1e-6),
            ("--price-per-gpu-hour", self.price, 0),
            ("--interval", self.interval, 1e-6),
            ("--spread", self.spread, 0),
        ):
            if value is not None and not (math.isfinite(value) and value >= least):
                raise UsageError(
                    Problem(
                        "is out of range",
                        field=field,
                        found=f"{value:g}",
                        expected="a number above 0" if least else "0 or more",
                    )
                )
        if self.rate is not None and self.rate * 1e6 > HIGHEST_URPS:
            raise UsageError(
                Problem(
                    "is out of range",
                    field="--rate",
                    found=f"{self.rate:g}",
                    expected=f"at most {HIGHEST_URPS / 1e6:,.0f} requests/s",
                )
            )


@dataclass(frozen=True, slots=True)
class Begun:
    """A measurement of the same spec that was broken off, and what is left of it."""

    folder: Path
    done: tuple[int, ...]
    left: Plan


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, what was asked beside it, and the measurement that could be gone on with."""

    spec: Spec
    windows: Windows
    wanted: Wanted
    plan: Plan
    begun: Begun | None


def plan_spec(name: Path, wanted: Wanted) -> Planned:
    """Plan the measurement of a spec; nothing is launched or asked.

    Args:
        name: a spec or run file, looked for as `measure` does.
        wanted: what is asked beside it.

    Raises:
        UsageError: see `read_spec` and `read_trace`.
        EnvironmentProblem: see `read_spec`.
    """
    spec = read_spec(name)
    return plan_of(spec, windows_of(spec, read_trace(name, spec)), wanted)


def plan_of(spec: Spec, windows: Windows, wanted: Wanted) -> Planned:
    """Plan the measurement of a spec that was read; see `plan_spec`."""
    rate_urps = None if wanted.rate is None else max(1, round(wanted.rate * 1e6))
    return Planned(
        spec,
        windows,
        wanted,
        plan(spec, windows, rate_urps=rate_urps),
        _begun(spec, windows, rate_urps),
    )


def _begun(spec: Spec, windows: Windows, rate_urps: int | None) -> Begun | None:
    """Find the newest measurement of the same spec that has a whole repeat and lacks another."""
    journals = sorted(
        WORK_FOLDER.glob("*/journal.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    for path in journals:
        try:
            told = parse_journal(whole_lines(path), str(path))
        except (InputError, OSError):
            continue  # whoever goes on with that one is told
        if not told or told[0].data.get("spec") != spec.to_json() or told[-1].event == "close":
            continue
        if done := tuple(sorted(n.data["repeat"] for n in told if n.event == "repeat_end")):
            left = plan(spec, windows, rate_urps=rate_urps, done=done)
            return Begun(path.parent, done, left)
    return None


def lines(planned: Planned) -> Iterator[str]:
    """Tell a plan in lines of at most 80 columns."""
    spec, made, wanted = planned.spec, planned.plan, planned.wanted
    count = spec.protocol.repeats
    yield f"{spec.label}: {spec.protocol.mode} mode, {count} repeat{'s' if count != 1 else ''}"
    yield f"if the boundary is at {made.rate_urps / 1e6:.3f} requests/s" + (
        "" if wanted.rate is not None else " (start_rate; --rate says another)"
    )
    yield ""
    yield _row("", "times", "minutes")
    for repeat in made.repeats:
        yield from _repeat_lines(repeat)
    if made.fit.high:
        yield _row("fit of the engine model", "1", _minutes(made.fit))
    yield _row("in all", "", _minutes(made.seconds))
    yield ""
    yield from _totals(planned)
    yield ""
    yield "assumed:"
    for text in made.assumed:
        yield from _wrapped(text)


def _repeat_lines(repeat: PlannedRepeat) -> Iterator[str]:
    yield f"repeat {repeat.number}"
    for part in repeat.parts:
        yield _row(f"  {part.what}", _range(part.times, 0), _minutes(part.seconds))
        if part.what == TRIALS:
            rates = ", ".join(
                f"{trial.rate_urps / 1e6:.3f} {'pass' if trial.passes else 'fail'}"
                for trial in repeat.trials
            )
            yield from _wrapped(f"such as {rates}", indent=4)
            if (end := repeat.ends_urps) is not None:
                yield from _wrapped(
                    f"no boundary is found: the search ends at {end / 1e6:.3f} requests/s, as no"
                    " other rate may be offered with these rows, or is worth it",
                    indent=4,
                )


def _totals(planned: Planned) -> Iterator[str]:
    made, wanted = planned.plan, planned.wanted
    if (hours := made.gpu_hours) is not None:
        boards = f"{made.boards} board{'s' if made.boards != 1 else ''}"
        yield f"GPU-hours: {_range(hours, 1)}, of {boards}"
        if wanted.price is not None:
            price = f"{wanted.price:,.2f} a GPU-hour"
            yield f"price: {_range(hours.times(wanted.price), 2)}, at {price}"
    elif wanted.price is not None:
        yield "price: none, as no boards are held"
    yield (
        f"disk: {made.work_bytes / 1e6:,.1f} MB in {WORK_FOLDER}, of which about"
        f" {made.published_bytes / 1e6:,.1f} MB are published"
    )
    if wanted.budget_s is not None:
        yield from _wrapped(_budget_text(made, wanted.budget_s), indent=0)
    if wanted.interval is not None:
        yield from _wrapped(_interval_text(wanted.interval, wanted.spread), indent=0)
    if (begun := planned.begun) is not None:
        done = ", ".join(map(str, begun.done))
        yield from _wrapped(
            f"{begun.folder} has repeat {done} of the same plan already; what is left takes"
            f" {_minutes(begun.left.seconds)} minutes. Go on with it:",
            indent=0,
        )
        yield f"  {shlex.join(['tokenwatt-site', 'measure', '--resume', str(begun.folder)])}"


def _budget_text(made: Plan, budget_s: int) -> str:
    beyond = made.beyond(budget_s)
    budget = f"a budget of {budget_s / 60:g} minutes"
    if not beyond:
        return f"{budget} is enough for all of it"
    said = [
        f"repeat {number}" if certain else f"perhaps repeat {number}" for number, certain in beyond
    ]
    return f"{budget} leaves out: {', '.join(said)}; `measure --resume` does what is left"


def _interval_text(interval: float, spread: float) -> str:
    what = f"a 95% interval of ±{interval:g}% at a spread of {spread:g}% between repeats"
    needed = repeats_needed(interval / 100, spread / 100)
    if needed is None:
        return (
            f"{what} cannot be had: not with {MOST_REPEATS} repeats, each with a launch of its own"
        )
    return f"{what} takes {needed} repeats (protocol.repeats)"


def to_json(planned: Planned) -> JsonValue:
    """Return all of it as plain values, seconds as [least, most]."""
    made, wanted = planned.plan, planned.wanted
    value: dict[str, JsonValue] = {
        "configuration": planned.spec.configuration_id,
        "mode": planned.spec.protocol.mode,
        "boundary_urps": made.rate_urps,
        "repeats": [_repeat_json(repeat) for repeat in made.repeats],
        "fit_seconds": _pair(made.fit),
        "seconds": _pair(made.seconds),
        "gpu_hours": None if made.gpu_hours is None else _pair(made.gpu_hours),
        "work_bytes": made.work_bytes,
        "published_bytes": made.published_bytes,
        "assumed": list(made.assumed),
        "begun": None,
    }
    if wanted.price is not None:
        hours = made.gpu_hours
        value["price"] = None if hours is None else _pair(hours.times(wanted.price))
    if wanted.budget_s is not None:
        value["budget_seconds"] = wanted.budget_s
        value["left_out"] = [
            {"repeat": number, "certain": certain}
            for number, certain in made.beyond(wanted.budget_s)
        ]
    if wanted.interval is not None:
        value["repeats_needed"] = repeats_needed(wanted.interval / 100, wanted.spread / 100)
    if (begun := planned.begun) is not None:
        value["begun"] = {
            "folder": str(begun.folder),
            "done": list(begun.done),
            "seconds": _pair(begun.left.seconds),
        }
    return value


def _repeat_json(repeat: PlannedRepeat) -> JsonValue:
    return {
        "repeat": repeat.number,
        "trials": [
            {
                "rate_urps": trial.rate_urps,
                "verdict": "PASS" if trial.passes else "FAIL",
                "requests": trial.rows,
                "seconds": _pair(trial.seconds),
            }
            for trial in repeat.trials
        ],
        "parts": [
            {"what": part.what, "times": _pair(part.times), "seconds": _pair(part.seconds)}
            for part in repeat.parts
        ],
    }


def _pair(span: Span) -> JsonValue:
    return [round(span.low, 3), round(span.high, 3)]


def _row(what: str, times: str, minutes: str) -> str:
    return f"{what:<46}{times:>14}{minutes:>18}".rstrip()


def _minutes(span: Span) -> str:
    return _range(span.times(1 / 60), 1)


def _range(span: Span, digits: int) -> str:
    low, high = (f"{number:,.{digits}f}" for number in span)
    return low if low == high else f"{low} to {high}"


def _wrapped(text: str, indent: int = 2) -> Iterator[str]:
    space = " " * indent
    yield from textwrap.wrap(text, 80, initial_indent=space, subsequent_indent=space)
