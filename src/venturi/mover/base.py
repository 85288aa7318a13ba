"""What a mover is: how a tool is called, what can be set, and how its output is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from venturi.errors import UnitError, VenturiError
from venturi.plan import Call
from venturi.plan.header import OptionValue
from venturi.plan.words import shown
from venturi.units import BITS_PER_BYTE, format_bytes_exact, parse_bytes, parse_duration, parse_rate_bit_per_s

__all__ = ["Mover", "Option", "OptionError", "OptionKind", "OutputError", "ToolReport", "resolve_options"]

OptionKind: TypeAlias = Literal["boolean", "choice", "integer", "rate", "size", "text", "time"]
OPTION_KINDS: tuple[OptionKind, ...] = ("boolean", "choice", "integer", "rate", "size", "text", "time")
MAX_WHOLE = 2**63 - 1
"""The largest whole number that TOML, JSON and the engine all carry."""

_SUFFIX: dict[str, str] = {"rate": "_bytes_per_s", "size": "_bytes", "time": "_s"}


class OptionError(VenturiError, ValueError):
    """Options that make no sense together, or that the tool has no way to be told."""


class OutputError(VenturiError, ValueError):
    """A tool's output that is not of the known form.

    It fails the transfer: a number that cannot be read is not guessed. ``text`` is the output, whole, to be kept; ``shown`` the part of it
    that tells most, its end unless somebody knows better.
    """

    def __init__(self, expected: str, text: str, shown: str = "") -> None:
        self.expected = expected
        self.text = text
        shown = shown or text.strip()[-200:] or "nothing"
        super().__init__(f"expected {expected} in the output of the tool, found: {shown}")


@dataclass(frozen=True, slots=True)
class ToolReport:
    """What a tool says of its own transfer: evidence, to be compared with what was measured.

    Attributes
    ----------
    bytes
        How much it says to have moved.
    rate_bytes_per_s
        The rate it says, by its own clock; ``None`` if it says none.
    duration_s
        The time it says, by its own clock; ``None`` if it says none.
    received_bytes
        How much its other end says to have received, where it asks it.
    retransmits
        TCP segments sent again, of all streams, where it asks the kernel.
    first_byte_s
        From its start to the first byte of the answer, by its own clock.
    detail
        What else it says, by name with unit: times of phases, CPU of both ends, round-trip time.
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
    """One thing that can be set.

    Parameters
    ----------
    name
        As it stands in a scenario, without unit.
    kind
        What its values are.
    default
        In base units; ``None``: not set, and the arguments that need it are left out.
    meaning
        One sentence for people.
    choices
        The values of a ``choice``.
    minimum
        The smallest value of an ``integer``, a ``size`` or a ``rate``.
    maximum
        The largest one; ``None``: whatever the engine can carry.
    """

    name: str
    kind: OptionKind
    default: OptionValue
    meaning: str
    choices: tuple[str, ...] = ()
    minimum: int = 1
    maximum: int | None = None

    @property
    def key(self) -> str:
        """Name with the unit of its values: ``block`` is ``block_bytes``."""
        return self.name + _SUFFIX.get(self.kind, "")

    def parse(self, value: object) -> OptionValue:
        """Return a value from a scenario in base units.

        Raises
        ------
        UnitError
            Saying what was expected and what was found.

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
        raise UnitError(f"expected {self.expected}, found {shown(value)}")

    @property
    def expected(self) -> str:
        """Its values in words, for messages and documents."""
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
        least = f'"{written(self.minimum)}"'
        return f"of at least {least}" if self.maximum is None else f'from {least} to "{written(self.maximum)}"'

    def _within(self, number: int, expected: str, value: object) -> int:
        if not self.minimum <= number <= (MAX_WHOLE if self.maximum is None else self.maximum):
            raise UnitError(f"expected {expected}, found {shown(value)}")
        return number


class Mover(Protocol):
    """A tool that moves bytes, called as its users call it.

    Attributes
    ----------
    name
        As it stands in a scenario.
    summary
        One sentence for people.
    requires
        The programs that must be there.
    options
        What can be set.
    reads
        Whether it reads a file of a data set; otherwise its source is ``zero:``.
    writes
        Whether it leaves a file; otherwise its destination is ``null:``.
    (partial)
        A tool that fetches what it needs of a file, and not the whole, has ``partial = True`` besides: what it says it fetched is what was moved.
    (refusal)
        A tool that refuses an option between some ends has ``refusal(given, source, destination)`` besides: ``given`` are options by name, an end is the protocol of
        its door, ``None`` for a file of the host. It returns the option, or another key of the workload, and what is wrong with it; ``None`` if nothing is.
    (costs)
        A tool whose calls were measured has ``costs`` besides, of :class:`venturi.cost.Measured`: what they cost in a simulated world.
    null_destination
        Whether ``/dev/null`` is a safe destination: a tool that renames into place would replace the device.
    speaks
        Protocols of doors that it can use for one end or both, the preferred one first: ``"gsiftp"``, ``"http"``. One
        that reads and writes files of its own host only has none.
    lists
        Whether one call takes many files, as lines ``SOURCE DESTINATION`` of a file ``{list}``. A mover that cannot have all of
        them end in ``/dev/null`` has ``null_lists = False`` besides.
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
    def speaks(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def lists(self) -> bool: ...  # noqa: D102

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how the tool is called with these options (all of them, in base units, by :attr:`Option.key`).

        The arguments must be right for every end that the mover can have: ``{source}`` and ``{destination}`` are
        URLs of doors, or paths as ``Call.local`` writes them.

        Raises
        ------
        OptionError
            If the options make no sense together.
        """
        ...

    def parse(self, record: Mapping[str, Any]) -> ToolReport | None:
        """Return what the tool said in a transfer record, ``None`` if it says nothing.

        Raises
        ------
        OutputError
            If the output is not of the known form; this fails the transfer.
        """
        ...


def parse_size(value: object) -> int:
    """Return a size in bytes, as :func:`venturi.units.parse_bytes`, and no more than the engine can count."""
    size = parse_bytes(value)
    if size > MAX_WHOLE:
        raise UnitError(f"expected a size below 8 EiB, found {shown(value)}")
    return size


def resolve_options(mover: Mover, given: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Return all options of a mover in base units by :attr:`Option.key`: those given by name, and the defaults."""
    return {option.key: given.get(option.name, option.default) for option in mover.options}


def output_text(record: Mapping[str, Any], stream: Literal["stdout", "stderr"]) -> str:
    """Return the kept output of a transfer record, empty if there is none."""
    text = record.get(stream)
    return text if isinstance(text, str) else ""
