//! Properties of TCP sockets from the kernel (`TCP_INFO`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Bytes, Seconds};

/// Sockets at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sockets {
    /// When.
    pub time_s: Seconds,
    /// The sockets.
    pub sockets: Vec<Socket>,
}

/// One TCP socket. Counts are cumulative since its creation; null: the kernel does not report it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Socket {
    /// Address and port on this host.
    pub local: String,
    /// Address and port of its peer.
    pub remote: String,
    /// State of the connection: `established`, `close_wait` …
    pub state: String,
    /// Whether the socket is destroyed, so that these are its final counts.
    pub closed: bool,
    /// Name of the congestion control.
    pub congestion_control: Option<String>,
    /// Largest segment that it sends.
    pub mss_bytes: Option<Bytes>,
    /// Congestion window.
    pub cwnd_bytes: Option<Bytes>,
    /// Slow start threshold.
    #[serde(default)]
    pub ssthresh_bytes: Option<Bytes>,
    /// The window that the peer has announced.
    pub send_window_bytes: Option<Bytes>,
    /// The window that it has announced to the peer.
    pub receive_window_bytes: Option<Bytes>,
    /// Size of the send buffer.
    pub send_buffer_bytes: Option<Bytes>,
    /// Size of the receive buffer.
    pub receive_buffer_bytes: Option<Bytes>,
    /// Bytes that the program has written and the peer has not acknowledged (Send-Q).
    #[serde(default)]
    pub send_queue_bytes: Option<Bytes>,
    /// Bytes that the program has written and the kernel has not sent.
    #[serde(default)]
    pub unsent_bytes: Option<Bytes>,
    /// Bytes received that the program has not read (Recv-Q).
    #[serde(default)]
    pub receive_queue_bytes: Option<Bytes>,
    /// Smoothed round-trip time.
    pub rtt_s: Option<Seconds>,
    /// Mean deviation of the round-trip time.
    pub rtt_var_s: Option<Seconds>,
    /// Minimum round-trip time.
    pub min_rtt_s: Option<Seconds>,
    /// Round-trip time estimated by the receiver.
    #[serde(default)]
    pub receiver_rtt_s: Option<Seconds>,
    /// Bytes sent, including retransmissions.
    pub sent_bytes: Option<Bytes>,
    /// Bytes that the peer has acknowledged.
    pub acked_bytes: Option<Bytes>,
    /// Bytes received.
    pub received_bytes: Option<Bytes>,
    /// Segments with data sent, including retransmissions.
    #[serde(default)]
    pub sent_segments: Option<u64>,
    /// Segments sent and not acknowledged.
    #[serde(default)]
    pub unacked: Option<u64>,
    /// Bytes sent again.
    pub retransmitted_bytes: Option<Bytes>,
    /// Segments sent again.
    pub retransmits: Option<u64>,
    /// Segments currently considered lost.
    pub lost: Option<u64>,
    /// Reordering limit in segments: a longer gap counts as a loss.
    #[serde(default)]
    pub reordering: Option<u64>,
    /// Events of reordering that the sender has seen.
    #[serde(default)]
    pub reordered: Option<u64>,
    /// Segments that the peer received twice.
    #[serde(default)]
    pub duplicates: Option<u64>,
    /// Segments received out of order.
    #[serde(default)]
    pub out_of_order: Option<u64>,
    /// Segments that the socket dropped for lack of memory.
    #[serde(default)]
    pub drops: Option<u64>,
    /// The kernel's latest estimate of the delivery rate.
    pub delivery_bytes_per_s: Option<f64>,
    /// Whether the sender did not have enough data during this estimate.
    #[serde(default)]
    pub app_limited: Option<bool>,
    /// Pacing rate.
    pub pacing_bytes_per_s: Option<f64>,
    /// Time with data to send.
    pub busy_s: Option<Seconds>,
    /// Time limited by the peer's window.
    pub receive_window_limited_s: Option<Seconds>,
    /// Time limited by its send buffer.
    pub send_buffer_limited_s: Option<Seconds>,
}
