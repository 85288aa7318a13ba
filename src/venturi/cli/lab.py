"""``venturi lab``: a testbed for work by hand."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from venturi.backend import find_engine
from venturi.cli.options import As, Set
from venturi.cli.outcome import Exit, data, data_json, talk
from venturi.cli.source import load
from venturi.errors import BackendError, ScenarioError, UnitError
from venturi.testbed.lab import ask, registered, start_keeper, sweep
from venturi.testbed.lab.living import wait_until_gone
from venturi.testbed.lab.registry import Entry
from venturi.units import format_bytes, format_duration, parse_bytes, parse_duration, parse_rate_bit_per_s
from venturi.workload import expand

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, help="A testbed on this machine, for work by hand: real servers, an emulated network."
)

_DOWN_TIMEOUT_S = 60.0

Which = Annotated[
    str | None,
    typer.Option("--lab", metavar="ID", help="Which lab, where there are several; `venturi lab status` lists them."),
]


@app.command()
def up(
    scenario: Annotated[str, typer.Argument(help="Scenario file, or the name of a study: its testbed is made.")],
    set_: Set = None,
    quick: Annotated[bool, typer.Option("--quick", help="The small variant of a study.")] = False,
    scratch: Annotated[
        Path | None,
        typer.Option(
            help="Directory that keeps the hosts' files. Default: a new one, gone with the lab.", file_okay=False
        ),
    ] = None,
    probe: Annotated[bool, typer.Option(help="Try every limit and every link first.")] = True,
    as_json: As = False,
) -> None:
    """Bring a testbed up and leave it there: hosts, servers, network.

    It stays until `venturi lab down`, in the background. Planned changes of links count from the moment when it is up.

    Example: `venturi lab up my.toml`
    """
    header = expand(load(scenario, set_ or [], quick=quick)).header
    status = start_keeper(
        header, engine=find_engine(), scratch=scratch, probe=probe, on_step=lambda step: talk(f"lab: {step}")
    )
    if as_json:
        data_json(status)
        return
    data(_shown(status))
    first = next(iter(status["hosts"]))
    talk(f"\nnext: venturi lab shell {first} · venturi lab status · venturi lab down")


@app.command(context_settings={"ignore_unknown_options": True})
def shell(
    host: Annotated[str, typer.Argument(help="Host of the testbed.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND…]", help="What to run there. Default: your shell.")
    ] = None,
    lab: Which = None,
) -> None:
    """Enter a host of a lab that is up, or run a command there; the exit code is the command's.

    Example: `venturi lab shell a -- ping -c 3 b`
    """
    entry = _chosen(lab)
    argv = command or [os.environ.get("SHELL") or "/bin/sh"]
    words = ask(entry.folder, {"ask": "words", "host": host, "argv": argv})["words"]
    os.execvp(words[0], words)


@app.command()
def status(lab: Which = None, as_json: As = False) -> None:
    """Show the labs that are up: hosts, addresses, links with their counters, servers, what was tried.

    Example: `venturi lab status --json`
    """
    entries = [_chosen(lab)] if lab else [entry for entry in registered() if entry.kept]
    found = [_status(entry) for entry in entries]
    if as_json:
        data_json(found)
    elif not found:
        talk("no lab is up; begin with: venturi lab up SCENARIO")
    else:
        data("\n\n".join(_shown(status) for status in found))


@app.command()
def link(
    name: Annotated[str, typer.Argument(help="Link: its name in the scenario for both directions, `a>b` for one.")],
    settings: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE…", help="rate=, delay=, jitter=, queue=, loss=, reorder=, up=.")
    ],
    lab: Which = None,
    as_json: As = False,
) -> None:
    """Change a link of a lab that is up.

    Examples: `venturi lab link a-core rate=100Mb/s`, `venturi lab link 'a>core' up=false`
    """
    entry = _chosen(lab)
    changed = ask(entry.folder, {"ask": "link", "link": name, "set": dict(map(_setting, settings))})["links"]
    if as_json:
        data_json({"links": changed})
    talk(f"changed {', '.join(changed)}")


@app.command()
def down(
    lab: Which = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Every lab of this user that is there for work by hand.")
    ] = False,
    as_json: As = False,
) -> None:
    """Take a lab down, and remove what labs have left whose keeper was killed.

    Example: `venturi lab down --all`
    """
    problems = sweep()
    entries = (
        [entry for entry in registered() if entry.kept] if all_ else [_chosen(lab)] if lab or _any_kept() else []
    )
    ended = []
    for entry in entries:
        try:
            ask(entry.folder, {"ask": "down"})
        except BackendError as error:
            problems.append(str(error))
            continue
        if not wait_until_gone(entry.keeper, _DOWN_TIMEOUT_S):
            problems.append(f"lab {entry.id}: PID {entry.keeper.pid} has not ended after {_DOWN_TIMEOUT_S:g} s")
        elif entry.path.exists():
            problems += sweep()
        else:
            ended.append(entry.id)
            talk(f"lab {entry.id} ({entry.name}) is down")
    if as_json:
        data_json({"down": ended, "problems": problems})
    for problem in problems:
        talk(f"venturi: {problem}")
    if problems:
        raise typer.Exit(Exit.ERROR)
    if not entries:
        talk("no lab is up")


def _any_kept() -> bool:
    return any(entry.kept for entry in registered())


def _chosen(id_: str | None) -> Entry:
    """Return the lab that is meant: the one named, or the only one."""
    kept = [entry for entry in registered() if entry.kept]
    if id_ is None and len(kept) == 1:
        return kept[0]
    for entry in kept:
        if entry.id == id_:
            return entry
    there = ", ".join(f"{entry.id} ({entry.name})" for entry in kept) or "none"
    wanted = f"a lab {id_} that is up" if id_ is not None else "one lab that is up, or --lab ID"
    advice = "give --lab with one of these" if kept else "begin one with: venturi lab up SCENARIO"
    raise BackendError(f"expected {wanted}, found {there}; {advice}")


def _status(entry: Entry) -> Mapping[str, Any]:
    try:
        return dict(ask(entry.folder, {"ask": "status"})["status"])
    except BackendError:
        return {
            "id": entry.id,
            "name": entry.name,
            "keeper": entry.keeper.pid,
            "folder": str(entry.folder),
            "hosts": {},
        }


def _shown(status: Mapping[str, Any]) -> str:
    lines = [f"lab {status['id']}: {status['name']}, in {status['folder']}, kept by PID {status['keeper']}"]
    if not status["hosts"]:
        return f"{lines[0]}; it does not answer yet"
    rows = [
        (name, ", ".join(f"{device} {address}" for device, address in host["addresses"].items()), host["site"] or "")
        for name, host in status["hosts"].items()
    ]
    lines += ["", "hosts", *_aligned(rows)]
    lines += ["", "links", *_aligned([_link_row(name, link) for name, link in status["links"].items()])]
    if status["services"]:
        lines += ["", "services", *_aligned([_service_row(name, one) for name, one in status["services"].items()])]
    if status["environment"]:
        lines += ["", "clients get", *(f"  {key}={value}" for key, value in status["environment"].items())]
    off = [probe for probe in status["probes"] if not probe["agrees"]]
    lines += ["", f"{len(status['probes'])} things tried, {len(off)} not as asked for"]
    lines += [f"  ! {p['kind']} {p['subject']}: expected {p['expected']}, found {p['found']}" for p in off]
    return "\n".join(lines)


def _link_row(name: str, link: Mapping[str, Any]) -> tuple[str, ...]:
    counters = link["counters"]
    drops = sum(int(counters.get(key, 0)) for key in ("queue_drops", "loss_drops"))
    passed = f"{format_bytes(int(counters['bytes']))} passed, {drops} dropped" if "bytes" in counters else ""
    state = "" if link.get("up", True) else "down"
    return (name, _bit_rate(link["rate_bit_per_s"]), format_duration(link["delay_s"]), state, passed)


def _service_row(name: str, service: Mapping[str, Any]) -> tuple[str, ...]:
    state = "ready" if service["running"] else "ENDED"
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


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    if not rows:
        return ["  (none)"]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _setting(text: str) -> tuple[str, Any]:
    """Read ``rate=100Mb/s`` into what the wire takes."""
    try:
        return _read_setting(text)
    except UnitError as error:
        raise ScenarioError([(text, str(error))], "lab link") from error


def _read_setting(text: str) -> tuple[str, Any]:
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
