"""What must hold between a run and its journal: the contents of check 7 of `trust.verify`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import ValidationError

from tokenwatt_site.canonical import JsonValue, canonical_bytes
from tokenwatt_site.energy.idle import IdleSpan
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.journal import Entry
from tokenwatt_site.prompts import PUBLISHER_NONCE, Ids, prompts_of, seed_rule
from tokenwatt_site.read_back import agrees, check_rows, declared
from tokenwatt_site.replicas import Replica, after_trial, at_launch, starts
from tokenwatt_site.run import ReadBack, Run
from tokenwatt_site.trials import Told, band_of
from tokenwatt_site.trust.difference import expect_equal
from tokenwatt_site.windows import Windows

MAX_TRIALS = 2_000
MAX_PLANNED_ROWS = 4_000_000
"""Of all trials together: what is planned takes memory also where no request was sent."""

_NONCE = re.compile(r"[0-9a-f]{64}")


def check_journal(run: Run, journal: Sequence[Entry], windows: Windows, keyid: str) -> None:
    """Check that the journal was opened for this run, and tells what the run says of itself.

    It was opened under the key that signed the run, `keyid`: so nobody signs another's again. (Runs
    of before that was written down tell no key.)

    A trial belongs to the launch before it, which was for its repeat, on an engine process of its
    own: so repeats are launches, and before each that counts the client was tested. A span without
    load is before all trials of its launch or after them. The open line tells of each instrument
    that the spec asks for. Nothing is added to token ids. A trial may lack its end only where it
    was broken off: `interrupted`, a new launch or nothing follows. A complete run has every repeat
    of its plan, each with its end, and ends with `close`.

    Raises:
        InputError: naming the line or the field and what was expected there.
    """
    _check_opening(run, journal, keyid)
    _check_size(journal, windows)
    measured, ended = _measured_repeats(journal), _ended_repeats(run, journal)
    planned = set(range(1, run.spec.protocol.repeats + 1))
    complete = journal[-1].event == "close" and measured == ended == planned
    if run.status == "complete" and not complete:
        raise InputError(
            Problem(
                f"says {run.status}, which the journal does not show",
                field="status",
                found=f"repeats {sorted(measured & ended)}, last line {journal[-1].event}",
                expected=f"repeats 1 to {len(planned)}, last line close",
            )
        )
    _check_replicas(run, journal)
    _check_launches(journal, run.spec.endpoint.replicas)
    _check_continued(run, journal)
    _check_idle(journal)
    _check_overhead(run, journal)
    _check_prompts(run, journal)
    _check_realisations(journal, windows)
    _check_conditions(run, journal)
    _check_read_back(run, journal)


def _check_opening(run: Run, journal: Sequence[Entry], keyid: str) -> None:
    if [line.seq for line in journal if line.event == "open"] != [0]:
        raise InputError(Problem("does not begin with its only open line", field="journal"))
    opening = journal[0].data
    for key, expected in (
        ("configuration", run.configuration),
        ("spec", run.spec.to_json()),
        ("seed_rule", seed_rule(opening.get("publisher_nonce"))),
    ):
        what = f"was opened with another {key.replace('_', ' ')}"
        expect_equal(f"journal line 0.{key}", opening.get(key), expected, what)
    if "keyid" in opening:
        what = "was opened under another key than the one that signed the run"
        expect_equal("journal line 0.keyid", opening["keyid"], keyid, what)
    asked = [instrument.sensor for instrument in run.spec.instruments]
    if (told := opening.get("instruments")) is not None or asked:
        told = [item.get("sensor") for item in told or () if isinstance(item, dict)]
        expect_equal("journal line 0.instruments", told, asked, "are not those that the spec asks")
    _check_nonce("nonce", opening.get("nonce"), _NONCE, "64 hexadecimal digits")
    if (given := opening.get("publisher_nonce")) is not None:
        expected = "32 to 128 hexadecimal digits, two a byte"
        _check_nonce("publisher_nonce", given, PUBLISHER_NONCE, expected)


def _check_nonce(name: str, found: JsonValue, form: re.Pattern[str], expected: str) -> None:
    if not isinstance(found, str) or not form.fullmatch(found):
        raise InputError(
            Problem(
                "is no nonce",
                field=f"journal line 0.{name}",
                found=repr(found)[:80],
                expected=expected,
            )
        )


def _check_size(journal: Sequence[Entry], windows: Windows) -> None:
    rows = [band_of(windows, line).rows for line in journal if line.event == "trial_start"]
    if len(rows) > MAX_TRIALS or sum(rows) > MAX_PLANNED_ROWS:
        raise InputError(
            Problem(
                "has more trials than are read",
                field="journal",
                found=f"{len(rows):,} of {sum(rows):,} rows",
                expected=f"at most {MAX_TRIALS:,} of {MAX_PLANNED_ROWS:,} rows",
            )
        )


def _measured_repeats(journal: Sequence[Entry]) -> set[int]:
    """Check that trials are new, end before anything else does; return the repeats that had one."""
    started: set[tuple[int, int]] = set()
    measured: set[int] = set()
    running: tuple[int, int] | None = None
    for line in journal:
        repeat, number = line.data.get("repeat"), line.data.get("trial")
        if line.event == "trial_end":
            if running is None or (repeat, number) != running:
                raise _at(line, f"ends the trial {(repeat, number)}; running: {running}")
            measured.add(running[0])
            running = None
        elif running is not None and line.event not in {"interrupted", "launch"}:
            raise _at(line, f"follows the start of the trial {running}, which has no end")
        elif line.event == "trial_start":
            if type(repeat) is not int or number != len(started) + 1:
                raise _at(line, f"starts the trial {(repeat, number)}, which is not the next")
            running = (repeat, number)
            started.add(running)
        else:
            running = None
    return measured


def _ended_repeats(run: Run, journal: Sequence[Entry]) -> set[int]:
    """Check that trials and ends of repeats are of the launch before; return the ended repeats."""
    planned = range(1, run.spec.protocol.repeats + 1)
    ended: set[int] = set()
    launched: int | None = None
    for line in journal:
        repeat = line.data.get("repeat")
        if line.event == "launch":
            if type(repeat) is not int or repeat not in planned:
                raise _at(line, f"is for the repeat {repeat}, which is not in the plan")
            launched = repeat
        elif line.event == "interrupted":
            launched = None
        elif line.event in {"idle", "trial_start", "repeat_end"}:
            if launched is None or repeat != launched:
                raise _at(line, f"is of the repeat {repeat}; launched: {launched}")
            if line.event == "repeat_end":
                ended.add(launched)
                launched = None
    return ended


def _at(line: Entry, what: str) -> InputError:
    return InputError(Problem(what, field=f"journal line {line.seq} ({line.event})"))


def _check_replicas(run: Run, journal: Sequence[Entry]) -> None:
    """Check that launches and trials tell of the replicas that are asked apart, and of no others.

    At a launch each was the engine of the spec, and served its model.
    """
    count = run.spec.endpoint.replicas
    for line in journal:
        if line.event == "launch":
            for number, replica in enumerate(at_launch(line, count)):
                _check_replica(run, replica, f"journal line {line.seq}.replicas.{number}")
        elif line.event == "trial_end":
            after_trial(line, count)


def _check_replica(run: Run, replica: Replica, where: str) -> None:
    told = declared(run.spec)
    said = {
        "setup.engine.name": replica.engine,
        "setup.engine.version": replica.version,
        "setup.engine.build": replica.build,
        "endpoint.model": ", ".join(replica.models),
    }
    for field, seen in said.items():
        if seen is not None and not agrees(field, told[field], seen):
            raise InputError(
                Problem(
                    "is not what the spec declares",
                    field=f"{where} ({field})",
                    found=repr(seen)[:80],
                    expected=told[field],
                )
            )


def _check_launches(journal: Sequence[Entry], replicas: int) -> None:
    """Check that no two repeats were of one engine process, where the engine tells its start."""
    last = {line.data["repeat"]: line for line in journal if line.event == "launch"}
    repeat_of: dict[tuple[int, str], int] = {}
    for repeat, line in last.items():
        for place, started in enumerate(starts(line, replicas)):
            if started is None:
                continue
            first = repeat_of.setdefault((place, started), repeat)
            if first != repeat:
                raise InputError(
                    Problem(
                        f"is the engine of repeat {first} too, so repeat {repeat} is no new launch",
                        field=f"journal line {line.seq}.engine_started",
                        found=repr(started)[:80],
                        expected="another process for every repeat",
                    )
                )


def _check_continued(run: Run, journal: Sequence[Entry]) -> None:
    """Check that a launch that goes on from the one before is of the same process, by its start."""
    before: Entry | None = None
    for line in journal:
        if line.event != "launch":
            continue
        if line.data.get("continues") is True:
            told = ("repeat", "engine_started")
            same = before is not None and all(before.data[n] == line.data[n] for n in told)
            if run.spec.endpoint.start != "attach" or line.data["engine_started"] is None:
                same = False
            if not same:
                raise _at(line, "goes on with a launch that is not known to be the same process")
        before = line


def _check_idle(journal: Sequence[Entry]) -> None:
    """Check that each launch was idle before its trials and after them, at most once each."""
    told: set[str] = set()
    for line in journal:
        if line.event == "launch":
            told = set()
        elif line.event == "trial_start":
            if "after" in told:
                raise _at(line, "follows a span that was without load after all trials")
            told.add("trial")
        elif line.event == "idle":
            when = IdleSpan.of(line).when
            if when in told or (when == "before") == ("trial" in told):
                seen = ", ".join(sorted(told)) or "nothing"
                raise _at(line, f"is without load {when} the trials; {seen} came in this launch")
            told.add(when)


def _check_overhead(run: Run, journal: Sequence[Entry]) -> None:
    """Check that no chat template is told of where there is none: it excuses cached tokens."""
    if run.spec.endpoint.prompt_kind == "text":
        return
    for line in journal:
        if line.event == "launch":
            what = "adds tokens to prompts of token ids, which go in as they are"
            field = f"journal line {line.seq}.chat_overhead"
            expect_equal(field, line.data.get("chat_overhead"), 0, what)


def _check_prompts(run: Run, journal: Sequence[Entry]) -> None:
    """Check that every launch tells its prompts, and that they are what the spec asks with."""
    endpoint, what = run.spec.endpoint, "is not what the spec asks with"
    for line in journal:
        if line.event != "launch":
            continue
        prompts, field = prompts_of(line), f"journal line {line.seq}.prompts"
        kind = "ids" if isinstance(prompts, Ids) else "text"
        expect_equal(f"{field}.kind", kind, endpoint.prompt_kind, what)
        if isinstance(prompts, Ids):
            expect_equal(f"{field}.vocabulary", prompts.vocabulary, endpoint.vocabulary, what)
        elif (prompts.source == "tokenizer file") != (endpoint.tokenizer is not None):
            named = "a tokenizer file" if endpoint.tokenizer else "no tokenizer file"
            raise InputError(
                Problem(what, field=f"{field}.source", found=prompts.source, expected=named)
            )


def _check_realisations(journal: Sequence[Entry], windows: Windows) -> None:
    """Check that every trial offered the realisation that its repeat's number draws."""
    hashes: dict[tuple[int, int], str] = {}
    for line in journal:
        if line.event != "trial_start":
            continue
        repeat, band = line.data["repeat"], band_of(windows, line)
        key = (repeat, band.low_urps)
        if key not in hashes:
            hashes[key] = windows.realisation(repeat, band).hash
        for name, expected in (("realisation", repeat), ("realisation_hash", hashes[key])):
            what = f"is not the draw for repeat {repeat}"
            expect_equal(f"journal line {line.seq}.{name}", line.data.get(name), expected, what)


def _check_conditions(run: Run, journal: Sequence[Entry]) -> None:
    """Check what the run says of engine, client and read-back; `measure` takes it from here."""
    journal_tells, run_says = Told.by(journal), run.conditions.to_json()
    what = "is not what the journal tells"
    expect_equal("simulated", run.simulated, journal_tells.simulated, what)
    expect_equal("conditions.stamps", run_says["stamps"], journal_tells.stamps, what)
    expect_equal("conditions.read_back", run_says["read_back"], journal_tells.read_back, what)
    expect_equal(
        "conditions.self_test", run_says["self_test"], journal_tells.self_test.to_json(), what
    )
    expect_equal("conditions.workers", run.conditions.workers, journal_tells.workers, what)


def _check_read_back(run: Run, journal: Sequence[Entry]) -> None:
    """Check what every launch says was observed against what the spec declares."""
    for line in journal:
        if line.event == "launch" and (told := line.data.get("read_back")) is not None:
            field = f"journal line {line.seq}.read_back"
            check_rows(run.spec, _rows(told, field), field)


def _rows(told: JsonValue, field: str) -> list[ReadBack]:
    try:
        return [ReadBack.model_validate_json(canonical_bytes(row)) for row in told]
    except (ValidationError, TypeError) as error:
        raise InputError(
            Problem("is no list of what was declared and observed", field=field)
        ) from error
