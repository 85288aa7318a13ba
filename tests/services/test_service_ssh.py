"""sshd, used by scp and sftp."""

import os
import shutil

import pytest
from bare import check_nothing_left, lacking, wait_until_ready

from testkit import wait_until
from venturi.errors import BackendError
from venturi.testbed.services.sshd import CLIENT_CONFIGURATION
from venturi.testbed.services.table import SERVICES

pytestmark = pytest.mark.skipif(lacking("sshd") is not None, reason=str(lacking("sshd")))


@pytest.fixture
def source(lab):
    path = lab.place("home") / "source"
    path.write_bytes(os.urandom(1_000_000))
    return path


def run(lab, host, program, *arguments):
    done = lab.run(host, program, "-F", lab.client_environment[CLIENT_CONFIGURATION], *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_files_go_both_ways_with_scp_and_sftp_and_nothing_is_left(lab, source):
    target = source.with_name("copy")
    for number in range(3):
        with lab.running(lab.room(f"ssh{number}", "sshd")) as doors:
            assert doors["ssh"].format(port=2222, path=source) == f"ssh://a.lab.test:2222{source}"
            run(lab, "b", "scp", "-q", f"a.lab.test:{source}", str(target))
            assert target.read_bytes() == source.read_bytes()
            run(lab, "b", "scp", "-q", str(source), f"scp://a.lab.test:2222/{target}2")
            assert target.with_name("copy2").read_bytes() == source.read_bytes()
            target.unlink()
            run(lab, "b", "sftp", "-q", doors["sftp"].format(port=2222, path=source), str(target))
            assert target.read_bytes() == source.read_bytes()
        check_nothing_left(lab)


def test_clients_know_each_of_several_servers(lab):
    with lab.running(lab.room("one", "sshd", "a")), lab.running(lab.room("two", "sshd", "b", ports=[2300])):
        for host in "ab":
            assert run(lab, "c", "ssh", f"{host}.lab.test", "hostname") == f"{host}.lab.test\n"


def test_a_session_that_is_open_ends_with_its_server(lab):
    said = lab.folder / "open.log"
    with lab.running(lab.room("open", "sshd")):
        argv = [
            "ssh",
            "-F",
            lab.client_environment[CLIENT_CONFIGURATION],
            "a.lab.test",
            "echo here; exec tail -f /dev/null",
        ]
        client = lab.machines["b"].start(argv, log=said)
        wait_until(lambda: "here" in said.read_text(), "the session to say something")
        wait_until(lambda: "tail" in lab.processes().values(), "the session to become what it was told to")
    wait_until(
        lambda: set(lab.processes().values()) <= {"ssh"}, "server and session to end, whatever the client does"
    )
    client.stop()
    check_nothing_left(lab)


def test_rsync_finds_its_way_by_the_environment(lab, source):
    if lab.run("b", "rsync", "--version").returncode:
        pytest.skip("not installed: rsync")
    target = source.with_name("synced")
    with lab.running(lab.room("rsync", "sshd")):
        done = lab.run("b", "rsync", "-W", f"a.lab.test:{source}", str(target))
        assert done.returncode == 0, done.stderr
        assert target.read_bytes() == source.read_bytes()


def test_the_cipher_is_the_one_that_was_asked_for(lab):
    with lab.running(lab.room("cipher", "sshd", cipher="aes256-ctr")):
        configuration = lab.client_environment[CLIENT_CONFIGURATION]
        done = lab.run("b", "ssh", "-v", "-o", "LogLevel=DEBUG1", "-F", configuration, "a.lab.test", "true")
        assert "cipher: aes256-ctr" in done.stderr


def test_a_cipher_that_is_unknown_is_refused(lab):
    with pytest.raises(BackendError, match=r"Bad SSH2 cipher spec 'rot13'"):
        SERVICES["sshd"].configure(lab.room("wrong", "sshd", cipher="rot13"))


def test_a_server_of_an_ordinary_user_lets_that_user_in(lab, source):
    lab.machines["a"].privileged = False
    service, room = SERVICES["sshd"], lab.room("plain-ssh", "sshd")
    try:
        service.configure(room)
        # In a lab without root the keys belong to the one ordinary user that there is.
        shutil.chown(room.folder / "host_key", "nobody")
        processes = service.start(room)
        try:
            wait_until_ready(service, room, processes)
            target = source.with_name("plain-copy")
            run(lab, "b", "scp", "-q", str(source), f"a.lab.test:{target}")
            assert target.read_bytes() == source.read_bytes()
            assert target.owner() == "nobody"
        finally:
            service.stop(room, processes)
    finally:
        lab.machines["a"].privileged = True
    check_nothing_left(lab)
