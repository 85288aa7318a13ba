"""Messages about invalid scenarios: location, expected value, found value, next step."""

# ruff: noqa: ANN401 - annotations are of any type
from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from venturi.messages import Problem, Where, one_of, path_text, quote_value, suggestion
from venturi.workload.base import Workload
from venturi.workload.table import KINDS

__all__ = ["complete_message", "describe_problems", "locations"]

_EXPECTED = {
    "int_type": ("a whole number", "write a number without quotes, such as 3"),
    "int_from_float": ("a whole number", "round the number"),
    "float_type": ("a number", "write a number without quotes, such as 0.5"),
    "finite_number": ("a finite number", "write a finite number"),
    "bool_type": ("true or false", "write true or false without quotes"),
    "string_type": ("a text", "write the value in quotes"),
    "string_too_short": ("a text that is not empty", "write a text between the quotes"),
    "dict_type": ("a table", "write keys and values, such as { key = 1 }"),
    "model_type": ("a table", "write keys and values, such as { key = 1 }"),
    "model_attributes_type": ("a table", "write keys and values, such as { key = 1 }"),
}
"""Error types of pydantic, with the expected value and the next step."""


def complete_message(message: str, origin: str = "") -> str:
    """Return a message with the origin of the value, and with a next step if it has none.

    Examples
    --------
    >>> complete_message("expected 1 or more, found 0", " (from common.toml)")
    'expected 1 or more, found 0 (from common.toml); change this value'
    """
    start, found, end = message.rpartition(", found ")
    problem, _, next_step = end.partition("; ") if found else (message, "", "")
    if not next_step:
        missing = problem.startswith(("nothing", "none", "neither", "no "))
        next_step = "add it" if missing else "change this value"
    return f"{start}{found}{problem}{origin}; {next_step}"


def locations(error: ValidationError) -> list[Where]:
    """Return the location of each error in the document."""
    return [_where(details) for details in error.errors(include_url=False)]


def describe_problems(error: ValidationError, model: type[BaseModel], document: Mapping[str, Any]) -> list[Problem]:
    """Return the errors of pydantic as messages of Venturi."""
    found = []
    for details in error.errors(include_url=False):
        where = _where(details)
        found.append((path_text(where), _describe(details, where, model, document)))
    return list(dict.fromkeys(found))


def _where(details: ErrorDetails) -> Where:
    where = tuple(details["loc"])
    if where and where[-1] == "[key]":
        where = where[:-1]
    # Below the workload, pydantic also names the selected kind.
    if len(where) > 1 and where[0] == "workload" and where[1] in KINDS:
        where = (where[0], *where[2:])
    return where


def _describe(details: ErrorDetails, where: Where, model: type[BaseModel], document: Mapping[str, Any]) -> str:
    kind, context = details["type"], details.get("ctx", {})
    found = quote_value(details["input"])
    if kind == "venturi":
        return str(context["problem"])
    if kind in ("list_type", "tuple_type"):
        # A single value in brackets, unless it is a table.
        example = "[1, 2]" if isinstance(details["input"], Mapping) else f"[{found}]"
        return f"expected a list, found {found}; write a list in brackets, such as {example}"
    if kind in _EXPECTED:
        expected, next_step = _EXPECTED[kind]
        return f"expected {expected}, found {found}; {next_step}"
    if kind == "missing":
        return f"expected {_missing(where, model, document)}, found nothing; add the key {where[-1]}"
    if kind == "extra_forbidden":
        keys = list(_fields(_type_at(model, where[:-1], document)))
        next_step = suggestion(str(where[-1]), keys) or "; remove this key"
        return f"expected one of the keys {', '.join(keys)}, found {where[-1]}{next_step}"
    if where == ("venturi",) and kind in ("literal_error", "int_parsing_size"):
        newer = isinstance(details["input"], int) and details["input"] > 1
        return f"expected 1, found {found}; {'use the newer Venturi of this file' if newer else 'write venturi = 1'}"
    if kind == "int_parsing_size":
        return f"expected a whole number of 64 bits, found {found}; use a smaller number"
    if kind == "literal_error":
        expected = str(context["expected"]).replace("'", '"')
        return f"expected {expected}, found {found}; use one of the listed values"
    if kind == "union_tag_invalid":
        return one_of("the kinds of workload", KINDS, context.get("tag"))
    if kind == "union_tag_not_found":
        if isinstance(details["input"], Mapping):
            return f"expected a kind of workload ({', '.join(KINDS)}), found nothing under kind; add the key kind"
        return f"expected a table, found {found}; write a table [workload] with a key kind"
    bounds = {"greater_than_equal": ("ge", "{} or more"), "greater_than": ("gt", "more than {}"),
              "less_than_equal": ("le", "{} or less"), "less_than": ("lt", "less than {}")}  # fmt: skip
    if kind in bounds:
        key, form = bounds[kind]
        return f"expected {form.format(f'{context[key]:g}' if context[key] < 1e6 else context[key])}, found {found}"
    return f"expected another value, found {found}"


def _missing(where: Where, model: type[BaseModel], document: Mapping[str, Any]) -> str:
    if where == ("venturi",):
        return "venturi = 1 (version of the format)"
    field = _fields(_type_at(model, where[:-1], document)).get(str(where[-1]))
    meaning = (field.description or "").split(";")[0].rstrip(".") if field else ""
    return f"a value ({meaning[:1].lower()}{meaning[1:]})" if meaning else "a value"


def _fields(model: Any) -> Mapping[str, Any]:
    return model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else {}


def _type_at(model: Any, where: Where, document: Any) -> Any:
    """Return the type of the table at ``where``, to list its keys."""
    for part in where:
        if isinstance(part, int) and typing.get_origin(model) is tuple:
            within = isinstance(document, list) and part < len(document)
            model, document = typing.get_args(model)[0], document[part] if within else None
            continue
        document = document.get(part) if isinstance(document, Mapping) else None
        if isinstance(model, type) and issubclass(model, BaseModel):
            field = model.model_fields.get(str(part))
            model = field.annotation if field else None
        elif typing.get_origin(model) is dict:
            model = typing.get_args(model)[1]
        if isinstance(model, types.UnionType) or typing.get_origin(model) is typing.Union:
            model = next((arm for arm in typing.get_args(model) if arm is not types.NoneType), None)
        if model is Workload:
            model = KINDS.get(document.get("kind", "")) if isinstance(document, Mapping) else None
    return model
