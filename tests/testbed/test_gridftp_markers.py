"""GridFTP markers in server replies: complete, interrupted and resumed, striped and pipelined."""

import pytest

from venturi.testbed.gridftp_log import ControlEvent
from venturi.testbed.markers import marked_transfers

START = 1795344661.1
# Replies of globus-gridftp-server 13.24. Its session was killed after 7 s, and the client (-rst) started again.
BROKEN = [
    ("client", "STOR /data/f"),
    ("server", "150 Beginning transfer."),
    ("server", 0, 0),
    ("server", "111 Range Marker 0-4718592"),
    ("server", 5, 4718592),
]
TAKEN_UP = [
    ("client", "REST 0-4718592"),
    ("server", "350 Restart Marker OK. Send STORE or RETR to initiate transfer."),
    ("client", "STOR /data/f"),
    ("server", "150 Beginning transfer."),
    ("server", 8.2, 0),
    ("server", 13.2, 4456448),
    ("server", "111 Range Marker 4718592-9175040"),
    ("server", 16.7, 8281408),
    ("server", "111 Range Marker 9175040-13000000"),
    ("server", "226 Transfer Complete."),
]


def marker(time_s, count, stripe=0, stripes=1):
    return (
        f"112-Perf Marker\n Timestamp:  {START + time_s:.1f}\n Stripe Index: {stripe}\n Stripe Bytes Transferred: {count}\n"
        f" Total Stripe Count: {stripes}\n112 End."
    )


def printed(*lines):
    texts = [(who, what[0] if isinstance(what[0], str) else marker(*what)) for who, *what in lines]
    return [ControlEvent(float(number), 0, "10.77.0.3:40780", who, text) for number, (who, text) in enumerate(texts)]


def test_a_resumed_transfer_skips_the_ranges_received_before_the_interruption():
    (broken,), (resumed,) = (list(marked_transfers(printed(*lines))) for lines in (BROKEN, TAKEN_UP))
    assert (broken.complete, broken.skipped_bytes, broken.bytes, broken.times_s) == (
        False,
        0,
        (0, 4718592),
        (0.0, 5.0),
    )
    assert (resumed.complete, resumed.skipped_bytes, resumed.range_markers) == (True, 4718592, 2)
    assert resumed.times_s == (0.0, 5.0, 8.5)
    assert resumed.skipped_bytes + resumed.bytes[-1] == 13_000_000


def test_restart_ranges_apply_only_to_the_next_transfer():
    again = [("client", "STOR /data/g"), ("server", 20, 0), ("server", 21, 5), ("server", "226 Transfer Complete.")]
    assert [one.skipped_bytes for one in marked_transfers(printed(*TAKEN_UP, *again))] == [4718592, 0]
    offset = [("client", "REST 700"), ("server", "350 OK"), *again]
    assert [one.skipped_bytes for one in marked_transfers(printed(*offset))] == [700]
    two = [("client", "REST 0-10,20-50"), ("server", "350 OK"), *again]
    assert [one.skipped_bytes for one in marked_transfers(printed(*two))] == [40]


def test_bytes_are_the_sum_over_all_stripes():
    lines = [("client", "STOR /f"), ("server", 0, 0, 0, 2), ("server", 0, 0, 1, 2), ("server", 5, 30, 0, 2), ("server", 5, 12, 1, 2),
             ("server", "226 OK")]  # fmt: skip
    (output,) = marked_transfers(printed(*lines))
    assert (output.stripes, output.bytes) == (2, (0, 0, 30, 42))


def test_markers_belong_to_the_first_transfer_without_a_final_reply():
    lines = [
        ("client", "STOR /one"), ("client", "STOR /two"), ("server", 0, 0), ("server", 1, 10), ("server", "226 OK"),
        ("server", 1, 0), ("server", 2, 20), ("server", "426 Connection closed"),
    ]  # fmt: skip
    first, second = marked_transfers(printed(*lines))
    assert (first.path, first.bytes[-1], first.complete) == ("/one", 10, True)
    assert (second.path, second.bytes[-1], second.complete) == ("/two", 20, False)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [("server", 0, 5)],
        [("client", "STOR /f"), ("server", "112-Perf Marker\n112 End."), ("server", "226 OK")],
        [("client", "RETR /f"), ("server", "150 OK"), ("server", "226 OK")],
        [("client", "REST nonsense"), ("server", "501 Bad"), ("server", "226 of nobody")],
    ],
    ids=str,
)
def test_a_session_without_valid_markers_gives_no_transfers(lines):
    assert list(marked_transfers(printed(*lines))) == []
