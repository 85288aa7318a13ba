"""SOAP 1.1 envelopes of SRM: parsing of requests, and output of replies. Style rpc, use encoded, as in its WSDL.

Both notations for structures are supported: nested (gSOAP), and by reference with ``href="#id"`` (Axis). XML namespaces
of names are ignored, because clients use different prefixes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from venturi.srm.errors import SoapError
from venturi.srm.protocol import NAMESPACE

__all__ = ["Fields", "Part", "SoapCall", "emit_fault", "emit_reply", "emit_request", "parse_call", "parse_reply"]

_ENVELOPE = "http://schemas.xmlsoap.org/soap/envelope/"
_SCHEMA = "http://www.w3.org/2001/XMLSchema"
_NIL = f"{{{_SCHEMA}-instance}}nil"
_DEPTH_LIMIT = 24
"""Maximum nesting depth of structures. The structures of SRM have depth 6."""
_NODE_LIMIT = 200_000
"""Maximum number of nodes of a request with resolved references, because nested references can grow exponentially."""

Part: TypeAlias = "tuple[str, str | int | bool | Sequence[Part] | None]"
"""An element of a reply: its name, and its text or child elements. None: the element is omitted."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The elements of a structure in their order, each a text or a structure. Nil elements are omitted."""

    items: tuple[tuple[str, str | Fields], ...] = ()

    def text(self, name: str) -> str | None:
        """Return the text of the first element of this name, or None."""
        return next(iter(self.texts(name)), None)

    def texts(self, name: str) -> list[str]:
        """Return the texts of all elements of this name."""
        return [value for key, value in self.items if key == name and isinstance(value, str)]

    def part(self, name: str) -> Fields:
        """Return the first structure of this name, or an empty one."""
        return next(iter(self.parts(name)), Fields())

    def parts(self, name: str) -> list[Fields]:
        """Return all structures of this name."""
        return [value for key, value in self.items if key == name and isinstance(value, Fields)]


@dataclass(frozen=True, slots=True)
class SoapCall:
    """A request: its operation, such as ``srmPing``, and the elements of its argument."""

    operation: str
    request: Fields = field(default_factory=Fields)


def parse_call(body: bytes) -> SoapCall:
    """Return the request in an envelope.

    Raises
    ------
    SoapError
        If the bytes are not a request.

    Examples
    --------
    >>> text = '<e:Envelope xmlns:e="u"><e:Body><s:srmPing xmlns:s="n"><srmPingRequest/></s:srmPing></e:Body></e:Envelope>'
    >>> parse_call(text.encode()).operation
    'srmPing'
    """
    operation, builder = _first(body)
    return SoapCall(_name(operation), _argument(operation, f"{_name(operation)}Request", builder))


def parse_reply(body: bytes) -> Fields:
    """Return the elements of a response.

    Raises
    ------
    SoapError
        If the bytes are not a response, or are a fault.
    """
    response, builder = _first(body)
    if _name(response) == "Fault":
        fault = builder.value(response, 0)
        raise SoapError(
            f"expected a response, found a fault: {fault.text('faultstring') if isinstance(fault, Fields) else ''}"
        )
    return _argument(response, _name(response), builder)


def emit_reply(operation: str, parts: Iterable[Part]) -> bytes:
    """Return the envelope of a reply to an operation.

    Examples
    --------
    >>> b"<versionInfo>v2.2</versionInfo>" in emit_reply("srmPing", [("versionInfo", "v2.2")])
    True
    """
    inner = "".join(_emit(part) for part in parts)
    name = f"{operation}Response"
    return _envelope(f"<srm:{name}><{name}>{inner}</{name}></srm:{name}>")


def emit_request(operation: str, parts: Iterable[Part]) -> bytes:
    """Return the envelope of a request for an operation."""
    inner = "".join(_emit(part) for part in parts)
    return _envelope(f"<srm:{operation}><{operation}Request>{inner}</{operation}Request></srm:{operation}>")


def emit_fault(code: str, text: str) -> bytes:
    """Return the envelope of a fault: ``Client`` for an invalid request, ``Server`` for an error of the server."""
    fault = f"<faultcode>SOAP-ENV:{escape(code)}</faultcode><faultstring>{escape(_printable(text))}</faultstring>"
    return _envelope(f"<SOAP-ENV:Fault>{fault}</SOAP-ENV:Fault>")


def _envelope(body: str) -> bytes:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<SOAP-ENV:Envelope xmlns:SOAP-ENV="{_ENVELOPE}" '
        f'xmlns:xsi="{_SCHEMA}-instance" xmlns:xsd="{_SCHEMA}" xmlns:srm="{NAMESPACE}">'
        f"<SOAP-ENV:Body>{body}</SOAP-ENV:Body></SOAP-ENV:Envelope>"
    ).encode()


def _emit(part: Part) -> str:
    name, value = part
    if value is None:
        return ""
    if isinstance(value, bool):
        inner = "true" if value else "false"
    elif isinstance(value, (str, int)):
        inner = escape(_printable(str(value)))
    else:
        inner = "".join(_emit(one) for one in value)
    return f"<{name}>{inner}</{name}>"


def _printable(text: str) -> str:
    """Replace characters that XML 1.0 does not allow, because names of files can contain any character."""
    return "".join(
        c if c in "\t\n\r" or " " <= c < "\ud800" or "\ue000" <= c < "\ufffe" or c > "\uffff" else "?" for c in text
    )


def _first(body: bytes) -> tuple[ElementTree.Element, _Builder]:
    """Return the first element of the body of an envelope, and a builder that resolves its references."""
    root = _parse(body)
    found = next((child for child in root if _name(child) == "Body"), None)
    if _name(root) != "Envelope" or found is None or not len(found):
        raise SoapError(f"expected a SOAP envelope with a body, found {_name(root)[:40]}")
    return found[0], _Builder({element.get("id", ""): element for element in found if element.get("id")})


def _argument(element: ElementTree.Element, name: str, builder: _Builder) -> Fields:
    for child in element:
        # gSOAP names the argument as the WSDL does. Some clients use other names.
        if _name(child) == name or len(element) == 1:
            value = builder.value(child, 0)
            return value if isinstance(value, Fields) else Fields()
    return Fields()


class _NoDoctype(ElementTree.TreeBuilder):
    """Builder that rejects document type declarations, which SOAP 1.1, section 3, forbids.

    This prevents attacks with entities.
    """

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise SoapError(f"expected no document type, found {name[:40]}")


def _parse(body: bytes) -> ElementTree.Element:
    parser = ElementTree.XMLParser(target=_NoDoctype())
    try:
        parser.feed(body)
        root = parser.close()
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        if isinstance(error, SoapError):
            raise
        raise SoapError(f"expected well-formed XML: {error}") from error
    if not isinstance(root, ElementTree.Element):
        raise SoapError("expected XML, found nothing")
    return root


class _Builder:
    def __init__(self, named: dict[str, ElementTree.Element]) -> None:
        self._named = named
        self._remaining_nodes = _NODE_LIMIT

    def value(self, element: ElementTree.Element, depth: int) -> str | Fields | None:
        """Return the value of an element, or None if it is nil."""
        self._remaining_nodes -= 1
        if depth > _DEPTH_LIMIT or self._remaining_nodes < 0:
            raise SoapError(f"expected structures at most {_DEPTH_LIMIT} deep and {_NODE_LIMIT} elements, found more")
        reference = element.get("href")
        if reference is not None:
            target = self._named.get(reference.removeprefix("#"))
            if target is None:
                raise SoapError(f"expected a reference to an existing element, found {reference[:40]}")
            return self.value(target, depth + 1)
        if element.get(_NIL) in ("true", "1"):
            return None
        if not len(element):
            return (element.text or "").strip()
        return Fields(tuple(self._items(element, depth)))

    def _items(self, element: ElementTree.Element, depth: int) -> Iterator[tuple[str, str | Fields]]:
        for child in element:
            value = self.value(child, depth + 1)
            if value is not None:
                yield _name(child), value


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
