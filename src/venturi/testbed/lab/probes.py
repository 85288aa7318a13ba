"""Is the lab what was asked for? Every limit is tried for real before anything leans on it, and what was seen is recorded."""

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
from venturi.plan.header import Place
from venturi.testbed.lab.asked import AskedHost
from venturi.testbed.lab.ground import Ground
from venturi.testbed.lab.interfaces import Found
from venturi.testbed.lab.machine import LabMachine
from venturi.testbed.lab.paths import Ping
from venturi.testbed.lab.storage import DEFAULT_DISK_BYTES, limits_of
from venturi.units import format_bytes

__all__ = ["Probe", "probe_cores", "probe_cpu", "probe_disk", "probe_memory", "probe_network", "probe_settings"]

RTT_SLACK_S = 1e-3
"""A round trip may be longer than the links say by this, or by 5 %: the probe itself and a machine at work take time."""

RTT_SLACK_RATIO = 0.05
RTT_SHORT_S = 50e-6
CPU_WINDOW_S = 0.4
CPU_SLACK_RATIO = 0.15
DISK_WINDOW_S = 0.4
DISK_FIRST_S = 0.3
"""Not measured: to a disk that was idle the kernel grants the first slices of its throttle at once (blk-throttle)."""

DISK_SLACK_RATIO = 0.2

MEMORY_TOUCHED_BYTES = 2**24

_TIMEOUT_S = 30.0
_PROGRAM = Path(__file__).with_name("ping_program.py")
_DD_SECONDS = re.compile(r"copied, ([0-9.e+-]+) s")


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing tried.

    Attributes
    ----------
    kind, subject
        What was tried (``"rtt"``, ``"cpu-limit"``), and of what.
    expected, found
        In words, with units.
    agrees
        Whether it is as asked for.
    host
        The host of the plan that it is about; ``None``: the network.
    """

    kind: str
    subject: str
    expected: str
    found: str
    agrees: bool
    host: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as it stands in events and in the answer to `status`."""
        return asdict(self)


def probe_settings(host: AskedHost, settings: Mapping[str, str], found: Found) -> list[Probe]:
    """Compare what the kernel says with what it was told: settings, MTU, congestion control of the routes."""
    probes = []
    for key, value in settings.items():
        there = found.settings.get(key, "")
        probes.append(
            Probe("sysctl", key, " ".join(value.split()), there, there == " ".join(value.split()), host.name)
        )
    for nic in host.nics:
        mtu = found.mtu.get(nic.device)
        probes.append(Probe("mtu", nic.name, str(nic.mtu), str(mtu), mtu == nic.mtu, host.name))
    return probes


def probe_network(ground: Ground, pings: Sequence[Ping], hosts: Mapping[str, AskedHost]) -> list[Probe]:
    """Measure round trips, and what TCP connections are really made of.

    Raises
    ------
    BackendError
        If the program that does it fails.
    """
    if not pings:
        return []
    request = {
        "hosts": {name: f"/proc/{pid}/ns/net" for name, pid in ground.hosts.items()},
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
        [*ground.beside(), sys.executable, "-I", "-S", str(_PROGRAM)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S + 8 * max(ping.rtt_s for ping in pings),
        check=False,
    )
    if done.returncode:
        raise BackendError(f"expected pings between the hosts of the lab, found: {done.stderr.strip()[-500:]}")
    answers = zip(pings, json.loads(done.stdout), strict=True)
    return [probe for ping, answer in answers for probe in _judge_ping(ping, answer, hosts)]


def _judge_ping(ping: Ping, answer: Mapping[str, Any], hosts: Mapping[str, AskedHost]) -> Iterable[Probe]:
    subject = f"{ping.source.name} to {ping.destination.name}"
    expected = f"{ping.rtt_s * 1e3:.3f} ms"
    if not answer["rtts_s"]:
        yield Probe("rtt", subject, expected, "no answer", False)
        return
    rtt_s = min(answer["rtts_s"])
    most_s = ping.rtt_s + max(RTT_SLACK_S, RTT_SLACK_RATIO * ping.rtt_s) + 3 * ping.jitter_s
    least_s = ping.rtt_s - RTT_SHORT_S - 6 * ping.jitter_s
    yield Probe("rtt", subject, expected, f"{rtt_s * 1e3:.3f} ms", least_s <= rtt_s <= most_s)
    if not answer["connected"]:
        yield Probe("tcp", subject, "a connection", "none in time", False)
        return
    wanted = [hosts[ping.source_host].lab.congestion_control, hosts[ping.destination_host].lab.congestion_control]
    there = list(answer["congestion_control"])
    yield Probe("congestion-control", subject, ", ".join(wanted), ", ".join(there), there == wanted)
    mtu = min(ping.source.mtu, ping.destination.mtu)
    mss = answer["mss_bytes"] or 0
    # 20 bytes of IP, 20 of TCP, and up to 20 of options in every segment (RFC 6691).
    yield Probe("mss", subject, f"{mtu - 60} to {mtu - 40} B", f"{mss} B", mtu - 60 <= mss <= mtu - 40)


def probe_cores(machine: LabMachine) -> list[Probe]:
    """See where processes of a host may run."""
    cpus = machine.asked.lab.cpus
    if cpus is None:
        return []
    status = machine.run(["cat", "/proc/self/status"], timeout_s=_TIMEOUT_S).stdout
    there = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
    found = _cores(there.group(1)) if there else ()
    return [Probe("cores", machine.name, _listed(cpus), _listed(found), tuple(sorted(cpus)) == found, machine.name)]


def probe_cpu(machine: LabMachine, accounting: Path) -> list[Probe]:
    """Keep more processes busy than a host may have cores, and see how much they got."""
    limit = machine.asked.lab.cpu_limit_cores
    if limit is None:
        return []
    limit = min(limit, len(machine.asked.lab.cpus or ()) or limit)
    busy = f"timeout {CPU_WINDOW_S} sh -c 'while :; do :; done' & "
    before, began_s = int((accounting / "cpuacct.usage").read_text()), time.monotonic()
    machine.run(["sh", "-c", busy * (math.ceil(limit) + 1) + "wait"], timeout_s=_TIMEOUT_S)
    used_s = (int((accounting / "cpuacct.usage").read_text()) - before) / 1e9
    found = used_s / (time.monotonic() - began_s)
    # Less than the limit is no proof against it: other processes may have had the cores.
    agrees = found <= limit * (1 + CPU_SLACK_RATIO)
    return [Probe("cpu-limit", machine.name, f"{limit:g} cores", f"{found:.2f} cores", agrees, machine.name)]


def probe_memory(machine: LabMachine, group: Path) -> list[Probe]:
    """Read the limit back, and see whether what a process of the host touches is counted."""
    limit_bytes = machine.asked.lab.memory_limit_bytes
    if limit_bytes is None:
        return []
    touched = min(MEMORY_TOUCHED_BYTES, limit_bytes // 2)
    (group / "memory.max_usage_in_bytes").write_text("0")
    before = int((group / "memory.max_usage_in_bytes").read_text())
    machine.run(["sh", "-c", f"head -c {touched} /dev/zero | tail -c {touched} | wc -c"], timeout_s=_TIMEOUT_S)
    counted = int((group / "memory.max_usage_in_bytes").read_text()) - before
    there = int((group / "memory.limit_in_bytes").read_text())
    # The kernel rounds down to pages.
    agrees = limit_bytes - 4096 < there <= limit_bytes and counted >= touched // 2
    found = f"{format_bytes(there)}, of {format_bytes(touched)} touched {format_bytes(max(counted, 0))} were counted"
    return [Probe("memory-limit", machine.name, format_bytes(limit_bytes), found, agrees, machine.name)]


def probe_disk(machine: LabMachine, name: str, place: Place, folder: Path, device: Path) -> list[Probe]:
    """Write to and read from a throttled disk directly, for less than a second each way that is limited."""
    assert place.storage is not None
    file = folder / ".venturi-probe"
    # Reading goes to the device itself: a file to read would have to be written first, at the rate of writing.
    words = {"write": f"if=/dev/zero of={file} oflag=direct", "read": f"if={device} of=/dev/null iflag=direct"}
    most_bytes = (place.storage.size_bytes or DEFAULT_DISK_BYTES) // 2
    probes = []
    for direction, rate in limits_of(place).items():
        block = max(4096, min(2**20, int(rate * 0.02) // 4096 * 4096))
        first, count = (
            max(1, min(math.ceil(rate * window_s), most_bytes) // block) for window_s in (DISK_FIRST_S, DISK_WINDOW_S)
        )
        dd = f"dd {words[direction]} bs={block}"
        done = machine.run(["sh", "-c", f"{dd} count={first} && {dd} count={count}"], timeout_s=_TIMEOUT_S)
        took = _DD_SECONDS.findall(done.stderr)
        found = block * count / float(took[-1]) if took and done.returncode == 0 else 0.0
        agrees = abs(found / rate - 1) <= DISK_SLACK_RATIO
        said = f"{format_bytes(round(found))}/s" if found else done.stderr.strip().replace("\n", " ")
        probes.append(Probe(f"disk-{direction}", name, f"{format_bytes(round(rate))}/s", said, agrees, machine.name))
    machine.run(["rm", "-f", str(file)], timeout_s=_TIMEOUT_S)
    return probes


def _cores(listed: str) -> tuple[int, ...]:
    """Return the cores of a kernel's list (``0-2,5``)."""
    cores: list[int] = []
    for part in listed.split(","):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return tuple(cores)


def _listed(cores: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(cores)))
