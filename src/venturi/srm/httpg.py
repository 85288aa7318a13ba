"""httpg: TLS with proxy certificates and the byte that asks for delegation, on both sides. HTTP follows.

After the handshake the client says ``0`` or ``D``; after ``D`` the server sends a request for a certificate (PKCS #10, DER) and the client the certificate.
Tokens of GSSAPI take turns, so that with TLS 1.3, where the client's last message ends the handshake, the server owes an answer: one zero byte. Session
tickets would be another, and one too many.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from pathlib import Path

from venturi.srm.errors import X509Error

__all__ = ["accept", "client_context", "connect", "peer_chain", "server_context"]

_ALLOW_PROXIES = 0x40
"""X509_V_FLAG_ALLOW_PROXY_CERTS of OpenSSL's x509_vfy.h; the module ssl has no name for it."""
_CERTIFICATE_LIMIT = 64 * 1024
_OPENSSL_S = 30.0


def server_context(certificate: str, key: str, authorities: str) -> ssl.SSLContext:
    """Return how a server speaks TLS: its own certificate, and the folder of the authorities (``HASH.0``) that clients must come from."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return _trusting(context, authorities)


def client_context(credential: str, authorities: str) -> ssl.SSLContext:
    """Return how a client speaks TLS: with a proxy (certificate, key and chain in one file)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(credential)
    return _trusting(context, authorities)


def accept(tls: ssl.SSLSocket) -> bool:
    """Shake hands with a client; return whether it delegated.

    What it delegates is taken and dropped: this server acts for nobody elsewhere.

    Raises
    ------
    OSError
        If the handshake fails (``ssl.SSLError`` with the reason), takes too long, or the client says something else.
    """
    tls.do_handshake()
    if tls.version() == "TLSv1.3":
        tls.sendall(b"\0")
    byte = tls.recv(1)
    if byte == b"D":
        tls.sendall(_certificate_request())
        _receive_certificate(tls)
    elif byte != b"0":
        raise ConnectionError(f"expected 0 or D after the handshake (httpg), found {byte!r}")
    return byte == b"D"


def connect(address: str, port: int, host_name: str, context: ssl.SSLContext, timeout_s: float) -> ssl.SSLSocket:
    """Connect to a server and shake hands, without delegation.

    Raises
    ------
    OSError
        If it is not there, does not answer in time, or one does not trust the other.
    """
    plain = socket.create_connection((address, port), timeout_s)
    # Without it the byte waits for an acknowledgement that the other end delays.
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        tls = context.wrap_socket(plain, server_hostname=host_name)
    except BaseException:
        plain.close()
        raise
    if tls.version() == "TLSv1.3":
        tls.recv(1)
    tls.sendall(b"0")
    return tls


def peer_chain(tls: ssl.SSLSocket) -> list[bytes]:
    """Return the verified certificates of the other end in DER, its own first.

    Raises
    ------
    X509Error
        If there are none: of a session that was resumed OpenSSL keeps no chain.
    """
    if sys.version_info >= (3, 13):
        found = tls.get_verified_chain()
    else:
        # The same function, before it was made public (python/cpython, gh-109109).
        import _ssl

        verified = tls._sslobj.get_verified_chain()  # type: ignore[attr-defined]
        found = [one.public_bytes(_ssl.ENCODING_DER) for one in verified or ()]
    if not found:
        raise X509Error("expected a verified chain of certificates, found none")
    return list(found)


def _trusting(context: ssl.SSLContext, authorities: str) -> ssl.SSLContext:
    if not Path(authorities).is_dir():
        raise NotADirectoryError(f"{authorities}: expected a folder of certificates, found none")
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(capath=authorities)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags = ssl.VerifyFlags(int(context.verify_flags) | _ALLOW_PROXIES)
    return context


def _certificate_request() -> bytes:
    """Return a request for a certificate, with a key that nobody keeps."""
    argv = [
        "openssl",
        "req",
        "-new",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=proxy",
        "-keyout",
        "/dev/null",
        "-outform",
        "DER",
    ]
    done = subprocess.run(argv, capture_output=True, timeout=_OPENSSL_S, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise ConnectionError(f"expected openssl to make a certificate request, found exit code {done.returncode}")
    return done.stdout


def _receive_certificate(tls: ssl.SSLSocket) -> None:
    """Read one DER structure, and nothing beyond it."""
    head = _exactly(tls, 2)
    size = head[1] & 0x7F if head[1] & 0x80 else 0
    if head[0] != 0x30 or size > 3:
        raise ConnectionError("expected a certificate in DER for the delegation, found something else")
    length = int.from_bytes(_exactly(tls, size)) if size else head[1]
    if length > _CERTIFICATE_LIMIT:
        raise ConnectionError(f"expected a certificate of {_CERTIFICATE_LIMIT} bytes at most, found {length}")
    _exactly(tls, length)


def _exactly(tls: ssl.SSLSocket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = tls.recv(length - len(data))
        if not more:
            raise ConnectionError("expected a certificate, found the end of the connection")
        data += more
    return data
