"""`venturi advise` between two hosts behind ssh: the first sentence names the planted limit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "measure"))  # pathkit

from pathkit import slow_disk

from testkit import needs_programs, needs_root

pytestmark = needs_root

DISK_BYTES_PER_S = 10_000_000


@pytest.fixture
def slow_source(real_hosts, tmp_path):
    """Give host a a disk of 10 MB/s, and return the directories of source and destination."""
    with slow_disk(tmp_path / "disk", read_bytes_per_s=DISK_BYTES_PER_S, size_bytes=10**9) as mounted:
        device = subprocess.run(
            ["findmnt", "-n", "-o", "SOURCE", mounted], capture_output=True, text=True, check=True
        ).stdout.strip()
        real_hosts.sh("a", "mkdir -p ~/slow")
        real_hosts.sh("a", f"mount {device} /home/alice/slow && chown alice /home/alice/slow", user=False)
        real_hosts.sh("b", "mkdir -p ~/to")
        try:
            yield "a:/home/alice/slow", "b:/home/alice/to"
        finally:
            real_hosts.sh("a", "umount /home/alice/slow", user=False)


@pytest.mark.alone
@needs_programs("mkfs.ext4", "losetup", "findmnt")
def test_the_first_sentence_names_the_slow_source_disk(real_hosts, slow_source):
    done = real_hosts.venturi("advise", "--json", "--time", "20 s", *slow_source)
    result = json.loads(done.stdout)
    verdict = result["verdict"]
    assert verdict["cause"] == "source-disk"
    assert "limited by the disk of a" in verdict["sentence"]
    # The throttle allows a burst; other load on the machine can only slow the copy down.
    assert verdict["rate_bytes_per_s"] < 1.25 * DISK_BYTES_PER_S
    assert result["points"][0]["cause"] == "source-disk"
    assert result["points"][1]["factors"]["dataset"].endswith("files of 10 kB")
    assert any("with one connection" in one["text"] for one in verdict["evidence"])
    assert result["time_to_verdict_s"] > 0
    assert (Path(real_hosts.work) / result["run"]).is_dir(), "the measurement is saved"
