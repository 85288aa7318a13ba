"""Filter expressions such as ``files * size <= '20 GB' and mover != 'cp'``, evaluated without ``eval``.

Python parses the text. These forms are valid: names of factors, ``true`` and ``false``, numbers, quoted quantities and
words, ``+ - * /``, comparisons, ``and``, ``or``, ``not``, parentheses. Quantities have a dimension, so a size cannot be
compared with a time. 0 fits every dimension.
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
"""Maximum number of characters; limits the recursion of the parser."""


class ExpressionError(ValueError):
    """Invalid expression; the message contains the expected and the found form."""


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
    """Parsed expression. ``names`` are the factors that it uses."""

    text: str
    names: tuple[str, ...]
    term: _Term

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Return whether the expression is true for these factors.

        Raises
        ------
        ExpressionError
            If the result is not true or false, if dimensions differ, or on a division by zero.
        """
        try:
            result = self.term(values)
        except ZeroDivisionError:
            raise ExpressionError(f'expected an expression that can be computed, found a division by 0 in "{self.text}"; change the divisor'
                                  ) from None  # fmt: skip
        except OverflowError:
            raise ExpressionError(
                f'expected smaller numbers, found an overflow in "{self.text}"; change the expression'
            ) from None
        if not isinstance(result, bool):
            raise ExpressionError(
                f'expected a comparison, found {_what(result)}: "{self.text}"; compare with <, <=, >, >=, == or !='
            )
        return result


def parse_expression(text: str) -> Expression:
    """Parse an expression.

    Raises
    ------
    ExpressionError
        If the text has another form.

    Examples
    --------
    >>> small = parse_expression("files * size <= '20 GB'")
    >>> small.names
    ('files', 'size')
    >>> small.holds({"files": Quantity(10), "size": Quantity(1e9, byte_power=1)})
    True
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            f"expected at most {MAX_LENGTH} characters, found {len(text)}; split the filter into several"
        )
    try:
        tree = ast.parse(text.strip(), mode="eval")
        names = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - {"true", "false"})
        return Expression(text, tuple(names), _term(tree.body))
    except (SyntaxError, RecursionError, MemoryError):
        raise ExpressionError(
            f'expected a comparison such as "files * size <= \'20 GB\'", found "{text}"; correct the expression'
        ) from None
    except ExpressionError:
        raise
    except ValueError:  # ast.parse rejects null bytes with ValueError
        raise ExpressionError("expected text, found a null byte; remove it") from None


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
        f'found "{ast.unparse(node)}"; use these forms only'
    )


def _quoted(text: str) -> Value:
    """Return the value of a quoted text: a quantity if it parses, otherwise a word."""
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
        raise ExpressionError(f"expected true or false with and, or, not, found {_what(value)}; use a comparison")
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
            raise ExpressionError(f"expected a number or a quantity with + - * /, found {_what(wrong)}; use == or !=")
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
        raise ExpressionError(
            f"expected two values of one type, found {_what(a)} and {_what(b)}; use == or != with the same type"
        )
    return _COMPARISONS[op](a, b)


def _require_like(a: Quantity, b: Quantity) -> None:
    if a.dimension != b.dimension and a.number != 0 and b.number != 0:
        raise ExpressionError(
            f"expected two quantities of one kind, found {a.dimension} and {b.dimension}; write units in quotes"
        )


def _what(value: Value) -> str:
    if isinstance(value, Quantity):
        return f"{value.dimension} ({value.number:g})"
    return ("true" if value else "false") if isinstance(value, bool) else f'the word "{value}"'
