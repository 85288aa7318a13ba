"""The examples in the docstrings of the package."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import venturi

MODULES = sorted(module.name for module in pkgutil.walk_packages(venturi.__path__, "venturi."))
REFERENCE = re.compile(r":(?:func|class|meth|data|mod|attr|exc):`~?([^`<]+)`")


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_docstring_examples_pass_and_references_exist(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0
    references = REFERENCE.findall(Path(module.__file__).read_text())
    assert [text for text in references if not exists(module, text)] == []


def test_most_modules_of_the_statistics_have_an_example():
    finder = doctest.DocTestFinder(exclude_empty=True)
    modules = [importlib.import_module(name) for name in MODULES if name.startswith("venturi.stats.")]
    assert sum(any(test.examples for test in finder.find(module)) for module in modules) >= 12


def exists(module, text):
    """Return whether a reference names an object, a module, or an attribute of a class of the module."""
    parts = text.split(".")
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    if any(has(one, parts) for one in (module, *classes)):
        return True
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        return has(found, parts[length:])
    return False


def has(owner, parts):
    """Return whether an object has an attribute, or a class an annotated one, for each part."""
    for part in parts:
        if part in getattr(owner, "__annotations__", {}):
            return True
        if not hasattr(owner, part):
            return False
        owner = getattr(owner, part)
    return True
