"""The movers that a scenario can name: those of the table, and its own ``[mover.NAME]``."""

from __future__ import annotations

import typing
from collections.abc import Mapping

from venturi.mover.base import OPTION_KINDS, Mover, Option, OptionKind
from venturi.mover.command import PLACEHOLDERS, Command, placeholders
from venturi.mover.table import movers
from venturi.plan.header import Argument
from venturi.plan.words import shown, suggestion
from venturi.scenario.words import Problem, path_text

if typing.TYPE_CHECKING:
    from venturi.scenario.model import MoverTemplate, Scenario

__all__ = ["movers_of"]

RESERVED = (
    "files", "size", "mover", "cache", "source", "destination", "client", "source_service", "destination_service", "direction",
    "files_per_call",
)  # fmt: skip
"""Names of factors, which an option cannot have."""


def movers_of(scenario: Scenario) -> tuple[dict[str, Mover], list[Problem]]:
    """Return all movers that the scenario can name, and what is wrong with its own."""
    known = dict(movers())
    problems: list[Problem] = []
    for name, template in scenario.mover.items():
        where = path_text(("mover", name))
        if name in known:
            problems.append((where, f"expected a name that is free, found {name}, which Venturi has already"))
            continue
        known[name] = _command(name, template, where, problems)
    return known, problems


def _command(name: str, template: MoverTemplate, where: str, problems: list[Problem]) -> Mover:
    options = tuple(
        option
        for key, kind in template.options.items()
        if (option := _option(key, kind, f"{where}.options.{key}", problems)) is not None
    )
    argv: list[Argument] = []
    if not template.argv:
        problems.append((f"{where}.argv", "expected a command, found an empty list"))
    for index, argument in enumerate(template.argv):
        found = _argument(argument, options, f"{where}.argv[{index}]", problems)
        if found is not None:
            argv.append(found)
    requires = template.requires
    if requires is None:
        first = argv[0] if argv else ""
        requires = (first,) if isinstance(first, str) and first and "{" not in first else ()
    speaks, local, lists = template.speaks, template.local, template.lists
    return Command(name, tuple(argv), requires, options, speaks=speaks, local=local, takes_lists=lists)


def _option(name: str, kind: object, where: str, problems: list[Problem]) -> Option | None:
    if name in RESERVED or {name, f"{name}_bytes"} & {*PLACEHOLDERS, "offset_bytes"}:
        problems.append(
            (where, f"expected a name other than {', '.join(RESERVED)} and the placeholders, found {name}")
        )
        return None
    if isinstance(kind, str) and kind in OPTION_KINDS and kind != "choice":
        return Option(name, typing.cast(OptionKind, kind), None, "Of the scenario.", minimum=0)
    if isinstance(kind, list) and kind and all(isinstance(choice, str) for choice in kind):
        return Option(name, "choice", None, "Of the scenario.", choices=tuple(kind))
    kinds = ", ".join(f'"{known}"' for known in OPTION_KINDS if known != "choice")
    problems.append((where, f"expected {kinds} or a list of texts to choose from, found {shown(kind)}"))
    return None


def _argument(argument: object, options: tuple[Option, ...], where: str, problems: list[Problem]) -> Argument | None:
    texts: list[typing.Any] = list(argument) if isinstance(argument, (list, tuple)) else [argument]
    if not texts or not all(isinstance(text, str) for text in texts):
        problems.append((where, f"expected a text or a list of texts, found {shown(argument)}"))
        return None
    known = (*PLACEHOLDERS, *(option.key for option in options))
    keys = {option.name: option.key for option in options}
    good = [_check_placeholders(text, known, keys, where, problems) for text in texts]
    if not all(good):
        return None
    return argument if isinstance(argument, str) else tuple(texts)


def _check_placeholders(
    text: str, known: tuple[str, ...], keys: Mapping[str, str], where: str, problems: list[Problem]
) -> bool:
    try:
        names = placeholders(text)
    except ValueError:
        problems.append(
            (where, f'expected placeholders such as "{{source}}" ({{{{ and }}}} are braces), found "{text}"')
        )
        return False
    for name in names:
        if name not in known:
            hint = f" (did you mean {keys[name]}?)" if name in keys else suggestion(name, known)
            problems.append((where, f"expected one of the placeholders {', '.join(known)}, found {name}{hint}"))
    return all(name in known for name in names)
