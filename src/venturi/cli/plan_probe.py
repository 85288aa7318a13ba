"""``venturi plan --probe``: probe the hosts and paths of a plan, and print them."""

from __future__ import annotations

import typer
from rich.table import Table
from rich.text import Text

from venturi.backend.path_probe import ProbedPath
from venturi.backend.plan_probe import PathProbe, PlanProbe, probe_plan
from venturi.cli.consent import require_plan_consent
from venturi.cli.outcome import Exit, print_data, print_json, print_status
from venturi.errors import PlanError
from venturi.plan import Plan
from venturi.report.terminal_table import new_table
from venturi.testbed.plan import backend_obstacle
from venturi.units import format_bit_rate, format_duration

__all__ = ["probe_paths_of"]


def probe_paths_of(plan: Plan, *, yes: bool, as_json: bool) -> None:
    """Probe the hosts and paths of a plan, print them, and exit with code 1 if a path that it needs is closed.

    Raises
    ------
    PlanError
        If existing hosts cannot execute the plan, or the user does not agree to the first contact.
    BackendError
        If a host cannot be reached.
    """
    obstacle = backend_obstacle(plan.header, "hosts")
    if obstacle is not None:
        raise PlanError(f"--probe: {obstacle}")
    require_plan_consent(plan, yes=yes)
    result = probe_plan(plan, print_status)
    if as_json:
        print_json(result.to_json())
    else:
        print_data(_hosts_table(result))
        print_data(_paths_table(result) if result.paths else "no paths: no transfer of the plan uses a server")
    if result.problem is not None:
        print_status("\n".join(f"venturi: {line}" for line in result.problem.splitlines()))
        raise typer.Exit(Exit.ERROR)


def _hosts_table(result: PlanProbe) -> Table:
    table = new_table("hosts")
    for heading in ("host", "address", "clock"):
        table.add_column(heading)
    for name, properties in result.hosts.items():
        offset_s = properties.get("clock_offset_s")
        clock = (
            "this machine"
            if offset_s is None
            else f"{offset_s * 1e3:+.3f} ms ± {properties['clock_uncertainty_s'] * 1e3:.3f} ms"
        )
        table.add_row(*map(Text, (name, str(properties["address"]), clock)))
    return table


def _paths_table(result: PlanProbe) -> Table:
    table = new_table("paths")
    for heading in ("from", "to", "service", "port", "address", "RTT", "path MTU", "interface", "state"):
        table.add_column(heading, justify="right" if heading in ("port", "RTT", "path MTU") else "left")
    for path in result.paths:
        table.add_row(*map(Text, _cells(path)))
    return table


def _cells(result: PathProbe) -> tuple[str, ...]:
    path = result.path
    start = (path.client, result.to, result.service if result.needed else "", str(path.port))
    if not isinstance(path, ProbedPath):
        return (*start, path.target.address, "", "", "", "closed" if result.needed else "closed, not needed")
    found = path.measured
    speed = found.interface_bit_per_s
    interface = found.interface or ""
    return (
        *start,
        found.remote_address or path.target.address,
        "" if found.rtt_s is None else format_duration(found.rtt_s),
        "" if found.path_mtu_bytes is None else f"{found.path_mtu_bytes} bytes",
        interface if speed is None else f"{interface}, {format_bit_rate(speed)}",
        "open" if result.needed else "open, not needed",
    )
