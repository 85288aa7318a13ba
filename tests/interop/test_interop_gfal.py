"""The suite ignores one crash of gfal-copy, and no other failure."""

import hashlib
import signal

import pytest
from interop_cases import GET, GLOBUS, OURS, InteropCase
from interop_defects import find_defect
from interop_gfal import crashed_on_exit
from interop_rig import Outcome

WITH_CERTIFICATES = ["gfal-copy", "-f", "gsiftp://localhost:2811/a", "file:///copy"]
CONTENT = b"content"


def died(path, argv=WITH_CERTIFICATES, code=-signal.SIGABRT):
    return crashed_on_exit(argv, code, path, hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def copy(tmp_path):
    path = tmp_path / "copy"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize("code", [-signal.SIGABRT, -signal.SIGSEGV])
def test_gfal_copy_may_die_of_two_signals_after_a_complete_copy(copy, code):
    assert died(copy, code=code)
    assert died(copy, ["/usr/bin/gfal-copy", "file:///copy", "srm://localhost:8446/srm?SFN=/a"], code)


@pytest.mark.parametrize("code", [0, 1, 6, 11, 134, 139, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGBUS])
def test_any_other_exit_code_is_not_excused(copy, code):
    assert not died(copy, code=code)


@pytest.mark.parametrize("url", ["ftp://localhost:2811/a", "davs://localhost/a", "https://localhost/a"])
def test_a_crash_without_gridftp_certificates_is_not_excused(copy, url):
    assert not died(copy, ["gfal-copy", "-f", url, "file:///copy"])


@pytest.mark.parametrize("program", ["globus-url-copy", "venturi-engine", "gfal-ls"])
def test_a_crash_of_another_program_is_not_excused(copy, program):
    assert not died(copy, [program, *WITH_CERTIFICATES[1:]])


@pytest.mark.parametrize("content", [b"", CONTENT[:-1], CONTENT + b"\n", b"Content"])
def test_a_crash_with_an_incomplete_copy_is_not_excused(copy, content):
    copy.write_bytes(content)
    assert not died(copy)


def test_a_crash_without_a_copy_is_not_excused(tmp_path):
    assert not died(tmp_path / "copy")
    assert not died(tmp_path)


def test_cases_with_certificates_are_complete_or_show_exactly_this_crash():
    for server in (OURS, GLOBUS):
        defect = find_defect(InteropCase("gfal-copy", server, GET, "S passive", "gsi nodcau"))
        for signal_name in ("SIGABRT", "SIGSEGV"):
            assert defect.shown_by(Outcome(False, f"died of {signal_name} with the copy whole", 1.0))
        assert defect.spares(Outcome(True, "", 1.0))
        for output in ("exit code -6: ", "expected SHA-256", "died of SIGBUS with the copy whole", ""):
            outcome = Outcome(False, output, 1.0)
            assert not defect.shown_by(outcome)
            assert not defect.spares(outcome)
    assert find_defect(InteropCase("gfal-copy", OURS, GET, "S passive")) is None
