"""``venturi testbed``: generate testbeds from a seed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from venturi.cli.outcome import print_status, report_write_errors
from venturi.testbed.wlcg import Purpose, wlcg

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Generate testbeds from a seed, for `include` in scenarios.")


@app.callback()
def _testbed() -> None:
    pass


@app.command(name="wlcg")
def wlcg_(
    sites: Annotated[int, typer.Option(help="Number of sites, over all tiers.")] = 174,
    seed: Annotated[int, typer.Option(min=0, help="Random seed. The same seed gives the same file.")] = 1,
    for_: Annotated[
        Purpose | None,
        typer.Option("--for", help="Kind of workload to write workload.site for; inject needs none."),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Output file. Default: stdout.")] = None,
) -> None:
    """Generate a testbed like the Worldwide LHC Computing Grid: sites of tiers 0, 1 and 2, with links and disks.

    Use it in a scenario with `include = ["testbed.toml"]`. Each site is one host (t0, t1-01, t2-001) with a storage, an
    XRootD server and a link to the hub of its region.

    Example: `venturi testbed wlcg --sites 200 --seed 1 -o testbed.toml`
    """
    from venturi.report.toml import as_toml  # scipy and matplotlib take seconds to import

    text = f"# venturi testbed wlcg --sites {sites} --seed {seed}{f' --for {for_}' if for_ else ''}\n\n{as_toml(wlcg(sites, seed, for_))}\n"
    if output is None:
        sys.stdout.write(text)
        return
    with report_write_errors(output):
        output.write_text(text, encoding="utf-8")
    print_status(f"wrote {output}")
