"""Table of services. A new server program needs one new file, one line here and one test."""

from __future__ import annotations

from collections.abc import Mapping

from venturi.testbed.services.base import ServiceKind
from venturi.testbed.services.gridftp import GridFtp, GridFtpNode
from venturi.testbed.services.iperf3 import Iperf3Service
from venturi.testbed.services.kdc import Kdc
from venturi.testbed.services.moosefs import ChunkServer, Master, Mount
from venturi.testbed.services.nginx import Nginx
from venturi.testbed.services.nuttcp import NuttcpService
from venturi.testbed.services.root_jobs import RootJobs
from venturi.testbed.services.squid import Squid
from venturi.testbed.services.srm import Srm
from venturi.testbed.services.ssh import HostSsh
from venturi.testbed.services.sshd import Sshd
from venturi.testbed.services.venturi_serve import VenturiServe
from venturi.testbed.services.xrootd import Cache, DataServer, Proxy, Redirector

__all__ = ["SERVICES"]

_KINDS: tuple[ServiceKind, ...] = (
    GridFtp(),
    GridFtpNode(),
    VenturiServe(),
    Iperf3Service(),
    Nginx(),
    NuttcpService(),
    Squid(),
    Srm(),
    Sshd(),
    HostSsh(),
    Kdc(),
    Cache(),
    DataServer(),
    Proxy(),
    Redirector(),
    ChunkServer(),
    Master(),
    Mount(),
    RootJobs(),
)

SERVICES: Mapping[str, ServiceKind] = {service.kind: service for service in _KINDS}
"""Kind in scenarios → service."""
