//! `struct tcp_info` (`linux/tcp.h`). It grows at its end only: what a kernel does not give is not there.

use venturi_plan::{Bytes, Seconds, Socket};

use super::netlink::{number32, number64};

const US_PER_S: f64 = 1e6;

/// Offsets in bytes, and the kernel that was the first to tell, where it is younger than 4.9.
const SND_MSS: usize = 16;
const LOST: usize = 32;
const RTT_US: usize = 68;
const RTT_VAR_US: usize = 72;
const SND_CWND: usize = 80;
const TOTAL_RETRANS: usize = 100;
const PACING_RATE: usize = 104;
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;
const MIN_RTT_US: usize = 148;
const DELIVERY_RATE: usize = 160;
const BUSY_US: usize = 168; // 4.10
const RWND_LIMITED_US: usize = 176; // 4.10
const SNDBUF_LIMITED_US: usize = 184; // 4.10
const BYTES_SENT: usize = 200; // 4.19
const BYTES_RETRANS: usize = 208; // 4.19
const SND_WND: usize = 228; // 5.4
const RCV_WND: usize = 232; // 6.2

/// Takes from `info` all that is recorded.
pub(super) fn read_into(info: &[u8], socket: &mut Socket) {
    let count = |offset| number32(info, offset).map(u64::from);
    let bytes = |offset| number64(info, offset).map(Bytes::new);
    let span = |offset| number64(info, offset).map(|us| Seconds::new(us as f64 / US_PER_S));
    let mss = count(SND_MSS);
    socket.mss_bytes = mss.map(Bytes::new);
    socket.cwnd_bytes = count(SND_CWND)
        .zip(mss)
        .map(|(segments, mss)| Bytes::new(segments * mss));
    socket.send_window_bytes = count(SND_WND).map(Bytes::new);
    socket.receive_window_bytes = count(RCV_WND).map(Bytes::new);
    // No round trip yet is 0, and for the least one the largest number.
    let trip = |offset| number32(info, offset).filter(|us| *us != 0 && *us != u32::MAX);
    let seconds = |us: u32| Seconds::new(f64::from(us) / US_PER_S);
    socket.rtt_s = trip(RTT_US).map(seconds);
    // Before the first round trip there is a deviation of none, which the standard sets to a quarter of a second.
    socket.rtt_var_s = trip(RTT_US)
        .and_then(|_| number32(info, RTT_VAR_US))
        .map(seconds);
    socket.min_rtt_s = trip(MIN_RTT_US).map(seconds);
    socket.sent_bytes = bytes(BYTES_SENT);
    socket.acked_bytes = bytes(BYTES_ACKED);
    socket.received_bytes = bytes(BYTES_RECEIVED);
    socket.retransmitted_bytes = bytes(BYTES_RETRANS);
    socket.retransmits = count(TOTAL_RETRANS);
    socket.lost = count(LOST);
    // No estimate yet is 0, no limit the largest number.
    let rate = |offset| {
        let rate = number64(info, offset).filter(|rate| *rate != 0 && *rate != u64::MAX);
        rate.map(|rate| rate as f64)
    };
    socket.delivery_bytes_per_s = rate(DELIVERY_RATE);
    socket.pacing_bytes_per_s = rate(PACING_RATE);
    socket.busy_s = span(BUSY_US);
    socket.receive_window_limited_s = span(RWND_LIMITED_US);
    socket.send_buffer_limited_s = span(SNDBUF_LIMITED_US);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each 4 bytes hold their own offset.
    fn numbered(length: usize) -> Vec<u8> {
        let word = |offset: usize| u32::try_from(offset).expect("small").to_ne_bytes();
        (0..length).step_by(4).flat_map(word).collect()
    }

    #[test]
    fn an_older_kernel_gives_less_and_the_rest_is_unknown() {
        let of = |length| {
            let mut socket = Socket::default();
            read_into(&numbered(length), &mut socket);
            socket
        };
        let newest = of(248);
        assert_eq!(newest.mss_bytes, Some(Bytes::new(16)));
        assert_eq!(newest.cwnd_bytes, Some(Bytes::new(80 * 16)));
        assert_eq!(newest.rtt_s, Some(Seconds::new(68e-6)));
        assert_eq!(newest.receive_window_bytes, Some(Bytes::new(232)));
        assert_eq!(newest.sent_bytes, Some(Bytes::new(200 | 204 << 32)));
        let of_4_19 = of(224);
        assert!(of_4_19.sent_bytes.is_some());
        assert_eq!(of_4_19.send_window_bytes, None);
        let of_4_9 = of(168);
        assert!(of_4_9.delivery_bytes_per_s.is_some() && of_4_9.min_rtt_s.is_some());
        assert_eq!((of_4_9.busy_s, of_4_9.sent_bytes), (None, None));
        assert_eq!(of(0), Socket::default());
    }

    #[test]
    fn what_was_not_measured_yet_is_absent_not_zero() {
        let mut socket = Socket::default();
        let mut info = vec![0; 248];
        info[PACING_RATE..PACING_RATE + 8].fill(0xff);
        info[MIN_RTT_US..MIN_RTT_US + 4].fill(0xff);
        info[RTT_VAR_US] = 1;
        read_into(&info, &mut socket);
        assert_eq!(
            (socket.rtt_s, socket.rtt_var_s, socket.min_rtt_s),
            (None, None, None)
        );
        assert_eq!(
            (socket.pacing_bytes_per_s, socket.delivery_bytes_per_s),
            (None, None)
        );
        assert_eq!(socket.acked_bytes, Some(Bytes::new(0)), "that is a count");
    }
}
