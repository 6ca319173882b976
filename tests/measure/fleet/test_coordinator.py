"""Several workers as one client, against a server that knows what was asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.measure.test_client import body
from tests.support.fleets import fleet_of
from tokenwatt_site.errors import EnvironmentProblem, UsageError
from tokenwatt_site.evidence.records import RequestRecord, Status, encode_requests
from tokenwatt_site.measure.client import Client, Offered, PlannedRequest, Target, offer
from tokenwatt_site.measure.fleet import coordinator
from tokenwatt_site.measure.fleet.coordinator import Fleet, WorkerLost
from tokenwatt_site.measure.fleet.local import clients, started
from tokenwatt_site.measure.fleet.messages import Ping, Pong, Ready
from tokenwatt_site.simulate.script import Script
from tokenwatt_site.simulate.server import SimulatedServer

MS = 1_000_000
QUICK = Script(ttft_ms=4, interval_ms=2)
SILENT = Script(ttft_ms=60_000)


def planned(count: int, every_ms: float = 2) -> list[PlannedRequest]:
    """Requests of one to five tokens, of which every third keeps its text."""
    found = []
    for row in range(count):
        asked = 1 + row % 5
        due_ns = round(row * every_ms * MS)
        found.append(PlannedRequest(row, due_ns, body(asked), 3, asked, keep_text=row % 3 == 0))
    return found


def send(client: Client, plan: list[PlannedRequest], url: str, **options: Any) -> Offered:
    target = Target.from_url(url, "completions", options.pop("key", None))
    told = {"request_timeout_ns": 60_000 * MS, "watch": lambda *_: False, **options}
    return client(plan, target, repeat=2, trial=7, **told)


def evidence(offered: Offered) -> bytes:
    """The bytes that are kept, with all times but `due_ns` set to one."""
    return encode_requests(map(timeless, offered.records))


def timeless(record: RequestRecord) -> RequestRecord:
    due_ns = record.due_ns
    return replace(
        record,
        dialled_ns=None,
        connected_ns=None,
        sent_ns=None if record.sent_ns is None else due_ns,
        first_ns=None if record.first_ns is None else due_ns,
        last_ns=None if record.last_ns is None else due_ns,
        end_ns=due_ns,
        uncertainty_ns=0,
    )


def test_one_two_and_five_processes_leave_the_same_evidence_to_the_bit_but_for_times() -> None:
    plan = planned(40)
    with SimulatedServer(QUICK) as server:
        found = []
        for count in (1, 2, 5):
            with clients(count) as client:
                found.append(send(client, plan, server.url))
    alone, *several = found
    assert {record.status for record in alone.records} == {Status.OK}
    assert [evidence(offered) for offered in several] == [evidence(alone)] * 2
    assert [offered.texts for offered in several] == [alone.texts] * 2
    assert [len(offered.offset_bounds_ns) for offered in found] == [0, 2, 5]
    assert all(bound > 0 for offered in several for bound in offered.offset_bounds_ns)
    assert all(offered.cpu_ns > 0 for offered in found)
    assert len(server.log) == 3 * 40


def test_every_worker_sends_its_rows_by_the_one_clock_and_is_kept_for_the_next_trial() -> None:
    begun: list[int] = []
    with SimulatedServer(QUICK) as server, fleet_of(3) as fleet:
        for _ in range(2):
            offered = send(fleet.offer, planned(9, 20), server.url, begins=begun.append)
            assert offered.epoch_ns == begun[-1]
            received = sorted(s.received.monotonic_ns - offered.epoch_ns for s in server.log[-9:])
            assert all(at_ns >= 20 * row * MS for row, at_ns in enumerate(received))
            assert [record.row for record in offered.records] == list(range(9))
            assert offered.lost is None


def test_all_stop_at_one_time_when_the_watch_has_seen_enough() -> None:
    plan = [*planned(200, 5), *(replace(p, due_ns=600_000 * MS) for p in planned(201)[200:])]
    seen: set[int] = set()

    def enough(_: int, ended: list[RequestRecord], still: list[RequestRecord]) -> bool:
        seen.update(record.row for record in ended)
        assert not seen & {record.row for record in still}
        return len(seen) >= 20

    with SimulatedServer(QUICK) as server, fleet_of(2) as fleet:
        offered = send(fleet.offer, plan, server.url, watch=enough, watch_every_ns=5 * MS)
    records = offered.records
    assert 20 <= len(records) < len(plan)
    assert [record.row for record in records] == list(range(len(records)))
    assert max(record.end_ns for record in records) <= plan[len(records)].due_ns


def test_a_process_that_is_killed_is_named_and_the_next_trial_has_another() -> None:
    fleet = Fleet(started, 2)
    try:
        with SimulatedServer(SILENT) as server:

            def kill(_: int, __: object, still: list[RequestRecord]) -> bool:
                if {0, 1} <= {record.row for record in still}:
                    worker: Any = fleet._members[1].worker
                    worker.process.kill()
                return False

            offered = send(
                fleet.offer, planned(100, 20), server.url, watch=kill, watch_every_ns=20 * MS
            )
        with SimulatedServer(QUICK) as server:
            after = send(fleet.offer, planned(4), server.url)
    finally:
        fleet.close()
    assert offered.lost == "worker 2 of 2 ended by signal 9"
    assert [record.row for record in offered.records] == list(range(len(offered.records)))
    assert {record.status for record in offered.records} == {Status.CENSORED}
    assert offered.records[1].sent_ns is not None
    assert (after.lost, len(after.records)) == (None, 4)


def test_what_keeps_a_worker_from_offering_is_told_as_one_process_tells_it() -> None:
    with pytest.raises(UsageError) as alone:
        send(offer, planned(2), "http://127.0.0.1:9", key="NO_SUCH_VARIABLE")
    with fleet_of(2) as fleet, pytest.raises(UsageError) as caught:
        send(fleet.offer, planned(2), "http://127.0.0.1:9", key="NO_SUCH_VARIABLE")
    assert caught.value.problems == alone.value.problems


def test_an_interrupt_ends_the_workers() -> None:
    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    with SimulatedServer(SILENT) as server, fleet_of(2) as fleet:
        with pytest.raises(KeyboardInterrupt):
            send(fleet.offer, planned(2), server.url, watch=interrupt, watch_every_ns=MS)
        assert fleet._members == {}


class Scripted:
    """A worker that answers until it is to go, and then says nothing."""

    def __init__(self, *, mute: bool = False) -> None:
        self.mute = mute
        self.answers: list[Pong | Ready] = []

    def tell(self, message: object) -> None:
        if isinstance(message, Ping):
            self.answers.append(Pong(0))
        elif not self.answers:
            self.answers.append(Ready())

    def hear(self, _: float) -> Any:
        if self.mute:
            raise WorkerLost("ended with exit code 3")
        return self.answers.pop() if self.answers else None


def scripted(**options: bool) -> Fleet:
    @contextmanager
    def start(_: int) -> Iterator[Scripted]:
        yield Scripted(**options)

    return Fleet(start, 2)


def test_workers_that_end_before_the_load_are_the_machine_s_problem() -> None:
    with pytest.raises(EnvironmentProblem, match="before the load begins; found one that ended wi"):
        send(scripted(mute=True).offer, planned(2), "http://127.0.0.1:9")


def test_a_worker_that_says_nothing_any_more_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "_SILENT_S", 0.05)
    offered = send(scripted().offer, planned(2), "http://127.0.0.1:9")
    told = sorted((offered.lost or "").split("; "))
    assert told == [f"worker {number} of 2 said nothing for 60 s" for number in (1, 2)]
    first = offered.records[0]
    assert (first.row, first.sent_ns, first.status) == (0, None, Status.CENSORED)
