"""Where a journal may tell of answers: of check 7 of `trust.verify`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.journal import Entry
from tokenwatt_site.spec import Spec
from tokenwatt_site.trust.difference import expect_equal


@dataclass(frozen=True, slots=True)
class AnswersTold:
    """What a journal tells of answers, by repeat.

    Attributes:
        sittings: how many there were.
        whole: the repeats that were asked to their end.
        compared: the trial whose answers were held against the same prompts asked alone.
    """

    sittings: dict[int, int] = field(default_factory=dict)
    whole: set[int] = field(default_factory=set)
    compared: dict[int, int] = field(default_factory=dict)


def answers_told(spec: Spec, journal: Sequence[Entry]) -> AnswersTold:
    """Return what the journal tells of answers, and check that each line stands where it may.

    Answers under load are compared right after their repeat ended, so on its launch. Sittings come
    after that, numbered from 1, to the one in which all was asked, before another repeat is
    launched. A repeat with answers is not launched again. `same_launch` is what the starts of both
    engines say, where both are told; where they are not, only a first sitting can be of the launch
    that was loaded.

    Raises:
        InputError: naming the line.
    """
    asked = spec.setup.accuracy_gate.asked is not None
    reader = _Reader(range(1, spec.accuracy.repeats + 1) if asked else range(0))
    for line in journal:
        reader.see(line)
    return reader.told


@dataclass(slots=True)
class _Reader:
    """What is known up to a line: `starts` are those of the engines, by repeat."""

    planned: range
    told: AnswersTold = field(default_factory=AnswersTold)
    running: bool = False
    just_ended: object = None
    ended: set[object] = field(default_factory=set)
    starts: dict[object, object] = field(default_factory=dict)

    def see(self, line: Entry) -> None:
        just_ended, self.just_ended = self.just_ended, None
        if line.event == "launch":
            self._launch(line, line.data.get("repeat"))
        elif line.event == "repeat_end":
            self.running, self.just_ended = False, line.data.get("repeat")
            self.ended.add(self.just_ended)
        elif line.event == "interrupted":
            self.running = False
        elif line.event == "under_load":
            repeat = _number(line, "repeat")
            if repeat != just_ended:
                raise _at(line, f"is of the repeat {repeat}; just ended: {just_ended}")
            self.told.compared[repeat] = _number(line, "trial")
        elif line.event in {"accuracy_start", "accuracy_end"}:
            self._sitting(line, _number(line, "repeat"), _number(line, "part"))

    def _launch(self, line: Entry, repeat: object) -> None:
        told = self.told
        if repeat in {*told.compared, *told.sittings}:
            raise _at(line, f"launches the repeat {repeat} again, whose answers are there")
        if left := sorted(told.sittings.keys() - told.whole):
            raise _at(line, f"comes before the repeat {left[0]} was asked to its end")
        self.running, self.starts[repeat] = True, line.data.get("engine_started")

    def _sitting(self, line: Entry, repeat: int, part: int) -> None:
        told = self.told
        if repeat not in self.planned or repeat in told.whole:
            raise _at(line, f"is of the repeat {repeat}, in which nothing is left to be asked")
        if self.running or repeat not in self.ended:
            raise _at(line, f"is of the repeat {repeat}, which has not ended, or in another")
        sittings = told.sittings.get(repeat, 0) + (line.event == "accuracy_start")
        if part != sittings:
            raise _at(line, f"is of part {part}; sittings so far: {sittings}")
        if line.event == "accuracy_end":
            told.whole.add(repeat)
        else:
            told.sittings[repeat] = sittings
            _check_same_launch(line, self.starts[repeat])


def _check_same_launch(line: Entry, loaded: object) -> None:
    started, same = line.data.get("engine_started"), line.data.get("same_launch")
    if same is not None and type(same) is not bool:
        raise _at(line, f"says same_launch: {same!r}, which is neither true, false nor null")
    if started is not None and loaded is not None:
        what = "is not what the starts of the engines say"
        expect_equal(f"journal line {line.seq}.same_launch", same, started == loaded, what)
    elif same is True and line.data["part"] != 1:
        raise _at(line, "says same_launch: true, which no start of an engine shows")


def _number(line: Entry, name: str) -> int:
    value = line.data.get(name)
    if type(value) is not int or value < 1:
        raise _at(line, f"has the {name} {value!r}, which is no number from 1")
    return value


def _at(line: Entry, what: str) -> InputError:
    return InputError(Problem(what, field=f"journal line {line.seq} ({line.event})"))
