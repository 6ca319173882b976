"""`reproduce`: a run measured again, by somebody else, and what the second says of the first."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from tokenwatt_site.commands.measure import (
    WORK_FOLDER,
    measure_and_sign,
    named_boards,
    new_folder,
    read_model_files,
    read_trace,
)
from tokenwatt_site.commands.output import not_written
from tokenwatt_site.commands.own_spec import Own, own_spec
from tokenwatt_site.commands.plan import Wanted, plan_of
from tokenwatt_site.commands.plan import lines as plan_lines
from tokenwatt_site.commands.published import fetch_run, is_address
from tokenwatt_site.commands.verify import stated, verify
from tokenwatt_site.comparability import (
    FREE,
    MIN_LAUNCHES,
    Compared,
    Outcome,
    compare,
    differences,
    why_not_independent,
)
from tokenwatt_site.errors import (
    EnvironmentProblem,
    Interrupted,
    InvalidMeasurement,
    NotComparable,
    Problem,
    ReadBackError,
    UsageError,
)
from tokenwatt_site.measure.clock import utc_now
from tokenwatt_site.measure.session import Events
from tokenwatt_site.measure.tokenizer import prompts_by_file
from tokenwatt_site.spec import Spec
from tokenwatt_site.trust import beside, statement
from tokenwatt_site.trust.keyring import key_folder, own_id, own_key
from tokenwatt_site.trust.verify import ValidatedRun
from tokenwatt_site.windows import windows_of

FETCHED = WORK_FOLDER / "fetched"
"""Where runs of other sites are put."""

EXIT_CODES: Mapping[Outcome, int] = MappingProxyType(
    {
        "reproduced": 0,
        "inconclusive": 10,
        "contradicted": 11,
        "not comparable": NotComparable.exit_code,
    }
)


@dataclass(frozen=True, slots=True)
class Asked:
    """How to go about it.

    Attributes:
        own: what is not the original's.
        measured: an own run of the setup that is there already; None: it is measured.
        out: where its run file goes.
        budget_s: how long it may take.
        yes: go on without asking.
    """

    own: Own = field(default_factory=Own)
    measured: Path | None = None
    out: Path | None = None
    budget_s: int | None = None
    yes: bool = False


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Two verified runs, what came out, and the statement of it.

    `doubts`: why it counts for nothing beside the original. `fetched`: the original was, so that
    the statement lies beside the new run, for its publisher.
    """

    original: ValidatedRun
    again: ValidatedRun
    compared: Compared
    doubts: tuple[str, ...]
    statement: Path
    fetched: bool


def reproduce(source: str, asked: Asked, events: Events, ask: Callable[[str], str]) -> Reproduction:
    """Measure a run again, compare, and state what came out.

    Args:
        source: a run file with its evidence beside it, or the URL of one.
        asked: how to go about it.
        events: where progress goes.
        ask: asks the user; an empty answer means no.

    Raises:
        VerificationError: the original, or the own run, does not prove what it says.
        NotComparable: what runs here is another setup; every field that differs.
        UsageError: no such run, nobody agreed, a run that is not one's own, or see `own_spec`.
        EnvironmentProblem, InvalidMeasurement, Interrupted: as of `measure`; with what to do next.
    """
    fetched = is_address(source)
    original = verify(fetch_run(source, FETCHED) if fetched else Path(source))
    events.say(
        f"verified {source}: run {original.run_id[:12]} of {original.run.configuration}, signed by"
        f" {original.signer or original.keyid}, {original.claims.numbers} numbers recomputed"
    )
    for line in stated(original):
        events.say(line)
    path = asked.measured or _measured_again(original, source, asked, events, ask)
    again = verify(path)
    compared = compare(original, again)
    if compared.outcome == "not comparable":
        raise _another_setup(compared, path)
    return Reproduction(
        original,
        again,
        compared,
        why_not_independent(original, again),
        _stated(original, again, compared.outcome, fetched=fetched),
        fetched,
    )


def lines(done: Reproduction, source: str) -> Iterator[str]:
    """Tell what stands beside the outcome, and what to do with it."""
    for each in done.compared.differences:
        yield f"differs, as it may: {each}"
    if fields := ", ".join(done.compared.unknown):
        yield f"recorded by neither, so it may differ: {fields}"
    for doubt in done.doubts:
        yield f"gives no badge, since {doubt}"
    if done.fetched:
        yield (
            f"for the page of {source} to show it, send its publisher {done.again.path}, the"
            f" evidence that it names, and {done.statement}, to stand among the original's"
            " statements"
        )
    else:
        yield f"stated in {done.statement}; publish it with {done.again.path} and its evidence"


def _measured_again(
    original: ValidatedRun, source: str, asked: Asked, events: Events, ask: Callable[[str], str]
) -> Path:
    """Show what a rerun would take and start here, have it agreed to, and measure."""
    spec = own_spec(original.run.spec, asked.own, _unasked if asked.yes else ask)
    trace = read_trace(original.path, spec)
    model = read_model_files(original.path, spec)
    if spec.endpoint.tokenizer is not None:
        prompts_by_file(spec.endpoint.tokenizer)
    wanted = Wanted(original.claims.metric("boundary_rate").value, asked.budget_s)
    for line in plan_lines(plan_of(spec, windows_of(spec, trace), wanted)):
        events.say(line)
    for line in _told_before(original, spec):
        events.say(line)
    if not asked.yes and ask("Go on? [y/N]").strip().lower() not in {"y", "yes"}:
        raise UsageError(
            Problem("nothing was started", remedy="Where nobody can be asked, give --yes.")
        )
    try:
        path, _ = measure_and_sign(
            spec,
            new_folder(spec),
            events,
            trace=trace,
            model=model,
            gpus=named_boards(asked.own.gpus, spec),
            beside=original.path.parent,
            out=asked.out,
            budget_s=asked.budget_s,
        )
    except ReadBackError as error:
        raise _read_back(error) from error
    except (EnvironmentProblem, InvalidMeasurement, Interrupted) as error:
        raise type(error)(*error.problems, _not_yet(source)) from error
    return path


def _unasked(_question: str) -> str:
    return ""


def _told_before(original: ValidatedRun, spec: Spec) -> Iterator[str]:
    conditions, engine = original.run.conditions, spec.setup.engine
    took = datetime.fromisoformat(conditions.ended) - datetime.fromisoformat(conditions.started)
    yield f"the original took {took.total_seconds() / 60:,.1f} minutes, by its own clock"
    if spec.endpoint.start == "launch" and isinstance(engine.argv, tuple):
        # The file is somebody else's: what it would run here is seen before it runs.
        told = [f"{name}={item}" for name, item in sorted(engine.environment.items())]
        yield f"it starts on this machine: {shlex.join([*told, *engine.argv])}"
    else:
        yield f"it asks the engine at {spec.endpoint.url}"
    for each in differences(original.run.spec, spec):
        yield f"differs, as it may: {each}"
    if (repeats := spec.protocol.repeats) < MIN_LAUNCHES:
        yield (
            f"with {repeats} launch{'es' if repeats > 1 else ''} nothing can come out but"
            f" inconclusive: an interval takes {MIN_LAUNCHES} on both sides"
        )
    if _own_keyid() == original.keyid:
        yield "the original is signed with your own key, so this will give it no badge"


def _own_keyid() -> str:
    return own_id(own_key(key_folder(os.environ)))


def _read_back(error: ReadBackError) -> NotComparable | ReadBackError:
    """Say that what runs here is another setup, unless only that differs which may."""
    fields = {problem.field or "" for problem in error.problems}
    if any(field.startswith("setup.") and field not in FREE for field in fields):
        return NotComparable(*error.problems)
    remedy = "Say what drives the boards here with --driver, or start what the run tells of."
    return ReadBackError(*error.problems, Problem("nothing was measured", remedy=remedy))


def _not_yet(source: str) -> Problem:
    words = ["tokenwatt-site", "reproduce", source, "--measured", "RUN.json"]
    return Problem(
        "the original is not compared with yet",
        remedy=f"When all repeats are measured: {shlex.join(words)}",
    )


def _another_setup(compared: Compared, path: Path) -> NotComparable:
    return NotComparable(
        *(
            Problem(
                "differs, so that this run says nothing of the original",
                file=str(path),
                field=each.field,
                found=repr(each.again),
                expected=repr(each.original),
            )
            for each in compared.differences
            if not each.free
        )
    )


def _stated(
    original: ValidatedRun, again: ValidatedRun, outcome: Outcome, *, fetched: bool
) -> Path:
    """Sign what came out, and put it where the original's statements are, or beside the own run."""
    if (own := _own_keyid()) != again.keyid:
        raise UsageError(
            Problem(
                "is not your run, and only who measured says what came out",
                file=str(again.path),
                found=again.keyid,
                expected=own,
            )
        )
    path = beside.path_beside(original.path)
    if fetched:
        # No name that a site looks for, as the original is not here.
        path = again.path.with_suffix(".statement.jsonl")
    told = {"run": again.run_id, "outcome": outcome}
    signer = own_key(key_folder(os.environ))
    line = statement.sign("reproduced", original.run_id, told, signer, utc_now())
    signed = statement.parse(line, str(path))
    # Compared once more, the same two come to the same.
    there = beside.gather([path], run_id=original.run_id, known={signed.keyid})
    if signed.gist in {each.gist for each in there.signed}:
        return path
    try:
        beside.append(path, line)
    except OSError as error:
        raise not_written(path, error) from error
    return path
