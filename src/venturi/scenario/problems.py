"""Problems in our words: each says where, what was expected, what was found."""

# ruff: noqa: ANN401 - annotations are of any type
from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from venturi.plan.words import shown, suggestion
from venturi.scenario.words import Problem, Where, one_of, path_text
from venturi.workload.base import Workload
from venturi.workload.table import KINDS

__all__ = ["locations", "problems_of"]

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text",
    "string_too_short": "a text that is not empty",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}


def locations(error: ValidationError) -> list[Where]:
    """Return the place of each problem in the document."""
    return [_where(details) for details in error.errors(include_url=False)]


def problems_of(error: ValidationError, model: type[BaseModel], document: Mapping[str, Any]) -> list[Problem]:
    """Return all that pydantic found, in our words."""
    found = []
    for details in error.errors(include_url=False):
        where = _where(details)
        found.append((path_text(where), _describe(details, where, model, document)))
    return list(dict.fromkeys(found))


def _where(details: ErrorDetails) -> Where:
    where = tuple(details["loc"])
    if where and where[-1] == "[key]":
        where = where[:-1]
    # Below the workload pydantic also names the kind that it chose.
    if len(where) > 1 and where[0] == "workload" and where[1] in KINDS:
        where = (where[0], *where[2:])
    return where


def _describe(details: ErrorDetails, where: Where, model: type[BaseModel], document: Mapping[str, Any]) -> str:
    kind, context = details["type"], details.get("ctx", {})
    found = shown(details["input"])
    if kind == "venturi":
        return str(context["problem"])
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, found {found}"
    if kind == "missing":
        return f"expected {_missing(where, model, document)}, found nothing"
    if kind == "extra_forbidden":
        keys = list(_fields(_type_at(model, where[:-1], document)))
        return f"expected one of the keys {', '.join(keys)}, found {where[-1]}{suggestion(str(where[-1]), keys)}"
    if where == ("venturi",) and kind in ("literal_error", "int_parsing_size"):
        newer = isinstance(details["input"], int) and details["input"] > 1
        return (
            f"expected 1, found {found}{': this file is written for a newer Venturi; use that one' if newer else ''}"
        )
    if kind == "int_parsing_size":
        return f"expected a whole number of 64 bits, found {found}"
    if kind == "literal_error":
        expected = str(context["expected"]).replace("'", '"')
        return f"expected {expected}, found {found}"
    if kind == "union_tag_invalid":
        return one_of("the kinds of workload", KINDS, context.get("tag"))
    if kind == "union_tag_not_found":
        if isinstance(details["input"], Mapping):
            return f"expected a kind of workload ({', '.join(KINDS)}), found nothing under kind"
        return f"expected a table, found {found}"
    bounds = {"greater_than_equal": ("ge", "{} or more"), "greater_than": ("gt", "more than {}"),
              "less_than_equal": ("le", "{} or less"), "less_than": ("lt", "less than {}")}  # fmt: skip
    if kind in bounds:
        key, form = bounds[kind]
        return f"expected {form.format(f'{context[key]:g}' if context[key] < 1e6 else context[key])}, found {found}"
    return f"expected another value, found {found}"


def _missing(where: Where, model: type[BaseModel], document: Mapping[str, Any]) -> str:
    if where == ("venturi",):
        return "venturi = 1 (the version of this format)"
    field = _fields(_type_at(model, where[:-1], document)).get(str(where[-1]))
    meaning = (field.description or "").split(";")[0].rstrip(".") if field else ""
    return f"a value ({meaning[:1].lower()}{meaning[1:]})" if meaning else "a value"


def _fields(model: Any) -> Mapping[str, Any]:
    return model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else {}


def _type_at(model: Any, where: Where, document: Any) -> Any:
    """Return the type of the table at ``where``, so that its keys can be named."""
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
