"""The table of workloads. A new kind is one new file, one line here and one test."""

from __future__ import annotations

from venturi.workload.base import Workload
from venturi.workload.sweep import Sweep

__all__ = ["KINDS"]

KINDS: dict[str, type[Workload]] = {
    "sweep": Sweep,
}
