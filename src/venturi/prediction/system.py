"""System of a prediction: testbed and load, with the times of single transfers and the limits of the resources."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from venturi.cost import CostParameters
from venturi.errors import PlanError
from venturi.messages import Problem
from venturi.plan import Header
from venturi.prediction.engine import simulate_alone
from venturi.prediction.offered import OfferedLoad, TransferKind, offered_load
from venturi.prediction.request import LoadRequest
from venturi.prediction.resources import ResourceLimit, resource_limits
from venturi.run import Run
from venturi.scenario import Scenario
from venturi.simulation.simulate import with_costs
from venturi.testbed.plan import sim_obstacle
from venturi.testbed.topology import build_topology

__all__ = ["LoadSystem", "load_system"]


@dataclass(frozen=True)
class LoadSystem:
    """Testbed and load.

    Attributes
    ----------
    load
        Testbed, and kinds of transfers.
    alone_s, fixed_s
        Time of each kind of transfer without other load, and the part of it that does not depend on its bytes. Seconds.
        ``fixed_s`` is None if a transfer has several files.
    limits
        Resources, sorted by their largest rates; never empty.
    unknown_costs
        Costs that count as zero.
    """

    load: OfferedLoad
    alone_s: Mapping[TransferKind, float]
    fixed_s: Mapping[TransferKind, float] | None
    limits: tuple[ResourceLimit, ...]
    unknown_costs: tuple[str, ...] = ()

    @property
    def longest_s(self) -> float:
        """Time of the longest transfer without other load."""
        return max(self.alone_s.values())

    @property
    def mean_s(self) -> float:
        """Mean time of a transfer without other load."""
        return math.fsum(kind.fraction * self.alone_s[kind] for kind in self.load.kinds)


def load_system(scenario: Scenario, request: LoadRequest, run: Run | None) -> LoadSystem:
    """Return the system of a scenario.

    Raises
    ------
    PlanError
        If the simulator cannot represent the testbed or the load, or if a route has no known rate.
    ScenarioError
        If the costs are not valid.
    BackendError
        If the engine is missing, or a transfer fails without other load.
    """
    plan = scenario.workload.expand(scenario)
    obstacle = sim_obstacle(plan.header, only=True)
    if obstacle is not None:
        raise PlanError(f"{scenario.name}: {obstacle}")
    load = offered_load(plan, request.sizes)
    load = dataclasses.replace(load, header=_with_machine(with_costs(load.header, request.costs), run))
    alone_s, unknown = simulate_alone(load)
    limits = resource_limits(load, alone_s, _link_names(scenario))
    return LoadSystem(load, alone_s, _fixed_s(load, alone_s), limits, unknown)


def _fixed_s(load: OfferedLoad, alone_s: Mapping[TransferKind, float]) -> dict[TransferKind, float] | None:
    """Return the time of the same transfers with one byte; None for several files, because their dataset has sizes."""
    if any(kind.files != 1 for kind in load.kinds):
        return None
    kinds = tuple(dataclasses.replace(kind, size_bytes=1) for kind in load.kinds)
    empty_s, _ = simulate_alone(dataclasses.replace(load, kinds=kinds))
    return {kind: min(alone_s[kind], empty_s[small]) for kind, small in zip(load.kinds, kinds, strict=True)}


def _with_machine(header: Header, run: Run | None) -> Header:
    """Return the header with the cores that the hosts of a lab share, as in the comparison with the run."""
    declared = header.cost or CostParameters()
    if run is None or run.backend == "sim" or declared.machine_cores is not None:
        return header
    from venturi.calibration.simulator import Model  # imports scipy, which is slow

    cores = Model(run).machine_cores
    if cores is None:
        return header
    return dataclasses.replace(header, cost=dataclasses.replace(declared, machine_cores=cores))


def _link_names(scenario: Scenario) -> dict[str, str]:
    """Return the link of the scenario of each directed link of the plan."""
    problems: list[Problem] = []
    topology = build_topology(scenario.testbed, problems)
    return {name: one.link for name, one in topology.directed_links.items()} if topology else {}
