"""Table of workloads. A new kind needs one file, one line here and one test."""

from __future__ import annotations

from venturi.workload.base import Workload
from venturi.workload.clients import Clients
from venturi.workload.dataset import Datasets
from venturi.workload.inject import Inject
from venturi.workload.jobs import JobsWorkload
from venturi.workload.peers import Peers
from venturi.workload.replay import Replay
from venturi.workload.sweep import Sweep
from venturi.workload.tiers import Tiers

__all__ = ["KINDS"]

KINDS: dict[str, type[Workload]] = {
    "sweep": Sweep,
    "dataset": Datasets,
    "clients": Clients,
    "peers": Peers,
    "tiers": Tiers,
    "jobs": JobsWorkload,
    "inject": Inject,
    "replay": Replay,
}
