"""Studies are found by name and by the ID of an experiment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from venturi.cli.outcome import Exit
from venturi.cli.study import _run_in_sequence
from venturi.errors import ScenarioError
from venturi.study import experiments, studies, studies_of

VENTURI = [sys.executable, "-c", "from venturi.cli import main; main()"]


def venturi(directory, *words, **environment):
    return subprocess.run(
        [*VENTURI, *words], cwd=directory, env=os.environ | environment, capture_output=True, text=True, timeout=120
    )


def test_every_experiment_leads_to_the_studies_that_name_it():
    for experiment in experiments():
        found = studies_of(experiment.id)
        assert [study.name for study in found] == [
            name for name, study in studies().items() if experiment.id in study.experiments
        ]
        assert found
    assert [studies_of(name) for name in studies()] == [(study,) for study in studies().values()]


@pytest.mark.parametrize(
    ("named", "nearest"),
    [("002-SX", "002-SQ"), ("002-sq", "002-SQ"), ("cnaf/pc", "cnaf/cp"), ("Alice/Flat", "alice/flat")],
)
def test_an_unknown_name_gets_a_suggestion(named, nearest):
    with pytest.raises(ScenarioError, match=f'found "{named}"; did you mean "{nearest}"'):
        studies_of(named)


def test_a_name_without_a_similar_one_gets_a_hint_to_the_list():
    with pytest.raises(ScenarioError, match=r'found "moon"; see `venturi study list`'):
        studies_of("moon")


def test_show_prints_all_studies_of_an_experiment_but_only_a_single_scenario(tmp_path):
    records = json.loads(venturi(tmp_path, "study", "show", "004-TCP", "--json").stdout)
    assert [study["name"] for study in records] == ["alice/matrix", "alice/matrix-bbftp"]
    assert json.loads(venturi(tmp_path, "study", "show", "alice/matrix", "--json").stdout) == records[0]
    rejected = venturi(tmp_path, "study", "show", "004-TCP", "--scenario")
    assert (rejected.returncode, rejected.stdout) == (1, "")
    assert "expected one study, found several for 004-TCP: alice/matrix, alice/matrix-bbftp" in rejected.stderr


def test_the_next_study_is_started_after_a_study_that_cannot_run(tmp_path):
    done = venturi(tmp_path, "study", "run", "002-GF", "--quick", "--set", "workload.repeet=1")
    assert done.returncode == Exit.ERROR
    assert "002-GF: ani/gridftp, ani/managed" in done.stderr
    for name in ("ani/gridftp", "ani/managed"):
        assert f"venturi: {name}: " in done.stderr
    assert "0 of 2 studies succeeded" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("outcomes", "code", "executed"),
    [
        ([None, None], None, 2),
        ([Exit.FAILED_TRANSFERS, None], Exit.FAILED_TRANSFERS, 2),
        ([Exit.FAILED_TRANSFERS, ScenarioError([("", "no")], "study")], Exit.ERROR, 2),
        ([Exit.STOPPED, None], Exit.STOPPED, 1),
    ],
)
def test_a_sequence_of_studies_has_the_worst_exit_code_and_stops_at_ctrl_c(outcomes, code, executed):
    started = []

    def execute(study):
        end = outcomes[len(started)]
        started.append(study.name)
        if isinstance(end, Exit):
            raise typer.Exit(end)
        if end is not None:
            raise end

    chosen = studies_of("002-GF")
    if code is None:
        _run_in_sequence(chosen, execute)
    else:
        with pytest.raises(typer.Exit) as ended:
            _run_in_sequence(chosen, execute)
        assert ended.value.exit_code == code
    assert len(started) == executed


def test_a_shell_completes_studies_and_experiments(tmp_path):
    program = Path(sys.executable).parent / "venturi"
    found = {}
    for word in ("002-", "ani/gr"):
        words = {"_VENTURI_COMPLETE": "complete_bash", "COMP_WORDS": f"venturi study run {word}", "COMP_CWORD": "3"}
        done = subprocess.run(
            [program], env=os.environ | words, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        found[word] = done.stdout.split()
    assert found == {
        "002-": ["002-SQ", "002-GF", "002-GT", "002-SRM"],
        "ani/gr": ["ani/gridftp", "ani/gridftp-protocol"],
    }
