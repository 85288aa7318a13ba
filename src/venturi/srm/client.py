"""One SRM request over httpg: for readiness checks and for tests. Not a client for users; that is gfal2."""

from __future__ import annotations

import re
from collections.abc import Sequence

from venturi.srm.errors import SoapError
from venturi.srm.httpg import client_context, connect
from venturi.srm.soap import Fields, Part, emit_request, parse_reply
from venturi.srm.words import PATH

__all__ = ["ask"]

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *([0-9]+)\r\n")
_CHUNK = 1 << 16


def ask(
    operation: str,
    parts: Sequence[Part],
    *,
    address: str,
    port: int,
    host_name: str,
    credential: str,
    authorities: str,
    timeout_s: float,
) -> Fields:
    """Return the elements of the response to a request.

    Raises
    ------
    OSError
        If there is no answer, or one does not trust the other.
    SoapError
        If the answer is a fault, or none of SRM.
    """
    body = emit_request(operation, parts)
    head = f"POST {PATH} HTTP/1.1\r\nHost: {host_name}:{port}\r\nContent-Type: text/xml; charset=utf-8\r\n"
    context = client_context(credential, authorities)
    with connect(address, port, host_name, context, timeout_s) as tls:
        tls.sendall(
            f'{head}Content-Length: {len(body)}\r\nConnection: close\r\nSOAPAction: ""\r\n\r\n'.encode() + body
        )
        data = b""
        while more := tls.recv(_CHUNK):
            data += more
    head_bytes, blank, answer = data.partition(b"\r\n\r\n")
    length = _LENGTH.search(head_bytes + b"\r\n")
    if not blank or length is None or len(answer) != int(length[1]):
        raise SoapError(f"expected a whole answer, found {data[:60]!r}")
    return parse_reply(answer)
