"""Cost parameters of transfers in a simulation, in addition to bytes on links.

Movers (``costs`` in ``mover/TOOL.py``) and services (``testbed/services/SERVER.py``) define defaults. The table
``[testbed.cost]`` of a scenario, written by hand or with ``calibrate``, overrides the defaults.
:mod:`venturi.cost.engine_inputs` merges both for a plan.

``crates/sim`` and the concept page *Transfer costs* contain the formulas.

Read :class:`MoverCost` first.
"""

from __future__ import annotations

from venturi.cost.defaults import (
    FILE,
    LAB,
    LAB_BYTES,
    MeasuredCost,
    MeasuredService,
    find_mover_default,
    find_service_default,
)
from venturi.cost.parameters import (
    CostParameters,
    HostCost,
    MoverCost,
    MoverRule,
    ServiceCost,
    StorageCost,
    merge_cost,
)

__all__ = [
    "FILE",
    "LAB",
    "LAB_BYTES",
    "CostParameters",
    "HostCost",
    "MeasuredCost",
    "MeasuredService",
    "MoverCost",
    "MoverRule",
    "ServiceCost",
    "StorageCost",
    "find_mover_default",
    "find_service_default",
    "merge_cost",
]
