"""A study is found by its name, and by the ID of an experiment that it carries out."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from venturi.cli.outcome import Exit
from venturi.cli.study import _one_after_the_other
from venturi.errors import ScenarioError
from venturi.study import experiments, studies, studies_of

VENTURI = [sys.executable, "-c", "from venturi.cli import main; main()"]


def venturi(folder, *words, **environment):
    return subprocess.run(
        [*VENTURI, *words], cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=120
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
def test_what_is_unknown_is_answered_with_the_nearest(named, nearest):
    with pytest.raises(ScenarioError, match=f'found "{named}"; did you mean "{nearest}"'):
        studies_of(named)


def test_what_is_like_nothing_is_answered_with_where_to_look():
    with pytest.raises(ScenarioError, match=r'found "moon"; see `venturi study list`'):
        studies_of("moon")


def test_show_shows_all_studies_of_an_experiment_and_prints_no_two_scenarios_in_one(tmp_path):
    told = json.loads(venturi(tmp_path, "study", "show", "004-TCP", "--json").stdout)
    assert [study["name"] for study in told] == ["alice/matrix", "alice/matrix-bbftp"]
    assert json.loads(venturi(tmp_path, "study", "show", "alice/matrix", "--json").stdout) == told[0]
    refused = venturi(tmp_path, "study", "show", "004-TCP", "--scenario")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "expected one study, found those of 004-TCP: alice/matrix, alice/matrix-bbftp" in refused.stderr


def test_a_study_that_cannot_be_carried_out_does_not_keep_the_next_from_being_tried(tmp_path):
    done = venturi(tmp_path, "study", "run", "002-GF", "--quick", "--set", "workload.repeet=1")
    assert done.returncode == Exit.ERROR
    assert "002-GF: ani/gridftp, ani/managed" in done.stderr
    for name in ("ani/gridftp", "ani/managed"):
        assert f"venturi: {name}: " in done.stderr
    assert "0 of 2 studies went well" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("ends", "code", "carried_out"),
    [
        ([None, None], None, 2),
        ([Exit.FAILED_TRANSFERS, None], Exit.FAILED_TRANSFERS, 2),
        ([Exit.FAILED_TRANSFERS, ScenarioError([("", "no")], "study")], Exit.ERROR, 2),
        ([Exit.STOPPED, None], Exit.STOPPED, 1),
    ],
)
def test_the_gravest_end_is_that_of_all_and_ctrl_c_ends_all(ends, code, carried_out):
    begun = []

    def carry_out(study):
        end = ends[len(begun)]
        begun.append(study.name)
        if isinstance(end, Exit):
            raise typer.Exit(end)
        if end is not None:
            raise end

    chosen = studies_of("002-GF")
    if code is None:
        _one_after_the_other(chosen, carry_out)
    else:
        with pytest.raises(typer.Exit) as ended:
            _one_after_the_other(chosen, carry_out)
        assert ended.value.exit_code == code
    assert len(begun) == carried_out


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
