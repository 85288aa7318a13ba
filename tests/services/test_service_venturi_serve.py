"""`venturi serve` in a lab, with third-party clients and with its own client on several ports."""

import os
from urllib.parse import urlsplit

import pytest
from bare import check_nothing_left, lacking

from testkit import needs_programs
from venturi.errors import BackendError
from venturi.testbed.services.table import SERVICES

pytestmark = [
    pytest.mark.skipif(lacking("venturi-serve") is not None, reason=str(lacking("venturi-serve"))),
    needs_programs("globus-url-copy", "curl"),
]
SIZE = 3_000_000


@pytest.fixture
def data(lab):
    """A storage with a file, and a destination path."""
    storage = lab.storage("disk")
    source = storage / "source"
    source.write_bytes(os.urandom(SIZE))
    yield source, storage / "copy"
    (storage / "copy").unlink(missing_ok=True)


def test_ftp_copies_in_both_directions_are_reported_afterwards(lab, data):
    source, copy = data
    context = lab.context("ours", "venturi-serve", storages=["disk"], block_bytes=1 << 18)
    fetched = lab.storage("fetched", "b") / "fetched"
    with lab.running(context) as service_ports:
        ftp = service_ports["ftp"].format
        down = ("globus-url-copy", "-p", "4", ftp(port=2811, path=source), f"file://{fetched}")
        assert lab.run("b", *down).returncode == 0
        assert fetched.read_bytes() == source.read_bytes()
        up = lab.run("b", "curl", "-sS", "-T", fetched, ftp(port=2811, path=copy))
        assert up.returncode == 0, up.stderr
        assert copy.read_bytes() == source.read_bytes()
    output = list(SERVICES["venturi-serve"].transfers(context))
    assert [(one.path, one.command, one.code, one.file_bytes) for one in output] == [
        (str(source), "RETR", "226", SIZE),
        (str(copy), "STOR", "226", SIZE),
    ]
    assert output[0].block_bytes == 1 << 18
    assert all(one.peer == "10.77.0.2" for one in output)
    assert all(0 < one.end_unix_s - one.start_unix_s < 20 for one in output)
    check_nothing_left(lab)


@pytest.mark.parametrize("tls", [False, True])
def test_http_copies_in_both_directions_are_reported_afterwards(lab, data, tls):
    source, copy = data
    context = lab.context(f"web{tls:d}", "venturi-serve", storages=["disk"], ports=[8443], http=True, tls=tls)
    fetched = lab.storage("fetched", "b") / "fetched"
    with lab.running(context) as service_ports:
        assert set(service_ports) == ({"https", "davs"} if tls else {"http"})
        url = service_ports["https" if tls else "http"].format
        down = lab.run("b", "curl", "-sS", "-f", "-o", fetched, url(port=8443, path=source))
        assert down.returncode == 0, down.stderr
        up = lab.run("b", "curl", "-sS", "-f", "-T", fetched, url(port=8443, path=copy))
        assert up.returncode == 0, up.stderr
        assert copy.read_bytes() == fetched.read_bytes() == source.read_bytes()
    output = list(SERVICES["venturi-serve"].transfers(context))
    assert [(one.path, one.command, one.code, one.file_bytes, one.sent_bytes) for one in output] == [
        (str(source), "GET", "200", SIZE, SIZE),
        (str(copy), "PUT", "201", SIZE, None),
    ]
    check_nothing_left(lab)


@pytest.mark.parametrize(
    ("options", "expected"), [({"http": True, "auth": "gsi"}, "for FTP"), ({"tls": True}, "http = true")]
)
def test_incompatible_options_are_rejected(lab, options, expected):
    context = lab.context("ours", "venturi-serve", storages=["disk"], **options)
    with pytest.raises(BackendError, match=expected):
        SERVICES["venturi-serve"].configure(context)


def test_the_server_listens_on_all_its_ports_and_limits_its_clients(lab, data):
    source, _ = data
    context = lab.context("ours", "venturi-serve", storages=["disk"], ports=[2811, 2812], connections=1, threads=1)
    with lab.running(context) as service_ports:
        for port in (2811, 2812):
            got = lab.run("b", "curl", "-sS", "-o", os.devnull, service_ports["ftp"].format(port=port, path=source))
            assert got.returncode == 0, got.stderr
        # While one client has the only session, another is rejected.
        host = urlsplit(service_ports["ftp"].format(port=2811, path=source)).hostname
        hold = f"exec 3<>/dev/tcp/{host}/2811; read -r -u 3 greeting; echo $greeting"
        second = f"curl -sS -o /dev/null {service_ports['ftp'].format(port=2812, path=source)}; echo $?"
        greeting, *_, code = lab.run("b", "bash", "-c", f"{hold}; {second}").stdout.splitlines()
        assert greeting.startswith("220") and code != "0"
    check_nothing_left(lab)


def test_the_server_paces_its_downloads_if_requested(lab, data):
    source, _ = data
    context = lab.context("ours", "venturi-serve", storages=["disk"], pacing_bytes_per_s=SIZE)
    with lab.running(context) as service_ports:
        words = ("curl", "-sS", "-o", os.devnull, "-w", "%{time_total}")
        got = lab.run("b", *words, service_ports["ftp"].format(port=2811, path=source))
        assert got.returncode == 0, got.stderr
        assert float(got.stdout) >= 0.9
    check_nothing_left(lab)


def test_two_servers_copy_between_each_other_with_certificates_but_not_anonymously(lab, data):
    source, copy = data
    contexts = [lab.context(f"ours-{host}", "venturi-serve", host, storages=["disk"], auth="gsi") for host in "ab"]
    with lab.running(contexts[0]) as there, lab.running(contexts[1]) as here:
        ends = (there["gsiftp"].format(port=2811, path=source), here["gsiftp"].format(port=2811, path=copy))
        for options in ([], ["-p", "4"], ["-nodcau", "-p", "2", "-fast"]):
            done = lab.run("c", "globus-url-copy", *options, *ends)
            assert done.returncode == 0, done.stderr
            assert copy.read_bytes() == source.read_bytes()
            copy.unlink()
    contexts = [lab.context(f"open-{host}", "venturi-serve", host, storages=["disk"]) for host in "ab"]
    with lab.running(contexts[0]) as there, lab.running(contexts[1]) as here:
        ends = (there["ftp"].format(port=2811, path=source), here["ftp"].format(port=2811, path=copy))
        done = lab.run("c", "globus-url-copy", *ends)
        assert "504" in done.stderr
        assert not copy.exists()
    check_nothing_left(lab)
