"""Every mover of the network, with its real tool and a real server: its command line is accepted and its bytes arrive."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from callkit import call_with, carry_out, transfer_argv
from farm import Farm

from venturi.mover import BUILT_IN, OptionError

CONTENT = os.urandom(300_001)
SIZE = len(CONTENT)


@pytest.fixture(scope="module")
def farm():
    farm = Farm()
    yield farm
    farm.close()


@pytest.fixture
def ends(farm, tmp_path):
    """A source and a place for a destination, each as a path that the servers and this account can use."""
    folder = farm.data / tmp_path.name
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    source = folder / "source"
    source.write_bytes(CONTENT)
    source.chmod(0o644)
    yield source, folder / "destination"
    shutil.rmtree(folder)


BUSY, BUSY_TRIES, BUSY_PAUSE_S = "the server is busy", 20, 0.1
"""An iperf3 server takes one client at a time, and a moment to be done with the last one."""


def move(
    farm, name, source, destination, size=SIZE, *, list_path=None, folder=None, files=1, offset_bytes=None, **options
):
    """Carry out a transfer; return what the tool says of it."""
    mover = BUILT_IN[name]
    call = call_with(mover, **options)
    assert set(mover.requires) <= set(call.requires)
    for tool in call.requires:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    # Slots of their own: other tests may run at the same time, and slots are what data ports of nuttcp follow from.
    argv = transfer_argv(
        call, source, destination, size, files=files, list_path=list_path, folder=folder, offset_bytes=offset_bytes,
        slot=os.getpid() % 5000,
    )  # fmt: skip
    for _ in range(BUSY_TRIES):
        record = carry_out(argv, environment=farm.environment)
        if BUSY not in (record["stdout"] or ""):
            break
        time.sleep(BUSY_PAUSE_S)
    assert record["outcome"] == "ok", (argv, record)
    return mover.parse(record | {"files": files, "asked_bytes": size})


def all_options(name, **values):
    """Return these values, and see to it that no option of the mover was forgotten."""
    assert set(values) == {option.name for option in BUILT_IN[name].options}
    return values


GLOBUS = all_options("globus-url-copy", streams=2, concurrency=2, pipelining=True, fast=True, data_channel="nodcau", window="256 KiB",
                     block="64 KiB", stripe=True, restarts=2, files_as="list", restart_interval="1 s", checksum="MD5", length=False)  # fmt: skip
XRDCP = all_options(
    "xrdcp", streams=3, sources=2, parallel=2, third_party="none", checksum="adler32", rate="1 GB/s", pgread=False
)
CURL = {"http": "1.1", "rate": "1 GB/s"}
GFAL = {"streams": 2, "window": "256 KiB"}
SCP = {"cipher": "aes128-gcm@openssh.com", "requests": 16, "block": "16 KiB", "compression": True}
MOVES = [
    ("globus-url-copy", "ftp", "get", {}), ("globus-url-copy", "ftp", "get", GLOBUS), ("globus-url-copy", "ftp", "put", {}),
    ("globus-url-copy", "ftp", "put", GLOBUS), ("globus-url-copy", "ftp", "third", {}),
    ("globus-url-copy", "ftp", "third", GLOBUS | {"checksum": "ADLER32"}),
    ("globus-url-copy", "ftp", "get", {"length": True}),
    ("xrdcp", "root", "get", {}), ("xrdcp", "root", "get", XRDCP), ("xrdcp", "root", "put", {}), ("xrdcp", "root", "put", {key: value for key, value in XRDCP.items() if key != "sources"}),
    ("xrdcp", "root", "third", {}), ("xrdcp", "root", "third", {"third_party": "only"}),
    ("curl", "http", "get", {}), ("curl", "http", "get", CURL), ("curl", "http", "put", {}), ("curl", "http", "put", CURL),
    ("curl", "https", "get", {"certificate": True}), ("curl", "https", "put", {"certificate": True}),
    ("curl", "https", "third", {"certificate": True}), ("curl", "https", "third", {"certificate": True, "third_party": "push", "streams": 2}),
    ("wget", "http", "get", {}), ("wget", "https", "get", {"certificate": True, "rate": "1 GB/s"}),
    ("davix", "http", "get", {"retries": 2}), ("davix", "http", "put", {}), ("davix", "davs", "get", {"certificate": True}),
    ("davix", "davs", "put", {"certificate": True}), ("davix", "https", "third", {"certificate": True}),
    ("davix", "https", "third", {"certificate": True, "third_party": "push"}),
    ("gfal-copy", "ftp", "third", GFAL), ("gfal-copy", "root", "get", {"checksum": "ADLER32"}), ("gfal-copy", "http", "put", {}),
    ("gfal-copy", "https", "third", {"token": "none", "third_party": "pull"}), ("gfal-copy", "ftp", "get", {"exit": "at once"}),
    ("scp", "ssh", "get", {}), ("scp", "ssh", "put", {"legacy": True}), ("scp", "ssh", "get", SCP), ("scp", "ssh", "third", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "protocol", "way", "options"), MOVES, ids=str)
def test_a_mover_of_the_network_moves_every_byte(name, protocol, way, options, farm, ends):
    source, destination = ends
    read = str(source) if way == "put" else farm.url(protocol, source)
    written = str(destination) if way == "get" else farm.url(protocol, destination)
    report = move(farm, name, read, written, **options)
    assert destination.read_bytes() == CONTENT
    if report is not None and report.bytes is not None:
        assert report.bytes == SIZE


@pytest.mark.parametrize("name", ["globus-url-copy", "xrdcp"])
@pytest.mark.parametrize(
    "many",
    [{}, {"concurrency": 2, "pipelining": True, "fast": True}, {"pipelining": True, "files_as": "list"}, {"files_as": "folder"},
     {"parallel": 2}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("way", ["get", "third"])
def test_a_list_or_a_folder_is_moved_by_one_call(name, many, way, farm, ends):
    if not set(many) <= {option.name for option in BUILT_IN[name].options}:
        return
    source, destination = ends
    destination.mkdir(mode=0o777)
    destination.chmod(0o777)
    protocol = {"globus-url-copy": "ftp", "xrdcp": "root"}[name]
    files = [source.with_name(f"{number:06d}") for number in range(5)]
    for number, file in enumerate(files):
        file.write_bytes(CONTENT[number:])
        file.chmod(0o644)
    call = call_with(BUILT_IN[name], **many)

    def end(path):
        return farm.url(protocol, path) if way == "third" else call.local.format(path=path)

    pairs = "".join(f"{farm.url(protocol, file)} {end(destination / file.name)}\n" for file in files)
    list_path = source.with_name("list")
    list_path.write_text(pairs)
    to = end(f"{destination}/") if way == "third" else f"{destination}/"
    if any("{folder}" in argument for argument in call.argv if isinstance(argument, tuple)):
        folder = source.with_name("folder")
        folder.mkdir(mode=0o755)
        for file in files:
            (folder / file.name).hardlink_to(file)
        url = farm.url(protocol, f"{folder}/")
        move(farm, name, url, to, list_path=list_path, folder=url, files=5, **many)
    else:
        move(farm, name, farm.url(protocol, f"{source.parent}/"), to, list_path=list_path, files=5, **many)
    assert [(destination / file.name).read_bytes() for file in files] == [CONTENT[number:] for number in range(5)]
    assert {path.name for path in destination.iterdir()} == {file.name for file in files}


def test_globus_url_copy_reads_a_part_of_a_file(farm, ends):
    source, destination = ends
    for options in ({}, {"streams": 2, "fast": True}):
        move(farm, "globus-url-copy", farm.url("ftp", source), destination, 1000, offset_bytes=5000, **options)
        assert destination.read_bytes()[-1000:] == CONTENT[5000:6000]
        destination.unlink()


def test_globus_url_copy_reads_a_source_without_an_end_as_far_as_it_is_told(farm):
    report = move(
        farm, "globus-url-copy", farm.url("ftp", "/dev/zero"), farm.url("ftp", "/dev/null"), 10_000_000, length=True
    )
    assert report.detail["files_named"] == 1


MEMORY = [
    ("iperf3", {}), ("iperf3", {"streams": 2, "window": "128 KiB", "length": "64 KiB", "congestion_control": "reno", "rate": "100 GB/s"}),
    ("iperf3", {"reverse": True}), ("nuttcp", {}), ("nuttcp", {"streams": 2, "window": "128 KiB", "length": "32 KiB"}),
    ("nuttcp", {"reverse": True}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), MEMORY, ids=str)
@pytest.mark.parametrize("way", ["to the server", "from the server"])
def test_what_moves_from_memory_to_memory_is_as_much_as_was_asked(name, options, way, farm):
    size = 20_000_000
    door = farm.url(name, "")
    source, destination = ("/dev/zero", door) if way == "to the server" else (door, "/dev/null")
    report = move(farm, name, source, destination, size, **options)
    assert size <= report.bytes < size + 1_000_000
    assert 0 < report.received_bytes <= report.bytes
    assert report.rate_bytes_per_s > 0


@pytest.mark.parametrize("name", ["iperf3", "nuttcp"])
def test_what_moves_from_memory_to_memory_can_go_by_the_clock(name, farm):
    report = move(farm, name, "/dev/zero", farm.url(name, ""), time="1 s")
    assert report.duration_s == pytest.approx(1, rel=0.2)


@pytest.mark.parametrize("name", ["globus-url-copy", "curl", "wget", "davix", "scp"])
def test_a_download_into_the_null_device_leaves_it_a_device(name, farm, ends):
    """Into a device of the test's own: a tool that replaced it would replace that of the machine. (xrdcp goes by the name /dev/null.)"""
    source, destination = ends
    try:
        os.mknod(destination, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        destination.write_bytes(b"x")
    except OSError as error:
        pytest.skip(f"no device can be made here: {error}")
    protocol = {"globus-url-copy": "ftp", "davix": "http", "curl": "http", "wget": "http", "scp": "ssh"}[name]
    move(farm, name, farm.url(protocol, source), destination)
    assert stat.S_ISCHR(destination.stat().st_mode)
    assert os.minor(destination.stat().st_rdev) == 3


@pytest.mark.parametrize("name", ["curl", "wget", "venturi"])
def test_a_fetch_goes_through_the_proxy_that_it_is_told_and_no_other(name, tmp_path, farm):
    asked = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(SIZE))
            self.end_headers()
            self.wfile.write(CONTENT)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        move(farm, name, "http://origin.lab.test/file", tmp_path / "x", proxy=f"http://127.0.0.1:{port}")
        move(farm, name, f"http://127.0.0.1:{port}/file", tmp_path / "y")  # the environment's proxy would refuse
        server.shutdown()
    # Ours asks for the checksum of a file, too.
    assert list(dict.fromkeys(asked)) == ["http://origin.lab.test/file", "/file"]
    assert (tmp_path / "x").read_bytes() == CONTENT == (tmp_path / "y").read_bytes()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("globus-url-copy", {"restart_interval": "1 s"}, "expected restarts beside restart_interval"),
        ("globus-url-copy", {"restarts": 1, "restart_interval": "1.5 s"}, "of whole seconds, 1 s or more, found 1.5 s"),
        ("globus-url-copy", {"length": True, "checksum": "MD5"}, "expected length or checksum, found both"),
        ("xrdcp", {"streams": 16}, "expected streams of 15 at most, found 16"),
        ("xrdcp", {"parallel": 129}, "expected parallel of 128 at most, found 129"),
        ("xrdcp", {"third_party": "only", "rate": "1 MB/s"}, "expected no rate beside third_party"),
        ("curl", {"http": "2", "proxy": "http://p:1"}, 'expected http = "1.1" through a proxy'),
        ("scp", {"legacy": True, "block": "1 MiB"}, "expected legacy or block, found both"),
        ("iperf3", {"streams": 129}, "expected 128 streams at most, found 129"),
        ("iperf3", {"time": "0.5 s"}, "of whole seconds, 1 s or more, found 0.5 s"),
        ("nuttcp", {"window": "1000 B"}, "expected a window of whole KiB, found 1000 B"),
        ("nuttcp", {"time": "0"}, "longer than 0 s"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_together_are_refused_with_a_sentence(name, options, message):
    with pytest.raises(OptionError, match=message):
        call_with(BUILT_IN[name], **options)
