"""Choice of the backend that executes a plan."""

from __future__ import annotations

from pathlib import Path
from typing import cast, get_args

from venturi.errors import ScenarioError
from venturi.plan import Header
from venturi.scenario import Scenario
from venturi.testbed.plan import BackendName, backend_obstacle, default_backend

__all__ = ["choose_backend"]


def choose_backend(
    scenario: Scenario, header: Header, on: str | None, command: str, hosts: Path | None = None
) -> BackendName:
    """Return the backend that executes a plan.

    The default is ``hosts`` with a file of targets, and the simulator for transfers counted by route. Otherwise it is the
    backend of the testbed (:func:`venturi.testbed.plan.default_backend`).

    Parameters
    ----------
    scenario, header
        The scenario, and the header of its plan.
    on, hosts
        Values of ``--on`` and ``--hosts``.
    command
        Name of the command for messages.

    Raises
    ------
    ScenarioError
        If the requested backend cannot execute it.
    """
    by_route = header.measure.transfers == "routes"
    if on is None and hosts is not None:
        chosen: BackendName = "hosts"
    elif on is None:
        chosen = "sim" if by_route else default_backend(scenario.testbed, header)
    elif on in get_args(BackendName):
        chosen = cast(BackendName, on)
    else:
        raise ScenarioError(
            [("--on", f'expected one of {", ".join(get_args(BackendName))}, found "{on}"; correct it')], command
        )
    if hosts is not None and chosen != "hosts":
        raise ScenarioError(
            [("--hosts", f"expected --on hosts, found --on {chosen}; omit --hosts, or use --on hosts")], command
        )
    if by_route and chosen != "sim":
        found = 'measure.transfers = "routes", which only a simulation supports'
        raise ScenarioError([("--on", f'expected a scenario that records each transfer, found {found}; use --on sim, or omit --on')], command)  # fmt: skip
    if (problem := backend_obstacle(header, chosen)) is not None:
        raise ScenarioError([("--on", problem)], command)
    return chosen
