"""The examples in the docstrings of venturi.stats are true."""

import doctest
import importlib
import pkgutil

import pytest

import venturi.stats

MODULES = [f"venturi.stats.{module.name}" for module in pkgutil.iter_modules(venturi.stats.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_are_true(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_most_modules_have_an_example():
    finder = doctest.DocTestFinder(exclude_empty=True)
    with_example = [name for name in MODULES if any(t.examples for t in finder.find(importlib.import_module(name)))]
    assert len(with_example) >= 12
