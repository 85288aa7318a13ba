"""The form of a scenario as JSON Schema, for editors and other programs."""

from __future__ import annotations

from typing import Any

from venturi.scenario.model import Scenario

__all__ = ["scenario_schema"]


def scenario_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a scenario file.

    It checks forms; that names exist, units are right and expressions make sense is checked by
    :func:`venturi.scenario.load_scenario` alone.
    """
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Scenario.model_json_schema()}
