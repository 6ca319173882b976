"""TLS between bytes and bytes (ssl.MemoryBIO). No input or output here.

The socket stays the caller's own, so that the kernel's stamps stay: OpenSSL's reads have none.
"""

from __future__ import annotations

import ssl

_RECORD_BYTES = 16 << 10  # RFC 8446, 5.1: the most that one record holds


def trusted_context() -> ssl.SSLContext:
    """Return a context that accepts only certificates of a trusted authority for the right host.

    Trusted are those of the system, or of SSL_CERT_FILE and SSL_CERT_DIR where these are set.
    """
    context = ssl.create_default_context()
    # HTTP/2 would be chosen by many front ends, and frames of other answers delay its events.
    context.set_alpn_protocols(["http/1.1"])
    return context


def failure_text(error: ssl.SSLError) -> str:
    """Say in a few words why TLS failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    reason = (error.reason or "the connection was closed").replace("_", " ").lower()
    return f"TLS failed: {reason}"


class TlsStream:
    """The client's side of one TLS connection.

    Attributes:
        ready: the handshake is over.
        ended: the other side has said that nothing more will come.
    """

    __slots__ = ("_incoming", "_outgoing", "_tls", "ended", "ready")

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.ready = self.ended = False

    def handshake(self, received: bytes) -> None:
        """Go on with the handshake; `outgoing` then has what is to be sent.

        Raises:
            ssl.SSLError: the other side is not trusted, or speaks no TLS.
        """
        self._incoming.write(received)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        self.ready = True

    def encrypt(self, data: bytes) -> bytes:
        """Return the bytes to send for `data`."""
        self._tls.write(data)
        return self.outgoing()

    def outgoing(self) -> bytes:
        """Return what the protocol itself has to send."""
        return self._outgoing.read()

    def decrypt(self, received: bytes) -> bytes:
        """Return what whole records hold; nothing for records of the protocol itself.

        Raises:
            ssl.SSLError: bytes that the other side cannot have sent.
        """
        self._incoming.write(received)
        parts: list[bytes] = []
        try:
            while part := self._tls.read(_RECORD_BYTES):
                parts.append(part)
                if not self._incoming.pending and not self._tls.pending():
                    break
            else:
                self.ended = True
        except ssl.SSLWantReadError:
            pass
        return parts[0] if len(parts) == 1 else b"".join(parts)
