"""``venturi lab``: start, use and stop an emulated testbed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from venturi.backend import find_engine
from venturi.cli.options import JsonFlag, Set
from venturi.cli.outcome import Exit, print_data, print_json, print_status
from venturi.cli.source import load
from venturi.errors import BackendError, ScenarioError, UnitError
from venturi.testbed.lab import call_lab, registered, start_daemon, sweep
from venturi.testbed.lab.process_id import wait_for_exit
from venturi.testbed.lab.registry import LabEntry
from venturi.units import format_bytes, format_duration, parse_bytes, parse_duration, parse_rate_bit_per_s
from venturi.workload import expand

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Start an emulated testbed on this machine for interactive use: real servers, emulated network.",
)

_DOWN_TIMEOUT_S = 60.0

LabOption = Annotated[
    str | None,
    typer.Option(
        "--lab", metavar="ID", help="ID of the lab. Needed if several labs are up; `venturi lab status` lists them."
    ),
]


@app.command()
def up(
    scenario: Annotated[str, typer.Argument(help="Scenario file or name of a study, with the testbed to start.")],
    set_: Set = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use the small variant of a study.")] = False,
    scratch: Annotated[
        Path | None,
        typer.Option(
            help="Directory for the files of the hosts. Default: a new directory that is deleted with the lab.",
            file_okay=False,
        ),
    ] = None,
    probe: Annotated[bool, typer.Option(help="Probe all limits and links first.")] = True,
    as_json: JsonFlag = False,
) -> None:
    """Start a testbed in the background: hosts, servers and network.

    It runs until `venturi lab down`. The times of planned link changes count from the end of the start.

    Example: `venturi lab up my.toml`
    """
    header = expand(load(scenario, set_ or [], quick=quick)).header
    status = start_daemon(
        header, engine=find_engine(), scratch=scratch, probe=probe, on_step=lambda step: print_status(f"lab: {step}")
    )
    if as_json:
        print_json(status)
        return
    print_data(_format_status(status))
    first = next(iter(status["hosts"]))
    print_status(f"\nnext: venturi lab shell {first} · venturi lab status · venturi lab down")


@app.command(context_settings={"ignore_unknown_options": True})
def shell(
    host: Annotated[str, typer.Argument(help="Host of the testbed.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND…]", help="Command to run on the host. Default: your shell."),
    ] = None,
    lab: LabOption = None,
) -> None:
    """Open a shell on a host of a lab, or run a command there.

    The exit code is that of the command.

    Example: `venturi lab shell a -- ping -c 3 b`
    """
    entry = _select_lab(lab)
    argv = command or [os.environ.get("SHELL") or "/bin/sh"]
    arguments = call_lab(entry.directory, {"method": "words", "host": host, "argv": argv})["words"]
    os.execvp(arguments[0], arguments)


@app.command()
def status(lab: LabOption = None, as_json: JsonFlag = False) -> None:
    """Show running labs: hosts, addresses, links with counters, servers, and results of probes.

    Example: `venturi lab status --json`
    """
    entries = [_select_lab(lab)] if lab else [entry for entry in registered() if entry.active]
    found = [_status(entry) for entry in entries]
    if as_json:
        print_json(found)
    elif not found:
        print_status("no lab is up; start one with: venturi lab up SCENARIO")
    else:
        print_data("\n\n".join(_format_status(status) for status in found))


@app.command()
def link(
    name: Annotated[
        str, typer.Argument(help="Link: its name in the scenario for both directions, or `a>b` for one direction.")
    ],
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE…", help="New values: rate=, delay=, jitter=, queue=, loss=, reorder=, up=."
        ),
    ],
    lab: LabOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Change a link of a running lab.

    Examples: `venturi lab link a-core rate=100Mb/s`, `venturi lab link 'a>core' up=false`
    """
    entry = _select_lab(lab)
    changed = call_lab(entry.directory, {"method": "link", "link": name, "set": dict(map(_parse_setting, settings))})[
        "links"
    ]
    if as_json:
        print_json({"links": changed})
    print_status(f"changed {', '.join(changed)}")


@app.command()
def down(
    lab: LabOption = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Stop all labs that you started with `venturi lab up`.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Stop a lab, and clean up after labs whose daemon was killed.

    Example: `venturi lab down --all`
    """
    problems = sweep()
    entries = (
        [entry for entry in registered() if entry.active]
        if all_
        else [_select_lab(lab)]
        if lab or _any_kept()
        else []
    )
    stopped = []
    for entry in entries:
        try:
            call_lab(entry.directory, {"method": "down"})
        except BackendError as error:
            problems.append(str(error))
            continue
        if not wait_for_exit(entry.daemon, _DOWN_TIMEOUT_S):
            problems.append(
                f"lab {entry.id}: daemon (PID {entry.daemon.pid}) is still running after {_DOWN_TIMEOUT_S:g} s; stop it with: kill {entry.daemon.pid}"
            )
        elif entry.path.exists():
            problems += sweep()
        else:
            stopped.append(entry.id)
            print_status(f"lab {entry.id} ({entry.name}) is down")
    if as_json:
        print_json({"down": stopped, "problems": problems})
    for problem in problems:
        print_status(f"venturi: {problem}")
    if problems:
        raise typer.Exit(Exit.ERROR)
    if not entries:
        print_status("no lab is up")


def _any_kept() -> bool:
    return any(entry.active for entry in registered())


def _select_lab(id_: str | None) -> LabEntry:
    """Return the lab of this ID, or the only lab."""
    active = [entry for entry in registered() if entry.active]
    if id_ is None and len(active) == 1:
        return active[0]
    for entry in active:
        if entry.id == id_:
            return entry
    running = ", ".join(f"{entry.id} ({entry.name})" for entry in active) or "none"
    expected = f"lab {id_} to be up" if id_ is not None else "one lab to be up, or --lab ID"
    advice = "name one of them with --lab" if active else "start one with: venturi lab up SCENARIO"
    raise BackendError(f"expected {expected}, found {running}; {advice}")


def _status(entry: LabEntry) -> Mapping[str, Any]:
    try:
        return dict(call_lab(entry.directory, {"method": "status"})["status"])
    except BackendError:
        return {
            "id": entry.id,
            "name": entry.name,
            "daemon": entry.daemon.pid,
            "directory": str(entry.directory),
            "hosts": {},
        }


def _format_status(status: Mapping[str, Any]) -> str:
    lines = [f"lab {status['id']}: {status['name']}, in {status['directory']}, daemon PID {status['daemon']}"]
    if not status["hosts"]:
        return f"{lines[0]}; no response yet"
    rows = [
        (name, ", ".join(f"{device} {address}" for device, address in host["addresses"].items()), host["site"] or "")
        for name, host in status["hosts"].items()
    ]
    lines += ["", "hosts", *_align(rows)]
    lines += ["", "links", *_align([_link_row(name, link) for name, link in status["links"].items()])]
    if status["services"]:
        lines += ["", "services", *_align([_service_row(name, one) for name, one in status["services"].items()])]
    if status["environment"]:
        lines += ["", "environment of clients", *(f"  {key}={value}" for key, value in status["environment"].items())]
    mismatches = [probe for probe in status["probes"] if not probe["agrees"]]
    lines += ["", f"{len(status['probes'])} probes, {len(mismatches)} with a mismatch"]
    lines += [f"  ! {p['kind']} {p['subject']}: expected {p['expected']}, found {p['found']}" for p in mismatches]
    return "\n".join(lines)


def _link_row(name: str, link: Mapping[str, Any]) -> tuple[str, ...]:
    counters = link["counters"]
    drops = sum(int(counters.get(key, 0)) for key in ("queue_drops", "loss_drops"))
    traffic = f"{format_bytes(int(counters['bytes']))} carried, {drops} dropped" if "bytes" in counters else ""
    state = "" if link.get("up", True) else "down"
    return (name, _bit_rate(link["rate_bit_per_s"]), format_duration(link["delay_s"]), state, traffic)


def _service_row(name: str, service: Mapping[str, Any]) -> tuple[str, ...]:
    state = "ready" if service["running"] else "EXITED"
    pids = ", ".join(map(str, service["pids"]))
    return (
        name,
        service["kind"],
        f"on {service['host']}",
        state,
        f"PID {pids}",
        "  ".join(service["urls"]),
    )


def _bit_rate(rate_bit_per_s: float) -> str:
    size, unit = next(
        ((s, u) for s, u in ((1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s")) if rate_bit_per_s >= s), (1, "b/s")
    )
    return f"{rate_bit_per_s / size:g} {unit}"


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    if not rows:
        return ["  (none)"]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _parse_setting(text: str) -> tuple[str, Any]:
    """Parse a setting such as ``rate=100Mb/s`` for the network emulator."""
    try:
        return _parse_link_setting(text)
    except UnitError as error:
        raise ScenarioError([(text, str(error))], "lab link") from error


def _parse_link_setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    match key if equals else "":
        case "rate":
            return "rate_bit_per_s", parse_rate_bit_per_s(value)
        case "delay" | "jitter":
            return f"{key}_s", parse_duration(value)
        case "queue":
            return "queue_bytes", parse_bytes(value)
        case "loss" | "reorder" if (probability := _probability(value)) is not None:
            loss = {"kind": "independent", "probability": probability} if probability else None
            return ("loss", loss) if key == "loss" else ("reorder_probability", probability)
        case "up" if value in ("true", "false"):
            return "up", value == "true"
        case _:
            expected = (
                "rate=100Mb/s, delay=5ms, jitter=1ms, queue=1MB, loss=0.001, reorder=0.001, up=true or up=false"
            )
            raise ScenarioError([("", f'expected {expected}, found "{text}"')], "lab link")


def _probability(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None
