"""sshd with scp and sftp as clients."""

import os
import shutil

import pytest
from bare import check_nothing_left, lacking, wait_until_ready

from testkit import wait_until
from venturi.errors import BackendError
from venturi.mover import BUILT_IN
from venturi.testbed.services.sshd import CLIENT_CONFIGURATION
from venturi.testbed.services.table import SERVICES

pytestmark = pytest.mark.skipif(lacking("sshd") is not None, reason=str(lacking("sshd")))


@pytest.fixture
def source(lab):
    path = lab.storage("home") / "source"
    path.write_bytes(os.urandom(1_000_000))
    return path


def run(lab, host, program, *arguments):
    done = lab.run(host, program, "-F", lab.client_environment[CLIENT_CONFIGURATION], *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_scp_and_sftp_copy_files_in_both_directions_and_the_server_cleans_up(lab, source):
    target = source.with_name("copy")
    for number in range(3):
        with lab.running(lab.context(f"ssh{number}", "sshd")) as service_ports:
            assert service_ports["ssh"].format(port=2222, path=source) == f"ssh://a.lab.test:2222{source}"
            run(lab, "b", "scp", "-q", f"a.lab.test:{source}", str(target))
            assert target.read_bytes() == source.read_bytes()
            run(lab, "b", "scp", "-q", str(source), f"scp://a.lab.test:2222/{target}2")
            assert target.with_name("copy2").read_bytes() == source.read_bytes()
            target.unlink()
            run(lab, "b", "sftp", "-q", service_ports["sftp"].format(port=2222, path=source), str(target))
            assert target.read_bytes() == source.read_bytes()
        check_nothing_left(lab)


@pytest.mark.parametrize("kind", ["sshd", "ssh"])
def test_clients_can_log_in_to_each_of_several_servers(lab, kind):
    with lab.running(lab.context("one", kind, "a")), lab.running(lab.context("two", kind, "b", ports=[2300])):
        for host in "ab":
            assert run(lab, "c", "ssh", f"{host}.lab.test", "hostname") == f"{host}.lab.test\n"


def test_clients_can_log_in_to_each_of_several_servers_of_one_host(lab, source):
    one = lab.context("one", "sshd", cipher="aes256-ctr")
    two = lab.context("two", "ssh", ports=[2300], cipher="aes128-ctr")
    target = source.with_name("from-several")
    with lab.running(one), lab.running(two):
        configuration = lab.client_environment[CLIENT_CONFIGURATION]
        for port, cipher in ((2222, "aes256-ctr"), (2300, "aes128-ctr")):
            argv = [
                "ssh",
                "-v",
                "-o",
                "LogLevel=DEBUG1",
                "-F",
                configuration,
                "-p",
                str(port),
                "a.lab.test",
                "hostname",
            ]
            done = lab.run("b", *argv)
            assert done.stdout == "a.lab.test\n", done.stderr
            assert f"cipher: {cipher}" in done.stderr
            # Each server accepts the first key, so that no login takes longer than the others.
            assert done.stderr.count("Offering public key") == 1
            run(lab, "b", "scp", "-q", str(source), f"scp://a.lab.test:{port}/{target}")
            assert target.read_bytes() == source.read_bytes()
            target.unlink()


@pytest.mark.parametrize("mover", ["rclone", "rsync", "scp", "sftp"])
def test_movers_copy_from_and_to_a_server(lab, source, mover):
    missing = [program for program in BUILT_IN[mover].requires if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    tool = BUILT_IN[mover]
    call = tool.call({option.key: option.default for option in tool.options})
    there, back = source.with_name(f"{mover} there"), source.with_name(f"{mover}-back")
    with lab.running(lab.context("movers", "sshd")) as service_ports:
        url = service_ports["ssh"].format(port=2222, path=there)
        for ends in ((str(source), url), (url, str(back))):
            # The agent selects the words of a call by the local endpoints, and replaces doubled braces.
            words = call.argv[0] if isinstance(call.argv[0], tuple) else call.argv
            argv = [word.replace("{{", "{").replace("}}", "}") for word in words if not word.startswith("{")]
            done = lab.run("b", *argv, *ends)
            assert done.returncode == 0, done.stderr
        assert there.read_bytes() == source.read_bytes()
        assert back.read_bytes() == source.read_bytes()
    check_nothing_left(lab)


def test_an_open_session_ends_with_its_server(lab):
    printed = lab.directory / "open.log"
    with lab.running(lab.context("open", "sshd")):
        argv = [
            "ssh",
            "-F",
            lab.client_environment[CLIENT_CONFIGURATION],
            "a.lab.test",
            "echo here; exec tail -f /dev/null",
        ]
        client = lab.shells["b"].start(argv, log=printed)
        wait_until(lambda: "here" in printed.read_text(), "the session to say something")
        wait_until(lambda: "tail" in lab.processes().values(), "the session to become what it was told to")
    wait_until(
        lambda: set(lab.processes().values()) <= {"ssh"}, "server and session to end, whatever the client does"
    )
    client.stop()
    check_nothing_left(lab)


def test_rsync_finds_its_server_by_the_environment(lab, source):
    if lab.run("b", "rsync", "--version").returncode:
        pytest.skip("not installed: rsync")
    target = source.with_name("synced")
    with lab.running(lab.context("rsync", "sshd")):
        done = lab.run("b", "rsync", "-W", f"a.lab.test:{source}", str(target))
        assert done.returncode == 0, done.stderr
        assert target.read_bytes() == source.read_bytes()


def test_the_requested_cipher_is_used(lab):
    with lab.running(lab.context("cipher", "sshd", cipher="aes256-ctr")):
        configuration = lab.client_environment[CLIENT_CONFIGURATION]
        done = lab.run("b", "ssh", "-v", "-o", "LogLevel=DEBUG1", "-F", configuration, "a.lab.test", "true")
        assert "cipher: aes256-ctr" in done.stderr


def test_an_unknown_cipher_is_rejected(lab):
    with pytest.raises(BackendError, match=r"Bad SSH2 cipher spec 'rot13'"):
        SERVICES["sshd"].configure(lab.context("wrong", "sshd", cipher="rot13"))


def test_a_server_of_an_ordinary_user_accepts_that_user(lab, source):
    # Servers of earlier tests had another account, and client configuration remains.
    lab.shared.sections.clear()
    lab.shells["a"].privileged = False
    service, context = SERVICES["sshd"], lab.context("plain-ssh", "sshd")
    try:
        service.configure(context)
        # In a lab without root, the keys belong to the only ordinary user.
        shutil.chown(context.directory / "host_key", "nobody")
        processes = service.start(context)
        try:
            wait_until_ready(service, context, processes)
            target = source.with_name("plain-copy")
            run(lab, "b", "scp", "-q", str(source), f"a.lab.test:{target}")
            assert target.read_bytes() == source.read_bytes()
            assert target.owner() == "nobody"
        finally:
            service.stop(context, processes)
    finally:
        lab.shells["a"].privileged = True
    check_nothing_left(lab)
