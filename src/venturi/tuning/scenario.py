"""Scenarios of probes: the sweep of the user with one design point and the settings of a controller."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from venturi.errors import PlanError, ScenarioError
from venturi.scenario import Scenario, scenario_from
from venturi.tuning.settings import TunedSettings
from venturi.tuning.tunable_options import CALLS, TUNABLE_OPTIONS, TunableOption, options_of

__all__ = ["TuneScenario", "tune_scenario"]

_SINGLE = ("mover", "source", "destination", "client", "source_service", "destination_service", "direction", "cache")
_TRIAL_VALUES = {"window_bytes": 1 << 20, "block_bytes": 1 << 20}


@dataclass(frozen=True)
class TuneScenario:
    """Sweep with one design point, and the tunable options that it has.

    Attributes
    ----------
    document
        Scenario without the values of its tunable options in factors.
    mover
        Its only mover.
    tunable
        Its tunable options with an effect on these endpoints.
    directory
        Base directory of its files.
    """

    document: Mapping[str, Any]
    mover: str
    tunable: tuple[TunableOption, ...]
    directory: Path

    def probe(self, settings: TunedSettings, *, repeat: int, seed_offset: int = 0) -> Scenario:
        """Return the scenario of a probe.

        Raises
        ------
        ScenarioError
            If the settings are not valid.
        """
        return self._with(settings, self.tunable, repeat, seed_offset)

    def accepts(self, option: TunableOption) -> bool:
        """Return whether a tunable option is valid for these endpoints."""
        settings = TunedSettings(**{option.setting: _TRIAL_VALUES.get(option.setting, 2)})
        try:
            self._with(settings, (option,), 1, 0)
        except ScenarioError:
            return False
        return True

    def _with(
        self, settings: TunedSettings, tunable: tuple[TunableOption, ...], repeat: int, seed_offset: int
    ) -> Scenario:
        document = copy.deepcopy(dict(self.document))
        workload = document["workload"]
        options, calls = options_of(tunable, settings)
        workload["options"] = {**workload.get("options", {}), **options}
        if calls is not None:
            workload["factors"][CALLS] = [calls]
        workload["repeat"] = repeat
        document["seed"] = int(document.get("seed", 1)) + seed_offset
        return scenario_from(document, str(document["name"]), directory=self.directory)


def tune_scenario(scenario: Scenario, *, directory: Path) -> TuneScenario:
    """Return the scenario to tune: one design point of a sweep with a mover that has tunable options.

    A factor of a tunable option is omitted if it has several values, because the controller chooses its value.

    Raises
    ------
    PlanError
        If the workload is no sweep, if it has several movers or design points, or if its mover has no tunable option.
    """
    document = scenario.document()
    workload = document["workload"]
    if workload["kind"] != "sweep":
        raise _error(
            scenario, "workload.kind", 'kind = "sweep"', f'"{workload["kind"]}"', "write a sweep of the path"
        )
    factors: dict[str, Any] = dict(workload["factors"])
    mover = _single_mover(scenario, workload, factors)
    known = TUNABLE_OPTIONS.get(mover)
    if known is None:
        found = f'"{mover}", which has no tunable options'
        raise _error(scenario, "workload.mover", f"one of {', '.join(TUNABLE_OPTIONS)}", found, "use --mover")
    files_per_call = int(_first(factors.get("files_per_call"), workload.get("files_per_call", 1)))
    tunable = tuple(option.for_files(files_per_call) for option in known)
    for option in tunable:
        if len(factors.get(option.name, [])) > 1:
            del factors[option.name]
    for name, values in factors.items():
        if len(values) > 1:
            advice = f"select one with --set 'workload.factors.{name}=[…]'"
            raise _error(scenario, f"workload.factors.{name}", "one value", f"{len(values)}", advice)
    workload["factors"] = {name: values for name, values in factors.items() if name not in _SINGLE}
    workload |= {name: factors[name][0] for name in _SINGLE if name in factors}
    workload.pop("sweep", None)
    document.pop("analyse", None)
    document.pop("study", None)
    document["name"] = f"{scenario.name}-tune"
    base = TuneScenario(document, mover, tunable, directory)
    usable = tuple(option for option in tunable if base.accepts(option))
    if not usable:
        found = f'"{mover}", whose options have no effect on these endpoints'
        raise _error(scenario, "workload.mover", "a mover with tunable options", found, "use --mover")
    return TuneScenario(document, mover, usable, directory)


def _single_mover(scenario: Scenario, workload: Mapping[str, Any], factors: Mapping[str, Any]) -> str:
    written = factors.get("mover") or [workload.get("mover")]
    if len(written) > 1 or "+" in str(written[0]):
        names = ", ".join(str(name) for name in written)
        raise _error(scenario, "workload.mover", "one mover", names, "select one with --mover")
    return str(written[0])


def _first(values: Any, default: object) -> Any:  # noqa: ANN401 - value of a document
    return values[0] if values else default


def _error(scenario: Scenario, where: str, expected: str, found: str, advice: str) -> PlanError:
    return PlanError(f"{scenario.name}: {where}: expected {expected}, found {found}; {advice}")
