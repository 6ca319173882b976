"""Tests of trust.plausibility; what it decides for whole runs is in test_verify."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.support.runs import RunBuilder, ToyEngine, small_spec
from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.journal import GENESIS, Entry
from tokenwatt_site.run import Run
from tokenwatt_site.trust.plausibility import CLOCK_SLACK_NS, check_dates, check_requests
from tokenwatt_site.workload import workload_of

SPEC = small_spec()
NOW = datetime(2026, 1, 2, tzinfo=UTC)
GOOD = next(
    ToyEngine().serve(
        workload_of(SPEC.setup).realisation(1, lead_in=0, scored=10, tail=1),
        1_000_000,
        repeat=1,
        trial=1,
    )
)


def test_what_a_sound_engine_answers_is_plausible() -> None:
    check_requests([GOOD])


def test_a_request_that_was_never_answered_is_plausible() -> None:
    check_requests(
        [
            replace(
                GOOD,
                sent_ns=None,
                first_ns=None,
                last_ns=None,
                prompt_tokens=None,
                cached_tokens=None,
                output_tokens=None,
                first_tokens=None,
                events=0,
                status=Status.NOT_SENT,
            )
        ]
    )


def test_what_was_cached_may_be_told_of_an_answer_whose_end_was_not_seen() -> None:
    cut = replace(GOOD, prompt_tokens=None, output_tokens=None, cached_tokens=5)
    check_requests([replace(cut, status=status) for status in (Status.CENSORED, Status.TIMED_OUT)])


@pytest.mark.parametrize(
    ("early", "said"),
    [
        (lambda r, ns: replace(r, sent_ns=r.due_ns - ns), "sent before it was due"),
        (lambda r, ns: replace(r, sent_ns=(r.first_ns or 0) + ns), "answered before it was sent"),
        (lambda r, ns: replace(r, end_ns=(r.last_ns or 0) - ns), "ended before its last token"),
    ],
    ids=["sent", "answered", "ended"],
)
def test_two_clocks_may_differ_by_the_slack_and_by_no_more(
    early: Callable[[RequestRecord, int], RequestRecord], said: str
) -> None:
    check_requests([early(GOOD, CLOCK_SLACK_NS)])
    with pytest.raises(InputError, match=said):
        check_requests([early(GOOD, CLOCK_SLACK_NS + 1)])


def test_an_answer_longer_than_asked_is_plausible_and_its_trial_invalid_by_its_own_rule() -> None:
    check_requests([replace(GOOD, output_asked=1)])


SENT, FIRST, LAST = GOOD.sent_ns or 0, GOOD.first_ns or 0, GOOD.last_ns or 0
IMPLAUSIBLE: dict[str, RequestRecord] = {
    "before it was due": replace(GOOD, sent_ns=GOOD.due_ns - CLOCK_SLACK_NS - 1),
    "was dialled for before it was due": replace(GOOD, dialled_ns=GOOD.due_ns - CLOCK_SLACK_NS - 1),
    "was connected before it was dialled for": replace(
        GOOD, dialled_ns=GOOD.due_ns + 2, connected_ns=GOOD.due_ns + 1
    ),
    "answered before it was sent": replace(GOOD, first_ns=SENT - CLOCK_SLACK_NS - 1),
    "answered before it was sent, or never": replace(
        GOOD, sent_ns=None, status=Status.DISCONNECTED
    ),
    "last token before its first": replace(GOOD, last_ns=FIRST - 1),
    "last token before its first, or none": replace(GOOD, last_ns=None, status=Status.DISCONNECTED),
    "ended before its last token": replace(GOOD, end_ns=LAST - CLOCK_SLACK_NS - 1),
    "ended before it was sent": replace(
        GOOD, first_ns=None, last_ns=None, end_ns=0, sent_ns=10**9, status=Status.TIMED_OUT
    ),
    "more tokens in its first event": replace(GOOD, first_tokens=(GOOD.output_tokens or 0) + 1),
    "more cached prompt tokens": replace(GOOD, cached_tokens=GOOD.prompt_asked + 1),
    "cached tokens and no prompt": replace(GOOD, cached_tokens=1, prompt_tokens=None),
    "negative time": replace(GOOD, uncertainty_ns=-1),
    "negative due": replace(GOOD, due_ns=-1),
    "negative count": replace(GOOD, events=-1),
    "negative tokens": replace(GOOD, prompt_tokens=-1, cached_tokens=None),
    "complete without a time": replace(GOOD, first_ns=None, last_ns=None),
    "complete without tokens": replace(GOOD, output_tokens=None),
    "complete and short": replace(GOOD, output_tokens=1, output_asked=2),
}


@pytest.mark.parametrize("record", IMPLAUSIBLE.values(), ids=IMPLAUSIBLE)
def test_a_request_that_does_what_none_can_do_is_refused(record: RequestRecord) -> None:
    with pytest.raises(InputError, match=r"requests\.1 \(repeat 1, trial 1\)"):
        check_requests([GOOD, record])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = RunBuilder().write(tmp_path_factory.mktemp("run"))
    return Run.model_validate_json(path.read_bytes())


def dated(run: Run, *dates: str) -> tuple[Run, tuple[Entry, ...]]:
    """Return the run and a journal with these dates, the first and last being the run's."""
    lines = tuple(
        Entry(seq=seq, at=at, event="open", prev=GENESIS, data={}) for seq, at in enumerate(dates)
    )
    conditions = run.conditions.model_copy(update={"started": dates[0], "ended": dates[-1]})
    return run.model_copy(update={"conditions": conditions}), lines


NOON = "2026-01-01T12:00:00.000000Z"


@pytest.mark.parametrize(
    "text", ["2026-01-01T12:00:00Z", "2026-01-01T12:00:00.123456Z", "2026-01-01T12:00:00+00:00"]
)
def test_utc_dates_are_dates(run: Run, text: str) -> None:
    check_dates(*dated(run, text, text), NOW)


def test_no_trial_is_dated_outside_its_run(run: Run) -> None:
    for at in ("9999-12-31T00:00:00Z", "2026-01-02T13:00:00Z", "2020-01-01T00:00:00Z"):
        with pytest.raises(InputError, match="is no time of this run"):
            check_dates(*dated(run, NOON, at, NOON), NOW)


def test_the_clock_may_be_set_back_between(run: Run) -> None:
    check_dates(*dated(run, NOON, "2026-01-01T11:59:59Z", NOON), NOW)


@pytest.mark.parametrize(
    "text", ["1999-12-31T12:00:00Z", "2026-01-04T00:00:00Z", "2099-01-01T00:00:00Z"]
)
def test_dates_at_which_nothing_was_measured_are_refused(run: Run, text: str) -> None:
    with pytest.raises(InputError, match="no time at which this was measured"):
        check_dates(*dated(run, text, text), NOW)


def test_a_run_that_ends_before_it_starts_is_refused(run: Run) -> None:
    with pytest.raises(InputError, match="before the start"):
        check_dates(*dated(run, NOON, "2026-01-01T11:59:59Z"), NOW)


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00:00+02:00", "<b>"],
)
def test_other_dates_are_refused(run: Run, text: str) -> None:
    with pytest.raises(InputError, match=r"journal line 1\.at"):
        check_dates(*dated(run, NOON, text, NOON), NOW)
