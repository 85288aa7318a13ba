"""``venturi measure``: measure the path between two directories or servers and name its limit."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from venturi.cli.options import RUNS, Hosts, JsonFlag, Runs, Yes, option_quantity
from venturi.cli.outcome import Exit, check_output, print_data, print_json, print_status
from venturi.errors import MeasureError, RunError
from venturi.units import BITS_PER_BYTE, format_duration, parse_bytes, parse_duration, parse_rate_bit_per_s

if TYPE_CHECKING:
    from venturi.measure import Endpoint, MeasureOptions

__all__ = ["measure", "prepare_servers"]

MIN_MAX_RATE = 1_000_000
"""Smallest value of --max-rate in bytes per second: that of ``venturi copy``."""


def measure(
    source: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="Source: directory as HOST:/PATH, USER@HOST:/PATH or a local path, or URL of a directory or file on a server.",
        ),
    ],
    destination: Annotated[
        str,
        typer.Argument(
            metavar="B", help="Destination: directory as HOST:/PATH or a local path, or URL of a directory."
        ),
    ],
    time: Annotated[
        str,
        typer.Option(
            "--time", metavar="DURATION", help="Time of the measurement, at least `15 s`. Slow storage can need more."
        ),
    ] = "60 s",
    both: Annotated[bool, typer.Option("--both", help="Measure the direction from B to A too.")] = False,
    connections: Annotated[
        int, typer.Option(help="Data connections of network and mover, 1 to 128.", min=1, max=128)
    ] = 4,
    rounds: Annotated[int, typer.Option(help="Rounds. Intervals need at least 5.", min=1, max=100)] = 5,
    max_bytes: Annotated[
        str, typer.Option(metavar="SIZE", help="Limit of all bytes that are sent or written.")
    ] = "40 GB",
    max_rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="Limit of the rate of network, mover and copy, at least `8 Mb/s`. Default: no limit.",
            show_default=False,
        ),
    ] = None,
    ports: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST-LAST",
            help="Open ports for servers and data connections. Default: any free ports.",
            show_default=False,
        ),
    ] = None,
    address_a: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address of A for data. Default: found by Venturi.", show_default=False),
    ] = None,
    address_b: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address of B for data. Default: found by Venturi.", show_default=False),
    ] = None,
    hosts: Hosts = None,
    runs: Runs = RUNS,
    yes: Yes = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Measure how fast data move between two directories or servers, part by part, and name the part that limits a copy.

    In rounds, Venturi measures the network alone, reading at A, writing at B, the mover from memory to memory, and the copy. It prints
    each part with its interval, and the limit. It saves all samples and a scenario in a new run directory.

    A host needs a login by ssh without a password, and no software. Venturi creates a directory `.venturi-measure-*` in A and B, removes
    it at the end, and touches no other file.

    A URL names an existing server: ftp, gsiftp, http, https, dav, davs, root, roots, s3, s3s, sftp or srm. The host of the other end uses
    it with your credentials there; between two URLs, this machine does. The network to a server cannot be separated from its disk.

    Examples: `venturi measure alice@dtn1.example.org:/scratch alice@dtn2.example.org:/data/alice`, and
    `venturi measure /scratch davs://se.example.org/dteam --max-bytes "20 GB"`
    """
    from dataclasses import replace

    from venturi.backend.targets import read_targets
    from venturi.cli.measure_view import measure_view, path_table
    from venturi.measure import MeasureOptions, parse_endpoint, save
    from venturi.measure import measure as measure_path
    from venturi.measure.measure import MIN_TIME_S
    from venturi.measure.save import to_json

    targets = read_targets(hosts) if hosts is not None else {}
    a = replace(parse_endpoint(source), address=address_a).at(targets)
    b = replace(parse_endpoint(destination), address=address_b).at(targets)
    time_s = option_quantity("--time", time, parse_duration)
    if time_s < MIN_TIME_S:
        raise MeasureError(
            f"--time: expected at least {format_duration(MIN_TIME_S)}, found {time}. Use a longer time."
        )
    options = MeasureOptions(
        time_s,
        both,
        connections,
        rounds,
        option_quantity("--max-bytes", max_bytes, parse_bytes),
        _ports(ports),
        _max_rate(max_rate),
    )
    check_output(runs, directory=True)
    options = prepare_servers(a, b, options, runs, yes=yes)
    with _terminate_as_interrupt(), measure_view(quiet=quiet) as view:
        result = measure_path(a, b, options, view.show)
    saved: Path | None = None
    unsaved: RunError | None = None
    try:
        saved = save(result, a, b, runs, options.directory)
    except RunError as error:
        unsaved = error  # print the result first
    if as_json:
        print_json({**to_json(result), "saved": None if saved is None else str(saved)})
    else:
        for direction in result.paths:
            print_data(path_table(direction))
            for line in (direction.summary, *direction.notes):
                print_data(line)
    if unsaved is not None:
        raise unsaved
    if not as_json:
        print_status(f"Saved: {saved}." + _scenario_hint(saved))
    if result.remains is not None:
        raise MeasureError(result.remains)
    if result.failure == "interrupted":
        print_status(
            f"Interrupted after {result.rounds} of {rounds} rounds. Run the command again for a full result."
        )
        raise typer.Exit(Exit.STOPPED)
    if result.failure is not None:
        raise MeasureError(f"the measurement ended early: {result.failure}")
    if any(part.errors for direction in result.paths for part in direction.parts.values()):
        raise typer.Exit(Exit.FAILED_TRANSFERS)


def _scenario_hint(saved: Path | None) -> str:
    from venturi.measure.save import SCENARIO

    if saved is None or not (saved / SCENARIO).exists():
        return ""
    return f" To repeat the copy as an experiment: venturi run {saved}/{SCENARIO}"


def prepare_servers(a: Endpoint, b: Endpoint, options: MeasureOptions, runs: Path, *, yes: bool) -> MeasureOptions:
    """Ask for consent if an endpoint is on an existing server, and return the options with a directory for the record of its files.

    Raises
    ------
    PlanError
        Without consent, and without a terminal to ask on.
    """
    import time
    from dataclasses import replace

    from venturi.cli.consent import require_consent
    from venturi.run.directory import new_run_path
    from venturi.testbed.contacts import Contacts, HostContact, ServerContact, StorageContact

    servers = [
        ServerContact(name, "url", (one.url,), (name,)) for name, one in (("a", a), ("b", b)) if one.url is not None
    ]
    if not servers:
        return options
    host = next((one for one in (a, b) if one.url is None), None)
    storages = () if host is None else (StorageContact("a" if host is a else "b", host.path, options.max_bytes),)
    connection = () if host is None else ("ssh", host.ssh) if host.ssh is not None else host.connect or ()
    contact = HostContact("client", connection, None, (), (), storages, None, (host and host.environment) or {})
    require_consent(Contacts((contact,), tuple(servers), options.max_bytes), yes=yes)
    return replace(options, directory=new_run_path(runs, "measure", time.time_ns()))


def _max_rate(text: str | None) -> int | None:
    if text is None:
        return None
    rate = round(option_quantity("--max-rate", text, parse_rate_bit_per_s) / BITS_PER_BYTE)
    if rate < MIN_MAX_RATE:
        raise MeasureError(f"--max-rate: expected at least 8 Mb/s, found {text}. Use a higher rate.")
    return rate


def _ports(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, _, last = text.partition("-")
    try:
        low, high = int(first), int(last or first)
    except ValueError:
        low = high = 0
    if not 0 < low <= high < 65536:
        raise MeasureError(f'--ports: expected a range such as "50000-50100", found "{text}". Name two ports.')
    return low, high


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, so that files on both hosts are removed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
