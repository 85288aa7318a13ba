"""Server logs as evidence: recorded GridFTP logs, and nginx and Squid with ``curl``."""

import os
from pathlib import Path

import pytest
from bare import check_nothing_left, lacking

from venturi.mover.base import OutputError
from venturi.testbed.services.gridftp_logs import logged_control, logged_transfers
from venturi.testbed.services.http_logs import origin_transfers, proxy_transfers
from venturi.testbed.services.log_source import ServerLogSource
from venturi.testbed.services.table import SERVICES
from venturi.testbed.services.xrootd_logs import accessed_files

RECORDED = Path(__file__).parents[1] / "data" / "gridftp"
SIZE = 300_000


def test_transfers_of_a_gridftp_log_are_files_and_not_listings(tmp_path):
    text = (RECORDED / "anonymous.transfer.log").read_text()
    listing = text.splitlines(keepends=True)[0].replace("TYPE=RETR", "TYPE=MLSD")
    (tmp_path / "log").write_text(text + listing)
    found = list(logged_transfers(tmp_path / "log"))
    assert len(found) == text.count("TYPE=RETR") + text.count("TYPE=STOR") > 0
    assert len(found) < text.count("TYPE=") + 1
    assert all(one.end_unix_s >= one.start_unix_s for one in found)
    assert all((one.sent_bytes is None) != (one.received_bytes is None) for one in found)
    assert {one.file_bytes for one in found} == {one.sent_bytes or one.received_bytes or 0 for one in found}


def test_control_channels_of_a_gridftp_log_are_grouped_by_session_with_their_user():
    lines = list(logged_control(RECORDED / "gsi.control.log"))
    assert {line.seen for line in lines} == {"log"}
    assert [line.session for line in lines] == sorted(line.session for line in lines)
    notes = [line.line for line in lines if line.direction == "note"]
    assert notes and all(note.endswith("successfully authorized.") for note in notes)
    assert any("/CN=Lab User" in note for note in notes)


def test_reads_in_an_xrootd_log_have_a_file_size_and_writes_have_none():
    recorded = Path(__file__).parents[1] / "data" / "xrootd"
    found = list(accessed_files(recorded / "source.log", recorded / "source.bin"))
    assert {one.command for one in found} == {"read", "write"}
    assert max(one.file_bytes or 0 for one in found) == 8 << 20
    assert all(one.file_bytes is None for one in found if one.command == "write")
    assert all(one.start_unix_s < one.end_unix_s for one in found)


def test_a_missing_log_has_no_records(tmp_path):
    assert not list(logged_transfers(tmp_path / "none")) + list(logged_control(tmp_path / "none"))
    assert not list(origin_transfers(tmp_path / "none")) + list(proxy_transfers([tmp_path / "none"]))


@pytest.mark.parametrize("read", [origin_transfers, lambda log: proxy_transfers([log])])
def test_an_invalid_log_line_is_rejected_and_an_incomplete_one_is_ignored(tmp_path, read):
    (tmp_path / "log").write_text("half a li")
    assert list(read(tmp_path / "log")) == []
    (tmp_path / "log").write_text("something else altogether\n")
    with pytest.raises(OutputError):
        list(read(tmp_path / "log"))


def test_servers_with_logs_are_log_sources_and_the_kdc_is_not():
    witnesses = {kind for kind, service in SERVICES.items() if isinstance(service, ServerLogSource)}
    assert {"gridftp", "gridftp-node", "nginx", "squid", "xrootd", "xrootd-cache"} <= witnesses
    assert "kdc" not in witnesses


@pytest.mark.skipif(lacking("nginx", "squid") is not None, reason=str(lacking("nginx", "squid")))
def test_an_origin_and_a_proxy_report_each_request_with_its_cache_result(lab):
    storage = lab.storage("web")
    (storage / "file").write_bytes(os.urandom(SIZE))
    origin, proxy = lab.context("origin", "nginx", storages=["web"]), lab.context("proxy", "squid", "b")
    with lab.running(origin) as service_ports, lab.running(proxy):
        url = service_ports["http"].format(port=8000, path=storage / "file")
        for arguments in (
            ["-x", "http://b.lab.test:3128", "-o", str(lab.directory / "first"), url],
            ["-x", "http://b.lab.test:3128", "-o", str(lab.directory / "second"), url],
            ["-T", str(storage / "file"), service_ports["http"].format(port=8000, path=storage / "up")],
        ):
            done = lab.run("c", "curl", "-sS", "-f", *arguments)
            assert done.returncode == 0, done.stderr
    check_nothing_left(lab)
    requested = list(SERVICES["squid"].transfers(proxy))
    assert [(one.cache, one.command, one.code, one.path) for one in requested] == [
        ("miss", "GET", "200", url), ("hit", "GET", "200", url)]  # fmt: skip
    assert all(SIZE < one.sent_bytes < SIZE + 1000 for one in requested)
    get, put = SERVICES["nginx"].transfers(origin)
    assert (get.command, get.code, get.file_bytes, get.path) == ("GET", "200", SIZE, str(storage / "file"))
    assert (put.command, put.code, put.file_bytes, put.path) == ("PUT", "201", SIZE, str(storage / "up"))
    assert put.received_bytes > SIZE > put.sent_bytes
    assert all(one.end_unix_s >= one.start_unix_s for one in (*requested, get, put))
