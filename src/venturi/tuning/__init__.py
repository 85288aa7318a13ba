"""Tuning: controllers choose the settings of a mover from few probes.

A controller (:mod:`venturi.tuning.controllers`) is a pure rule. A backend measures its probes with runs of a scenario.
This package prints nothing and has no clock. Read :class:`Controller` first, then :func:`tune`.
"""

from venturi.tuning.backend import ScenarioBackend
from venturi.tuning.controller import Controller, StopTuning
from venturi.tuning.controllers.table import CONTROLLERS, find_controller
from venturi.tuning.path import TunePath
from venturi.tuning.probe import ProbeBackend, TuneProbe
from venturi.tuning.scenario import TuneScenario, tune_scenario
from venturi.tuning.settings import TunedSettings
from venturi.tuning.tunable_options import TUNABLE_OPTIONS, command_line
from venturi.tuning.tune import TuneResult, choose, pareto, tune

__all__ = [
    "CONTROLLERS",
    "TUNABLE_OPTIONS",
    "Controller",
    "ProbeBackend",
    "ScenarioBackend",
    "StopTuning",
    "TunePath",
    "TuneProbe",
    "TuneResult",
    "TuneScenario",
    "TunedSettings",
    "choose",
    "command_line",
    "find_controller",
    "pareto",
    "tune",
    "tune_scenario",
]
