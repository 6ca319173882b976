from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.measure.test_exchange import exchange
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.measure.exchange import Exchange
from tokenwatt_site.measure.watcher import Watcher

MS = 1_000_000
LATER = 1 << 62


class Trial:
    def __init__(self, requests: int) -> None:
        self.exchanges = [exchange() for _ in range(requests)]
        self.looks = 0

    def ended(self) -> list[RequestRecord]:
        return [e.record for e in self.exchanges if e.record is not None]

    def still(self) -> Iterator[Exchange]:
        return iter([e for e in self.exchanges if e.fate is None])

    def snapshot(self, exchange: Exchange) -> RequestRecord:
        self.looks += 1
        return exchange.snapshot(1, 1, 0)

    def end(self, number: int) -> None:
        self.exchanges[number].fate = Status.TIMED_OUT
        self.exchanges[number].conclude(1, 1)


class Seen:
    def __init__(self, answer: bool = False) -> None:
        self.calls: list[tuple[int, int, int]] = []
        self.answer = answer

    def __call__(
        self, now: int, ended: Sequence[RequestRecord], still: Sequence[RequestRecord]
    ) -> bool:
        self.calls.append((now, len(ended), len(still)))
        return self.answer


def test_nothing_is_looked_at_before_its_time() -> None:
    trial, seen = Trial(3), Seen()
    watcher = Watcher(trial, seen, 10 * MS)
    assert not watcher.stops(9 * MS, LATER)
    assert (trial.looks, seen.calls) == (0, [])
    watcher.stops(10 * MS, LATER)
    assert seen.calls == [(10 * MS, 0, 3)]


def test_no_pass_looks_at_many_requests() -> None:
    trial, seen = Trial(100), Seen()
    watcher = Watcher(trial, seen, MS)
    most, before = 0, 0
    for number in range(10):
        watcher.stops(MS + number, LATER)
        most, before = max(most, trial.looks - before), trial.looks
        if seen.calls:
            break
    assert most <= 16
    assert [still for _, _, still in seen.calls] == [100]


def test_a_request_that_ends_between_two_passes_is_shown_once() -> None:
    trial, seen = Trial(20), Seen()
    watcher = Watcher(trial, seen, MS)
    watcher.stops(MS, LATER)
    trial.end(0)
    watcher.stops(MS + 1, LATER)
    assert seen.calls == [(MS + 1, 1, 19)]


def test_the_answer_of_the_watcher_stops_the_trial() -> None:
    assert Watcher(Trial(1), Seen(answer=True), MS).stops(MS, LATER)


def test_where_it_never_fits_between_two_requests_it_is_called_late_and_not_never() -> None:
    trial, seen = Trial(1), Seen()
    watcher = Watcher(trial, seen, 10 * MS)
    assert not watcher.stops(10 * MS, 10 * MS)
    assert seen.calls == []
    watcher.stops(20 * MS, 20 * MS)
    assert len(seen.calls) == 1
