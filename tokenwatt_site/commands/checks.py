"""What facts of a machine and its engine mean for a measurement. Pure.

`fail` is what keeps from measuring; `warn` is what a report will not cover, or what makes its
numbers less exact; every one says what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from tokenwatt_site.canonical import clean_text
from tokenwatt_site.errors import TokenwattError
from tokenwatt_site.measure.counters import Counters
from tokenwatt_site.measure.endpoint import EngineFacts
from tokenwatt_site.measure.machine import Folder, Machine

Level: TypeAlias = Literal["ok", "warn", "fail"]

LEAST_FREE_BYTES = 64 << 20
"""Less does not hold one run with its work folder."""

GOOD_FREE_BYTES = 1 << 30
"""What is read and not yet parsed goes to disk too: some 50 MB for 100,000 events."""

GOOD_CONNECTIONS = 4096
"""More are seldom open at once; fewer may be too few where a fast engine is overloaded."""


MAX_TOLD, MAX_MODELS = 80, 5
"""Of what an engine says of itself: characters of each word, and models."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line: `about` is what was looked at, `remedy` what to do where it is not ok."""

    level: Level
    about: str
    found: str
    remedy: str | None = None


def of_error(level: Level, about: str, error: TokenwattError) -> Iterator[Check]:
    """Return a line for each problem of an error."""
    for problem in error.problems:
        yield Check(level, about, str(replace(problem, remedy=None)), problem.remedy)


def table(checks: Iterable[Check]) -> Iterator[str]:
    """Return the lines of text: level, what was looked at, what was found, what to do."""
    listed = list(checks)
    width = max((len(check.about) for check in listed), default=0)
    for check in listed:
        yield f"{check.level:<4}  {check.about:<{width}}  {check.found}"
        if check.remedy is not None:
            yield f"{'':<4}  {'':<{width}}  -> {check.remedy}"


def counted(checks: Iterable[Check]) -> str:
    """Return how many lines there are of each level, such as "12 ok, 2 warn, 0 fail"."""
    levels = [check.level for check in checks]
    order: tuple[Level, ...] = ("ok", "warn", "fail")
    return ", ".join(f"{levels.count(level)} {level}" for level in order)


def engine_checks(url: str, facts: EngineFacts, counters: Counters | None) -> Iterator[Check]:
    """Judge an engine that answers at `url`."""
    known = (facts.name, facts.version, facts.build)
    told = " ".join(clean_text(text, limit=MAX_TOLD) for text in known if text)
    if facts.name and facts.version:
        yield Check("ok", "engine", f"{told} at {url}")
    else:
        missing = "version" if facts.name else "name and version"
        yield Check(
            "warn",
            "engine",
            f"{told or 'an engine'} at {url} does not tell its {missing}",
            "Write them in setup.engine; the report says that they are declared.",
        )
    context = "context is not told"
    if facts.context_tokens is not None:
        context = f"{facts.context_tokens:,} tokens of context"
    models = ", ".join(clean_text(name, limit=MAX_TOLD) for name in facts.models[:MAX_MODELS])
    if (more := len(facts.models) - MAX_MODELS) > 0:
        models += f" and {more:,} more"
    yield Check("ok", "engine's model", f"{models}; {context}")
    if counters is not None and (steps := counters.names.get("steps")):
        yield Check("ok", "engine's steps", f"counted by {steps}")
    else:
        yield Check(
            "warn",
            "engine's steps",
            "no counter of steps that is known: modelled memory traffic rests on the client's"
            " records",
            "Turn its metrics on (llama.cpp: --metrics; SGLang: --enable-metrics).",
        )
    if facts.process_started is not None:
        yield Check("ok", "engine's start", facts.process_started)
    else:
        yield Check(
            "warn",
            "engine's start",
            "not told: that every repeat has a launch of its own is your word, or ours where we"
            " start it",
            "Where it exports process_start_time_seconds at /metrics, turn that on.",
        )


def machine_checks(machine: Machine) -> Iterator[Check]:
    """Judge this machine."""
    yield _clock(machine)
    if machine.kernel_stamps:
        yield Check("ok", "arrival stamps", "by the kernel")
    else:
        yield Check(
            "warn",
            "arrival stamps",
            "by this program alone, so late by as long as it was busy",
            "Measure on Linux, and not inside a sandbox with a network of its own.",
        )
    yield _processors(machine)
    yield _governor(machine)
    yield _descriptors(machine)
    yield _ports(machine)
    for folder in machine.folders:
        yield _disk(folder)


def _clock(machine: Machine) -> Check:
    clock, remedy = machine.wall_clock, "Run chrony or systemd-timesyncd on the host."
    if clock is None:
        return Check("warn", "clock", "whether a time service keeps it is not known", remedy)
    if not clock.disciplined:
        return Check(
            "warn",
            "clock",
            "no time service keeps it: dates of a run may be wrong, and those of several machines"
            " differ",
            remedy,
        )
    return Check(
        "ok", "clock", f"kept by a time service, at most {clock.most_off_us / 1e3:,.1f} ms off"
    )


def _processors(machine: Machine) -> Check:
    text = f"{machine.cpus} usable"
    if machine.load is None:
        return Check("ok", "processors", f"{text}; their load is not told")
    text += f", load {machine.load:.1f} in the last minute"
    if machine.load < machine.cpus:
        return Check("ok", "processors", text)
    return Check(
        "warn",
        "processors",
        f"{text}: the client may send late",
        "End other programs; `measure` tests first what the client can hold.",
    )


def _governor(machine: Machine) -> Check:
    slow = [name for name in machine.governors if name != "performance"]
    if not slow:
        return Check("ok", "cpu governor", ", ".join(machine.governors) or "none is told")
    return Check(
        "warn",
        "cpu governor",
        f"{', '.join(slow)}: clocks change with the load, and with them the client's delays and"
        " what a CPU engine can do",
        "Run: sudo cpupower frequency-set -g performance",
    )


def _descriptors(machine: Machine) -> Check:
    text = f"{machine.descriptors:,} may be open"
    if machine.descriptors >= GOOD_CONNECTIONS:
        return Check("ok", "open files", text)
    return Check(
        "warn",
        "open files",
        f"{text}, and every request that is open needs one",
        f"Raise the hard limit: ulimit -Hn {GOOD_CONNECTIONS}",
    )


def _ports(machine: Machine) -> Check:
    if not machine.can_listen:
        return Check(
            "fail",
            "ports",
            "no port of 127.0.0.1 can be opened, which the client's test of itself needs",
            "Let this process listen on the loopback.",
        )
    if machine.ports is None:
        return Check("ok", "ports", "the loopback can be used; how many there are is not told")
    text = f"{machine.ports:,} for connections to one engine"
    if machine.ports >= GOOD_CONNECTIONS:
        return Check("ok", "ports", text)
    return Check(
        "warn",
        "ports",
        f"{text}, and every request that is open needs one",
        'Run: sudo sysctl -w net.ipv4.ip_local_port_range="32768 60999"',
    )


def _disk(folder: Folder) -> Check:
    about = f"disk {folder.path}"
    if not folder.writable:
        return Check("fail", about, "cannot be written", "Run in a folder of yours.")
    text = f"{folder.free_bytes / 2**30:,.1f} GiB free"
    if folder.free_bytes >= GOOD_FREE_BYTES:
        return Check("ok", about, text)
    level: Level = "warn" if folder.free_bytes >= LEAST_FREE_BYTES else "fail"
    return Check(level, about, text, f"Make room: {GOOD_FREE_BYTES >> 30} GiB is enough.")
