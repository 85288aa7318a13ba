"""Short interoperability matrix: client and server of Venturi with common programs.

`python tests/interop/matrix.py` runs the complete matrix.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from interop_cases import GLOBUS, NAMES, OURS, PAIRINGS, SIZES, THIRD, cases
from interop_defects import DEFECTS, find_defect
from interop_rig import Rig

SHORT = cases(whole=False)


@pytest.fixture(scope="session")
def rig(engine):
    """Servers on loopback, each started on first use."""
    with Rig.up(engine) as rig:
        yield rig


@pytest.mark.parametrize("case", SHORT, ids=lambda case: case.id)
def test_a_file_arrives_unchanged_or_shows_its_documented_defect(rig, case):
    if lacks := rig.lacks(case):
        pytest.skip(lacks)
    outcome = rig.execute(case)
    defect = find_defect(case)
    if defect is None or defect.spares(outcome):
        assert outcome.identical, outcome.output
    else:
        assert defect.shown_by(outcome), (defect.message, outcome)


def test_the_full_matrix_is_a_standalone_command(tmp_path):
    """It runs from any directory and without pytest."""
    matrix = Path(__file__).with_name("matrix.py")
    output = subprocess.run(
        [sys.executable, matrix, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "--write" in output.stdout


def test_the_matrix_has_every_client_server_mode_stream_count_size_name_and_a_kill():
    whole = cases(whole=True)
    assert {case.size for case in whole} >= SIZES.keys() - {"512 MB"}
    assert {case.name for case in whole} == NAMES.keys()
    for ours in ({"client": OURS, "server": GLOBUS}, {"client": "globus-url-copy", "server": OURS}):
        of = [
            case
            for case in whole
            if case.direction != THIRD and all(getattr(case, key) == value for key, value in ours.items())
        ]
        assert {case.direction for case in of} == {"get", "put"}
        assert {case.channel for case in of} >= {"E 1", "E 2", "E 4", "E 16"}
    assert {pairing.client for pairing in PAIRINGS if pairing.server == OURS} >= {
        "globus-url-copy",
        "gfal-copy",
        "lftp",
        "curl",
        "ftplib",
        "wget",
    }
    assert any(case.killed and case.client == OURS for case in SHORT)
    assert any(case.direction == THIRD and case.target == OURS for case in SHORT)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.of)
def test_each_documented_defect_applies_to_a_case(defect):
    assert any(find_defect(case) is defect for case in cases(whole=True))
