"""One SRM request over httpg, for readiness checks and tests. Users have gfal2 instead."""

from __future__ import annotations

import re
from collections.abc import Sequence

from venturi.srm.errors import SoapError
from venturi.srm.httpg import client_context, connect
from venturi.srm.protocol import PATH
from venturi.srm.soap import Fields, Part, emit_request, parse_reply

__all__ = ["call_srm"]

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *([0-9]+)\r\n")
_CHUNK = 1 << 16


def call_srm(
    operation: str,
    parts: Sequence[Part],
    *,
    address: str,
    port: int,
    host_name: str,
    credential: str,
    ca_directory: str,
    timeout_s: float,
) -> Fields:
    """Send a request and return the elements of the response.

    Raises
    ------
    OSError
        If there is no response, or client and server do not trust each other.
    SoapError
        If the response is a fault, or not a response of SRM.
    """
    body = emit_request(operation, parts)
    head = f"POST {PATH} HTTP/1.1\r\nHost: {host_name}:{port}\r\nContent-Type: text/xml; charset=utf-8\r\n"
    context = client_context(credential, ca_directory)
    with connect(address, port, host_name, context, timeout_s) as tls:
        tls.sendall(
            f'{head}Content-Length: {len(body)}\r\nConnection: close\r\nSOAPAction: ""\r\n\r\n'.encode() + body
        )
        data = b""
        while more := tls.recv(_CHUNK):
            data += more
    head_bytes, blank, content = data.partition(b"\r\n\r\n")
    length = _LENGTH.search(head_bytes + b"\r\n")
    if not blank or length is None or len(content) != int(length[1]):
        raise SoapError(f"expected a complete response, found {data[:60]!r}")
    return parse_reply(content)
