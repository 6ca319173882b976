"""Fetching a run from a site: what comes, and what is refused before it is read."""

import functools
import http.server
import json
import threading
from contextlib import contextmanager

import pytest

from tests.support.runs import RunBuilder
from tokenwatt_site.canonical import sha256_hex
from tokenwatt_site.commands import published
from tokenwatt_site.commands.published import fetch_run, is_address
from tokenwatt_site.commands.verify import verify
from tokenwatt_site.errors import EngineError, InputError, UsageError


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_args):
        pass


@contextmanager
def site(folder):
    """Serve a folder on the loopback, and give its address."""
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def online(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    path = RunBuilder().write(folder / "runs/x")
    (folder / "runs/page.json").write_text("{}", encoding="utf-8")
    (folder / "runs/huge.json").write_bytes(b" " * (3 << 20))
    (folder / "runs/lost.json").write_bytes(path.read_bytes())
    with site(folder) as address:
        yield f"{address}/runs", path


def with_evidence(path, name, change):
    document = json.loads(path.read_bytes())
    change(document["evidence"])
    (path.parent / name).write_text(json.dumps(document), encoding="utf-8")


def test_a_run_is_fetched_with_its_evidence_and_verifies(online, tmp_path):
    address, original = online
    path = fetch_run(f"{address}/x/run.json", tmp_path / "fetched")
    assert path.parent.name == sha256_hex(original.read_bytes())[:12]
    assert path.read_bytes() == original.read_bytes()
    assert verify(path).run_id == verify(original).run_id


def test_a_run_that_is_fetched_again_replaces_itself_alone(online, tmp_path):
    address, _ = online
    (tmp_path / "other").mkdir()
    first = fetch_run(f"{address}/x/run.json", tmp_path)
    (first.parent / "evidence" / next(first.parent.glob("evidence/*")).name).write_bytes(b"cut")
    again = fetch_run(f"{address}/x/run.json", tmp_path)
    assert again == first
    assert verify(again)
    assert {path.name for path in tmp_path.iterdir()} == {"other", first.parent.name}


def test_what_is_no_address_of_a_run_is_refused_before_it_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "request", None)
    for url in (
        "http://example.org/run.json",
        "ftp://127.0.0.1/run.json",
        "file:///etc/passwd",
        "https:///run.json",
        "https://user:secret@example.org/run.json",
        "https://example.org/run.json?key=1",
        "https://example.org/run.json#x",
        "https://example.org:port/run.json",
        "https://[::1/run.json",
        "https://example.org/a b.json",
        "https://example.org/runs/",
        "https://../run.json",
    ):
        with pytest.raises(UsageError, match="is no address of a published run") as refused:
            fetch_run(url, tmp_path)
        assert "secret" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "address"),
    [
        ("https://example.org/run.json", True),
        ("HTTP://127.0.0.1/run.json", True),
        ("file:///run.json", True),
        ("runs/x.json", False),
        ("C:\\runs\\x.json", False),
        ("/runs/a://b.json", False),
    ],
)
def test_an_address_is_told_from_a_file(source, address):
    assert is_address(source) is address


def test_what_is_not_there_or_no_run_is_named_and_leaves_nothing(online, tmp_path):
    address, _ = online
    for name, kind, words in (
        ("none.json", UsageError, "is not there; found HTTP 404"),
        ("page.json", InputError, "is no run file"),
        ("huge.json", EngineError, r"larger than 2 MiB"),
    ):
        with pytest.raises(kind, match=words):
            fetch_run(f"{address}/{name}", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_evidence_is_missing_has_no_run_file_here(online, tmp_path):
    address, _ = online
    with pytest.raises(UsageError, match=r"evidence/[0-9a-f]{64}\.jsonl\.gz: is not there"):
        fetch_run(f"{address}/lost.json", tmp_path)
    assert not list(tmp_path.rglob("run.json"))


def many(evidence):
    evidence += [{**evidence[0], "sha256": f"{n:064x}"} for n in range(200)]


BAD_EVIDENCE = {
    "too many files": (many, "is more evidence than is read"),
    "too many bytes": (
        lambda evidence: evidence[0].update(bytes=1 << 28),
        "is more evidence than is read",
    ),
    "no digest": (lambda evidence: evidence[0].update(sha256="../../x"), "sha256: is not valid"),
    "no entry": (lambda evidence: evidence.append("x"), "evidence"),
}


@pytest.mark.parametrize("case", BAD_EVIDENCE)
def test_evidence_beyond_what_is_read_is_not_fetched(online, tmp_path, case):
    address, original = online
    change, words = BAD_EVIDENCE[case]
    with_evidence(original, "bad.json", change)
    with pytest.raises(InputError, match=words):
        fetch_run(f"{address}/x/bad.json", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_f9_f10_a_path_in_the_document_leads_nowhere(online, tmp_path):
    address, original = online
    with_evidence(original, "path.json", lambda e: e[0].update(path="../../../etc/passwd"))
    path = fetch_run(f"{address}/x/path.json", tmp_path / "in")
    assert {found.parent.name for found in path.parent.rglob("*.gz")} == {"evidence"}
    assert [found.name for found in tmp_path.iterdir()] == ["in"]


def test_f11_a_piece_that_is_larger_than_it_says_is_not_taken_whole(online, tmp_path):
    address, original = online
    with_evidence(original, "small.json", lambda e: e[0].update(bytes=10))
    piece = json.loads(original.read_bytes())["evidence"][0]
    assert (original.parent / piece["path"]).stat().st_size > 2000
    with pytest.raises(EngineError, match="the answer is larger than"):
        fetch_run(f"{address}/x/small.json", tmp_path)
