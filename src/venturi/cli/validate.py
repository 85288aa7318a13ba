"""``venturi validate``: compare a model with a run that it has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from venturi.cli.options import RUNS, JsonFlag, Runs
from venturi.cli.outcome import check_output, print_data, print_json, print_status, report_write_errors
from venturi.cli.simulated import print_simulated
from venturi.errors import FitError, RunError, ScenarioError
from venturi.run import Run, resolve_run

if TYPE_CHECKING:
    from venturi.analysis.section import ReportSection
    from venturi.calibration.fit_validation import FitValidation
    from venturi.calibration.result import Validation

__all__ = ["validate"]


def validate(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] RUN",
            help="File from `venturi fit -o` or `venturi calibrate -o`, and path or name of a run. "
            "Without a file: the costs in the plan.",
        ),
    ],
    hold_out: Annotated[
        float,
        typer.Option(
            help="Costs: compare only the points that `venturi calibrate` left out with this fraction and seed; 0: all points.",
            min=0.0,
            max=0.9,
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed that selects these points.", min=0)] = 1,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Directory for the page, tables (CSV) and figures (PNG).", file_okay=False
        ),
    ] = None,
    runs: Runs = RUNS,
    as_json: JsonFlag = False,
) -> None:
    """Compare a model with a run that it has not seen, and judge whether the model holds.

    Fitted curves predict the rate of each point of the run. Points outside the fitted range are listed apart. For costs,
    Venturi simulates the plan of the run and compares each transfer with its measurement. For reference, the result
    then also has a naive estimate (bytes over the slowest link, and one round trip) and the differences between trials
    of the same point.

    The verdict is *yes*, *no* or *unknown*, with the rule that decided.

    Examples: `venturi validate fit.json monday`, `venturi validate costs.toml my-lab -o validation`, `venturi validate costs.toml my-lab --hold-out 0.5`
    """
    if len(names) > 2:
        raise ScenarioError([("RUN", f"expected one model and one run, found {', '.join(names)}; name one run")], "validate")  # fmt: skip
    if output is not None:
        check_output(output, directory=True)
    model = Path(names[0]) if len(names) == 2 else None
    if model is not None and not model.is_file():
        raise RunError(
            f"{model}: expected a file of fitted curves or a cost file, found {'a directory' if model.is_dir() else 'no file'};"
            " create one with `venturi fit RUN -o FILE` or `venturi calibrate RUN -o FILE`"
        )
    run = Run.open(resolve_run(names[-1], runs))
    result: FitValidation | Validation
    if model is not None and _has_fits(model):
        if hold_out:
            raise ScenarioError([("--hold-out", "expected a cost file, found fitted curves; omit --hold-out")], str(model))  # fmt: skip
        result, section = _validate_fit(model, run)
    else:
        result, section = _simulate(model, run, hold_out, seed)
    from venturi import report as forms  # matplotlib takes seconds to import
    from venturi.calibration.to_json import as_plain

    if as_json:
        print_json(as_plain(result))
    else:
        print_data(forms.single_terminal(section))
    if output is not None:
        with report_write_errors(output):
            written = forms.write_single(section, result.run, output)
        for path in written:
            print_status(f"wrote {path}")


def _has_fits(model: Path) -> bool:
    """Return whether a file has fitted curves (JSON) instead of costs (TOML). A TOML document starts with no brace."""
    try:
        with model.open(encoding="utf-8") as file:
            first = file.read(4096).lstrip()
    except (OSError, UnicodeDecodeError) as error:
        raise FitError(f"{model}: cannot read the model ({error}); check the path") from error
    return first.startswith("{") or (first.startswith("[") and model.suffix == ".json")


def _validate_fit(model: Path, run: Run) -> tuple[FitValidation, ReportSection]:
    from venturi.calibration.fit_document import read_fit  # scipy takes seconds to import
    from venturi.calibration.fit_validation import validate_fit
    from venturi.calibration.fit_validation_section import fit_validation_section

    result = validate_fit(read_fit(model), run)
    return result, fit_validation_section(result)


def _simulate(model: Path | None, run: Run, hold_out: float, seed: int) -> tuple[Validation, ReportSection]:
    from venturi.calibration.document import read_costs  # scipy takes seconds to import
    from venturi.calibration.origin import read_origin
    from venturi.calibration.sections import validation_section
    from venturi.calibration.validate import validate as compare

    print_simulated([run])
    result = compare(
        run,
        None if model is None else read_costs(model),
        costs="" if model is None else model.name,
        hold_out=hold_out,
        seed=seed,
        calibrated_on=() if model is None else read_origin(model).runs,
    )
    return result, validation_section(result)
