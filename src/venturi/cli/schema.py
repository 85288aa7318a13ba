"""``venturi schema``: the JSON Schema of the scenario file, for editors and other programs."""

from __future__ import annotations

from venturi.cli.outcome import print_json
from venturi.scenario import scenario_schema

__all__ = ["schema"]


def schema() -> None:
    """Print the JSON Schema of the scenario file.

    Editors with TOML support use it to complete and check a scenario. Save it as `scenario.schema.json`, and start the
    scenario with `#:schema ./scenario.schema.json`.

    Example: `venturi schema > scenario.schema.json`
    """
    print_json(scenario_schema())
