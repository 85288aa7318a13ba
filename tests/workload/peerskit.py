"""Testbeds of sites for the workloads `peers` and `tiers`: routers around a backbone, and machines with one server each."""

from venturi.plan import Pause, TransferStep, Trial
from venturi.scenario import scenario_from

MACHINES = {"Alpha": 3, "Beta": 1, "Gamma": 2}
RATES = {"Alpha": "100 Mb/s", "Beta": "300 Mb/s", "Gamma": "50 Mb/s"}


def bed_of(machines=MACHINES, rates=RATES, kind="gridftp", **more):
    """Return a testbed with the given number of machines at each site."""
    bed = {"router": {"backbone": {}}, "host": {}, "link": {}, "storage": {}, "service": {}}
    for site, count in machines.items():
        low = site.lower()
        bed["router"][low] = {}
        bed["link"][low] = {"between": [low, "backbone"], "rate": rates[site], "delay": "1 ms"}
        for number in range(count):
            host = f"{low}{number}"
            bed["host"][host] = {"site": site}
            bed["link"][host] = {"between": [host, low], "rate": "1 Gb/s", "delay": "50 us"}
            bed["storage"][host] = {"host": host, "path": "disk"}
            bed["service"][host] = {"kind": kind, "host": host, "storage": [host]}
    return {**bed, **more}


def peers(*, bed=None, top=None, **workload):
    """Return a scenario with ten transfers per machine by default."""
    given = {"mover": "globus-url-copy", "sizes": ["1 kB", "2 kB"], "transfers": 10,
             "site": {site: {"link": site.lower()} for site in MACHINES}}  # fmt: skip
    given = {key: value for key, value in (given | workload).items() if value is not None}
    return scenario_from(
        {
            "venturi": 1,
            "name": "p",
            **(top or {}),
            "testbed": bed or bed_of(),
            "workload": {"kind": "peers", **given},
        }
    )


def trials_of(plan):
    """Return actor and trial of all trials of a plan, in line order."""
    return [(line.actor, step) for line in plan.lines for step in line.steps if isinstance(step, Trial)]


def transfers_in(trial):
    return [step for step in trial.steps if isinstance(step, TransferStep)]


def pause_in(trial):
    return next((step.duration_s for step in trial.steps if isinstance(step, Pause)), 0.0)
