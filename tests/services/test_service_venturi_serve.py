"""Our own server in a lab, used by other people's clients and by itself on several ports."""

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
    """A place with a file, and where to copy it to."""
    place = lab.place("disk")
    source = place / "source"
    source.write_bytes(os.urandom(SIZE))
    yield source, place / "copy"
    (place / "copy").unlink(missing_ok=True)


def test_files_go_both_ways_and_are_told_afterwards(lab, data):
    source, copy = data
    room = lab.room("ours", "venturi-serve", places=["disk"], block_bytes=1 << 18)
    fetched = lab.place("fetched", "b") / "fetched"
    with lab.running(room) as doors:
        ftp = doors["ftp"].format
        down = ("globus-url-copy", "-p", "4", ftp(port=2811, path=source), f"file://{fetched}")
        assert lab.run("b", *down).returncode == 0
        assert fetched.read_bytes() == source.read_bytes()
        up = lab.run("b", "curl", "-sS", "-T", fetched, ftp(port=2811, path=copy))
        assert up.returncode == 0, up.stderr
        assert copy.read_bytes() == source.read_bytes()
    told = list(SERVICES["venturi-serve"].transfers(room))
    assert [(one.path, one.command, one.code, one.file_bytes) for one in told] == [
        (str(source), "RETR", "226", SIZE),
        (str(copy), "STOR", "226", SIZE),
    ]
    assert told[0].block_bytes == 1 << 18
    assert all(one.peer == "10.77.0.2" for one in told)
    assert all(0 < one.end_unix_s - one.start_unix_s < 20 for one in told)
    check_nothing_left(lab)


@pytest.mark.parametrize("tls", [False, True])
def test_over_http_files_go_both_ways_and_are_told_alike(lab, data, tls):
    source, copy = data
    room = lab.room(f"web{tls:d}", "venturi-serve", places=["disk"], ports=[8443], http=True, tls=tls)
    fetched = lab.place("fetched", "b") / "fetched"
    with lab.running(room) as doors:
        assert set(doors) == ({"https", "davs"} if tls else {"http"})
        url = doors["https" if tls else "http"].format
        down = lab.run("b", "curl", "-sS", "-f", "-o", fetched, url(port=8443, path=source))
        assert down.returncode == 0, down.stderr
        up = lab.run("b", "curl", "-sS", "-f", "-T", fetched, url(port=8443, path=copy))
        assert up.returncode == 0, up.stderr
        assert copy.read_bytes() == fetched.read_bytes() == source.read_bytes()
    told = list(SERVICES["venturi-serve"].transfers(room))
    assert [(one.path, one.command, one.code, one.file_bytes, one.sent_bytes) for one in told] == [
        (str(source), "GET", "200", SIZE, SIZE),
        (str(copy), "PUT", "201", SIZE, None),
    ]
    check_nothing_left(lab)


@pytest.mark.parametrize(
    ("options", "expected"), [({"http": True, "auth": "gsi"}, "for FTP"), ({"tls": True}, "http = true")]
)
def test_options_that_do_not_go_together_are_refused(lab, options, expected):
    room = lab.room("ours", "venturi-serve", places=["disk"], **options)
    with pytest.raises(BackendError, match=expected):
        SERVICES["venturi-serve"].configure(room)


def test_it_serves_all_its_ports_and_as_many_clients_as_it_is_told(lab, data):
    source, _ = data
    room = lab.room("ours", "venturi-serve", places=["disk"], ports=[2811, 2812], connections=1, threads=1)
    with lab.running(room) as doors:
        for port in (2811, 2812):
            got = lab.run("b", "curl", "-sS", "-o", os.devnull, doors["ftp"].format(port=port, path=source))
            assert got.returncode == 0, got.stderr
        # While one has the only session, another is refused.
        host = urlsplit(doors["ftp"].format(port=2811, path=source)).hostname
        hold = f"exec 3<>/dev/tcp/{host}/2811; read -r -u 3 greeting; echo $greeting"
        second = f"curl -sS -o /dev/null {doors['ftp'].format(port=2812, path=source)}; echo $?"
        greeting, *_, code = lab.run("b", "bash", "-c", f"{hold}; {second}").stdout.splitlines()
        assert greeting.startswith("220") and code != "0"
    check_nothing_left(lab)


def test_it_paces_what_it_sends_if_it_is_told_to(lab, data):
    source, _ = data
    room = lab.room("ours", "venturi-serve", places=["disk"], pacing_bytes_per_s=SIZE)
    with lab.running(room) as doors:
        words = ("curl", "-sS", "-o", os.devnull, "-w", "%{time_total}")
        got = lab.run("b", *words, doors["ftp"].format(port=2811, path=source))
        assert got.returncode == 0, got.stderr
        assert float(got.stdout) >= 0.9
    check_nothing_left(lab)


def test_two_of_them_copy_between_each_other_with_certificates_and_not_for_anonymous_clients(lab, data):
    source, copy = data
    rooms = [lab.room(f"ours-{host}", "venturi-serve", host, places=["disk"], auth="gsi") for host in "ab"]
    with lab.running(rooms[0]) as there, lab.running(rooms[1]) as here:
        ends = (there["gsiftp"].format(port=2811, path=source), here["gsiftp"].format(port=2811, path=copy))
        for options in ([], ["-p", "4"], ["-nodcau", "-p", "2", "-fast"]):
            done = lab.run("c", "globus-url-copy", *options, *ends)
            assert done.returncode == 0, done.stderr
            assert copy.read_bytes() == source.read_bytes()
            copy.unlink()
    rooms = [lab.room(f"open-{host}", "venturi-serve", host, places=["disk"]) for host in "ab"]
    with lab.running(rooms[0]) as there, lab.running(rooms[1]) as here:
        ends = (there["ftp"].format(port=2811, path=source), here["ftp"].format(port=2811, path=copy))
        done = lab.run("c", "globus-url-copy", *ends)
        assert "504" in done.stderr
        assert not copy.exists()
    check_nothing_left(lab)
