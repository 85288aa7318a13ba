"""The pieces of the how-to on testbeds fit together."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from venturi import scenario
from venturi.testbed.plan import resolve_testbed

DOCS = Path(__file__).parents[2] / "docs"


def toml_blocks(page):
    return re.findall(r"^```toml\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def resolved(text):
    problems = []
    found = resolve_testbed(scenario.Testbed.model_validate(tomllib.loads(text)["testbed"]), 1.0, problems)
    assert problems == []
    return found


def test_the_pieces_of_the_how_to_make_one_testbed_in_which_workers_reach_the_backbone():
    first, *pieces = toml_blocks("howto/testbed.md")
    pieces = [piece for piece in pieces if "[workload]" not in piece]
    assert len(pieces) >= 6
    testbed = resolved("\n".join(pieces))
    assert testbed.paths.links("worker", "disk1")
    assert testbed.paths.links("disk1", "worker") is None
    assert resolved(first).paths.rtt_s("a", "b") == 0.025


def test_the_tables_of_the_reference_are_those_of_a_testbed():
    (tables,) = [block for block in toml_blocks("reference/scenario.md") if "[testbed.router.core]" in block]
    problems = []
    model = scenario.Testbed.model_validate(tomllib.loads(tables)["testbed"])
    resolve_testbed(model, 1.0, problems)
    # An interface that is private and a gateway at once is shown, not meant.
    assert [where for where, _ in problems] == ["testbed.host.a.nat"]
