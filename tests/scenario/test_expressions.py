"""Sweep expressions compared with Python arithmetic, and rejected expressions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from venturi.scenario.expression import ExpressionError, Quantity, parse_expression

VALUES = {
    "files": Quantity(10),
    "size": Quantity(10**8, byte_power=1),
    "wait": Quantity(5, second_power=1),
    "mover": "cp",
    "fsync": True,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("files * size <= '20 GB'", True),
        ("files * size < '1 GB'", False),
        ("files * size == '1 GB'", True),
        ("size / wait > '10 MB/s'", True),
        ("size / wait >= '161 Mb/s'", False),
        ("size / '1 MB' == 100", True),
        ("1 < files <= 10", True),
        ("not fsync or mover == 'cp'", True),
        ("mover != 'cp' and 1 / 0 > 1", False),
        ("fsync == true", True),
        ("size > 0 and wait != 0", True),
        ("-files < 0", True),
        ("(files - 4) * 2 == 12", True),
        ("size + '1 MB' - 0 > size", True),
    ],
)
def test_an_expression_has_its_arithmetic_value(text, expected):
    assert parse_expression(text).holds(VALUES) is expected


@pytest.mark.parametrize(
    "text",
    [
        "size > 100", "size > wait", "size + files > 0", "mover < 'dd'", "mover == 1", "files", "'text'", "fsync + 1 > 0",
        "not files", "size * size > size", "files > 1 and 1", "1 / (files - 10) > 1", "1e308 * 10 * size / size > size",
    ],
)  # fmt: skip
def test_invalid_comparisons_and_computations_are_rejected(text):
    with pytest.raises(ExpressionError, match="expected"):
        parse_expression(text).holds(VALUES)


@pytest.mark.parametrize(
    "text",
    [
        "", "files >", "files.real > 1", "open('x')", "files ** 9999 > 1", "[files]", "files in (1, 2)", "lambda: 1",
        "(x := 1) > 0", "f'{files}' == '1'", "files if fsync else 1", "files @ 1", "~files", "files // 2 > 1", "b'x' == b'x'",
        "1j > 0", "None", "...", "files > 1; size", "__import__('os').system('true')", "(" * 600, "files\x00", "x" * 2000,
    ],
)  # fmt: skip
def test_only_supported_expressions_are_accepted(text):
    with pytest.raises(ExpressionError, match="expected"):
        parse_expression(text)


def test_an_expression_is_never_evaluated_by_python():
    with pytest.raises(ExpressionError):
        parse_expression("().__class__.__bases__[0].__subclasses__() == 0")


def test_the_names_of_an_expression_are_available_without_evaluation():
    assert parse_expression("a > 1 and (b == 'x' or not c) and true").names == ("a", "b", "c")


_NUMBERS = st.integers(-1000, 1000)
_TERMS = st.recursive(
    _NUMBERS.map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    max_leaves=8,
)


@given(_TERMS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), _TERMS)
@settings(deadline=None)
def test_integer_arithmetic_is_the_same_as_in_python(left, comparison, right):
    text = f"{left} {comparison} {right}"
    assert parse_expression(text).holds({}) is eval(text)


@given(st.text(max_size=60))
@settings(deadline=None)
def test_arbitrary_text_fails_only_with_an_expression_error(text):
    try:
        parse_expression(text).holds({})
    except ExpressionError:
        pass
    except KeyError as error:
        assert error.args[0] in parse_expression(text).names
