"""What transfers cost besides bytes on links: the parameters of a simulated world.

Defaults stand beside each mover (``costs`` in ``mover/TOOL.py``) and service (``testbed/services/SERVER.py``); a scenario says otherwise
under ``[testbed.cost]``, by hand or from ``calibrate``. :mod:`venturi.cost.world` puts both together for a plan.

Left out on purpose: the formulas. They are in ``crates/sim``, and in *What a transfer costs* of the concepts.

Read :class:`MoverCost` first.
"""

from __future__ import annotations

from venturi.cost.defaults import (
    FILE,
    LAB,
    LAB_BYTES,
    Measured,
    MeasuredService,
    default_of_mover,
    default_of_service,
)
from venturi.cost.parameters import Cost, HostCost, MoverCost, MoverRule, ServiceCost, StorageCost, over

__all__ = [
    "FILE",
    "LAB",
    "LAB_BYTES",
    "Cost",
    "HostCost",
    "Measured",
    "MeasuredService",
    "MoverCost",
    "MoverRule",
    "ServiceCost",
    "StorageCost",
    "default_of_mover",
    "default_of_service",
    "over",
]
