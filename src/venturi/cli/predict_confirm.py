"""``venturi predict --confirm``: measure the limit in runs near the prediction, and print the comparison."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from venturi.cli.outcome import Exit, print_status

if TYPE_CHECKING:
    from venturi.prediction import LoadPrediction, LoadRequest
    from venturi.prediction.confirm import Confirmation
    from venturi.prediction.load_scenario import LoadScenario
    from venturi.prediction.peak_finder import LoadOrder, LoadProbe
    from venturi.prediction.system import LoadSystem
    from venturi.run import Run
    from venturi.scenario import Scenario

__all__ = ["ConfirmOptions", "Confirmer", "confirmation_text"]

DEFAULT_TIME_S = 300.0


@dataclass(frozen=True, slots=True)
class ConfirmOptions:
    """Options of ``--confirm``. ``time_s`` and ``probe_s`` are None if they are automatic."""

    on: str | None
    time_s: float | None
    probe_s: float | None
    max_probes: int
    scratch: Path | None
    runs: Path
    hosts: Path | None
    yes: bool
    quiet: bool


@dataclass(frozen=True)
class Confirmer:
    """A load whose limit can be measured on a backend."""

    system: LoadSystem
    scenario: LoadScenario
    request: LoadRequest
    options: ConfirmOptions
    backend: str

    @classmethod
    def prepare(
        cls, target: str, scenario: Scenario, run: Run | None, request: LoadRequest, options: ConfirmOptions
    ) -> Confirmer:
        """Return the load of a scenario, after a check that the backend can run it.

        Raises
        ------
        PlanError
            If the workload ``inject`` cannot run its transfers.
        ScenarioError
            If the backend cannot run it.
        """
        from venturi.cli.backend_choice import choose_backend
        from venturi.cli.source import study_backend
        from venturi.prediction.load_scenario import load_scenario_of
        from venturi.prediction.system import load_system
        from venturi.workload import expand

        system = load_system(scenario, request, run)
        # Latencies depend on random arrivals. The growth of the backlog does not, and even arrivals show it sooner.
        even = request.p95_s is None
        path = Path(target)
        directory = path.parent if path.is_file() else Path.cwd()
        probes = load_scenario_of(scenario, system.load, even=even, directory=directory)
        header = expand(probes.example()).header
        on = options.on or (study_backend(target) if run is None else run.backend)
        backend = choose_backend(scenario, header, on, "predict --confirm", options.hosts)
        return cls(system, probes, request, options, backend)

    def confirm(self, found: LoadPrediction) -> Confirmation:
        """Measure the limit near a prediction, and print each probe to stderr.

        Raises
        ------
        PlanError
            If the time is too short for one probe.
        VenturiError
            If the transfers cannot run.
        """
        from venturi.prediction.confirm import ConfirmBudget, RunBackend, confirm_limit, peak_finder, warm_up
        from venturi.prediction.confirm_text import order_text, probe_text
        from venturi.prediction.load_probe import LoadTarget

        options, simulated = self.options, self.backend == "sim"
        limit_s = options.time_s or (math.inf if simulated else DEFAULT_TIME_S)
        budget = ConfirmBudget(limit_s, options.max_probes, options.probe_s, simulated)
        finder = peak_finder(self.system, found.greatest, self.request, budget, self.scenario.lead_s)
        backend = RunBackend(
            self.scenario,
            self._simulate if simulated else self._executor(),
            LoadTarget(self.request.within, self.request.p95_s),
            warm_up(self.system),
            None if simulated else time.monotonic,
        )

        def show(number: int, order: LoadOrder, probe: LoadProbe | None) -> None:
            if not options.quiet:
                print_status(f"probe {number}: {order_text(found, order) if probe is None else probe_text(probe)}")

        return confirm_limit(self.system, found.greatest, finder, backend, even=self.scenario.even, on_probe=show)

    def _simulate(self, scenario: Scenario) -> Run:
        from venturi.run.directory import new_run_path
        from venturi.simulation import simulate

        path = new_run_path(self.options.runs, scenario.name, time.time_ns())
        return simulate(scenario, costs=self.request.costs, directory=path)

    def _executor(self) -> Callable[[Scenario], Run]:
        from venturi.cli.scenario_executor import scenario_executor

        options = self.options
        run = scenario_executor(
            self.backend, scratch=options.scratch, runs=options.runs, hosts=options.hosts, yes=options.yes,
            quiet=options.quiet, stopped="interrupted; finished probes are kept",
        )  # fmt: skip

        def execute(scenario: Scenario) -> Run:
            try:
                return run(scenario)
            except typer.Exit as stop:
                if stop.exit_code == Exit.STOPPED:
                    raise KeyboardInterrupt from stop
                raise

        return execute


def confirmation_text(found: LoadPrediction, confirmed: Confirmation) -> Group:
    """Return the comparison for a reader: sentence, table of the probes, and notes."""
    from venturi.prediction.confirm_text import confirmation_lines, confirmation_sentence, probe_row

    table = Table(box=None, pad_edge=False)
    for title in ("probe", "load", "held", "growth", "completed", "p95", "transfers", "time"):
        table.add_column(title, no_wrap=True)
    table.add_column("run", overflow="fold")
    for number, probe in enumerate(confirmed.probes, 1):
        table.add_row(*probe_row(found, number, probe))
    parts: list[Text | Table] = [Text(), Text(confirmation_sentence(found, confirmed), style="bold")]
    if confirmed.probes:
        parts += [Text(), table, Text()]
    parts += map(Text, confirmation_lines(found, confirmed))
    if confirmed.probes:
        parts.append(Text(f"Next: venturi report {confirmed.probes[-1].run}"))
    return Group(*parts)
