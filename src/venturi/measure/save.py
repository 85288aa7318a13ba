"""Saved measurement: a directory with all samples, and a scenario that repeats the copy as an experiment."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from venturi.errors import RunError
from venturi.measure.endpoint import Endpoint
from venturi.measure.result import Measurement
from venturi.measure.scenario import EXISTING, existing_list, scenario_text
from venturi.run.directory import new_run_path

__all__ = ["FORMAT", "RESULT", "SCENARIO", "save", "to_json"]

FORMAT = "venturi-measure"
VERSION = 1
RESULT = "measure.json"
SCENARIO = "scenario.toml"


def save(measurement: Measurement, a: Endpoint, b: Endpoint, base: Path, directory: Path | None = None) -> Path:
    """Write a measurement to ``directory``, by default a new one below ``base``, and return its path.

    Raises
    ------
    RunError
        If it cannot be written.
    """
    path = directory or new_run_path(base, "measure", round(measurement.created_unix_s * 1e9))
    try:
        path.mkdir(parents=True, exist_ok=directory is not None)
        (path / RESULT).write_text(
            json.dumps(to_json(measurement), indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
        )
        for name, text in ((SCENARIO, scenario_text(measurement, a, b)), (EXISTING, existing_list(measurement, a))):
            if text is not None:
                (path / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror}. Choose another directory with --runs.") from error
    return path


def to_json(measurement: Measurement) -> dict[str, Any]:
    """Return a measurement as JSON values. A missing number is null."""
    content: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    content.update(_plain(measurement))
    for path, result in zip(content["paths"], measurement.paths, strict=True):
        for part, found in path["parts"].items():
            for sample, source in zip(found["samples"], result.parts[part].samples, strict=True):
                sample["rate_bytes_per_s"] = source.rate_bytes_per_s
    return content


def _plain(value: object) -> Any:  # noqa: ANN401 - JSON
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
