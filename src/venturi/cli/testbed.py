"""``venturi testbed``: testbeds that are drawn, not written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from venturi.cli.outcome import talk, writing
from venturi.testbed.wlcg import Purpose, wlcg

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Testbeds made from a seed, for scenarios to include.")


@app.callback()
def _testbed() -> None:
    pass


@app.command(name="wlcg")
def wlcg_(
    sites: Annotated[int, typer.Option(help="How many sites, of all tiers.")] = 174,
    seed: Annotated[int, typer.Option(min=0, help="Of all draws: the same seed gives the same bytes.")] = 1,
    for_: Annotated[
        Purpose | None,
        typer.Option("--for", help="Also write workload.site, as this kind of workload needs it; inject needs none."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write to this file instead of stdout.")
    ] = None,
) -> None:
    """Write a testbed like the Worldwide LHC Computing Grid: sites of tiers 0, 1 and 2 in all regions, their links and disks.

    A scenario takes it in with `include = ["testbed.toml"]`. Each site is a host of its own name (t0, t1-01, t2-001) with a storage and an XRootD server, on
    a link to the hub of its region.

    Example: `venturi testbed wlcg --sites 200 --seed 1 -o testbed.toml`
    """
    from venturi.report.toml import as_toml  # scipy and matplotlib: seconds that other commands need not wait for

    text = f"# venturi testbed wlcg --sites {sites} --seed {seed}{f' --for {for_}' if for_ else ''}\n\n{as_toml(wlcg(sites, seed, for_))}\n"
    if output is None:
        sys.stdout.write(text)
        return
    with writing(output):
        output.write_text(text, encoding="utf-8")
    talk(f"wrote {output}")
