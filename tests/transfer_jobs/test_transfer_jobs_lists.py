"""Lists of transfers and their tasks in a queue."""

import json
import random
import resource
import subprocess
from pathlib import Path

import pytest
from jobkit import VENTURI, copies, make_files, submitted

from venturi.transfer_jobs import Address, AddressError, Checksum, JobOptions, TransferQueue, cause_of, read_list
from venturi.transfer_jobs.choice import ChoiceError, choose
from venturi.transfer_jobs.listing import ListError
from venturi.transfer_jobs.options import JobOptionsError


def test_all_invalid_lines_of_a_list_are_reported_together(tmp_path):
    text = """
        a b            # fine
        a
        a a
        "a b
        a ftp://host/
        a c 10
        a d adler32:xyz
        a e 10MB adler32:1 more
        x b
        a gsiftp://host/with%20blank
    """
    with pytest.raises(ListError) as raised:
        read_list(text.splitlines(), "/home/me", "my.list")
    assert [line for line, _ in raised.value.problems] == [3, 4, 5, 6, 7, 8, 9, 10, 11]
    message = str(raised.value)
    assert 'my.list, line 3: expected SOURCE DESTINATION, found only "a"' in message
    assert "line 10: expected a different destination, found the one of line 2, /home/me/b" in message
    assert message.endswith("nothing was submitted; correct the list and submit it again")


def test_an_empty_list_is_rejected():
    with pytest.raises(ListError, match="expected lines with SOURCE DESTINATION, found none"):
        read_list(["", "# nothing"], "/")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x/../y z", ("/home/me/y", "/home/me/z", None, None)),
        ("file:///a 'b c' '1.5 GB'", ("/a", "/home/me/b c", 1_500_000_000, None)),
        ("root://h:1094//a/b gsiftp://[::1]:2811/c ADLER32:3DA0195 12B", ("root://h:1094//a/b", "gsiftp://[::1]:2811/c", 12, "adler32:03da0195")),
    ],
)  # fmt: skip
def test_a_line_has_two_endpoints_and_optionally_a_size_and_a_checksum(text, expected):
    (found,) = read_list([text], "/home/me")
    checksum = found.checksum.text if found.checksum else None
    assert (found.source.text, found.destination.text, found.size_bytes, checksum) == expected
    assert Address.parse(found.source.text, "/") == found.source


@pytest.mark.parametrize(
    "text",
    ["", "/", "a/", "http://", "http://h", "http://h/a/../b", "http://u:p@h/a", "file://other/a", "http://h/a?b"],
)
def test_an_address_that_is_not_a_transferable_file_is_rejected(text):
    with pytest.raises(AddressError):
        Address.parse(text, "/home")


def test_the_mover_is_chosen_by_protocol_and_an_unsuitable_one_is_rejected():
    ends = {
        text: Address.parse(text, "/")
        for text in ("/a", "gsiftp://h/a", "root://h//a", "https://h/a", "srm://h/a", "foo://h/a")
    }
    check = lambda source, destination, requested=None: choose(ends[source], ends[destination], requested)  # noqa: E731
    assert check("/a", "/a") == "cp"
    assert check("gsiftp://h/a", "/a") == "globus-url-copy"
    assert check("/a", "root://h//a") == "xrdcp"
    assert check("https://h/a", "https://h/a") == "curl"
    assert check("gsiftp://h/a", "root://h//a") == check("srm://h/a", "/a") == "gfal-copy"
    for source, destination, requested in (
        ("foo://h/a", "/a", None), ("root://h//a", "/a", "curl"), ("/a", "/a", "xrdcp"), ("/a", "root://h//a", "cp"),
        ("/a", "/a", "iperf3"), ("/a", "/a", "managed"), ("/a", "/a", "nothing"),
    ):  # fmt: skip
        with pytest.raises(ChoiceError, match="expected"):
            check(source, destination, requested)


@pytest.mark.parametrize(
    ("mover", "code", "printed", "cause"),
    [
        # Recorded messages: coreutils 9.1, globus-url-copy 10.12, xrdcp 5.5.3, curl 7.88, gfal-copy 2.21.
        ("cp", 1, "cp: cannot create regular file '/x/y': Permission denied", "denied"),
        ("cp", 1, "cp: error writing '/x/y': No space left on device", "no-space"),
        ("globus-url-copy", 1, "error: globus_ftp_client: the server responded with an error 500 500-Command failed. : System error in stat: "
         "No such file or directory", "no-such-file"),
        ("globus-url-copy", 1, "error: globus_xio: Unable to connect to a.lab.test:2811 System error in connect: Connection refused", "unreachable"),
        ("xrdcp", 54, "[3010] Unable to open file /x; permission denied", "denied"),
        ("xrdcp", 54, "Run: [ERROR] Server responded with an error: [3011] Unable to open file /x; no such file or directory", "no-such-file"),
        ("xrdcp", 51, "Run: [FATAL] Connection error: (source)", "unreachable"),
        ("xrdcp", 51, "Run: [ERROR] Operation expired: (source)", "unreachable"),
        ("curl", 22, "curl: (22) The requested URL returned error: 404", "no-such-file"),
        ("curl", 22, "curl: (22) The requested URL returned error: 403", "denied"),
        ("curl", 22, "curl: (22) The requested URL returned error: 507", "no-space"),
        ("curl", 22, "curl: (22) The requested URL returned error: 503", "unreachable"),
        ("curl", 7, "curl: (7)", "unreachable"),
        ("gfal-copy", 111, "gfal-copy error: 111", "unreachable"),
        ("gfal-copy", 2, "gfal-copy error: 2 (No such file or directory) - errno reported by local system call", "no-such-file"),
        ("cp", 1, "it printed no error", "other"),
        ("scp", 127, "sh: 1: scp: not found", "no-tool"),
    ],
)  # fmt: skip
def test_error_messages_of_movers_are_classified_by_cause(mover, code, printed, cause):
    record = {"outcome": "failed", "mover": mover, "exit_code": code, "error": f"exit code {code}: {printed}"}
    assert cause_of(record) == cause


def test_certificates_in_the_measurements_of_curl_do_not_change_the_cause():
    measured = '{"certs":"-----BEGIN CERTIFICATE-----\\n","http_code":503}'
    record = {
        "outcome": "failed",
        "mover": "curl",
        "exit_code": 22,
        "error": "exit code 22: curl: (22) The requested URL returned error: 503",
    }
    assert cause_of({**record, "stdout": f"\n{measured}\n"}) == "unreachable"
    assert (
        cause_of({**record, "error": "exit code 58: unable to set private key: certificate has expired"}) == "denied"
    )


RECORDED = [
    json.loads(line)
    for path in sorted((Path(__file__).parents[1] / "mover" / "outputs").glob("*.jsonl"))
    for line in path.read_text(encoding="utf-8").splitlines()
]
CAUSES = {
    "no-file": {"no-such-file"}, "not-allowed": {"denied"}, "expired-proxy": {"denied"}, "no-proxy": {"denied"},
    "unknown-authority": {"denied"}, "refused": {"unreachable"}, "killed": {"unreachable", "other"},
    # curl does not report why it could not write, so the free space of the disk decides.
    "disk-full": {"no-space", "other"},
}  # fmt: skip
MOVING = ("curl", "davix", "gfal-copy", "globus-url-copy", "scp", "wget", "xrdcp")


@pytest.mark.parametrize(
    "record",
    [one for one in RECORDED if one["tool"] in MOVING and one["case"] in CAUSES and one["exit_code"] != 0],
    ids=lambda one: f"{one['tool']} {one['case']}",
)
def test_recorded_failures_of_tools_are_classified_by_cause(record):
    cause = cause_of(
        {**record, "mover": record["tool"], "outcome": "failed", "error": f"exit code {record['exit_code']}"}
    )
    assert cause in CAUSES[record["case"]]
    assert cause.is_permanent == (cause in {"no-such-file", "denied", "no-space"})


def test_every_failure_doubles_the_delay_up_to_a_limit_with_random_jitter():
    options = JobOptions(backoff_s=2.0, backoff_limit_s=60.0)
    for failures, longest_s in ((1, 2.0), (2, 4.0), (5, 32.0), (6, 60.0), (500, 60.0)):
        drawn = [options.delay_s(failures, random.Random(seed)) for seed in range(50)]
        assert longest_s / 2 <= min(drawn) < max(drawn) <= longest_s


def test_invalid_job_options_are_rejected():
    for wrong in (
        {"concurrency": 0},
        {"retries": -1},
        {"verify": "crc"},
        {"timeout_s": 0.0},
        {"per_host": -1},
        {"files_per_call": 0},
    ):
        with pytest.raises(JobOptionsError, match="expected"):
            JobOptions(**wrong)


def test_job_options_survive_storage_and_unknown_newer_options_are_ignored():
    options = JobOptions("xrdcp", {"streams": 4}, per_host=2, deadline_unix_s=5.0)
    assert JobOptions.from_json(options.to_json()) == options
    assert JobOptions.from_json('{"retries": 1, "newer": 2}') == JobOptions(retries=1)


def test_a_busy_host_is_limited_and_other_hosts_do_not_wait(tmp_path):
    with TransferQueue(tmp_path / "queue", create=True) as queue:
        lines = [f"/s/{n} gsiftp://{host}/d/{n}" for host in ("busy", "idle") for n in range(20)]
        queue.submit("job", read_list(lines, "/"), JobOptions(concurrency=8, per_host=3), 1.0)
        worker, _ = queue.enrol(1.0)
        claims = queue.claim(worker, 2.0)
        hosts = [task.destination.host for claim in claims for task in claim.tasks]
        assert sorted(hosts) == ["busy"] * 3 + ["idle"] * 3
        assert queue.claim(worker, 2.0) == []


def test_a_call_batches_files_of_the_same_two_hosts(tmp_path):
    with TransferQueue(tmp_path / "queue", create=True) as queue:
        lines = [f"/s/{n} gsiftp://{'ab'[n % 2]}/d/{n}" for n in range(10)]
        queue.submit("job", read_list(lines, "/"), JobOptions(concurrency=9, files_per_call=4), 1.0)
        claims = queue.claim(queue.enrol(1.0)[0], 2.0)
        assert sorted(len(claim.tasks) for claim in claims) == [1, 1, 4, 4]
        assert all(len({task.destination.host for task in claim.tasks}) == 1 for claim in claims)


def test_two_jobs_never_write_to_one_destination_at_the_same_time(tmp_path):
    queue = submitted(tmp_path, [("/s/1", "/d/x")])
    queue.submit("second", read_list(["/s/2 /d/x"], "/"), JobOptions(), 1.0)
    assert [claim.tasks[0].job for claim in queue.claim(queue.enrol(1.0)[0], 2.0)] == [1]


def test_ten_thousand_lines_are_submitted_in_about_a_second(tmp_path):
    (source,) = make_files(tmp_path / "in", 1)
    path = tmp_path / "list"
    path.write_text(
        "".join(f"{source} gsiftp://dtn.example.org:2811/data/{n} 10MB adler32:{n:08x}\n" for n in range(10_000))
    )
    # Subtract the CPU time of the command itself, measured in the same way at the same time. CPU time is used because
    # other processes on this machine increase elapsed time.
    times = []
    for words in (["transfer", "--help"], ["transfer", "submit", str(path), "--queue", str(tmp_path / "queue")]):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*VENTURI, *words], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    with TransferQueue(tmp_path / "queue") as queue:
        assert queue.rows("SELECT count(*) FROM transfer")[0][0] == 10_000
    assert times[1] - times[0] < 4, "0.7 s on an idle machine; a slow one may take longer"


@pytest.mark.parametrize("algorithm", ["adler32", "md5", "sha256"])
def test_checksums_of_files_agree_with_hashlib_and_zlib(tmp_path, algorithm):
    import hashlib
    import zlib

    from venturi.transfer_jobs.checksum import file_checksum

    (path,) = make_files(tmp_path, 1, 3_000_001)
    data = path.read_bytes()
    expected = f"{zlib.adler32(data):08x}" if algorithm == "adler32" else hashlib.new(algorithm, data).hexdigest()
    assert file_checksum(path, algorithm) == Checksum(algorithm, expected)


def test_a_queue_of_a_newer_version_is_rejected(tmp_path):
    from venturi.transfer_jobs import QueueError

    queue = submitted(tmp_path, copies(tmp_path, [tmp_path / "x"]))
    queue._db.execute("PRAGMA user_version = 99")
    queue.close()
    with pytest.raises(QueueError, match="expected a queue of version 1, found 99"):
        TransferQueue(queue.directory)
    with pytest.raises(QueueError, match="expected a transfer queue, found none"):
        TransferQueue(tmp_path / "nowhere")
