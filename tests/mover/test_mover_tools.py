"""Every network mover with its real tool and a real server: its command line is accepted and its bytes arrive."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from callkit import call_with, execute, transfer_argv
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
    """A source and a destination path, which the servers and this account can use."""
    directory = farm.data / tmp_path.name
    directory.mkdir(mode=0o777)
    directory.chmod(0o777)
    source = directory / "source"
    source.write_bytes(CONTENT)
    source.chmod(0o644)
    yield source, directory / "destination"
    shutil.rmtree(directory)


def move(
    farm,
    name,
    source,
    destination,
    size=SIZE,
    *,
    list_path=None,
    directory=None,
    files=1,
    offset_bytes=None,
    **options,
):
    """Execute a transfer; return the report of the tool."""
    mover = BUILT_IN[name]
    call = call_with(mover, **options)
    assert set(mover.requires) <= set(call.requires)
    for tool in call.requires:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    # Tests that run at the same time need different slots, because slots determine the data ports of nuttcp.
    argv = transfer_argv(
        call, source, destination, size, files=files, list_path=list_path, directory=directory, offset_bytes=offset_bytes,
        slot=os.getpid() % 5000,
    )  # fmt: skip
    record = execute(argv, environment=farm.environment)
    assert record["outcome"] == "ok", (argv, record)
    return mover.parse(record | {"files": files, "requested_bytes": size})


def all_options(name, **values):
    """Return these values, and check that they include all options of the mover."""
    assert set(values) == {option.name for option in BUILT_IN[name].options}
    return values


GLOBUS = all_options("globus-url-copy", streams=2, concurrency=2, pipelining=True, fast=True, data_channel="nodcau", window="256 KiB",
                     block="64 KiB", stripe=True, restarts=2, files_as="list", restart_interval="1 s", checksum="MD5", length=False)  # fmt: skip
XRDCP = all_options(
    "xrdcp", streams=3, sources=2, parallel=2, third_party="none", checksum="adler32", rate="1 GB/s", pgread=False
)
CURL = {"http": "1.1", "rate": "1 GB/s"}
GFAL = {"streams": 2, "window": "256 KiB"}
SCP = {"cipher": "aes128-gcm@openssh.com", "requests": 16, "block": "16 KiB", "compression": True, "rate": "1 GB/s"}
SFTP = all_options(
    "sftp", cipher="aes128-gcm@openssh.com", requests=16, block="16 KiB", rate="1 GB/s", compression=True, fsync=True
)
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
    ("sftp", "ssh", "get", {}), ("sftp", "ssh", "put", {}), ("sftp", "ssh", "get", SFTP), ("sftp", "ssh", "put", SFTP),
    ("rsync", "ssh", "get", {}), ("rsync", "ssh", "put", {"inplace": True, "fsync": True, "rate": "1 GB/s"}),
    ("rclone", "ssh", "get", {}), ("rclone", "ssh", "put", {"checksum": False, "streams": 2, "rate": "1 GB/s"}), ("rclone", "ssh", "third", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "protocol", "direction", "options"), MOVES, ids=str)
def test_a_network_mover_transfers_every_byte(name, protocol, direction, options, farm, ends):
    source, destination = ends
    read = str(source) if direction == "put" else farm.url(protocol, source)
    written = str(destination) if direction == "get" else farm.url(protocol, destination)
    report = move(farm, name, read, written, **options)
    assert destination.read_bytes() == CONTENT
    if report is not None and report.bytes is not None:
        assert report.bytes == SIZE


@pytest.mark.parametrize("name", ["globus-url-copy", "xrdcp"])
@pytest.mark.parametrize(
    "many",
    [{}, {"concurrency": 2, "pipelining": True, "fast": True}, {"pipelining": True, "files_as": "list"}, {"files_as": "directory"},
     {"parallel": 2}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("direction", ["get", "third"])
def test_a_list_or_a_directory_is_transferred_by_one_call(name, many, direction, farm, ends):
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
        return farm.url(protocol, path) if direction == "third" else call.local.format(path=path)

    pairs = "".join(f"{farm.url(protocol, file)} {end(destination / file.name)}\n" for file in files)
    list_path = source.with_name("list")
    list_path.write_text(pairs)
    to = end(f"{destination}/") if direction == "third" else f"{destination}/"
    if any("{directory}" in argument for argument in call.argv if isinstance(argument, tuple)):
        directory = source.with_name("folder")
        directory.mkdir(mode=0o755)
        for file in files:
            (directory / file.name).hardlink_to(file)
        url = farm.url(protocol, f"{directory}/")
        move(farm, name, url, to, list_path=list_path, directory=url, files=5, **many)
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


def test_globus_url_copy_reads_the_requested_length_of_an_endless_source(farm):
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
@pytest.mark.parametrize("direction", ["to the server", "from the server"])
def test_a_memory_to_memory_transfer_has_the_requested_size(name, options, direction, farm):
    size = 20_000_000
    service_port = farm.url(name, "")
    source, destination = ("/dev/zero", service_port) if direction == "to the server" else (service_port, "/dev/null")
    report = move(farm, name, source, destination, size, **options)
    assert size <= report.bytes < size + 1_000_000
    assert 0 < report.received_bytes <= report.bytes
    assert report.rate_bytes_per_s > 0


@pytest.mark.parametrize("name", ["iperf3", "nuttcp"])
def test_a_memory_to_memory_transfer_can_have_a_fixed_duration(name, farm):
    report = move(farm, name, "/dev/zero", farm.url(name, ""), time="1 s")
    assert report.duration_s == pytest.approx(1, rel=0.2)


def test_a_client_waits_for_a_busy_iperf3_server(farm):
    """The server rejects a client during the test of another one, which ends 0.5 s after the start of the mover."""
    other = ["iperf3", "-c", "127.0.0.1", "-p", str(farm.iperf3), "-t", "60", "--forceflush"]
    with subprocess.Popen(other, stdout=subprocess.PIPE, text=True) as process:
        while "connected to" not in process.stdout.readline():
            assert process.poll() is None
        rejected = subprocess.run([*other, "-J"], capture_output=True, text=True, check=False)
        assert "the server is busy" in rejected.stdout
        end = threading.Timer(0.5, process.terminate)
        end.start()
        report = move(farm, "iperf3", "/dev/zero", farm.url("iperf3", ""), 1_000_000)
        end.join()
        process.stdout.read()
    assert report.bytes >= 1_000_000


def test_a_nuttcp_server_with_a_late_data_port_is_retried_on_other_ports(tmp_path, farm):
    """The client waits 20 ms. Only the first server is late, and no client can reach it when it listens."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    late = "exec strace -f -qq -o /dev/null -e inject=listen:delay_enter=300000:when=1 nuttcp -S"
    script = f"mkdir {tmp_path}/late 2>/dev/null && {late}; exec nuttcp -S"
    report = move(farm, "nuttcp", "/dev/zero", farm.nuttcp_server("sh", "-c", script), 20_000_000, streams=2)
    assert (tmp_path / "late").exists()
    assert report.bytes >= 20_000_000


@pytest.mark.parametrize("name", ["globus-url-copy", "curl", "wget", "davix", "scp"])
def test_a_download_to_the_null_device_does_not_replace_the_device(name, farm, ends):
    """The test has its own device, because a tool that replaced it would replace the real one.

    xrdcp recognises the name /dev/null.
    """
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
def test_a_fetch_uses_only_the_configured_proxy(name, tmp_path, farm):
    requested = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self):
            requested.append(self.path)
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
        move(
            farm, name, f"http://127.0.0.1:{port}/file", tmp_path / "y"
        )  # the proxy of the environment would reject it
        server.shutdown()
    # Venturi also requests the checksum of a file.
    assert list(dict.fromkeys(requested)) == ["http://origin.lab.test/file", "/file"]
    assert (tmp_path / "x").read_bytes() == CONTENT == (tmp_path / "y").read_bytes()


@pytest.mark.parametrize("name", ["curl", "davix", "venturi"])
def test_downloads_and_uploads_follow_redirections_to_another_server(name, farm, ends):
    """The entry server of a site, as of dCache, redirects clients to a data server."""
    source, destination = ends
    requested = []

    class Redirector(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            requested.append(self.command)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(307)
            self.send_header("Location", farm.url("http", self.path))
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_PUT = do_GET

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Redirector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        move(farm, name, f"{url}{source}", destination)
        assert destination.read_bytes() == CONTENT
        destination.unlink()
        move(farm, name, source, f"{url}{destination}")
        assert destination.read_bytes() == CONTENT
        server.shutdown()
    assert {"GET", "PUT"} <= set(requested)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("globus-url-copy", {"restart_interval": "1 s"}, "expected restarts with restart_interval"),
        ("globus-url-copy", {"restarts": 1, "restart_interval": "1.5 s"}, "of whole seconds, 1 s or more, found 1.5 s"),
        ("globus-url-copy", {"length": True, "checksum": "MD5"}, "expected length or checksum, found both"),
        ("xrdcp", {"streams": 16}, "expected streams of 15 at most, found 16"),
        ("xrdcp", {"parallel": 129}, "expected parallel of 128 at most, found 129"),
        ("xrdcp", {"third_party": "only", "rate": "1 MB/s"}, "expected no rate with third_party"),
        ("curl", {"http": "2", "proxy": "http://p:1"}, 'expected http = "1.1" with a proxy'),
        ("scp", {"legacy": True, "block": "1 MiB"}, "expected legacy or block, found both"),
        ("iperf3", {"streams": 129}, "expected 128 streams at most, found 129"),
        ("iperf3", {"time": "0.5 s"}, "of whole seconds, 1 s or more, found 0.5 s"),
        ("nuttcp", {"window": "1000 B"}, "expected a window of whole KiB, found 1000 B"),
        ("nuttcp", {"time": "0"}, "longer than 0 s"),
    ],
)  # fmt: skip
def test_conflicting_or_invalid_options_are_rejected_with_a_message(name, options, message):
    with pytest.raises(OptionError, match=message):
        call_with(BUILT_IN[name], **options)


@pytest.mark.parametrize("name", ["sftp", "rsync", "rclone"])
@pytest.mark.parametrize("direction", ["get", "put"])
def test_a_mover_over_ssh_moves_files_with_special_names(name, direction, farm, ends):
    directory = ends[0].parent / 'a "b" [c] * \\ d'
    directory.mkdir(mode=0o777)
    directory.chmod(0o777)
    source, destination = directory / "it's", directory / "$HOME `id`"
    source.write_bytes(CONTENT)
    source.chmod(0o644)
    read = str(source) if direction == "put" else farm.url("ssh", source)
    written = str(destination) if direction == "get" else farm.url("ssh", destination)
    move(farm, name, read, written)
    assert destination.read_bytes() == CONTENT


@pytest.mark.parametrize("name", ["sftp", "rsync"])
def test_a_mover_with_one_local_file_rejects_two_servers(name):
    find_conflict = BUILT_IN[name].option_conflict
    assert find_conflict({}, "ssh", None) is None
    assert find_conflict({}, None, "ssh") is None
    key, message = find_conflict({}, "ssh", "ssh")
    assert key == "client"
    assert "expected the host of the source or of the destination" in message


def test_rclone_rejects_an_unknown_host_key(farm, ends, tmp_path):
    source, destination = ends
    configuration = tmp_path / "config"
    text = (farm.directory / "ssh" / "config").read_text() if farm.sshd else ""
    configuration.write_text(text.replace("StrictHostKeyChecking no", "StrictHostKeyChecking yes"))
    argv = transfer_argv(call_with(BUILT_IN["rclone"]), farm.url("ssh", source), destination, SIZE)
    record = execute(argv, environment=farm.environment | {"VENTURI_SSH_CONFIG": str(configuration)})
    assert record["outcome"] == "failed"
    assert "expected the host key of [127.0.0.1]" in record["stderr"]
    host_key = (farm.directory / "ssh" / "host.pub").read_text()
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{farm.sshd} {host_key}")
    configuration.write_text(
        configuration.read_text().replace(
            "UserKnownHostsFile /dev/null", f"UserKnownHostsFile {tmp_path}/known_hosts"
        )
    )
    record = execute(argv, environment=farm.environment | {"VENTURI_SSH_CONFIG": str(configuration)})
    assert record["outcome"] == "ok", record
    assert destination.read_bytes() == CONTENT
