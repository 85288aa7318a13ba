"""Hand-made captures with lost, late, retransmitted, split and truncated segments."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from venturi.mover.base import OutputError
from venturi.testbed.capture import captured_sessions

CLIENT, SERVER = ("10.77.0.3", 40000), ("10.77.0.1", 2811)
ISN = 2**32 - 20  # so that sequence numbers wrap


def octets(address):
    return bytes(map(int, address.split(".")))


def packet(source, destination, sequence, payload=b"", *, flags=0x18):
    tcp = struct.pack(">HHIIBBHHH", source[1], destination[1], sequence % 2**32, 0, 5 << 4, flags, 0, 0, 0) + payload
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0)
    return head + octets(source[0]) + octets(destination[0]) + tcp


def pcap(packets, *, order="<", magic=0xA1B23C4D, link=101):
    head = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, link)
    framed = [(b"\0" * 14 if link == 1 else b"") + one for one in packets]
    return head + b"".join(
        struct.pack(f"{order}IIII", 1000 + index, 500, len(one), len(one)) + one for index, one in enumerate(framed)
    )


def conversation():
    """Return the packets of a session that requests two files without waiting for replies."""
    printed = b"USER anonymous\r\nRETR /a\r\nRETR /b\r\n"
    back = b"220-Hello\r\n there\r\n220 Ready\r\n230 In\r\n226 Done\r\n226 Done\r\n"
    return [
        packet(CLIENT, SERVER, ISN, flags=0x02),
        packet(SERVER, CLIENT, ISN, flags=0x12),
        packet(SERVER, CLIENT, ISN + 1, back[:30]),
        packet(CLIENT, SERVER, ISN + 1, printed[:16]),
        packet(SERVER, CLIENT, ISN + 31, back[30:38]),
        packet(CLIENT, SERVER, ISN + 17, printed[16:]),
        packet(SERVER, CLIENT, ISN + 39, back[38:]),
    ]


def read(tmp_path, content):
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    return captured_sessions([path], 2811)


def check(sessions):
    (session,) = sessions
    assert session.client == "10.77.0.3:40000"
    assert [(event.direction, event.text) for event in session.events] == [
        ("server", "220-Hello\n there\n220 Ready"), ("client", "USER anonymous"), ("server", "230 In"),
        ("client", "RETR /a"), ("client", "RETR /b"), ("server", "226 Done"), ("server", "226 Done"),
    ]  # fmt: skip
    assert session.max_outstanding == 2


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("magic", [0xA1B23C4D, 0xA1B2C3D4])
@pytest.mark.parametrize("link", [1, 101])
def test_captures_of_all_byte_orders_time_units_and_link_types_are_read(tmp_path, order, magic, link):
    sessions = read(tmp_path, pcap(conversation(), order=order, magic=magic, link=link))
    check(sessions)
    unit_s = 1e-9 if magic == 0xA1B23C4D else 1e-6
    assert sessions[0].events[0].time_s == pytest.approx(1002 + 500 * unit_s, abs=1e-7)


def test_each_direction_can_be_in_a_separate_capture_file(tmp_path):
    for name, sender in (("there", CLIENT), ("back", SERVER)):
        # Packets of the other direction become packets that the reader ignores, so that times do not change.
        kept = [one if one[12:16] == octets(sender[0]) else b"\0" * 20 for one in conversation()]
        (tmp_path / name).write_bytes(pcap(kept))
    check(captured_sessions([tmp_path / "there", tmp_path / "back"], 2811))


def test_duplicate_overlapping_and_late_segments_are_reassembled(tmp_path):
    packets = conversation()
    first = packets[3]
    half = packet(
        CLIENT, SERVER, ISN + 1 + 5, b"anonymous\r\n"
    )  # after a gap, and later covered by the complete segment
    check(read(tmp_path, pcap([*packets[:3], half, first, first, *packets[4:], first])))


def test_a_connection_without_its_start_is_ignored(tmp_path):
    assert read(tmp_path, pcap(conversation()[1:])) == []


def test_a_session_ends_at_a_missing_segment(tmp_path):
    packets = conversation()
    (session,) = read(tmp_path, pcap([*packets[:4], *packets[5:]]))
    assert [event.text for event in session.events][1:] == ["USER anonymous", "RETR /a", "RETR /b"]
    assert session.max_outstanding == 0


def test_a_truncated_packet_is_ignored(tmp_path):
    (session,) = read(tmp_path, pcap(conversation())[:-5])
    assert session.max_outstanding == 2
    assert session.events[-1].text == "RETR /b"


def test_an_invalid_capture_file_is_rejected(tmp_path):
    with pytest.raises(OutputError, match="expected a pcap file"):
        read(tmp_path, b"hello")
    with pytest.raises(OutputError, match="expected a capture of Ethernet frames or IP packets"):
        read(tmp_path, pcap([], link=228))


@given(st.lists(st.binary(max_size=60)), st.binary(max_size=40))
def test_the_reader_accepts_arbitrary_packets_without_an_exception(tmp_path_factory, packets, rest):
    path = tmp_path_factory.getbasetemp() / "any.pcap"
    path.write_bytes(pcap([*conversation()[:2], *packets]) + rest)
    captured_sessions([path], 2811)
