import socket
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import AuthenticationError

import pytest

from tokenwatt_site.measure.fleet.messages import Ping, Pong
from tokenwatt_site.measure.fleet.node import Host, proven

SECRET = b"thirty-two bytes that Ray carries"


def connected(host, secret):
    sock = socket.create_connection(("127.0.0.1", host.port()), 30)
    return proven(sock, secret, first=False)


def test_who_knows_the_secret_talks_to_a_worker_that_ends_with_the_connection():
    host = Host("127.0.0.1", SECRET)
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(host.serve)
        with connected(host, SECRET) as link:
            assert serving.result().pid > 0
            link.send(Ping())
            assert isinstance(link.recv(), Pong)
    host.see_it_end()
    assert host.how_it_ended() == "ended with exit code 0"


def test_who_does_not_know_the_secret_gets_no_worker():
    host = Host("127.0.0.1", SECRET)
    address = ("127.0.0.1", host.port())
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(host.serve)
        with pytest.raises(AuthenticationError):
            connected(host, b"another")
        with pytest.raises(AuthenticationError):
            serving.result()
    assert host.how_it_ended() is None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, 30)
