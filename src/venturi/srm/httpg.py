"""httpg for clients and servers: TLS with proxy certificates, and the byte that requests delegation. HTTP follows.

After the handshake the client sends ``0`` or ``D``. After ``D`` the server sends a certificate request (PKCS #10, DER),
and the client sends the certificate. GSSAPI tokens alternate between the sides. With TLS 1.3 the client's last message
ends the handshake, so the server must respond with one zero byte. Session tickets would be an additional response, so
they are disabled.
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
"""X509_V_FLAG_ALLOW_PROXY_CERTS of OpenSSL's x509_vfy.h. The module ssl has no name for it."""
_CERTIFICATE_LIMIT = 64 * 1024
_OPENSSL_S = 30.0


def server_context(certificate: str, key: str, ca_directory: str) -> ssl.SSLContext:
    """Return the TLS context of a server with its certificate, and the directory of trusted CAs (``HASH.0``) for clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return _trusting(context, ca_directory)


def client_context(credential: str, ca_directory: str) -> ssl.SSLContext:
    """Return the TLS context of a client with a proxy (certificate, key and chain in one file)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(credential)
    return _trusting(context, ca_directory)


def accept(tls: ssl.SSLSocket) -> bool:
    """Perform the handshake with a client, and return whether it delegated.

    The delegated credential is received and discarded, because this server does not act for clients elsewhere.

    Raises
    ------
    OSError
        If the handshake fails (``ssl.SSLError`` with the reason) or times out, or if the client sends another byte.
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
    """Connect to a server and perform the handshake, without delegation.

    Raises
    ------
    OSError
        If the server cannot be reached or does not respond in time, or if client and server do not trust each other.
    """
    raw = socket.create_connection((address, port), timeout_s)
    # Otherwise the byte waits for an acknowledgement that the server delays.
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        tls = context.wrap_socket(raw, server_hostname=host_name)
    except BaseException:
        raw.close()
        raise
    if tls.version() == "TLSv1.3":
        tls.recv(1)
    tls.sendall(b"0")
    return tls


def peer_chain(tls: ssl.SSLSocket) -> list[bytes]:
    """Return the verified certificates of the peer in DER, its own certificate first.

    Raises
    ------
    X509Error
        If there are none. OpenSSL keeps no chain for a resumed session.
    """
    if sys.version_info >= (3, 13):
        found = tls.get_verified_chain()
    else:
        # The same function before it became public (python/cpython, gh-109109).
        import _ssl

        verified = tls._sslobj.get_verified_chain()  # type: ignore[attr-defined]
        found = [one.public_bytes(_ssl.ENCODING_DER) for one in verified or ()]
    if not found:
        raise X509Error("expected a verified chain of certificates, found none")
    return list(found)


def _trusting(context: ssl.SSLContext, ca_directory: str) -> ssl.SSLContext:
    if not Path(ca_directory).is_dir():
        raise NotADirectoryError(f"{ca_directory}: expected a directory of CA certificates, found none")
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(capath=ca_directory)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags = ssl.VerifyFlags(int(context.verify_flags) | _ALLOW_PROXIES)
    return context


def _certificate_request() -> bytes:
    """Return a certificate request with a key that is discarded."""
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
        raise ConnectionError(f"cannot create a certificate request with openssl: exit code {done.returncode}")
    return done.stdout


def _receive_certificate(tls: ssl.SSLSocket) -> None:
    """Read exactly one DER structure."""
    head = _exactly(tls, 2)
    size = head[1] & 0x7F if head[1] & 0x80 else 0
    if head[0] != 0x30 or size > 3:
        raise ConnectionError("expected a certificate in DER for the delegation, found something else")
    length = int.from_bytes(_exactly(tls, size)) if size else head[1]
    if length > _CERTIFICATE_LIMIT:
        raise ConnectionError(f"expected a certificate of at most {_CERTIFICATE_LIMIT} bytes, found {length}")
    _exactly(tls, length)


def _exactly(tls: ssl.SSLSocket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = tls.recv(length - len(data))
        if not more:
            raise ConnectionError("expected a certificate, found the end of the connection")
        data += more
    return data
