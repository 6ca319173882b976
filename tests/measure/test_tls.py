from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tls import Authority
from tokenwatt_site.measure.tls import TlsStream, failure_text, trusted_context

Contexts: TypeAlias = tuple[ssl.SSLContext, ssl.SSLContext]
"""Of the client and of the server."""


class Peer:
    """The server's side, in memory."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)

    def handshake(self, received: bytes) -> bytes:
        self.incoming.write(received)
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def close(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self.outgoing.read()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> ssl.SSLContext:
    return authority.server_context("engine.example")


def client_context(authority: Authority) -> ssl.SSLContext:
    context = trusted_context()
    context.load_verify_locations(authority.file)
    return context


@pytest.fixture(scope="module")
def contexts(authority: Authority, server: ssl.SSLContext) -> Contexts:
    return client_context(authority), server


def connected(contexts: Contexts, cut: Callable[[bytes], list[bytes]]) -> tuple[TlsStream, Peer]:
    """Both sides after the handshake; `cut` says in which pieces the client reads."""
    stream, peer = TlsStream(contexts[0], "engine.example"), Peer(contexts[1])
    stream.handshake(b"")
    for _ in range(4):
        answer = peer.handshake(stream.outgoing())
        for piece in cut(answer):
            (stream.decrypt if stream.ready else stream.handshake)(piece)
    assert stream.ready
    return stream, peer


def whole(data: bytes) -> list[bytes]:
    return [data] if data else []


def bytewise(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


@pytest.mark.parametrize("cut", [whole, bytewise])
def test_what_is_encrypted_is_read_by_the_other_side(
    contexts: Contexts, cut: Callable[[bytes], list[bytes]]
) -> None:
    stream, peer = connected(contexts, cut)
    peer.incoming.write(stream.encrypt(b"POST"))
    assert peer.tls.read() == b"POST"


@given(
    texts=st.lists(st.binary(max_size=40_000), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 20_000), max_size=12),
)
def test_any_cut_of_the_records_gives_the_same_bytes(
    contexts: Contexts, texts: list[bytes], cuts: list[int]
) -> None:
    stream, peer = connected(contexts, whole)
    for text in texts:
        peer.tls.write(text)
    sent = peer.outgoing.read() + peer.close()
    read = b""
    for size in (*cuts, len(sent)):
        piece, sent = sent[:size], sent[size:]
        if piece:
            read += stream.decrypt(piece)
    assert read == b"".join(texts)
    assert stream.ended


def test_a_record_that_is_not_whole_gives_nothing_yet(contexts: Contexts) -> None:
    stream, peer = connected(contexts, whole)
    peer.tls.write(b"event")
    sent = peer.outgoing.read()
    assert stream.decrypt(sent[:-1]) == b""
    assert stream.decrypt(sent[-1:]) == b"event"
    assert not stream.ended


def test_a_changed_record_is_an_error(contexts: Contexts) -> None:
    stream, peer = connected(contexts, whole)
    peer.tls.write(b"event")
    sent = bytearray(peer.outgoing.read())
    sent[-1] ^= 1
    with pytest.raises(ssl.SSLError) as caught:
        stream.decrypt(bytes(sent))
    assert failure_text(caught.value).startswith("TLS failed: ")


@pytest.mark.parametrize(
    ("host", "why"),
    [("other.example", "Hostname mismatch"), ("engine.example", "unable to get")],
)
def test_a_certificate_for_another_host_or_of_a_stranger_is_refused(
    authority: Authority, server: ssl.SSLContext, host: str, why: str
) -> None:
    context = trusted_context() if host == "engine.example" else client_context(authority)
    peer, stream = Peer(server), TlsStream(context, host)
    stream.handshake(b"")
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        stream.handshake(peer.handshake(stream.outgoing()))
    assert failure_text(caught.value).startswith("the certificate is not accepted: ")
    assert why in failure_text(caught.value)
    assert not stream.ready


def test_certificates_are_always_verified() -> None:
    context = trusted_context()
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_further_authorities_come_from_the_file_that_the_environment_names(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    own = ssl.PEM_cert_to_DER_cert(authority.file.read_text("ascii"))
    assert own in trusted_context().get_ca_certs(binary_form=True)


def test_what_speaks_no_tls_is_said(authority: Authority) -> None:
    stream = TlsStream(client_context(authority), "engine.example")
    stream.handshake(b"")
    with pytest.raises(ssl.SSLError) as caught:
        stream.handshake(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert failure_text(caught.value) == "TLS failed: wrong version number"
