"""The lab: a testbed of real hosts, real servers and a modelled network, on one machine.

Every host is a set of namespaces, the network between them is one process, every server is the real program. What is left out on purpose: measuring, which is
the agents' work, and deciding what a testbed looks like, which the plan's header has settled. Read :class:`Lab` first.
"""

from venturi.testbed.lab.control import Control, ask
from venturi.testbed.lab.keeper import start_keeper
from venturi.testbed.lab.lab import Lab
from venturi.testbed.lab.machine import LabMachine, LabProcess
from venturi.testbed.lab.probes import Probe
from venturi.testbed.lab.registry import labs_parent, registered
from venturi.testbed.lab.sweep import sweep

__all__ = [
    "Control",
    "Lab",
    "LabMachine",
    "LabProcess",
    "Probe",
    "ask",
    "labs_parent",
    "registered",
    "start_keeper",
    "sweep",
]
