"""What a testbed is made of, and what this machine can offer for one.

Today: :func:`examine`, behind ``venturi doctor``, and :func:`obstacle`, which tells why a folder cannot be used. Hosts and storage of real machines are plain numbers of the plan's header;
services and emulated hosts come with the lab. The one type to read first: :class:`Check`.
"""

from venturi.testbed.check import Check
from venturi.testbed.doctor import examine
from venturi.testbed.folder import nearest_folder, obstacle

__all__ = ["Check", "examine", "nearest_folder", "obstacle"]
