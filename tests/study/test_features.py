"""Every study, test and command that implements a capability exists."""

import csv
import re
from functools import cache
from pathlib import Path

import pytest
import typer.main
from test_study_quick import LONGEST_FIRST
from typer.core import TyperGroup

from venturi.cli.root import app
from venturi.study import features as published
from venturi.study import studies
from venturi.study.features import features, features_reference

ROOT = Path(__file__).parents[2]
MEANS = [(feature.id, means) for feature in features() for means in feature.by]


@cache
def names_of_tests(path):
    """Return the names of the tests in a Python or Rust file, without ignored tests."""
    text = (ROOT / path).read_text(encoding="utf-8")
    found = re.findall(r"^(?:async )?def (test_\w+)\(", text, flags=re.MULTILINE)
    return {*found, *re.findall(r"#\[test\]\s+fn (\w+)\(", text)}


def test_the_feature_table_has_168_capabilities_in_order():
    assert [feature.id for feature in features()] == [f"F{number}" for number in range(1, 169)]
    assert all(feature.capability and feature.area for feature in features())


def test_a_row_names_its_implementation_or_its_missing_part():
    for feature in features():
        assert feature.by or feature.missing, feature.id
        assert feature.state == ("not implemented" if not feature.by else "in part" if feature.missing else "done")


@pytest.mark.parametrize(("id_", "means"), MEANS)
def test_every_named_implementation_exists(id_, means):
    if means.kind == "study":
        assert means.name in studies()
        assert means.name in LONGEST_FIRST, "a study that no test runs proves nothing"
    elif means.kind == "test":
        path, name = means.name.split("::")
        assert name in names_of_tests(path)
    else:
        program, *words = means.name.split()
        assert program == "venturi"
        command = typer.main.get_command(app)
        for word in words:
            assert isinstance(command, TyperGroup)
            command = command.get_command(typer.Context(command), word)


def test_invalid_rows_are_reported_by_their_id(tmp_path, monkeypatch):
    for by, missing, why in (("", "", "F7.*found neither"), ("idea good", "", "F7.*found 'idea good'")):
        path = tmp_path / "features.csv"
        with path.open("w", newline="") as stream:
            rows = csv.writer(stream)
            rows.writerows([("id", "area", "capability", "by", "missing"), ("F7", "a", "b", by, missing)])
        monkeypatch.setattr(published, "_FILE", path)
        with pytest.raises(ValueError, match=why):
            features()


def test_a_completed_feature_is_not_proved_by_a_command_alone():
    """The existence of a command does not prove that it works."""
    for feature in features():
        assert feature.state != "done" or {means.kind for means in feature.by} != {"command"}, feature.id


def test_the_published_page_matches_the_feature_table():
    page = (ROOT / "docs" / "reference" / "features.md").read_text(encoding="utf-8")
    assert page == features_reference(), "the page is out of date; run `make reference`"
