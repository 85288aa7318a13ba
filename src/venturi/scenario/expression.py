"""Sweep expressions: ``files * size <= '20 GB' and mover != 'cp'``, evaluated without ever running code.

The text is parsed by Python's own parser, and only these forms are taken: names of factors, ``true`` and ``false``,
numbers, quoted quantities and words, ``+ - * /``, comparisons, ``and``, ``or``, ``not``, parentheses. Quantities carry
their dimension, so that a size is never compared with a time; 0 fits every dimension.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from venturi.errors import UnitError
from venturi.units import BITS_PER_BYTE, parse_bytes, parse_duration, parse_rate_bit_per_s

__all__ = ["Expression", "ExpressionError", "Quantity", "Value", "parse_expression"]

MAX_LENGTH = 1000
"""Characters; keeps the parser's recursion shallow."""


class ExpressionError(ValueError):
    """What was expected of an expression, and what was found."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in base units, and its dimension as powers of byte and second."""

    number: float
    byte_power: int = 0
    second_power: int = 0

    @property
    def dimension(self) -> str:
        """Name of the dimension."""
        named = {(0, 0): "a bare number", (1, 0): "a size", (0, 1): "a time", (1, -1): "a rate"}
        powers = (self.byte_power, self.second_power)
        return named.get(powers, f"a quantity in byte^{powers[0]} second^{powers[1]}")


Value: TypeAlias = Quantity | str | bool
_Term: TypeAlias = Callable[[Mapping[str, Value]], Value]


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression. ``names`` are the factors that it needs."""

    text: str
    names: tuple[str, ...]
    term: _Term

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Return whether the expression is true of these factors.

        Raises
        ------
        ExpressionError
            If it does not come to true or false, compares unlike things, or divides by zero.
        """
        try:
            result = self.term(values)
        except ZeroDivisionError:
            raise ExpressionError(f'expected an expression that can be computed, found a division by 0 in "{self.text}"'
                                  ) from None  # fmt: skip
        except OverflowError:
            raise ExpressionError(f'expected numbers of ordinary size, found larger ones in "{self.text}"') from None
        if not isinstance(result, bool):
            raise ExpressionError(f'expected a comparison, true or false, found {_what(result)}: "{self.text}"')
        return result


def parse_expression(text: str) -> Expression:
    """Parse an expression.

    Raises
    ------
    ExpressionError
        If it is not of the forms allowed.

    Examples
    --------
    >>> small = parse_expression("files * size <= '20 GB'")
    >>> small.names
    ('files', 'size')
    >>> small.holds({"files": Quantity(10), "size": Quantity(1e9, byte_power=1)})
    True
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"expected at most {MAX_LENGTH} characters, found {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        names = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - {"true", "false"})
        return Expression(text, tuple(names), _term(tree.body))
    except (SyntaxError, RecursionError, MemoryError):
        raise ExpressionError(f'expected a comparison such as "files * size <= \'20 GB\'", found "{text}"') from None
    except ExpressionError:
        raise
    except ValueError:  # ast.parse refuses null bytes this way
        raise ExpressionError("expected text, found a null byte") from None


_ARITHMETIC: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip


def _term(node: ast.expr) -> _Term:
    match node:
        case ast.Constant(value=str(text)):
            return _constant(_quoted(text))
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _constant(Quantity(number))
        case ast.Name(id="true" | "false" as word):
            return _constant(word == "true")
        case ast.Name(id=name):
            return lambda values: values[name]
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _negation(_term(inner))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _arithmetic(_constant(Quantity(-1)), ast.Mult, _term(inner))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _arithmetic(_term(left), type(op), _term(right))
        case ast.BoolOp(op=op, values=parts):
            return _junction([_term(part) for part in parts], stop_at=isinstance(op, ast.Or))
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARISONS for op in ops):
            return _comparison([_term(left), *map(_term, others)], [type(op) for op in ops])
    raise ExpressionError(
        "expected factors, numbers, quoted quantities, + - * /, comparisons, and, or, not, "
        f'found "{ast.unparse(node)}"'
    )


def _quoted(text: str) -> Value:
    """Return what a quoted text stands for: a quantity if it reads as one, otherwise a word."""
    try:
        return Quantity(parse_bytes(text), byte_power=1)
    except UnitError:
        pass
    try:
        return Quantity(parse_duration(text), second_power=1)
    except UnitError:
        pass
    try:
        return Quantity(parse_rate_bit_per_s(text) / BITS_PER_BYTE, byte_power=1, second_power=-1)
    except UnitError:
        return text


def _constant(value: Value) -> _Term:
    return lambda values: value


def _truth(value: Value) -> bool:
    if not isinstance(value, bool):
        raise ExpressionError(f"expected true or false beside and, or, not, found {_what(value)}")
    return value


def _negation(inner: _Term) -> _Term:
    return lambda values: not _truth(inner(values))


def _junction(parts: list[_Term], *, stop_at: bool) -> _Term:
    def evaluate(values: Mapping[str, Value]) -> bool:
        return stop_at if any(_truth(part(values)) is stop_at for part in parts) else not stop_at

    return evaluate


def _arithmetic(left: _Term, op: type, right: _Term) -> _Term:
    compute = _ARITHMETIC[op]

    def evaluate(values: Mapping[str, Value]) -> Value:
        a, b = left(values), right(values)
        if not isinstance(a, Quantity) or not isinstance(b, Quantity):
            wrong = b if isinstance(a, Quantity) else a
            raise ExpressionError(f"expected a number or a quantity to compute with, found {_what(wrong)}")
        if op in (ast.Add, ast.Sub):
            _require_like(a, b)
            base = a if a.number else b
            return Quantity(compute(a.number, b.number), base.byte_power, base.second_power)
        sign = 1 if op is ast.Mult else -1
        return Quantity(
            compute(a.number, b.number), a.byte_power + sign * b.byte_power, a.second_power + sign * b.second_power
        )

    return evaluate


def _comparison(terms: list[_Term], ops: list[type]) -> _Term:
    def evaluate(values: Mapping[str, Value]) -> bool:
        found = [term(values) for term in terms]
        return all(_compare(a, op, b) for a, op, b in zip(found, ops, found[1:], strict=False))

    return evaluate


def _compare(a: Value, op: type, b: Value) -> bool:
    if isinstance(a, Quantity) and isinstance(b, Quantity):
        _require_like(a, b)
        return _COMPARISONS[op](a.number, b.number)
    if type(a) is not type(b) or op not in (ast.Eq, ast.NotEq):
        raise ExpressionError(f"expected two values that can be compared, found {_what(a)} and {_what(b)}")
    return _COMPARISONS[op](a, b)


def _require_like(a: Quantity, b: Quantity) -> None:
    if a.dimension != b.dimension and a.number != 0 and b.number != 0:
        raise ExpressionError(
            f'expected two quantities of one kind (text carries its unit: "100 MB"), found {a.dimension} and '
            f"{b.dimension}"
        )


def _what(value: Value) -> str:
    if isinstance(value, Quantity):
        return f"{value.dimension} ({value.number:g})"
    return ("true" if value else "false") if isinstance(value, bool) else f'the word "{value}"'
