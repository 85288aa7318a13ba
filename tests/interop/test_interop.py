"""The interoperability matrix, its short form: our client and our server with the programs that people use. The whole: `python tests/interop/matrix.py`."""

import subprocess
import sys
from pathlib import Path

import pytest
from interop_cells import GLOBUS, NAMES, OURS, PAIRINGS, SIZES, THIRD, cells
from interop_defects import DEFECTS, defect_of
from interop_rig import Rig

SHORT = cells(whole=False)


@pytest.fixture(scope="session")
def rig(engine):
    """Servers on loopback, each from its first use on."""
    with Rig.up(engine) as rig:
        yield rig


@pytest.mark.parametrize("cell", SHORT, ids=lambda cell: cell.id)
def test_a_file_arrives_as_it_was_sent_or_the_defect_that_is_stated_shows(rig, cell):
    if lacks := rig.lacks(cell):
        pytest.skip(lacks)
    outcome = rig.carry_out(cell)
    defect = defect_of(cell)
    if defect is None or defect.spares(outcome):
        assert outcome.identical, outcome.said
    else:
        assert defect.shown_by(outcome), (defect.says, outcome)


def test_the_whole_matrix_is_a_command_of_its_own(tmp_path):
    """From any folder, and without what pytest brings."""
    matrix = Path(__file__).with_name("matrix.py")
    told = subprocess.run(
        [sys.executable, matrix, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "--write" in told.stdout


def test_the_table_has_every_client_server_mode_count_of_streams_size_name_and_a_kill():
    whole = cells(whole=True)
    assert {cell.size for cell in whole} >= SIZES.keys() - {"512 MB"}
    assert {cell.name for cell in whole} == NAMES.keys()
    for ours in ({"client": OURS, "server": GLOBUS}, {"client": "globus-url-copy", "server": OURS}):
        of = [
            cell
            for cell in whole
            if cell.way != THIRD and all(getattr(cell, key) == value for key, value in ours.items())
        ]
        assert {cell.way for cell in of} == {"get", "put"}
        assert {cell.channel for cell in of} >= {"E 1", "E 2", "E 4", "E 16"}
    assert {pairing.client for pairing in PAIRINGS if pairing.server == OURS} >= {
        "globus-url-copy",
        "gfal-copy",
        "lftp",
        "curl",
        "ftplib",
        "wget",
    }
    assert any(cell.killed and cell.client == OURS for cell in SHORT)
    assert any(cell.way == THIRD and cell.target == OURS for cell in SHORT)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.of)
def test_a_defect_that_is_stated_is_met_by_a_cell(defect):
    assert any(defect_of(cell) is defect for cell in cells(whole=True))
