"""A tool of the user's own, described in the scenario: ``[mover.NAME]`` with a template and typed options."""

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
    *("source", "destination", "bytes", "files", "slot", "scratch", "list", "folder"),
    *("source_host", "source_port", "destination_host", "destination_port"),
)
"""What a template can name beside the options of its mover."""


@dataclass(frozen=True, slots=True)
class Command:
    """A mover made from a template.

    A group (a list in ``argv``) is left out whole when an option in it has no value. An element that is nothing but a
    boolean option is a condition: it is left out itself, and its group with it if the option is false:
    ``["--verify", "{verify}"]`` is ``--verify`` or nothing.

    ``takes_lists`` says whether one call takes many files; ``None``: if ``argv`` names ``{list}`` or ``{folder}``. One that takes
    whole folders names ``{folder}``: then that, ``{source}`` and ``{destination}`` are folders with the files of the call alone.
    """

    name: str
    argv: tuple[Argument, ...]
    requires: tuple[str, ...]
    options: tuple[Option, ...] = ()
    summary: str = "A tool described in the scenario."
    null_destination: bool = False
    speaks: tuple[str, ...] = ()
    local: str = "{path}"
    takes_lists: bool | None = None
    reads: bool = field(init=False)
    writes: bool = field(init=False)
    lists: bool = field(init=False)

    def __post_init__(self) -> None:
        used = {name for text in _texts(self.argv) for name in placeholders(text)}
        lists = bool({"list", "folder"} & used) if self.takes_lists is None else self.takes_lists
        object.__setattr__(self, "lists", lists)
        object.__setattr__(self, "reads", bool({"source", "list", "folder"} & used))
        object.__setattr__(self, "writes", bool({"destination", "list"} & used))

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how the tool is called."""
        argv = tuple(kept for argument in self.argv if (kept := self._condition(argument, options)) is not None)
        call = Call(self.name, dict(options), argv, self.requires, local=self.local)
        return call if self.writes else dataclasses.replace(call, expect="nothing")

    def parse(self, record: Mapping[str, Any]) -> ToolReport | None:
        """Return nothing: the form of the output is not known. An entry point of ``venturi.movers`` can read it."""
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
        If the braces do not match, or hold anything but a name.

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
