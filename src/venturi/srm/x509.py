"""Identity of the peer: subjects of certificates, and the user behind a chain of proxies.

OpenSSL has already verified the chain by RFC 3820: a proxy is signed by the certificate whose subject it extends by one
common name. This module only reads subjects, and detects proxies. It supports only the parts of DER (X.690) that this
needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from venturi.srm.errors import X509Error

__all__ = ["Certificate", "Identity", "identify", "parse_certificate"]

_SEQUENCE, _SET, _OID, _EXPLICIT_0, _EXPLICIT_3 = 0x30, 0x31, 0x06, 0xA0, 0xA3
_ATTRIBUTES = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.5": "serialNumber",
    "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID", "1.2.840.113549.1.9.1": "emailAddress",
}  # fmt: skip
_PROXY = "1.3.6.1.5.5.7.1.14"
"""proxyCertInfo of RFC 3820, section 3.8. OpenSSL does not accept older proxies, so they do not occur here."""
_LIMITED = "1.3.6.1.4.1.3536.1.1.1.9"
_STRINGS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be", 0x1C: "utf-32-be"}


@dataclass(frozen=True, slots=True)
class Certificate:
    """The required fields of a certificate. The subject is in slash form, ``/O=Grid/CN=A B``."""

    subject: str
    proxy: bool
    limited: bool


@dataclass(frozen=True, slots=True)
class Identity:
    """A user: the subject without the proxies' additions, the number of proxies, and whether one of them is limited."""

    subject: str
    proxies: int
    limited: bool


def identify(chain: Sequence[bytes]) -> Identity:
    """Return the user of a verified chain of certificates in DER, the peer's certificate first.

    Raises
    ------
    X509Error
        If the chain is empty, or contains only proxies.
    """
    limited = False
    for proxies, data in enumerate(chain):
        certificate = parse_certificate(data)
        limited |= certificate.limited
        if not certificate.proxy:
            return Identity(certificate.subject, proxies, limited)
    raise X509Error(f"expected a user certificate, found {len(chain)} proxies only")


def parse_certificate(data: bytes) -> Certificate:
    """Parse a certificate (RFC 5280, section 4.1).

    Raises
    ------
    X509Error
        If the bytes are not a certificate.
    """
    try:
        (_, body), *_ = _elements(data)
        (_, signed), *_ = _elements(body)
        fields = list(_elements(signed))
        if fields[0][0] == _EXPLICIT_0:  # the version; version 1 has none
            del fields[0]
        extensions = next((value for tag, value in fields if tag == _EXPLICIT_3), b"")
        known = _extensions(extensions)
        subject = _subject(fields[4][1])
    except (IndexError, ValueError) as error:
        if isinstance(error, X509Error):
            raise
        raise X509Error(f"expected a certificate in DER, found something else: {error}") from error
    info = known.get(_PROXY)
    return Certificate(subject, info is not None, info is not None and _LIMITED in _oids(info))


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of each element."""
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise X509Error("expected a length, found the end")
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            if not 1 <= size <= 4 or at + size > len(data):
                raise X509Error(f"expected a length of 1 to 4 bytes, found {size}")
            length, at = int.from_bytes(data[at : at + size]), at + size
        if at + length > len(data):
            raise X509Error(f"expected {length} bytes, found {len(data) - at}")
        yield tag, data[at : at + length]
        at += length


def _extensions(data: bytes) -> dict[str, bytes]:
    found = {}
    for _, listed in _elements(data):
        for _, extension in _elements(listed):
            parts = list(_elements(extension))
            found[_oid(parts[0][1])] = parts[-1][1]
    return found


def _oids(data: bytes) -> set[str]:
    """Return all object identifiers in a structure."""
    found: set[str] = set()
    for tag, value in _elements(data):
        if tag == _OID:
            found.add(_oid(value))
        elif tag & 0x20:
            found |= _oids(value)
    return found


def _oid(data: bytes) -> str:
    numbers, number = [], 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise X509Error("expected an object identifier, found nothing")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _subject(data: bytes) -> str:
    """Return a name in the form of grid-mapfiles and of ``openssl x509 -subject -nameopt compat``."""
    attributes = []
    for tag, part in _elements(data):
        if tag != _SET:
            raise X509Error(f"expected a set of attributes, found tag {tag:#x}")
        for _, attribute in _elements(part):
            (_, kind), (form, value) = _elements(attribute)
            name = _oid(kind)
            text = value.decode(_STRINGS.get(form, "latin-1"), errors="backslashreplace")
            attributes.append(f"/{_ATTRIBUTES.get(name, name)}={text}")
    return "".join(attributes)
