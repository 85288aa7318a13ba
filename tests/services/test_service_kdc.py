"""The key distribution centre, asked by kinit and kvno."""

import pytest
from bare import check_nothing_left, lacking

from venturi.errors import BackendError
from venturi.testbed.services.kdc import REALM, issue_keytab
from venturi.testbed.services.table import SERVICES

pytestmark = pytest.mark.skipif(lacking("kdc") is not None, reason=str(lacking("kdc")))


@pytest.mark.parametrize("time", [1, 2, 3])
def test_a_client_gets_a_ticket_of_a_service_and_nothing_is_left(lab, time):
    room = lab.room(f"kdc{time}", "kdc", host="c")
    with lab.running(room) as doors:
        assert doors == {}
        keytab = issue_keytab(room, "xrootd/a.lab.test", room.folder / "a.keytab")
        assert keytab.stat().st_mode & 0o777 == 0o600
        got = lab.run("b", "kvno", "xrootd/a.lab.test")
        assert got.returncode == 0, got.stderr
        held = lab.run("b", "klist")
        assert f"Default principal: labuser@{REALM}" in held.stdout
        assert f"xrootd/a.lab.test@{REALM}" in held.stdout
        own = lab.run("a", "kinit", "-k", "-t", str(keytab), "-c", f"FILE:{room.folder}/a.cache", "xrootd/a.lab.test")
        assert own.returncode == 0, own.stderr
        unknown = lab.run("b", "kvno", "xrootd/nobody.lab.test")
        assert "not found in Kerberos database" in unknown.stderr
    check_nothing_left(lab)


def test_a_ticket_lives_as_long_as_it_is_asked_to(lab):
    room = lab.room("short", "kdc", host="c", user="other", lifetime_s=3600.0, ports=[9999])
    with lab.running(room):
        assert lab.listening() == [9999]
        lines = lab.run("a", "klist").stdout.splitlines()
        assert "other@LAB.TEST" in lines[1]
        ticket = next(line for line in lines if "krbtgt" in line).split()
        begin, end = (_minutes(ticket[index]) for index in (1, 3))
        assert 59 <= (end - begin) % 1440 <= 61


def test_a_keytab_that_cannot_be_written_is_said(lab):
    room = lab.room("full", "kdc", host="c")
    with (
        lab.running(room),
        pytest.raises(BackendError, match=r"full: expected kadmin\.local to make a keytab of a/b"),
    ):
        issue_keytab(room, "a/b", room.folder / "no-folder/a.keytab")


def test_it_is_planned_without_being_there():
    room = SERVICES["kdc"]
    assert room.needs(None) == ()
    assert [option.key for option in room.options] == ["user", "lifetime_s"]


def _minutes(clock):
    hours, minutes, _ = clock.split(":")
    return int(hours) * 60 + int(minutes)
