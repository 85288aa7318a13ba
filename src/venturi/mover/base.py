"""Interface of movers: command line, options and output of a tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from venturi.errors import UnitError, VenturiError
from venturi.messages import quote_value
from venturi.plan import Call
from venturi.plan.header import OptionValue
from venturi.units import BITS_PER_BYTE, format_bytes_exact, parse_bytes, parse_duration, parse_rate_bit_per_s

__all__ = ["Mover", "Option", "OptionError", "OptionKind", "OutputError", "ToolReport", "resolve_options"]

OptionKind: TypeAlias = Literal["boolean", "choice", "integer", "rate", "size", "text", "time"]
OPTION_KINDS: tuple[OptionKind, ...] = ("boolean", "choice", "integer", "rate", "size", "text", "time")
MAX_WHOLE = 2**63 - 1
"""Largest integer that TOML, JSON and the engine support."""

_SUFFIX: dict[str, str] = {"rate": "_bytes_per_s", "size": "_bytes", "time": "_s"}


class OptionError(VenturiError, ValueError):
    """Conflicting options, or a value that the tool does not support."""


class OutputError(VenturiError, ValueError):
    """Output of a tool in an unknown form.

    The transfer then counts as failed. ``text`` is the complete output; ``excerpt`` is the part for the message, by
    default the end.
    """

    def __init__(self, expected: str, text: str, excerpt: str = "") -> None:
        self.expected = expected
        self.text = text
        excerpt = excerpt or text.strip()[-200:] or "nothing"
        super().__init__(
            f"expected {expected} in the output of the tool, found {excerpt}; check the version of the tool"
        )


@dataclass(frozen=True, slots=True)
class ToolReport:
    """Report of a tool about its transfer, to compare with the measurement.

    Attributes
    ----------
    bytes
        Transferred bytes.
    rate_bytes_per_s
        Rate by its own clock; ``None`` if not reported.
    duration_s
        Duration by its own clock; ``None`` if not reported.
    received_bytes
        Bytes that the receiver reports, if the tool requests them.
    retransmits
        Retransmitted TCP segments of all streams, if the tool queries the kernel.
    first_byte_s
        Time from the start to the first byte of the response, by its own clock.
    detail
        Other values by name with unit: times of phases, CPU of both hosts, round-trip time.
    """

    bytes: int | None
    rate_bytes_per_s: float | None = None
    duration_s: float | None = None
    received_bytes: int | None = None
    retransmits: int | None = None
    first_byte_s: float | None = None
    detail: Mapping[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Option:
    """Option of a mover.

    Parameters
    ----------
    name
        Name in a scenario, without unit.
    kind
        Type of the values.
    default
        Default in base units; ``None``: not set, and the arguments that need it are omitted.
    meaning
        Description.
    choices
        The values of a ``choice``.
    minimum
        The smallest value of an ``integer``, a ``size`` or a ``rate``.
    maximum
        The largest value; ``None``: limited by the engine.
    each
        Name of an option with a count, such as ``streams``, if this ``rate`` applies to each of them; "": to the whole call.
    """

    name: str
    kind: OptionKind
    default: OptionValue
    meaning: str
    choices: tuple[str, ...] = ()
    minimum: int = 1
    maximum: int | None = None
    each: str = ""

    @property
    def key(self) -> str:
        """Name with unit: ``block_bytes`` for ``block``."""
        return self.name + _SUFFIX.get(self.kind, "")

    def parse(self, value: object) -> OptionValue:
        """Return a value from a scenario in base units.

        Raises
        ------
        UnitError
            If the value is invalid.

        Examples
        --------
        >>> Option("block", "size", 1 << 20, "bytes a call").parse("64 KiB")
        65536
        """
        if self.kind == "size":
            return self._within(parse_size(value), f"a size {self._range(format_bytes_exact)}", value)
        if self.kind == "rate":
            rate = round(parse_rate_bit_per_s(value) / BITS_PER_BYTE)
            return self._within(
                rate, f"a rate {self._range(lambda number: f'{format_bytes_exact(number)}/s')}", value
            )
        if self.kind == "time":
            return parse_duration(value)
        if self.kind == "integer" and type(value) is int:
            return self._within(value, self.expected, value)
        if self.kind == "boolean" and isinstance(value, bool):
            return value
        if self.kind == "choice" and isinstance(value, str) and value in self.choices:
            return value
        if self.kind == "text" and isinstance(value, str):
            return value
        raise UnitError(f"expected {self.expected}, found {quote_value(value)}; change the value")

    @property
    def expected(self) -> str:
        """Description of the valid values, for messages and documentation."""
        match self.kind:
            case "rate":
                return 'a rate such as "100 MB/s"'
            case "size":
                return 'a size such as "1 MiB"'
            case "time":
                return 'a time such as "10 s"'
            case "integer":
                most = f"{self.minimum} or more" if self.maximum is None else f"{self.minimum} to {self.maximum}"
                return f"a whole number, {most}"
            case "text":
                return "a text"
            case "boolean":
                return "true or false"
            case "choice":
                return " or ".join(f'"{choice}"' for choice in self.choices)

    def _range(self, written: Callable[[int], str]) -> str:
        minimum_text = f'"{written(self.minimum)}"'
        return (
            f"of at least {minimum_text}"
            if self.maximum is None
            else f'from {minimum_text} to "{written(self.maximum)}"'
        )

    def _within(self, number: int, expected: str, value: object) -> int:
        if not self.minimum <= number <= (MAX_WHOLE if self.maximum is None else self.maximum):
            raise UnitError(f"expected {expected}, found {quote_value(value)}; change the value")
        return number


class Mover(Protocol):
    """A tool that moves bytes, with the command line of its users.

    Attributes
    ----------
    name
        Name in a scenario.
    summary
        One sentence for the documentation.
    requires
        Required programs.
    options
        Options of the mover.
    reads
        Whether it reads a file of a dataset; otherwise its source is ``zero:``.
    writes
        Whether it writes a file; otherwise its destination is ``null:``.
    (partial)
        Optional. ``True`` for a tool that reads only parts of a file: its report defines the moved bytes.
    (option_conflict)
        Optional method ``option_conflict(options, source, destination)``: ``options`` by name; an endpoint is the protocol of
        its service port, ``None`` for a file of the host. It returns the conflicting option, or another key of the workload,
        with a message; ``None`` without a conflict.
    (needs_server)
        Optional. ``"source"`` for a tool that reads from servers only, ``"either"`` for a tool that does not copy between two
        local files. Without it, the tool copies local files.
    (costs)
        Optional. Measured costs of calls in a simulation, as :class:`venturi.cost.MeasuredCost`.
    null_destination
        Whether ``/dev/null`` is a safe destination; a tool that renames into place would replace the device.
    protocols
        Protocols of service ports that it supports, in order of preference: ``"gsiftp"``, ``"http"``. Movers of local files
        have none.
    lists
        Whether one call accepts many files, as lines ``SOURCE DESTINATION`` of a file ``{list}``. ``null_lists = False`` marks
        a mover whose lists cannot have the destination ``/dev/null``.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - described above
    @property
    def summary(self) -> str: ...  # noqa: D102
    @property
    def requires(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def options(self) -> tuple[Option, ...]: ...  # noqa: D102
    @property
    def reads(self) -> bool: ...  # noqa: D102
    @property
    def writes(self) -> bool: ...  # noqa: D102
    @property
    def null_destination(self) -> bool: ...  # noqa: D102
    @property
    def protocols(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def lists(self) -> bool: ...  # noqa: D102

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of the tool with these options (all options, in base units, by :attr:`Option.key`).

        The arguments must work for all endpoints of the mover: ``{source}`` and ``{destination}`` are URLs of service
        ports, or paths in the form of ``Call.local``.

        Raises
        ------
        OptionError
            If the options are in conflict.
        """
        ...

    def parse(self, record: Mapping[str, Any]) -> ToolReport | None:
        """Return the report in the output of a transfer record, ``None`` without output.

        Raises
        ------
        OutputError
            If the output has an unknown form; this fails the transfer.
        """
        ...


def parse_size(value: object) -> int:
    """Return a size in bytes like :func:`venturi.units.parse_bytes`, limited to the integers of the engine."""
    size = parse_bytes(value)
    if size > MAX_WHOLE:
        raise UnitError(f"expected a size below 8 EiB, found {quote_value(value)}; use a smaller size")
    return size


def resolve_options(mover: Mover, values: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Return all options of a mover in base units by :attr:`Option.key`: ``values`` by name, and the defaults."""
    return {option.key: values.get(option.name, option.default) for option in mover.options}


def output_text(record: Mapping[str, Any], stream: Literal["stdout", "stderr"]) -> str:
    """Return the recorded output of a transfer record, or an empty text."""
    text = record.get(stream)
    return text if isinstance(text, str) else ""
