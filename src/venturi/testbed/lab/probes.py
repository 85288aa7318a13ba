"""Probes: measure each limit and link of a lab before its first use, and record the results."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from venturi.errors import BackendError
from venturi.plan.header import Storage
from venturi.testbed.lab.groups import HostGroups
from venturi.testbed.lab.host_shell import LabHostShell
from venturi.testbed.lab.interfaces import FoundSettings
from venturi.testbed.lab.namespaces import LabNamespaces
from venturi.testbed.lab.paths import PingPair
from venturi.testbed.lab.spec import LabHostSpec
from venturi.testbed.lab.storage import DEFAULT_DISK_BYTES, rate_limits
from venturi.units import format_bytes

__all__ = ["Probe", "probe_cores", "probe_cpu", "probe_disk", "probe_memory", "probe_network", "probe_settings"]

RTT_SLACK_S = 1e-3
"""Tolerance above the configured round-trip time, or 5 % of it if larger, for delays of the probe and of a busy machine."""

RTT_SLACK_RATIO = 0.05
RTT_SHORT_S = 50e-6
CPU_WINDOW_S = 0.4
CPU_SLACK_RATIO = 0.15
DISK_WINDOW_S = 0.4
DISK_FIRST_S = 0.3
"""Excluded from the measurement, because the kernel does not delay the first throttle slices of an idle disk (blk-throttle)."""

DISK_SLACK_RATIO = 0.2

MEMORY_TOUCHED_BYTES = 2**24

_TIMEOUT_S = 30.0
_PROGRAM = Path(__file__).with_name("ping_program.py")
_DD_SECONDS = re.compile(r"copied, ([0-9.e+-]+) s")


@dataclass(frozen=True, slots=True)
class Probe:
    """Result of one check of the lab.

    Attributes
    ----------
    kind, subject
        Kind of check (``"rtt"``, ``"cpu-limit"``), and the checked object.
    expected, found
        Values as text, with units.
    agrees
        Whether the result is within its tolerance.
    host
        Host of the plan; ``None``: the network.
    """

    kind: str
    subject: str
    expected: str
    found: str
    agrees: bool
    host: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the probe as JSON, for events and for the reply to ``status``."""
        return asdict(self)


def probe_settings(host: LabHostSpec, settings: Mapping[str, str], found: FoundSettings) -> list[Probe]:
    """Compare kernel settings and MTUs with the requested values."""
    probes = []
    for key, value in settings.items():
        actual = found.settings.get(key, "")
        probes.append(
            Probe("sysctl", key, " ".join(value.split()), actual, actual == " ".join(value.split()), host.name)
        )
    for nic in host.nics:
        mtu = found.mtu.get(nic.device)
        probes.append(Probe("mtu", nic.name, str(nic.mtu), str(mtu), mtu == nic.mtu, host.name))
    return probes


def probe_network(
    namespaces: LabNamespaces, pings: Sequence[PingPair], hosts: Mapping[str, LabHostSpec]
) -> list[Probe]:
    """Measure round-trip times, and read congestion control and MSS of TCP connections.

    Raises
    ------
    BackendError
        If the ping program fails.
    """
    if not pings:
        return []
    request = {
        "hosts": {name: f"/proc/{pid}/ns/net" for name, pid in namespaces.hosts.items()},
        "pings": [
            {
                "source_host": ping.source_host,
                "source": ping.source.address,
                "destination_host": ping.destination_host,
                "destination": ping.destination.address,
                "expected_s": ping.rtt_s,
            }
            for ping in pings
        ],
    }
    done = subprocess.run(
        [*namespaces.join_command(), sys.executable, "-I", "-S", str(_PROGRAM)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S + 8 * max(ping.rtt_s for ping in pings),
        check=False,
    )
    if done.returncode:
        raise BackendError(f"cannot ping between the hosts of the lab: {done.stderr.strip()[-500:]}")
    results = zip(pings, json.loads(done.stdout), strict=True)
    return [probe for ping, measured in results for probe in _check_ping(ping, measured, hosts)]


def _check_ping(ping: PingPair, measured: Mapping[str, Any], hosts: Mapping[str, LabHostSpec]) -> Iterable[Probe]:
    subject = f"{ping.source.name} to {ping.destination.name}"
    expected = f"{ping.rtt_s * 1e3:.3f} ms"
    if not measured["rtts_s"]:
        yield Probe("rtt", subject, expected, "no reply", False)
        return
    rtt_s = min(measured["rtts_s"])
    max_s = ping.rtt_s + max(RTT_SLACK_S, RTT_SLACK_RATIO * ping.rtt_s) + 3 * ping.jitter_s
    min_s = ping.rtt_s - RTT_SHORT_S - 6 * ping.jitter_s
    yield Probe("rtt", subject, expected, f"{rtt_s * 1e3:.3f} ms", min_s <= rtt_s <= max_s)
    if not measured["connected"]:
        yield Probe("tcp", subject, "a connection", "timeout", False)
        return
    algorithms = [hosts[ping.source_host].lab.congestion_control, hosts[ping.destination_host].lab.congestion_control]
    actual = list(measured["congestion_control"])
    yield Probe("congestion-control", subject, ", ".join(algorithms), ", ".join(actual), actual == algorithms)
    mtu = min(ping.source.mtu, ping.destination.mtu)
    mss = measured["mss_bytes"] or 0
    # 20 bytes of IP, 20 of TCP, and up to 20 of options in every segment (RFC 6691).
    yield Probe("mss", subject, f"{mtu - 60} to {mtu - 40} B", f"{mss} B", mtu - 60 <= mss <= mtu - 40)


def probe_cores(shell: LabHostShell) -> list[Probe]:
    """Compare the allowed cores of a host's processes with the requested cores."""
    cpus = shell.spec.lab.cpus
    if cpus is None:
        return []
    status = shell.run(["cat", "/proc/self/status"], timeout_s=_TIMEOUT_S).stdout
    actual = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
    found = _cores(actual.group(1)) if actual else ()
    return [Probe("cores", shell.name, _listed(cpus), _listed(found), tuple(sorted(cpus)) == found, shell.name)]


def probe_cpu(shell: LabHostShell, groups: HostGroups) -> list[Probe]:
    """Run more busy processes than the CPU limit allows, and measure their CPU time."""
    limit = shell.spec.lab.cpu_limit_cores
    if limit is None:
        return []
    limit = min(limit, len(shell.spec.lab.cpus or ()) or limit)
    busy = f"timeout {CPU_WINDOW_S} sh -c 'while :; do :; done' & "
    before_s, started_s = groups.cpu_used_s(), time.monotonic()
    shell.run(["sh", "-c", busy * (math.ceil(limit) + 1) + "wait"], timeout_s=_TIMEOUT_S)
    found = (groups.cpu_used_s() - before_s) / (time.monotonic() - started_s)
    # A lower value does not contradict the limit, because other processes could have used the cores.
    agrees = found <= limit * (1 + CPU_SLACK_RATIO)
    return [Probe("cpu-limit", shell.name, f"{limit:g} cores", f"{found:.2f} cores", agrees, shell.name)]


def probe_memory(shell: LabHostShell, groups: HostGroups) -> list[Probe]:
    """Read the memory limit back. If the kernel reports the peak, check that memory of a host's process is counted."""
    limit_bytes = shell.spec.lab.memory_limit_bytes
    if limit_bytes is None:
        return []
    touched = min(MEMORY_TOUCHED_BYTES, limit_bytes // 2)
    before = groups.memory_peak_bytes()
    shell.run(["sh", "-c", f"head -c {touched} /dev/zero | tail -c {touched} | wc -c"], timeout_s=_TIMEOUT_S)
    after, actual = groups.memory_peak_bytes(), groups.memory_limit_bytes()
    # The kernel rounds down to pages.
    agrees = limit_bytes - 4096 < actual <= limit_bytes
    found = format_bytes(actual)
    if before is not None and after is not None:
        # The group is new, so no earlier process has used more memory than this one.
        counted = after - before
        agrees = agrees and counted >= touched // 2
        found += f", of {format_bytes(touched)} used {format_bytes(max(counted, 0))} were counted"
    return [Probe("memory-limit", shell.name, format_bytes(limit_bytes), found, agrees, shell.name)]


def probe_disk(shell: LabHostShell, name: str, storage: Storage, directory: Path, device: Path) -> list[Probe]:
    """Measure direct writes and reads of a throttled disk, for less than a second per limited direction."""
    assert storage.spec is not None
    file = directory / ".venturi-probe"
    # Read from the device, because a file would first have to be written at the write rate.
    arguments = {"write": f"if=/dev/zero of={file} oflag=direct", "read": f"if={device} of=/dev/null iflag=direct"}
    max_bytes = (storage.spec.size_bytes or DEFAULT_DISK_BYTES) // 2
    probes = []
    for direction, rate in rate_limits(storage).items():
        block = max(4096, min(2**20, int(rate * 0.02) // 4096 * 4096))
        first, count = (
            max(1, min(math.ceil(rate * window_s), max_bytes) // block) for window_s in (DISK_FIRST_S, DISK_WINDOW_S)
        )
        dd = f"dd {arguments[direction]} bs={block}"
        done = shell.run(["sh", "-c", f"{dd} count={first} && {dd} count={count}"], timeout_s=_TIMEOUT_S)
        durations = _DD_SECONDS.findall(done.stderr)
        found = block * count / float(durations[-1]) if durations and done.returncode == 0 else 0.0
        agrees = abs(found / rate - 1) <= DISK_SLACK_RATIO
        shown = f"{format_bytes(round(found))}/s" if found else done.stderr.strip().replace("\n", " ")
        probes.append(Probe(f"disk-{direction}", name, f"{format_bytes(round(rate))}/s", shown, agrees, shell.name))
    shell.run(["rm", "-f", str(file)], timeout_s=_TIMEOUT_S)
    return probes


def _cores(listed: str) -> tuple[int, ...]:
    """Return the cores of a kernel list (``0-2,5``)."""
    cores: list[int] = []
    for part in listed.split(","):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return tuple(cores)


def _listed(cores: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(cores)))
