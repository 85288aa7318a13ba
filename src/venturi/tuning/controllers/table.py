"""Table of controllers. A new controller needs one file, one line here and one test."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module, metadata

from venturi.errors import PlanError
from venturi.messages import one_of
from venturi.tuning.controller import Controller
from venturi.tuning.controllers.azcopy import AzcopyTuner
from venturi.tuning.controllers.bdp import BdpRule
from venturi.tuning.controllers.falcon_bayes import FalconBayes
from venturi.tuning.controllers.falcon_gradient import FalconGradient
from venturi.tuning.controllers.fts import FtsOptimizer
from venturi.tuning.controllers.harp import HarpRules
from venturi.tuning.controllers.ours import ModelController
from venturi.tuning.controllers.rclone_defaults import RcloneDefaults

__all__ = ["CONTROLLERS", "ENTRY_POINTS", "find_controller"]

_ALL: tuple[Controller, ...] = (
    *(ModelController(), BdpRule(), HarpRules(), FtsOptimizer()),
    *(FalconGradient(), FalconBayes(), AzcopyTuner(), RcloneDefaults()),
)
CONTROLLERS: Mapping[str, Controller] = {controller.name: controller for controller in _ALL}

ENTRY_POINTS = "venturi.controllers"
"""Entry-point group: the value of an entry is a class of :class:`Controller` without arguments."""


def find_controller(name: str) -> Controller:
    """Return a controller by its name, or by ``module:Class`` for a file of the user.

    Raises
    ------
    PlanError
        If there is no such controller.
    """
    if name in CONTROLLERS:
        return CONTROLLERS[name]
    entries = {entry.name: entry.value for entry in metadata.entry_points(group=ENTRY_POINTS)}
    module, colon, attribute = entries.get(name, name).partition(":")
    if not colon:
        raise PlanError(f"--controller: {one_of('the controllers', dict.fromkeys([*CONTROLLERS, *entries]), name)}")
    try:
        controller = getattr(import_module(module), attribute)()
    except Exception as error:  # the module of a user can raise any exception
        raise PlanError(
            f"--controller: expected a class in {module}:{attribute}, found {type(error).__name__}: {error};"
            " check the name, and that Python finds the module (PYTHONPATH)"
        ) from error
    missing = [member for member in ("name", "first", "next") if not hasattr(controller, member)]
    if missing:
        raise PlanError(
            f"--controller: expected {module}:{attribute} to have {', '.join(missing)}, found none;"
            " see venturi.tuning.controller.Controller"
        )
    return controller  # type: ignore[no-any-return]
