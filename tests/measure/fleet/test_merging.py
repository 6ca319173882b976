import pickle

from tests.measure.test_exchange import exchange
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.measure.exchange import PlannedRequest
from tokenwatt_site.measure.fleet.merging import merged, packed, unpacked

PLAN = [PlannedRequest(row, 10 * row, b"{}", 3, 4) for row in range(6)]


def record(row, end_ns):
    made = exchange()
    made.planned, made.sent_ns = PLAN[row], None
    made.end_ns, made.fate = end_ns, Status.TIMED_OUT
    return made.conclude(1, 2)[1]


def rows(known, end_ns=0):
    found = merged(PLAN, {r.row: r for r in known}, repeat=1, trial=2, end_ns=end_ns)
    return [(r.row, r.status, r.end_ns) for r in found]


def test_records_come_through_a_pipe_as_they_were():
    found = [record(row, 50) for row in range(3)]
    assert unpacked(pickle.loads(pickle.dumps(packed(found)))) == found  # noqa: S301 - our own


def test_records_stand_in_the_order_of_their_rows_whoever_sent_them():
    found = rows([record(2, 25), record(0, 5), record(1, 15)])
    assert [row for row, _, _ in found] == [0, 1, 2]


def test_what_came_due_before_the_end_and_nobody_sent_was_looked_for_until_then():
    unsent = Status.CENSORED
    assert rows([record(0, 5), record(2, 25)])[1] == (1, unsent, 10)
    assert [row for row, _, _ in rows([record(0, 35)])] == [0, 1, 2, 3]
    assert rows([], end_ns=11) == [(0, unsent, 0), (1, unsent, 10)]
