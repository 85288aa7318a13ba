"""Movers of other packages, found through their entry point."""

from __future__ import annotations

import sys

import pytest

from venturi.errors import ScenarioError
from venturi.mover import MoverError, movers
from venturi.scenario import scenario_from
from venturi.workload import expand

MODULE = """
from dataclasses import dataclass
from venturi.mover import Option, OutputError, ToolReport
from venturi.plan import Call

@dataclass(frozen=True)
class Teleport:
    name: str = "teleport"
    summary: str = "Moves at once."
    requires: tuple = ("teleport",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = False
    protocols: tuple = ()
    lists: bool = False
    options: tuple = (Option("power", "integer", 3, "Of the beam."),)

    def call(self, options):
        return Call(self.name, options, ("teleport", "-p", "{power}", "{source}", "{destination}"), self.requires, capture=True)

    def parse(self, record):
        if not record["stdout"].startswith("moved "):
            raise OutputError('"moved N"', record["stdout"])
        return ToolReport(int(record["stdout"].split()[1]))

half = object.__new__(type("Half", (), {"name": "half", "call": None}))
instance = Teleport()
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that puts a distribution with these entry points on the path, as an installer would."""

    def install(entry_points):
        (tmp_path / "venturi_teleport.py").write_text(MODULE)
        info = tmp_path / "venturi_teleport-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: venturi-teleport\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[venturi.movers]\n" + entry_points)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "venturi_teleport", raising=False)
        movers.cache_clear()

    yield install
    monkeypatch.undo()
    sys.modules.pop("venturi_teleport", None)
    movers.cache_clear()


@pytest.mark.parametrize("target", ["venturi_teleport:Teleport", "venturi_teleport:instance"])
def test_a_mover_of_another_package_is_used_like_a_built_in_one(install, target):
    install(f"teleport = {target}\n")
    scenario = scenario_from(
        {
            "venturi": 1,
            "name": "s",
            "testbed": {"host": {"here": {}}, "storage": {"disk": {"host": "here", "path": "data"}}},
            "workload": {"kind": "sweep", "mover": "teleport", "source": "disk", "destination": "disk",
                         "factors": {"size": ["1 kB"], "power": [1, 2]}},
        }
    )  # fmt: skip
    assert list(expand(scenario).header.calls) == ["teleport,power=1", "teleport,power=2"]
    assert movers()["teleport"].parse({"stdout": "moved 7"}).bytes == 7


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            "cp = venturi_teleport:Teleport",
            "the mover cp of venturi-teleport: expected an unused name, found an existing one",
        ),
        (
            "gone = venturi_gone:X",
            "the mover gone of venturi-teleport: expected venturi_gone:X to load, found ModuleNotFoundError",
        ),
        (
            "half = venturi_teleport:half",
            "expected a mover of this name, found no summary, requires, options, reads, writes, null_destination, protocols, lists, parse",
        ),
        ("other = venturi_teleport:Teleport", 'expected a mover of this name, found the name "teleport"'),
        ("nothing = venturi_teleport:MISSING", "found AttributeError"),
    ],
)
def test_an_unusable_mover_is_reported_with_its_package(install, entry, message):
    install(entry + "\n")
    with pytest.raises(MoverError) as caught:
        movers()
    assert message in str(caught.value)


def test_a_mover_is_unknown_without_its_package():
    with pytest.raises(ScenarioError, match='found "teleport"'):
        scenario_from(
            {
                "venturi": 1,
                "name": "s",
                "workload": {"kind": "sweep", "mover": "teleport", "factors": {"size": ["0"]}},
            }
        )
