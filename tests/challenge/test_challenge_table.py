"""Tables of rates: CSV and TOML have the same rows, and each mistake is reported with its line and column."""

import math

import pytest
from challengekit import star_testbed, table

from venturi.challenge import build_testbed, check_feasibility, read_table
from venturi.errors import ScenarioError

CSV = """# rates of the second week
from,to,rate,start,end,sizes
Alpha,Beta,10 Gb/s,0,2 h,1 GB; 4 GB

Beta,Gamma,100 MB/s,30 min,2 h,500 MB
"""
TOML = """[[row]]
from = "Alpha"
to = "Beta"
rate = "10 Gb/s"
end = "2 h"
sizes = ["1 GB", "4 GB"]

[[row]]  # the second one
from = "Beta"
to = "Gamma"
rate = "100 MB/s"
start = "30 min"
end = "2 h"
sizes = "500 MB"
"""


def read(tmp_path, text, name="rates.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_table(path)


def problems_of(tmp_path, text, name="rates.csv"):
    with pytest.raises(ScenarioError) as raised:
        read(tmp_path, text, name)
    assert str(raised.value).startswith(str(tmp_path / name))
    return raised.value.problems


def values(rows):
    return [(r.source, r.destination, r.rate_bit_per_s, r.start_s, r.end_s, r.sizes_bytes) for r in rows]


def test_both_formats_give_the_same_rows_in_base_units(tmp_path):
    expected = [
        ("Alpha", "Beta", 1e10, 0.0, 7200.0, (10**9, 4 * 10**9)),
        ("Beta", "Gamma", 8e8, 1800.0, 7200.0, (5 * 10**8,)),
    ]
    written, toml = read(tmp_path, CSV), read(tmp_path, TOML, "rates.toml")
    assert values(written.rows) == values(toml.rows) == expected
    assert [row.where for row in written.rows] == ["line 3", "line 5"]
    assert [row.where for row in toml.rows] == ["line 1", "line 8"]


def test_a_table_of_three_columns_is_for_an_unlimited_time(tmp_path):
    found = read(tmp_path, "\ufeffTo, From, Rate\nBeta, Alpha, 1 Gb/s\n")
    assert values(found.rows) == [("Alpha", "Beta", 1e9, 0.0, math.inf, ())]
    assert not found.has_end


@pytest.mark.parametrize(
    ("line", "where", "found"),
    [
        ("Alpha,Beta,10,0,2 h,1 GB", "line 2: rate", '"10" without a unit'),
        ("Alpha,Beta,10 GB,0,2 h,1 GB", "line 2: rate", '"10 GB"'),
        ("Alpha,Beta,0 Gb/s,0,2 h,1 GB", "line 2: rate", '"0 Gb/s"'),
        ("Alpha,Beta,,0,2 h,1 GB", "line 2: rate", "nothing"),
        (",Beta,1 Gb/s,0,2 h,1 GB", "line 2: from", "nothing"),
        ("Alpha,Beta,1 Gb/s,2 h,1 h,1 GB", "line 2: end", '"1 h"'),
        ("Alpha,Beta,1 Gb/s,0,1 hour,1 GB", "line 2: end", '"1 hour"'),
        ("Alpha,Beta,1 Gb/s,0,1 h,1 Gb", "line 2: sizes", '"1 Gb"'),
        ("Alpha,Beta,1 Gb/s,0,1 h,1 GB;1 GB", "line 2: sizes", '"1 GB;1 GB"'),
        ("Alpha,Beta,1 Gb/s,0,1 h,1 GB,2 GB", "line 2", "7"),
    ],
)
def test_each_mistake_names_line_column_value_and_next_step(tmp_path, line, where, found):
    ((location, message),) = problems_of(tmp_path, f"from,to,rate,start,end,sizes\n{line}\n")
    assert location == where
    assert "expected " in message
    assert f"found {found}" in message
    assert ";" in message


def test_all_mistakes_are_reported_together(tmp_path):
    text = "from,to,rate,end\nA,B,1,1 h\nA,C,1 Gb/s,x\nA,D,1 Gb/s,\n"
    assert [where for where, _ in problems_of(tmp_path, text)] == ["line 2: rate", "line 3: end"]
    text = "from,to,rate,end\nA,B,1 Gb/s,1 h\nA,D,1 Gb/s,\n"
    assert [where for where, _ in problems_of(tmp_path, text)] == ["line 3: end"]


@pytest.mark.parametrize(
    ("text", "where", "part"),
    [
        ("", "line 1", "from, to, rate"),
        ("from,to,rate\n", "", "one row or more"),
        ("from,to,rates\na,b,1 Gb/s\n", "line 1", "did you mean rate"),
        ("from,to,rate,rate\na,b,1 Gb/s,1 Gb/s\n", "line 1: rate", "found 2"),
    ],
)
def test_a_wrong_heading_is_reported(tmp_path, text, where, part):
    found = problems_of(tmp_path, text)
    assert found[0][0] == where
    assert part in found[0][1]


def test_mistakes_in_toml_have_the_line_of_the_key(tmp_path):
    text = TOML.replace('rate = "100 MB/s"', "rate = 100").replace("start =", "begin =")
    assert [where for where, _ in problems_of(tmp_path, text, "rates.toml")] == ["line 12", "line 11: rate"]
    ((where, message),) = problems_of(tmp_path, "[[rows]]\nfrom = 'a'\n", "rates.toml")[:1]
    assert where == "rows"
    assert "did you mean row?" in message
    assert problems_of(tmp_path, "row = [{from = 'a', to = 'b', rate = '1'}]", "rates.toml")[0][0] == "row[0]: rate"
    assert problems_of(tmp_path, "[[row]]\nfrom = \n", "rates.toml")[0][0].startswith("line 2")


def test_a_missing_file_is_reported(tmp_path):
    for name in ("none.csv", "none.toml"):
        with pytest.raises(ScenarioError, match="expected a readable file"):
            read_table(tmp_path / name)


BED = {"Alpha": "1 Gb/s", "Beta": "1 Gb/s"}


def names_problem(*rows, bed=None):
    with pytest.raises(ScenarioError) as raised:
        check_feasibility(table(*rows), bed or star_testbed(BED))
    assert raised.value.source == "rates.csv"
    return raised.value.problems


def test_unknown_and_equal_sites_are_reported_with_their_column():
    ((where, message),) = names_problem(("Alpha", "Betta", 1))
    assert where == "line 2: to"
    assert 'found "Betta"; did you mean Beta?' in message
    ((where, message),) = names_problem(("Alpha", "alpha", 1))
    assert where == "line 2: to"
    assert "another site than Alpha" in message


def test_a_pair_twice_at_a_time_is_reported_even_with_other_names():
    ((where, message),) = names_problem(
        ("Alpha", "Beta", 1, 0, 60), ("Beta", "Alpha", 1, 0, 60), ("alpha", "beta", 2, 30, 90)
    )
    assert where == "line 4"
    assert "found line 2 at the same time (30 s)" in message
    check_feasibility(table(("Alpha", "Beta", 1, 0, 60), ("alpha", "beta", 2, 60, 90)), star_testbed(BED))


def test_a_pair_without_a_route_and_a_host_without_a_storage_are_reported():
    apart = star_testbed(BED, host={"alpha": {"site": "Alpha"}, "beta": {"site": "Beta"}, "gamma": {"site": "Gamma"}})
    ((where, message),) = names_problem(("Alpha", "gamma", 1), bed=apart)
    assert where == "line 2: to"
    assert 'found "gamma" without one' in message
    parts = dict(apart.document["testbed"])
    parts["storage"] = {**parts["storage"], "gamma": {"host": "gamma", "path": "disk"}}
    ((where, message),) = names_problem(("Alpha", "Gamma", 1), bed=build_testbed({"testbed": parts}, "testbed"))
    assert where == "line 2: to"
    assert "a route from alpha to gamma, found none" in message
