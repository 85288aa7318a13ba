"""Settings of verdicts: every mover has an entry, and its driver has the options."""

import inspect

from venturi.advice.tool_options import MOVER_OPTIONS, option_text
from venturi.mover import movers


def test_every_mover_has_an_entry() -> None:
    assert set(movers()) == set(MOVER_OPTIONS)


def test_a_mover_without_an_option_runs_several_times() -> None:
    assert option_text("davix", "files", 4) == "run 4 processes of davix at the same time"


def test_options_for_streams_and_files_exist_in_the_driver() -> None:
    for name, options in MOVER_OPTIONS.items():
        driver = inspect.getsource(inspect.getmodule(type(movers()[name])))
        for ability in ("streams", "files"):
            option = options.get(ability, "").split(" ")[0]
            # The driver of curl calls it once per file.
            if option and name != "curl":
                assert option in driver, (name, ability, option)
