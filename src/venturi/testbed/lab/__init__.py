"""Lab: emulated testbed with hosts, servers and a network on one machine.

Every host is a set of namespaces, and every server is the real program. One process emulates the network between the
hosts. Measuring is the task of the agents, and the plan's header defines the testbed. Start with :class:`Lab`.
"""

from venturi.testbed.lab.cleanup import sweep
from venturi.testbed.lab.control import Control, call_lab
from venturi.testbed.lab.daemon import start_daemon
from venturi.testbed.lab.host_shell import LabHostShell, LabProcess
from venturi.testbed.lab.lab import Lab
from venturi.testbed.lab.probes import Probe
from venturi.testbed.lab.registry import labs_parent, registered

__all__ = [
    "Control",
    "Lab",
    "LabHostShell",
    "LabProcess",
    "Probe",
    "call_lab",
    "labs_parent",
    "registered",
    "start_daemon",
    "sweep",
]
