"""User-defined tool of a scenario: ``[mover.NAME]`` with a command template and typed options."""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from venturi.mover.base import Option, ToolReport
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["PLACEHOLDERS", "Command", "placeholders"]

PLACEHOLDERS = (
    *("source", "destination", "bytes", "files", "slot", "scratch", "list", "directory"),
    *("source_host", "source_port", "destination_host", "destination_port"),
)
"""Placeholders of a template, in addition to the options of its mover."""


@dataclass(frozen=True, slots=True)
class Command:
    """Mover from a template.

    A group (a list in ``argv``) is omitted if an option in it has no value. A boolean option as an element is a condition:
    it is removed, and its group is omitted if the option is false. ``["--verify", "{verify}"]`` becomes ``--verify`` or
    nothing.

    ``takes_lists``: one call accepts many files; ``None``: if ``argv`` contains ``{list}`` or ``{directory}``. With
    ``{directory}``, the values of it, ``{source}`` and ``{destination}`` are directories with only the files of the call.
    """

    name: str
    argv: tuple[Argument, ...]
    requires: tuple[str, ...]
    options: tuple[Option, ...] = ()
    summary: str = "A tool of the scenario."
    null_destination: bool = False
    protocols: tuple[str, ...] = ()
    local: str = "{path}"
    takes_lists: bool | None = None
    reads: bool = field(init=False)
    writes: bool = field(init=False)
    lists: bool = field(init=False)

    def __post_init__(self) -> None:
        used = {name for text in _texts(self.argv) for name in placeholders(text)}
        lists = bool({"list", "directory"} & used) if self.takes_lists is None else self.takes_lists
        object.__setattr__(self, "lists", lists)
        object.__setattr__(self, "reads", bool({"source", "list", "directory"} & used))
        object.__setattr__(self, "writes", bool({"destination", "list"} & used))

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of the tool."""
        argv = tuple(kept for argument in self.argv if (kept := self._condition(argument, options)) is not None)
        call = Call(self.name, dict(options), argv, self.requires, local=self.local)
        return call if self.writes else dataclasses.replace(call, expect="nothing")

    def parse(self, record: Mapping[str, Any]) -> ToolReport | None:
        """Return ``None``: the form of the output is unknown. A mover of an entry point can parse it."""
        return None

    def _condition(self, argument: Argument, options: Mapping[str, OptionValue]) -> Argument | None:
        conditions = {f"{{{option.key}}}": options[option.key] for option in self.options if option.kind == "boolean"}
        if isinstance(argument, str):
            return argument
        if any(text in conditions and not conditions[text] for text in argument):
            return None
        return tuple(text for text in argument if text not in conditions) or None


def placeholders(text: str) -> list[str]:
    """Return the names in braces of a template.

    Raises
    ------
    ValueError
        If the braces do not match or contain no name.

    Examples
    --------
    >>> placeholders("--size={bytes}{{}}")
    ['bytes']
    """
    names = []
    for _, name, form, conversion in string.Formatter().parse(text):
        if name is None:
            continue
        if not name.isidentifier() or form or conversion:
            raise ValueError(f'expected a name in braces such as "{{source}}", found "{text}"')
        names.append(name)
    return names


def _texts(argv: Iterable[Argument]) -> Iterable[str]:
    for argument in argv:
        yield from (argument,) if isinstance(argument, str) else argument
