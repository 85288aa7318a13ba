"""Error messages for invalid scenarios."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from malformed import CASES, details, document

from venturi.errors import ScenarioError
from venturi.scenario import load_scenario, scenario_from
from venturi.scenario.families import FAMILY_NAMES

GOOD_TOML = """\
venturi = 1
name = "good"
[testbed.host.node1]
[testbed.storage.gpfs]
host = "node1"
path = "data"
[workload]
kind = "sweep"
mover = "cp"
source = "gpfs"
destination = "gpfs"
[workload.factors]
size = ["10 MB"]
"""


@pytest.fixture
def check_file(tmp_path):
    """Return a function that writes files, loads `main.toml` with overrides, and compares the messages with the expected ones."""

    def check(files, expected, overrides=()):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path = tmp_path / "main.toml"
        with pytest.raises(ScenarioError) as caught:
            load_scenario(path, overrides)
        messages = str(caught.value).replace(f"{path}: ", "").splitlines()
        assert [details(line) for line in messages] == [details(line) for line in expected]
        assert all(re.search(r", found .*; .+", line) for line in messages)

    return check


@pytest.mark.parametrize("name", CASES)
def test_reports_every_error_with_location_and_next_step(name):
    edits, expected = CASES[name]
    with pytest.raises(ScenarioError) as caught:
        scenario_from(document(edits), "s.toml")
    messages = str(caught.value).splitlines()
    assert [details(line) for line in messages] == [details(f"s.toml: {line}") for line in expected]
    assert all(re.search(r", found .*; .+", line) for line in messages)


def test_no_message_contains_jargon_of_the_validator():
    text = " ".join(line for _, expected in CASES.values() for line in expected)
    for word in ("Input should", "Value error", "validation error", "pydantic", "Field required", "another value"):
        assert word not in text


def test_the_valid_scenario_has_no_errors():
    assert scenario_from(document({})).name == "good"


_STORAGES = [
    "venturi", "name", "seed", "scale", "include", "study", "testbed", "testbed.host", "testbed.host.node1",
    "testbed.host.node1.memory", "testbed.storage", "testbed.storage.gpfs", "testbed.storage.gpfs.rate", "workload",
    "workload.kind", "workload.mover", "workload.source", "workload.repeat", "workload.timeout", "workload.data_at_least",
    "workload.factors", "workload.factors.files", "workload.factors.size", "workload.factors.mover", "workload.factors.cache",
    "workload.factors.fsync", "workload.options", "workload.options.fsync", "workload.sweep", "workload.sweep.zip",
    "workload.sweep.filter", "mover", "mover.tool", "mover.tool.argv", "mover.tool.options", "measure", "measure.interval",
    "measure.counters", "analyse", "analyse.against", "analyse.families", "analyse.confidence",
]  # fmt: skip
_WORDS = st.sampled_from(
    ["1 MB", "cp", "read+write", "size", "files > 1", "{x}", "{", "2 x memory", "1e99 MB", "9e99 s", "gpfs", ""]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | _WORDS | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS | st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@example({"venturi": 2**63})
@given(st.dictionaries(st.sampled_from(_STORAGES), _VALUES, min_size=1, max_size=2))
@settings(deadline=None, max_examples=400)
def test_arbitrary_values_fail_only_with_a_scenario_error_without_jargon(edits):
    ordered = dict(sorted(edits.items(), key=lambda item: -item[0].count(".")))
    try:
        scenario_from(document(ordered))
    except ScenarioError as error:
        for where, what in error.problems:
            assert where
            assert "expected" in what
            assert "found" in what
            assert "another value" not in what


SYNTAX = {
    "an unquoted size": (
        GOOD_TOML.replace('["10 MB"]', "10 MB"),
        'line 13, column 11: expected TOML, found "size = 10 MB" (expected newline or end of document after a statement)',
    ),
    "an equals sign that is missing": (
        "venturi 1",
        "line 1, column 9: expected TOML, found \"venturi 1\" (expected '=' after a key in a key/value pair)",
    ),
    "a list that does not end": ("a = [1,", 'line 1, column 8: expected TOML, found "a = [1," (invalid value)'),
    "a table that stands twice": (
        "[a]\n[a]\n",
        "line 2, column 3: expected TOML, found \"[a]\" (cannot declare ('a',) twice)",
    ),
    "bytes that are no UTF-8": (b"name = '\xff'", "expected UTF-8 text, found byte 0xff at offset 8"),
    "lists in lists without end": (
        "a = " + "[" * 3000,
        "expected fewer levels of lists and tables, found deeper nesting",
    ),
}


@pytest.mark.parametrize("name", SYNTAX)
def test_invalid_toml_is_reported_with_line_and_column(name, check_file):
    text, expected = SYNTAX[name]
    check_file({"main.toml": text}, [expected])


def test_a_byte_order_mark_is_accepted(tmp_path):
    path = tmp_path / "marked.toml"
    path.write_text(GOOD_TOML, encoding="utf-8-sig")
    assert load_scenario(path).name


def test_a_scenario_can_request_every_model_family():
    from venturi.model import FAMILIES

    assert tuple(FAMILIES) == FAMILY_NAMES


def test_an_unreadable_file_is_reported(check_file, tmp_path):
    check_file({}, ["expected a readable file, found none (No such file or directory)"])
    (tmp_path / "main.toml").mkdir()
    check_file({}, ["expected a readable file, found none (Is a directory)"])


def test_all_errors_of_includes_are_reported_together(check_file):
    check_file(
        {
            "main.toml": 'include = ["a.toml", "gone.toml", "bad.toml", "new.toml"]\n' + GOOD_TOML,
            "a.toml": 'include = ["b.toml"]',
            "b.toml": 'include = ["a.toml", 3]',
            "bad.toml": "x = ",
            "new.toml": "venturi = 2",
        },
        [
            'include[0] (a.toml): include[0] (b.toml): include: expected a list of file names, found ["a.toml", 3]',
            "include[1] (gone.toml): expected a readable file, found none (No such file or directory)",
            'include[2] (bad.toml): line 1, column 5: expected TOML, found "x =" (invalid value)',
            "include[3] (new.toml): venturi: expected 1, found 2",
        ],
    )


def test_an_include_cycle_is_reported_with_its_members(check_file):
    check_file(
        {
            "main.toml": 'include = ["a.toml"]\n' + GOOD_TOML,
            "a.toml": 'include = ["sub/b.toml"]',
            "sub/b.toml": 'include = ["../a.toml"]',
        },
        [
            "include[0] (a.toml): include[0] (sub/b.toml): include[0]: "
            "expected includes without a circle, found a.toml → b.toml → a.toml"
        ],
    )


def test_the_number_of_included_files_is_limited(tmp_path):
    files = {f"i{n}.toml": f'include = ["i{n + 1}.toml", "i{n + 1}.toml"]' for n in range(12)}
    files["i12.toml"] = ""
    for name, text in {"main.toml": 'include = ["i0.toml"]\n' + GOOD_TOML, **files}.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(tmp_path / "main.toml")
    assert [what for _, what in caught.value.problems] == [
        "expected at most 100 included files, found more; merge some of them"
    ]


def test_a_mistake_in_an_included_file_is_reported_with_its_name(check_file):
    check_file(
        {"main.toml": 'include = ["common.toml"]\n' + GOOD_TOML, "common.toml": "[measure]\ninterval = 5\n"},
        ['measure.interval: expected a time such as "100 ms", or "off", found 5 (from common.toml)'],
    )


OVERRIDES = {
    "no value": ("workload.repeat", "--set workload.repeat: expected KEY=VALUE, found workload.repeat"),
    "no key": ("=3", "--set =3: expected KEY=VALUE, found =3"),
    "an index": (
        "workload.factors.size[0]='1 MB'",
        "--set workload.factors.size[0]='1 MB': expected KEY=VALUE, "
        "found workload.factors.size[0]='1 MB'",
    ),
    "a key below a value": ("workload.mover.x=1", '--set workload.mover.x=1: expected a table at workload.mover, found "cp"'),
    "a list that extends a number": (
        "venturi+=[2]",
        "--set venturi+=[2]: expected two lists for +=, found 1 and [2]; use = instead",
    ),
    "a value that is wrong": ("workload.repeat=0", "workload.repeat: expected 1 or more, found 0 (from --set workload.repeat)"),
    "text where a number is due": (
        "workload.repeat=many",
        'workload.repeat: expected a whole number, found "many" (from --set workload.repeat)',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OVERRIDES)
def test_invalid_overrides_are_reported(name, check_file):
    override, expected = OVERRIDES[name]
    check_file({"main.toml": GOOD_TOML}, expected.splitlines(), [override])


def test_a_document_without_a_file_cannot_include():
    with pytest.raises(ScenarioError, match="include: expected no includes in a document without a file"):
        scenario_from(document({"include": ["a.toml"]}))
