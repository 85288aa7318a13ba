//! State of a TCP connection: `struct tcp_info` (`linux/tcp.h`). It only grows at its end; fields beyond the length that a
//! kernel returns are absent.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd};

/// Longest structure that is read; 248 bytes in Linux 6.12.
const MAX_BYTES: usize = 512;

/// Offsets in bytes, and the first kernel with the field, if it is newer than 4.9.
const FLAGS: usize = 7;
const SND_MSS: usize = 16;
const UNACKED: usize = 24;
const LOST: usize = 32;
const LAST_DATA_SENT_MS: usize = 44;
const LAST_DATA_RECV_MS: usize = 52;
const RTT_US: usize = 68;
const RTT_VAR_US: usize = 72;
const SND_SSTHRESH: usize = 76;
const SND_CWND: usize = 80;
const REORDERING: usize = 88;
const RCV_RTT_US: usize = 92;
const RCV_SPACE: usize = 96;
const TOTAL_RETRANS: usize = 100;
const PACING_RATE: usize = 104;
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;
const NOTSENT_BYTES: usize = 144;
const MIN_RTT_US: usize = 148;
const DATA_SEGS_OUT: usize = 156;
const DELIVERY_RATE: usize = 160;
const BUSY_US: usize = 168; // 4.10
const RWND_LIMITED_US: usize = 176; // 4.10
const SNDBUF_LIMITED_US: usize = 184; // 4.10
const BYTES_SENT: usize = 200; // 4.19
const BYTES_RETRANS: usize = 208; // 4.19
const DSACK_DUPS: usize = 216; // 4.19
const REORD_SEEN: usize = 220; // 4.19
const RCV_OOOPACK: usize = 224; // 5.4
const SND_WND: usize = 228; // 5.4
const RCV_WND: usize = 232; // 6.2

/// State of a connection at one time. A value that the kernel does not report, or does not know yet, is absent.
#[derive(Clone, Copy)]
pub struct TcpInfo {
    bytes: [u8; MAX_BYTES],
    length: usize,
}

impl TcpInfo {
    /// Reads the state of a connection; `None` for a socket without it.
    #[must_use]
    pub fn of(socket: &impl AsFd) -> Option<Self> {
        let mut bytes = [0; MAX_BYTES];
        let length = socket_option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
        Some(Self { bytes, length })
    }

    /// The structure as the kernel returns it, here or through netlink.
    #[must_use]
    pub fn from_bytes(info: &[u8]) -> Self {
        let length = info.len().min(MAX_BYTES);
        let mut bytes = [0; MAX_BYTES];
        bytes[..length].copy_from_slice(&info[..length]);
        Self { bytes, length }
    }

    /// Largest payload of a sent segment.
    #[must_use]
    pub fn mss_bytes(&self) -> Option<u64> {
        self.count(SND_MSS)
    }

    /// Congestion window.
    #[must_use]
    pub fn cwnd_bytes(&self) -> Option<u64> {
        let segments = self.count(SND_CWND)?;
        Some(segments * self.mss_bytes()?)
    }

    /// Slow start threshold; absent until a loss or the congestion control has set it.
    #[must_use]
    pub fn ssthresh_bytes(&self) -> Option<u64> {
        /// `TCP_INFINITE_SSTHRESH` (`net/tcp.h`).
        const INFINITE: u64 = 0x7fff_ffff;
        let segments = self.count(SND_SSTHRESH).filter(|count| *count < INFINITE)?;
        Some(segments * self.mss_bytes()?)
    }

    /// Segments that were sent and are not acknowledged.
    #[must_use]
    pub fn unacked(&self) -> Option<u32> {
        self.number32(UNACKED)
    }

    /// Bytes in the send buffer that were never sent.
    #[must_use]
    pub fn unsent_bytes(&self) -> Option<u64> {
        self.count(NOTSENT_BYTES)
    }

    /// Window that the other host last announced.
    #[must_use]
    pub fn send_window_bytes(&self) -> Option<u64> {
        self.count(SND_WND)
    }

    /// Window that this host announces.
    #[must_use]
    pub fn receive_window_bytes(&self) -> Option<u64> {
        self.count(RCV_WND)
    }

    /// Round-trip time of the sender, smoothed.
    #[must_use]
    pub fn rtt_us(&self) -> Option<u32> {
        self.trip(RTT_US)
    }

    /// Mean deviation of [`TcpInfo::rtt_us`]. Before the first round trip it is absent: the kernel has a value of the standard then.
    #[must_use]
    pub fn rtt_var_us(&self) -> Option<u32> {
        self.rtt_us().and(self.number32(RTT_VAR_US))
    }

    /// Minimum round-trip time.
    #[must_use]
    pub fn min_rtt_us(&self) -> Option<u32> {
        self.trip(MIN_RTT_US)
    }

    /// Round-trip time as the receiver estimates it.
    #[must_use]
    pub fn receiver_rtt_us(&self) -> Option<u32> {
        self.trip(RCV_RTT_US)
    }

    /// Bytes that the program read in the last round trip.
    #[must_use]
    pub fn receive_space_bytes(&self) -> Option<u64> {
        self.count(RCV_SPACE)
    }

    /// Time since data was sent.
    #[must_use]
    pub fn since_sent_ms(&self) -> Option<u32> {
        self.number32(LAST_DATA_SENT_MS)
    }

    /// Time since data was received.
    #[must_use]
    pub fn since_received_ms(&self) -> Option<u32> {
        self.number32(LAST_DATA_RECV_MS)
    }

    /// Bytes sent, with retransmitted bytes.
    #[must_use]
    pub fn sent_bytes(&self) -> Option<u64> {
        self.number64(BYTES_SENT)
    }

    /// Bytes that the other host acknowledged.
    #[must_use]
    pub fn acked_bytes(&self) -> Option<u64> {
        self.number64(BYTES_ACKED)
    }

    /// Bytes received in order.
    #[must_use]
    pub fn received_bytes(&self) -> Option<u64> {
        self.number64(BYTES_RECEIVED)
    }

    /// Bytes that were retransmitted.
    #[must_use]
    pub fn retransmitted_bytes(&self) -> Option<u64> {
        self.number64(BYTES_RETRANS)
    }

    /// Segments that were retransmitted.
    #[must_use]
    pub fn retransmits(&self) -> Option<u32> {
        self.number32(TOTAL_RETRANS)
    }

    /// Segments that count as lost now.
    #[must_use]
    pub fn lost(&self) -> Option<u32> {
        self.number32(LOST)
    }

    /// Segments with data that were sent, with retransmitted segments.
    #[must_use]
    pub fn sent_segments(&self) -> Option<u32> {
        self.number32(DATA_SEGS_OUT)
    }

    /// Distance in segments up to which the kernel takes a gap for reordering and not for a loss.
    #[must_use]
    pub fn reordering(&self) -> Option<u32> {
        self.number32(REORDERING)
    }

    /// Events of reordering that the sender has seen.
    #[must_use]
    pub fn reordered(&self) -> Option<u32> {
        self.number32(REORD_SEEN)
    }

    /// Segments that the other host reports as received twice (DSACK).
    #[must_use]
    pub fn duplicates(&self) -> Option<u32> {
        self.number32(DSACK_DUPS)
    }

    /// Segments that arrived out of order.
    #[must_use]
    pub fn out_of_order(&self) -> Option<u32> {
        self.number32(RCV_OOOPACK)
    }

    /// Delivery rate as the kernel estimates it.
    #[must_use]
    pub fn delivery_bytes_per_s(&self) -> Option<u64> {
        self.rate(DELIVERY_RATE)
    }

    /// Return whether [`TcpInfo::delivery_bytes_per_s`] is of a time without enough data to send; absent without a rate.
    #[must_use]
    pub fn app_limited(&self) -> Option<bool> {
        self.delivery_bytes_per_s()?;
        self.field::<1>(FLAGS).map(|[flags]| flags & 1 == 1)
    }

    /// Rate limit of the sender; absent without a limit.
    #[must_use]
    pub fn pacing_bytes_per_s(&self) -> Option<u64> {
        self.rate(PACING_RATE)
    }

    /// Time with data to send.
    #[must_use]
    pub fn busy_us(&self) -> Option<u64> {
        self.number64(BUSY_US)
    }

    /// Part of [`TcpInfo::busy_us`] limited by the window of the receiver.
    #[must_use]
    pub fn receive_window_limited_us(&self) -> Option<u64> {
        self.number64(RWND_LIMITED_US)
    }

    /// Part of [`TcpInfo::busy_us`] limited by the send buffer.
    #[must_use]
    pub fn send_buffer_limited_us(&self) -> Option<u64> {
        self.number64(SNDBUF_LIMITED_US)
    }

    /// No round trip yet is 0, and for the minimum the largest number.
    fn trip(&self, offset: usize) -> Option<u32> {
        self.number32(offset)
            .filter(|us| !matches!(*us, 0 | u32::MAX))
    }

    /// No estimate yet is 0, and no limit is the largest number.
    fn rate(&self, offset: usize) -> Option<u64> {
        self.number64(offset)
            .filter(|rate| !matches!(*rate, 0 | u64::MAX))
    }

    fn count(&self, offset: usize) -> Option<u64> {
        self.number32(offset).map(u64::from)
    }

    fn number32(&self, offset: usize) -> Option<u32> {
        self.field(offset).map(u32::from_ne_bytes)
    }

    fn number64(&self, offset: usize) -> Option<u64> {
        self.field(offset).map(u64::from_ne_bytes)
    }

    fn field<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.bytes[..self.length]
            .get(offset..offset + N)?
            .try_into()
            .ok()
    }
}

impl fmt::Debug for TcpInfo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("TcpInfo")
            .field(&&self.bytes[..self.length])
            .finish()
    }
}

/// Reads an option of a socket into `buffer` and returns its length; `None` if the kernel does not have it.
///
/// # Panics
/// If the buffer has more than 2 GiB.
#[must_use]
pub fn socket_option(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    buffer: &mut [u8],
) -> Option<usize> {
    let mut length = libc::socklen_t::try_from(buffer.len()).expect("a small buffer");
    // SAFETY: the pointers describe `buffer` and `length`, which live through the call; the descriptor is open.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            buffer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    (result == 0).then_some(length as usize)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    /// Each 4 bytes hold their own offset.
    fn numbered(length: usize) -> TcpInfo {
        let word = |offset: usize| u32::try_from(offset).expect("small").to_ne_bytes();
        let bytes: Vec<u8> = (0..length).step_by(4).flat_map(word).collect();
        TcpInfo::from_bytes(&bytes)
    }

    #[test]
    fn fields_of_newer_kernels_are_absent_on_older_kernels() {
        let newest = numbered(248);
        assert_eq!(newest.mss_bytes(), Some(16));
        assert_eq!(newest.cwnd_bytes(), Some(80 * 16));
        assert_eq!(newest.rtt_us(), Some(68));
        assert_eq!(newest.receive_window_bytes(), Some(232));
        assert_eq!(newest.sent_bytes(), Some(200 | 204 << 32));
        assert_eq!(
            (newest.reordered(), newest.duplicates()),
            (Some(220), Some(216))
        );
        assert_eq!(newest.ssthresh_bytes(), Some(76 * 16));
        let of_4_19 = numbered(224);
        assert!(of_4_19.sent_bytes().is_some());
        assert_eq!(of_4_19.out_of_order(), None);
        let of_4_9 = numbered(168);
        assert!(of_4_9.delivery_bytes_per_s().is_some() && of_4_9.min_rtt_us().is_some());
        assert_eq!((of_4_9.busy_us(), of_4_9.sent_bytes()), (None, None));
        assert_eq!(numbered(0).mss_bytes(), None);
    }

    #[test]
    fn values_that_are_not_measured_yet_are_absent_not_zero() {
        let mut bytes = vec![0; 248];
        bytes[PACING_RATE..PACING_RATE + 8].fill(0xff);
        bytes[MIN_RTT_US..MIN_RTT_US + 4].fill(0xff);
        bytes[RTT_VAR_US] = 1;
        bytes[SND_SSTHRESH..SND_SSTHRESH + 4].copy_from_slice(&0x7fff_ffff_u32.to_ne_bytes());
        bytes[FLAGS] = 1;
        let info = TcpInfo::from_bytes(&bytes);
        assert_eq!(
            (info.rtt_us(), info.rtt_var_us(), info.min_rtt_us()),
            (None, None, None)
        );
        assert_eq!(info.pacing_bytes_per_s(), None);
        assert_eq!(
            (info.delivery_bytes_per_s(), info.app_limited()),
            (None, None)
        );
        assert_eq!(info.ssthresh_bytes(), None);
        assert_eq!(info.acked_bytes(), Some(0), "a count");
    }

    #[test]
    fn a_tcp_connection_has_tcp_info_and_another_socket_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let stream = TcpStream::connect(address).expect("a connection");
        let info = TcpInfo::of(&stream).expect("the kernel reports it");
        assert!(
            info.mss_bytes() > Some(0) && info.min_rtt_us() > Some(0),
            "{info:?}"
        );
        let other = UdpSocket::bind("127.0.0.1:0").expect("a port");
        assert!(TcpInfo::of(&other).is_none());
    }
}
