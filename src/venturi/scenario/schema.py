"""JSON Schema of a scenario, for editors and other programs."""

from __future__ import annotations

from typing import Any

from venturi.scenario.model import Scenario

__all__ = ["scenario_schema"]


def scenario_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a scenario file.

    The schema checks types. Only :func:`venturi.scenario.load_scenario` checks names, units and expressions.
    """
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Scenario.model_json_schema()}
