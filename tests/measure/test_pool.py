from __future__ import annotations

import resource
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from tests.measure.test_exchange import exchange
from tokenwatt_site.measure import pool as pool_module
from tokenwatt_site.measure.connection import Target
from tokenwatt_site.measure.pool import READABLE, Pool


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@pytest.fixture(params=["epoll", "poll"])
def pool(
    listener: socket.socket, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Pool]:
    if request.param == "poll":
        monkeypatch.delattr(select, "epoll", raising=False)
    made = Pool(Target("127.0.0.1", listener.getsockname()[1], "/"))
    with closing(made):
        yield made


def test_connections_are_ready_before_the_first_request(pool: Pool) -> None:
    pool.preconnect(100)
    first, second = pool.take(), pool.take()
    assert first is not None
    assert second is not None
    assert (first.kept, first.connecting) == (True, False)
    assert pool.take() is None
    assert pool.opened == 2


def test_each_replica_has_connections_of_its_own(listener: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = [each.getsockname()[1] for each in (listener, other)]
        first, second = (Target("127.0.0.1", port, "/") for port in ports)
        with closing(Pool(replace(first, others=(second,)))) as pool:
            pool.preconnect(9)
            assert pool.opened == 4
            taken = [pool.take(0), pool.take(0), pool.take(0), pool.take(1)]
            assert [None if one is None else one.replica for one in taken] == [0, 0, None, 1]
            pool.replace_taken(0)
            assert pool.opened == 5
            assert taken[3] is not None
            pool.keep(taken[3])
            assert pool.take(1) is taken[3]


def test_no_more_are_opened_ahead_than_there_are_requests(pool: Pool) -> None:
    pool.preconnect(1)
    assert pool.opened == 1


def test_a_connection_taken_is_replaced(pool: Pool) -> None:
    pool.preconnect(1)
    assert pool.take() is not None
    pool.replace_taken()
    pool.replace_taken()
    assert pool.opened == 2
    while pool.take() is None:
        for connection, _ in pool.poll(1):
            pool.tend(connection)


def test_few_are_kept_idle_and_more_where_many_are_answered(pool: Pool) -> None:
    carried = [pool.dial() for _ in range(10)]
    for connection in carried:
        connection.exchange = exchange()
    while any(connection.connecting for connection in carried):
        for connection, _ in pool.poll(1):
            pool.advance(connection)
    assert pool.dialling == 0
    for connection in carried[:6]:
        pool.keep(connection)
    assert [connection.closed for connection in carried[:6]] == [False] * 3 + [True] * 3
    pool.answering = 16 * 5
    for connection in carried[6:]:
        pool.keep(connection)
    assert [connection.closed for connection in carried[6:]] == [False] * 2 + [True] * 2


def test_an_idle_connection_that_the_server_closes_is_dropped(
    pool: Pool, listener: socket.socket
) -> None:
    pool.preconnect(1)
    listener.accept()[0].close()
    ((connection, mask),) = pool.poll(5)
    assert mask & READABLE
    pool.tend(connection)
    assert connection.closed
    assert pool.take() is None


def test_an_idle_connection_that_the_server_resets_is_dropped_at_once(
    pool: Pool, listener: socket.socket
) -> None:
    pool.preconnect(1)
    accepted, _ = listener.accept()
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    accepted.close()  # with that, a reset
    ((connection, _),) = pool.poll(5)
    pool.tend(connection)
    assert connection.closed


def test_one_look_sees_all_that_is_ready(pool: Pool, listener: socket.socket) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4_000:
        pytest.skip("too few descriptors here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4_000), hard))
    accepted = []
    for _ in range(1_100):  # epoll's own bound is 1,023
        pool.dial().exchange = exchange()
        accepted.append(listener.accept()[0])
    assert len(pool.poll(5)) == 1_100
    for each in accepted:
        each.close()


def test_a_connection_may_be_dropped_twice(pool: Pool) -> None:
    connection = pool.dial()
    connection.exchange = exchange()
    pool.drop(connection)
    pool.drop(connection)
    assert (connection.closed, pool.dialling) == (True, 0)


def test_a_server_that_does_not_answer_is_not_waited_for_long(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_PRECONNECT_NS", 0)
    pool.preconnect(5)
    assert pool.take() is None
