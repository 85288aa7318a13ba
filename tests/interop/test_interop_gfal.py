"""The one death of a client that the suite passes over, and that it passes over no other."""

import hashlib
import signal

import pytest
from interop_cells import GET, GLOBUS, OURS, Cell
from interop_defects import defect_of
from interop_gfal import died_at_its_end
from interop_rig import Outcome

WITH_CERTIFICATES = ["gfal-copy", "-f", "gsiftp://localhost:2811/a", "file:///copy"]
CONTENT = b"content"


def died(path, argv=WITH_CERTIFICATES, code=-signal.SIGABRT):
    return died_at_its_end(argv, code, path, hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def copy(tmp_path):
    path = tmp_path / "copy"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize("code", [-signal.SIGABRT, -signal.SIGSEGV])
def test_gfal_copy_may_die_of_two_signals_when_the_copy_is_whole(copy, code):
    assert died(copy, code=code)
    assert died(copy, ["/usr/bin/gfal-copy", "file:///copy", "srm://localhost:8446/srm?SFN=/a"], code)


@pytest.mark.parametrize("code", [0, 1, 6, 11, 134, 139, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGBUS])
def test_any_other_end_is_what_it_is(copy, code):
    assert not died(copy, code=code)


@pytest.mark.parametrize("url", ["ftp://localhost:2811/a", "davs://localhost/a", "https://localhost/a"])
def test_without_certificates_of_gridftp_it_has_no_such_excuse(copy, url):
    assert not died(copy, ["gfal-copy", "-f", url, "file:///copy"])


@pytest.mark.parametrize("program", ["globus-url-copy", "venturi-engine", "gfal-ls"])
def test_no_other_program_has_it(copy, program):
    assert not died(copy, [program, *WITH_CERTIFICATES[1:]])


@pytest.mark.parametrize("content", [b"", CONTENT[:-1], CONTENT + b"\n", b"Content"])
def test_a_copy_that_is_not_whole_is_told(copy, content):
    copy.write_bytes(content)
    assert not died(copy)


def test_no_copy_at_all_is_told(tmp_path):
    assert not died(tmp_path / "copy")
    assert not died(tmp_path)


def test_cells_with_certificates_are_whole_or_show_just_that():
    for server in (OURS, GLOBUS):
        defect = defect_of(Cell("gfal-copy", server, GET, "S passive", "gsi nodcau"))
        for signal_name in ("SIGABRT", "SIGSEGV"):
            assert defect.shown_by(Outcome(False, f"died of {signal_name} with the copy whole", 1.0))
        assert defect.spares(Outcome(True, "", 1.0))
        for said in ("exit code -6: ", "expected SHA-256", "died of SIGBUS with the copy whole", ""):
            outcome = Outcome(False, said, 1.0)
            assert not defect.shown_by(outcome)
            assert not defect.spares(outcome)
    assert defect_of(Cell("gfal-copy", OURS, GET, "S passive")) is None
