//! Fields of `struct tcp_info` in the record of a socket.

use venturi_linux::TcpInfo;
use venturi_plan::{Bytes, Seconds, Socket};

const US_PER_S: f64 = 1e6;

/// Sets all recorded fields from `info`.
pub(super) fn read_into(info: &[u8], socket: &mut Socket) {
    let info = TcpInfo::from_bytes(info);
    let trip = |us: Option<u32>| us.map(|us| Seconds::new(f64::from(us) / US_PER_S));
    let span = |us: Option<u64>| us.map(|us| Seconds::new(us as f64 / US_PER_S));
    let bytes = |count: Option<u64>| count.map(Bytes::new);
    let rate = |rate: Option<u64>| rate.map(|rate| rate as f64);
    let count = |count: Option<u32>| count.map(u64::from);
    socket.mss_bytes = bytes(info.mss_bytes());
    socket.cwnd_bytes = bytes(info.cwnd_bytes());
    socket.ssthresh_bytes = bytes(info.ssthresh_bytes());
    socket.send_window_bytes = bytes(info.send_window_bytes());
    socket.receive_window_bytes = bytes(info.receive_window_bytes());
    socket.rtt_s = trip(info.rtt_us());
    socket.rtt_var_s = trip(info.rtt_var_us());
    socket.min_rtt_s = trip(info.min_rtt_us());
    socket.receiver_rtt_s = trip(info.receiver_rtt_us().filter(|us| *us > 0));
    socket.unsent_bytes = bytes(info.unsent_bytes());
    socket.sent_bytes = bytes(info.sent_bytes());
    socket.acked_bytes = bytes(info.acked_bytes());
    socket.received_bytes = bytes(info.received_bytes());
    socket.retransmitted_bytes = bytes(info.retransmitted_bytes());
    socket.retransmits = count(info.retransmits());
    socket.lost = count(info.lost());
    socket.sent_segments = count(info.sent_segments());
    socket.unacked = count(info.unacked());
    socket.reordering = count(info.reordering());
    socket.reordered = count(info.reordered());
    socket.duplicates = count(info.duplicates());
    socket.out_of_order = count(info.out_of_order());
    socket.app_limited = info.app_limited();
    socket.delivery_bytes_per_s = rate(info.delivery_bytes_per_s());
    socket.pacing_bytes_per_s = rate(info.pacing_bytes_per_s());
    socket.busy_s = span(info.busy_us());
    socket.receive_window_limited_s = span(info.receive_window_limited_us());
    socket.send_buffer_limited_s = span(info.send_buffer_limited_us());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns bytes in which each group of 4 contains its offset.
    fn numbered(length: usize) -> Vec<u8> {
        let word = |offset: usize| u32::try_from(offset).expect("small").to_ne_bytes();
        (0..length).step_by(4).flat_map(word).collect()
    }

    #[test]
    fn fields_that_an_older_kernel_does_not_report_are_absent() {
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
}
