"""A report section with one element of each kind and recognisable numbers."""

import math

from venturi.analysis.section import (
    Band,
    Column,
    Figure,
    Message,
    Panel,
    ReportSection,
    Sequence,
    Series,
    Table,
)

HOSTILE = "<script>alert('cell')</script>"

RATES = Table(
    name="squid-rates",
    title="Goodput by clients",
    columns=(
        Column("clients", "Clients"), Column("placement", "Placement"), Column("rate_bit_per_s", "Rate"),
        Column("rate_published_bit_per_s", "Rate", published=True), Column("ratio", "Ours over published"), Column("cpu_ratio", "Processor"),
        Column("wait_s", "Wait"), Column("moved_bytes", "Moved"), Column("steady", "Steady"), Column("remark", "Remark"),
    ),
    rows=tuple(
        (n, "one to one" if n % 2 else "all to all", 1e9 * n, None if n == 3 else 1.25e9 * n, 0.8, n / 100, 0.0015 * n, 10**9 * n, n > 4,
         HOSTILE if n == 2 else "")
        for n in range(1, 41)
    ),
    note="Rates at the clients.",
)  # fmt: skip
EMPTY = Table("nothing-yet", "Nothing yet", (Column("jobs", "Jobs"), Column("wall_s", "Wall")), ())
COLLIDING = Table("points", "A table that is named as one of the report", (Column("site", "Site"),), (("Bari",),))


def _lines(published):
    x = tuple(float(n) for n in (1, 5, 10, 20, 40))
    y = tuple(None if n == 10 and not published else 1e9 * n / (1 + n / 20) for n in x)
    return Series(
        "one to one", x, y, () if published else tuple(None if v is None else 0.9 * v for v in y),
        () if published else tuple(None if v is None else 1.1 * v for v in y), published=published,
    )  # fmt: skip


CURVES = Figure(
    "curves", "Rate against clients",
    (
        Panel("ANL to NERSC", "clients", "rate_bit_per_s", (_lines(False), _lines(True))),
        Panel("NERSC to ANL", "clients", "rate_bit_per_s", (_lines(False),), x_log=True, y_log=True),
    ),
    "Bars: 95 % over trials.", source="002, figure 1",
)  # fmt: skip
BARS = Figure(
    "bars", "Rate by site",
    (Panel("Sites", "site", "rate_bytes_per_s", (
        Series("in", ("Bari", "Bologna", "Legnaro National Laboratory", "Torino"), (1e6, 2e6, None, 4e6), style="bars"),
        Series("out", ("Bari", "Bologna", "Legnaro National Laboratory", "Torino"), (2e6, 1e6, 3e6, 3e6), style="bars"),
        Series("in", ("Bari", "Bologna"), (1.2e6, 2.2e6), style="bars", published=True),
    )),), "Means.",
)  # fmt: skip
TRACE = Figure(
    "trace", "The link in time",
    (Panel("Link", "time_s", "rate_bit_per_s", (
        Series("a>b", tuple(float(t) for t in range(900)), tuple(2e9 * (1 + math.sin(t / 50)) for t in range(900)), style="steps"),
        Series("rounds", (100.0, 500.0), (1e9, 3e9), style="points"),
    ), bands=(Band(200.0, 700.0, "steady"),)),), "Means of a second.",
)  # fmt: skip
SLOPE = Figure("void", "Nothing measured", (Panel("Void", "jobs", "wall_s", (Series("wall", (1.0,), (None,)),)),), "")
SEQUENCE = Sequence(
    "get", "One file by SRM", ("client", "srm", "gridftp"),
    tuple(
        Message(10.0 + t, *direction, text)
        for t, direction, text in (
            (0.0, ("client", "srm"), "srmPrepareToGet"), (0.002, ("srm", "client"), f"TURL {HOSTILE}"),
            (0.004, ("client", "gridftp"), "RETR"), (1.0, ("gridftp", "gridftp"), "reads the file"), (2.0, ("gridftp", "client"), "226 $x$"),
        )
    ), "A transfer.", source="002, figure 3",
)  # fmt: skip
SECTION = ReportSection(
    "squid", "Caches", "40 clients get 40 Gb/s & more, 0.8 of what was published.", (RATES, EMPTY, COLLIDING),
    (CURVES, BARS, TRACE, SLOPE), (SEQUENCE,),
)  # fmt: skip
