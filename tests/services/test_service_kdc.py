"""The key distribution centre, with kinit and kvno as clients."""

import pytest
from bare import check_nothing_left, lacking

from venturi.errors import BackendError
from venturi.testbed.services.kdc import REALM, issue_keytab
from venturi.testbed.services.table import SERVICES

pytestmark = pytest.mark.skipif(lacking("kdc") is not None, reason=str(lacking("kdc")))


@pytest.mark.parametrize("time", [1, 2, 3])
def test_a_client_gets_a_service_ticket_and_the_kdc_cleans_up(lab, time):
    context = lab.context(f"kdc{time}", "kdc", host="c")
    with lab.running(context) as service_ports:
        assert service_ports == {}
        keytab = issue_keytab(context, "xrootd/a.lab.test", context.directory / "a.keytab")
        assert keytab.stat().st_mode & 0o777 == 0o600
        got = lab.run("b", "kvno", "xrootd/a.lab.test")
        assert got.returncode == 0, got.stderr
        held = lab.run("b", "klist")
        assert f"Default principal: labuser@{REALM}" in held.stdout
        assert f"xrootd/a.lab.test@{REALM}" in held.stdout
        own = lab.run(
            "a", "kinit", "-k", "-t", str(keytab), "-c", f"FILE:{context.directory}/a.cache", "xrootd/a.lab.test"
        )
        assert own.returncode == 0, own.stderr
        unknown = lab.run("b", "kvno", "xrootd/nobody.lab.test")
        assert "not found in Kerberos database" in unknown.stderr
    check_nothing_left(lab)


def test_a_ticket_has_the_requested_lifetime(lab):
    context = lab.context("short", "kdc", host="c", user="other", lifetime_s=3600.0, ports=[9999])
    with lab.running(context):
        assert lab.listening() == [9999]
        lines = lab.run("a", "klist").stdout.splitlines()
        assert "other@LAB.TEST" in lines[1]
        ticket = next(line for line in lines if "krbtgt" in line).split()
        start, end = (_minutes(ticket[index]) for index in (1, 3))
        assert 59 <= (end - start) % 1440 <= 61


def test_a_keytab_that_cannot_be_written_is_reported(lab):
    context = lab.context("full", "kdc", host="c")
    with (
        lab.running(context),
        pytest.raises(BackendError, match=r"full: cannot create a keytab of a/b"),
    ):
        issue_keytab(context, "a/b", context.directory / "no-folder/a.keytab")


def test_the_kdc_has_no_needs_and_two_options():
    context = SERVICES["kdc"]
    assert context.needs(None) == ()
    assert [option.key for option in context.options] == ["user", "lifetime_s"]


def _minutes(clock):
    hours, minutes, _ = clock.split(":")
    return int(hours) * 60 + int(minutes)
