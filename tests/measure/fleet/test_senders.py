from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tokenwatt_site.errors import UsageError
from tokenwatt_site.measure.client import offer
from tokenwatt_site.measure.fleet import senders as module
from tokenwatt_site.measure.fleet.ray_cluster import Node
from tokenwatt_site.measure.fleet.senders import ALONE, Workers, senders


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("1", ALONE),
        ("4", Workers(4)),
        ("auto", Workers(None, "auto")),
        ("head:6379", Workers(None, "head:6379")),
        ("ray://10.0.0.1:10001", Workers(None, "ray://10.0.0.1:10001")),
        ("8@auto", Workers(8, "auto")),
        ("2@10.0.0.1:6379", Workers(2, "10.0.0.1:6379")),
    ],
)
def test_a_number_is_of_this_machine_and_an_address_of_a_cluster(text, asked):
    assert Workers.read(text) == asked


@pytest.mark.parametrize("text", ["", "0", "-1", "1025", "two", "head", "4@", "@auto", "0@auto"])
def test_what_is_neither_is_refused_with_what_it_could_be(text):
    with pytest.raises(UsageError, match=r"1 to 1024, or auto, HOST:PORT or ray://HOST:PORT"):
        Workers.read(text)


def test_one_process_is_this_one():
    with senders(ALONE, [], print) as sending:
        assert (sending.client, sending.count, sending.host) == (offer, 1, "127.0.0.1")


@pytest.fixture
def two_machines(monkeypatch):
    nodes = [Node("here", "a", "10.0.0.1", 4), Node("there", "b", "10.0.0.2", 4)]

    @contextmanager
    def joined(address, count, say):
        assert (address, count, say) == ("auto", 4, print)
        yield SimpleNamespace(nodes=nodes, count=4, start=None)

    monkeypatch.setattr(module, "joined", joined)
    monkeypatch.setattr(module, "_is_ours", lambda address: address == "10.0.0.1")
    monkeypatch.setattr(module, "_way_to", {"10.0.0.2": "10.0.0.1"}.__getitem__)


@pytest.mark.parametrize(
    "urls", [[], ["http://localhost:8000"], ["http://10.0.0.9:8000", "http://127.0.0.1:8000"]]
)
def test_workers_on_other_machines_need_an_engine_that_they_reach(two_machines, urls):
    with (
        pytest.raises(UsageError, match=r"expected an address at which 10\.0\.0\.2 reaches"),
        senders(Workers(4, "auto"), urls, print),
    ):
        pass


def test_workers_on_other_machines_reach_this_one_by_its_address_and_all_names_are_private(
    two_machines,
):
    with senders(Workers(4, "auto"), ["http://10.0.0.9:8000"], print) as sending:
        assert (sending.count, sending.host) == (4, "10.0.0.1")
        assert sending.hosts == {"here", "there", "10.0.0.1", "10.0.0.2"}
