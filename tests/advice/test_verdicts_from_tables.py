"""Verdicts from planted counters: each cause has its own evidence, on hosts and in the lab."""

from pathlib import Path

import pytest
from planted_verdicts import QUIET, Planted, planted_run

from venturi.advice import NETWORK_CAUSES, Counterfactual, TimeFraction, Verdict, advise
from venturi.advice.decide import decide_run
from venturi.advice.paths import decide_small_files
from venturi.measure.result import SmallFiles

BOTH_QUIET = {"a": {**QUIET, "disk.sda.read_bytes": 5e6}, "b": QUIET}


def verdict(tmp_path: Path, **changes: object) -> Verdict:
    """Return the verdict of a run with planted counters."""
    return advise(planted_run(tmp_path, Planted(**{"counters": BOTH_QUIET, **changes}))).run  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cause", "changes"),
    [
        ("link", {"rate_bytes_per_s": 23.5e6, "rtt_s": 0.035}),
        ("congestion", {"rate_bytes_per_s": 8e6, "other_bytes_per_s": 16e6, "rtt_s": 0.035}),
        ("policer", {"rate_bytes_per_s": 12e6, "queue_drops": 0.003, "retransmitted": 0.003, "queue_high_bytes": 6000.0}),
        ("loss", {"rate_bytes_per_s": 2e6, "loss_drops": 0.002, "retransmitted": 0.002, "cwnd_bytes": 40_000}),
        ("receive-window", {"rate_bytes_per_s": 3e6, "window_limited": 0.95, "window_bytes": 64_000}),
        ("send-buffer", {"rate_bytes_per_s": 3e6, "buffer_limited": 0.9}),
        (
            "source-disk",
            {"busy": 0.3, "counters": {**BOTH_QUIET, "a": {**BOTH_QUIET["a"], "cgroup.pressure.io.some_s": 0.9}}},
        ),
        (
            "destination-disk",
            {"window_limited": 0.9, "waiting_bytes": 2_000_000,
             "counters": {**BOTH_QUIET, "b": {**QUIET, "cgroup.pressure.io.some_s": 0.9}}},
        ),
        (
            "source-cpu",
            {"busy": 0.6, "cpu_limit_cores": {"a": 0.1},
             "counters": {**BOTH_QUIET, "a": {**BOTH_QUIET["a"], "cgroup.cpu.user_s": 0.05, "cgroup.cpu.system_s": 0.048,
                                              "cgroup.cpu_throttle.periods": 50.0, "cgroup.cpu_throttle.throttled_periods": 45.0}}},
        ),
        (
            "server-cpu",
            {"busy": 0.5, "counters": {**BOTH_QUIET, "a": {**BOTH_QUIET["a"], "process.server.ftp.busiest_thread_s": 0.98}}},
        ),
        (
            "destination-cpu",
            {"window_limited": 0.9, "waiting_bytes": 2_000_000,
             "counters": {**BOTH_QUIET, "b": {**QUIET, "process.mover.busiest_thread_s": 0.99}}},
        ),
        ("file-latency", {"rate_bytes_per_s": 2e4, "open_part": 0.2, "files": 30}),
        ("authentication", {"rate_bytes_per_s": 2e5, "open_part": 0.15, "service_options": {"auth": "gsi"}}),
        ("start-up", {"rate_bytes_per_s": 2e5, "open_part": 0.15}),
        ("client", {"rate_bytes_per_s": 2e6, "busy": 0.1}),
        ("rate-limit", {"rate_bytes_per_s": 2e6, "busy": 0.1, "options": {"rate_bytes_per_s": 2.05e6}}),
        (
            "lab",
            {"busy": 0.4, "counters": {host: {**BOTH_QUIET[host], "process.mover.run_wait_s": 0.8, "process.server.ftp.run_wait_s": 0.8}
                                       for host in ("a", "b")}},
        ),
    ],
)  # fmt: skip
def test_each_cause_follows_from_its_own_counters(tmp_path: Path, cause: str, changes: dict[str, object]) -> None:
    found = verdict(tmp_path, **changes)
    assert found.cause == cause, (found.fractions, found.evidence)
    assert found.confidence >= 0.6
    assert len(found.sentence.split()) <= 25
    assert any(one.supports == cause and not one.against for one in found.evidence)
    assert found.settings


def test_an_idle_sender_without_evidence_is_never_a_verdict_about_the_network(tmp_path: Path) -> None:
    found = verdict(tmp_path, rate_bytes_per_s=2e6, busy=0.1, counters={})
    assert found.cause not in NETWORK_CAUSES
    assert found.probe is not None
    assert found.missing


def test_a_busy_sender_without_evidence_gets_no_verdict(tmp_path: Path) -> None:
    found = verdict(tmp_path, rate_bytes_per_s=2e6, cwnd_bytes=40_000)
    assert found.cause is None
    assert found.probe is not None
    assert "does not show the limit" in found.sentence


def test_a_run_without_samples_names_the_missing_evidence(tmp_path: Path) -> None:
    found = verdict(tmp_path, sockets=False, counters={})
    assert found.cause is None
    assert any("TCP counters" in text for text in found.missing)


def test_a_queue_on_a_path_of_hosts_indicates_the_link_and_losses_without_a_queue_loss(tmp_path: Path) -> None:
    queue = verdict(tmp_path / "queue", network=False, rate_bytes_per_s=20e6, rtt_s=0.036, retransmitted=0.001)
    assert queue.cause == "link"
    loss = verdict(
        tmp_path / "loss", network=False, rate_bytes_per_s=2e6, rtt_s=0.0205, retransmitted=0.002, cwnd_bytes=40_000
    )
    assert loss.cause == "loss"


def test_findings_lower_the_confidence(tmp_path: Path) -> None:
    plain = verdict(tmp_path / "plain", rate_bytes_per_s=23.5e6, rtt_s=0.035)
    questionable = verdict(
        tmp_path / "questionable", rate_bytes_per_s=23.5e6, rtt_s=0.035, findings=("tcp-memory-short",)
    )
    assert questionable.caveats == ("tcp-memory-short",)
    assert questionable.confidence < plain.confidence


def test_the_prediction_has_the_rate_of_the_next_limit(tmp_path: Path) -> None:
    found = verdict(tmp_path, rate_bytes_per_s=3e6, window_limited=0.97, window_bytes=64_000,
                    sysctls={"net.ipv4.tcp_rmem": "4096 131072 131072", "net.ipv4.tcp_wmem": "4096 16384 4194304"}).counterfactual  # fmt: skip
    assert found is not None
    assert found.next_limit == "the link a>b"
    # 30 MB at 25 MB/s minus headers and 5 %, plus 4 round trips of slow start.
    assert found.rate_bytes_per_s == pytest.approx(30e6 / (30e6 / 22.9e6 + 0.08), rel=0.03)
    assert found.low_bytes_per_s < found.rate_bytes_per_s < found.high_bytes_per_s


def test_a_setting_that_is_not_the_limit_is_listed_as_unchanged(tmp_path: Path) -> None:
    found = verdict(tmp_path, rate_bytes_per_s=23.5e6, rtt_s=0.035)
    assert any(text.startswith("TCP buffers") for text in found.leave_alone)
    assert not any("buffer" in one.change for one in found.settings)


def point(number: int, size_bytes: int, cause: str | None, rate_bytes_per_s: float = 1e6) -> Verdict:
    """Return the verdict of a design point."""
    resource = "" if cause is None else f"the limit {cause}"
    fraction = TimeFraction(cause or "unknown", resource, 0.9)  # type: ignore[arg-type]
    change = Counterfactual(
        f"remove {cause}", 2 * rate_bytes_per_s, 1.5 * rate_bytes_per_s, 4 * rate_bytes_per_s, "the link"
    )
    return Verdict(
        number, {"size_bytes": size_bytes, "files": 1}, rate_bytes_per_s, cause, resource, 0.9, None, 0.9, (), (fraction,),  # type: ignore[arg-type]
        counterfactual=change if cause else None,
    )  # fmt: skip


def test_points_with_different_limits_are_grouped_by_the_separating_factor() -> None:
    points = [(2.0, point(0, 10_000, "file-latency")), (2.0, point(1, 10**5, "file-latency")), (9.0, point(2, 10**9, "source-disk"))]  # fmt: skip
    found = decide_run(points, "lab")
    assert [(group.cause, group.points, group.where) for group in found.groups] == [
        ("source-disk", (2,), "size 1 GB"), ("file-latency", (0, 1), "size up to 100 kB"),
    ]  # fmt: skip
    assert found.cause == "source-disk"
    assert (
        found.sentence
        == "1 MB/s, limited by the limit source-disk (size 1 GB) and the latency of each file (size up to 100 kB)."
    )


def test_the_prediction_of_a_run_changes_only_the_points_with_its_limit() -> None:
    found = decide_run(
        [(10.0, point(0, 10_000, "link")), (30.0, point(1, 10**9, "source-disk"))], "lab"
    ).counterfactual
    assert found is not None
    # 40 MB in 10 s + 30 s / 2.
    assert found.rate_bytes_per_s == pytest.approx(40e6 / 25)


def test_a_run_with_one_limit_has_no_groups_and_mostly_unknown_limits_give_no_verdict() -> None:
    assert decide_run([(1.0, point(0, 10, "link")), (1.0, point(1, 20, "link"))], "lab").groups == ()
    found = decide_run([(1.0, point(0, 10, "link")), (9.0, point(1, 20, None)), (9.0, point(2, 30, None))], "lab")
    assert found.cause is None
    assert [group.cause for group in found.groups] == ["link", None]


def test_cores_used_by_other_programs_are_not_reported_as_the_source_cpu_limit(tmp_path: Path) -> None:
    cores = {"cpu.user_s": 1.98, "cpu.system_s": 0.0, "cpu.steal_s": 0.0, "cpu.idle_s": 0.02, "cpu.iowait_s": 0.0}
    own = {"process.server.ftp.user_s": 0.05, "process.server.ftp.system_s": 0.05}
    busy = {"a": {**BOTH_QUIET["a"], **cores, **own}, "b": QUIET}
    found = verdict(tmp_path, network=False, busy=0.1, counters=busy)
    assert found.cause != "source-cpu"
    assert any("other programs on a" in one.resource for one in found.fractions)


def test_small_files_are_latency_limited_if_they_take_over_twice_the_time_of_their_bytes() -> None:
    large = point(0, 10**9, "link", 100e6)
    slow = decide_small_files(large, SmallFiles(50, 10_000, 0.5))
    assert slow is not None
    assert (slow.cause, slow.rate_bytes_per_s) == ("file-latency", 1e6)
    assert slow.factors["dataset"] == "50 files of 10 kB"
    fast = decide_small_files(large, SmallFiles(50, 10_000, 0.006))
    assert fast is not None
    assert fast.cause == "link"
    assert decide_small_files(large, SmallFiles(50, 10_000, None, "timeout")) is None
