"""Movers of a scenario: the built-in movers and ``[mover.NAME]``."""

from __future__ import annotations

import typing
from collections.abc import Mapping

from venturi.messages import Problem, path_text, quote_value, suggestion
from venturi.mover.base import OPTION_KINDS, Mover, Option, OptionKind
from venturi.mover.command import PLACEHOLDERS, Command, placeholders
from venturi.mover.table import movers
from venturi.plan.header import Argument

if typing.TYPE_CHECKING:
    from venturi.scenario.model import MoverTemplate, Scenario

__all__ = ["resolve_movers"]

RESERVED = (
    "files", "size", "mover", "cache", "source", "destination", "client", "source_service", "destination_service", "direction",
    "files_per_call",
)  # fmt: skip
"""Names of factors; options must have other names."""


def resolve_movers(scenario: Scenario) -> tuple[dict[str, Mover], list[Problem]]:
    """Return all movers of the scenario, and the errors of its ``[mover.NAME]`` tables."""
    known = dict(movers())
    problems: list[Problem] = []
    for name, template in scenario.mover.items():
        where = path_text(("mover", name))
        if name in known:
            problems.append(
                (where, f"expected an unused name, found {name}, a mover of Venturi; choose another name")
            )
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
        problems.append(
            (f"{where}.argv", "expected a command, found an empty list; write the command and its arguments")
        )
    for index, argument in enumerate(template.argv):
        found = _argument(argument, options, f"{where}.argv[{index}]", problems)
        if found is not None:
            argv.append(found)
    requires = template.requires
    if requires is None:
        first = argv[0] if argv else ""
        requires = (first,) if isinstance(first, str) and first and "{" not in first else ()
    protocols, local, lists = template.protocols, template.local, template.lists
    return Command(name, tuple(argv), requires, options, protocols=protocols, local=local, takes_lists=lists)


def _option(name: str, kind: object, where: str, problems: list[Problem]) -> Option | None:
    if name in RESERVED or {name, f"{name}_bytes"} & {*PLACEHOLDERS, "offset_bytes"}:
        problems.append(
            (
                where,
                f"expected a name other than {', '.join(RESERVED)} and the placeholders, found {name}; choose another name",
            )
        )
        return None
    if isinstance(kind, str) and kind in OPTION_KINDS and kind != "choice":
        return Option(name, typing.cast(OptionKind, kind), None, "Option of the scenario.", minimum=0)
    if isinstance(kind, list) and kind and all(isinstance(choice, str) for choice in kind):
        return Option(name, "choice", None, "Option of the scenario.", choices=tuple(kind))
    kinds = ", ".join(f'"{known}"' for known in OPTION_KINDS if known != "choice")
    problems.append(
        (where, f"expected {kinds} or a list of choices, found {quote_value(kind)}; use one of these kinds")
    )
    return None


def _argument(argument: object, options: tuple[Option, ...], where: str, problems: list[Problem]) -> Argument | None:
    texts: list[typing.Any] = list(argument) if isinstance(argument, (list, tuple)) else [argument]
    if not texts or not all(isinstance(text, str) for text in texts):
        problems.append(
            (where, f"expected a text or a list of texts, found {quote_value(argument)}; write it in quotes")
        )
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
            (where, f'expected placeholders such as "{{source}}", found "{text}"; write {{{{ and }}}} for braces')
        )
        return False
    for name in names:
        if name not in known:
            hint = f"; did you mean {keys[name]}?" if name in keys else suggestion(name, known)
            problems.append((where, f"expected one of the placeholders {', '.join(known)}, found {name}{hint}"))
    return all(name in known for name in names)
