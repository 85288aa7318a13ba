"""Testbeds: their components, and checks of this machine.

:func:`examine` implements ``venturi doctor``. :func:`obstacle` returns the reason why a directory cannot be used.
Real hosts and their storage are plain values in the plan's header. The package ``lab`` has the emulated hosts, and
``services`` the servers. Start with :class:`Check`.
"""

from venturi.testbed.doctor import examine
from venturi.testbed.doctor_check import Check
from venturi.testbed.lab_directory import nearest_directory, obstacle

__all__ = ["Check", "examine", "nearest_directory", "obstacle"]
