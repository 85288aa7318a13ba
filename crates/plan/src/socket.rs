//! What the kernel tells of TCP sockets (`TCP_INFO`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Bytes, Seconds};

/// Sockets at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sockets {
    /// When.
    pub time_s: Seconds,
    /// The sockets.
    pub sockets: Vec<Socket>,
}

/// One TCP socket. Counts are cumulative since it was made; null is: the kernel does not tell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Socket {
    /// Address and port on this host.
    pub local: String,
    /// Address and port of its peer.
    pub remote: String,
    /// State of the connection: `established`, `close_wait` …
    pub state: String,
    /// Whether it is gone, and these are its final counts.
    pub closed: bool,
    /// Name of the congestion control.
    pub congestion_control: Option<String>,
    /// Largest segment that it sends.
    pub mss_bytes: Option<Bytes>,
    /// Congestion window.
    pub cwnd_bytes: Option<Bytes>,
    /// The window that the peer has announced.
    pub send_window_bytes: Option<Bytes>,
    /// The window that it has announced to the peer.
    pub receive_window_bytes: Option<Bytes>,
    /// Size of the send buffer.
    pub send_buffer_bytes: Option<Bytes>,
    /// Size of the receive buffer.
    pub receive_buffer_bytes: Option<Bytes>,
    /// Smoothed round-trip time.
    pub rtt_s: Option<Seconds>,
    /// Mean deviation of the round-trip time.
    pub rtt_var_s: Option<Seconds>,
    /// Least round-trip time seen.
    pub min_rtt_s: Option<Seconds>,
    /// Bytes sent, repetitions included.
    pub sent_bytes: Option<Bytes>,
    /// Bytes that the peer has acknowledged.
    pub acked_bytes: Option<Bytes>,
    /// Bytes received.
    pub received_bytes: Option<Bytes>,
    /// Bytes sent again.
    pub retransmitted_bytes: Option<Bytes>,
    /// Segments sent again.
    pub retransmits: Option<u64>,
    /// Segments taken for lost now.
    pub lost: Option<u64>,
    /// The kernel's latest estimate of the delivery rate.
    pub delivery_bytes_per_s: Option<f64>,
    /// The rate at which it paces.
    pub pacing_bytes_per_s: Option<f64>,
    /// Time in which it had data to send.
    pub busy_s: Option<Seconds>,
    /// Time in which the peer's window held it back.
    pub receive_window_limited_s: Option<Seconds>,
    /// Time in which its send buffer held it back.
    pub send_buffer_limited_s: Option<Seconds>,
}
