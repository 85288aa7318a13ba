"""``venturi schema``: the JSON Schema of the scenario file, for editors and other programs."""

from __future__ import annotations

from venturi.cli.outcome import data_json
from venturi.scenario import scenario_schema

__all__ = ["schema"]


def schema() -> None:
    """Print the JSON Schema of the scenario file.

    Editors with TOML support complete and check a scenario with it: save it as `scenario.schema.json` and begin the scenario with
    `#:schema ./scenario.schema.json`.

    Example: `venturi schema > scenario.schema.json`
    """
    data_json(scenario_schema())
