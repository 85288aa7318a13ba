"""The fragments of the how-to on testbeds form a valid testbed."""

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
    found = resolve_testbed(scenario.TestbedTable.model_validate(tomllib.loads(text)["testbed"]), 1.0, problems)
    assert problems == []
    return found


def test_the_examples_of_the_howto_form_one_testbed_whose_workers_reach_the_backbone():
    first, *toml_parts = [*toml_blocks("howto/testbed.md"), *toml_blocks("howto/testbed-servers.md")]
    toml_parts = [toml_part for toml_part in toml_parts if "[workload]" not in toml_part]
    assert len(toml_parts) >= 6
    testbed = resolved("\n".join(toml_parts))
    assert testbed.paths.links("worker", "disk1")
    assert testbed.paths.links("disk1", "worker") is None
    assert resolved(first).paths.rtt_s("cern", "cnaf") == 0.025


def test_the_tables_of_the_reference_page_form_a_valid_testbed():
    (tables,) = [block for block in toml_blocks("reference/scenario-testbed.md") if "[testbed.router.core]" in block]
    problems = []
    model = scenario.TestbedTable.model_validate(tomllib.loads(tables)["testbed"])
    resolve_testbed(model, 1.0, problems)
    # An interface that is both private and a gateway only illustrates the syntax.
    assert [where for where, _ in problems] == ["testbed.host.a.nat"]
