"""An authority of our own, and TLS in front of a server that speaks plain HTTP."""

from __future__ import annotations

import ipaddress
import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.support.sockets import accepting


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """Signs certificates, for a day. `file` is what a client has to trust."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._serial = 0
        self.file = folder / "authority.pem"
        own = self._certificate("authority", self._key, []).public_bytes(Encoding.PEM)
        self.file.write_bytes(own)

    def _certificate(
        self, name: str, key: ec.EllipticCurvePrivateKey, others: list[x509.GeneralName]
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        usage = {
            "digital_signature": True,
            "content_commitment": False,
            "key_encipherment": False,
            "data_encipherment": False,
            "key_agreement": False,
            "key_cert_sign": not others,
            "crl_sign": not others,
            "encipher_only": False,
            "decipher_only": False,
        }
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name("authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=not others, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
        )
        if others:
            builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
        return builder.sign(self._key, SHA256())

    def server_context(self, host: str = "127.0.0.1") -> ssl.SSLContext:
        """Return the context of a server with a certificate for `host`."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        self._serial += 1
        pem = self._folder / f"server-{self._serial}.pem"
        pem.write_bytes(
            self._certificate(host, key, [name]).public_bytes(Encoding.PEM)
            + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        return context


def _pump(outer: ssl.SSLSocket, inner: socket.socket) -> None:
    """Carry bytes both ways, at once, until one side ends."""
    for end in (outer, inner):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        ready = [outer] if outer.pending() else select.select([outer, inner], [], [])[0]
        for source in ready:
            if not (data := source.recv(65536)):
                return
            (inner if source is outer else outer).sendall(data)


@contextmanager
def tls_before(url: str, context: ssl.SSLContext, *, polite: bool = True) -> Iterator[str]:
    """Serve what the plain server at `url` says over TLS, on another port of the loopback.

    `polite` ends TLS before the connection; many servers do not.
    """
    parts = urlsplit(url)

    def handle(accepted: socket.socket, _number: int) -> None:
        with (
            context.wrap_socket(accepted, server_side=True) as outer,
            socket.create_connection((parts.hostname, parts.port)) as inner,
        ):
            _pump(outer, inner)
            if polite:
                outer.unwrap()

    with accepting(handle, backlog=256) as port:
        yield f"https://127.0.0.1:{port}{parts.path}"
