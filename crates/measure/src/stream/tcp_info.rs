//! State of a connection in the results.

use std::net::{SocketAddr, TcpStream};

use serde::{Deserialize, Serialize};
use venturi_linux::{TcpInfo, socket_option};

/// One connection at one end. Names and units are those of the table `sockets` of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Connection {
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<String>,
    /// Absent after the other end has closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    congestion_control: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mss_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwnd_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_rtt_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retransmits: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retransmitted_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    busy_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receive_window_limited_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    send_buffer_limited_s: Option<f64>,
}

impl Connection {
    /// Reads the state of a socket; unknown fields are absent.
    pub(super) fn of(stream: &TcpStream) -> Self {
        let text = |address: SocketAddr| address.to_string();
        let info = TcpInfo::of(stream).unwrap_or_else(|| TcpInfo::from_bytes(&[]));
        Self {
            local: stream.local_addr().ok().map(text),
            remote: stream.peer_addr().ok().map(text),
            congestion_control: congestion_control(stream),
            ..Self::from_info(&info)
        }
    }

    fn from_info(info: &TcpInfo) -> Self {
        let trip = |us: Option<u32>| us.map(|us| f64::from(us) / 1e6);
        let span = |us: Option<u64>| us.map(|us| us as f64 / 1e6);
        Self {
            mss_bytes: info.mss_bytes(),
            cwnd_bytes: info.cwnd_bytes(),
            rtt_s: trip(info.rtt_us()),
            min_rtt_s: trip(info.min_rtt_us()),
            retransmits: info.retransmits().map(u64::from),
            sent_bytes: info.sent_bytes(),
            retransmitted_bytes: info.retransmitted_bytes(),
            busy_s: span(info.busy_us()),
            receive_window_limited_s: span(info.receive_window_limited_us()),
            send_buffer_limited_s: span(info.send_buffer_limited_us()),
            ..Self::default()
        }
    }
}

fn congestion_control(stream: &TcpStream) -> Option<String> {
    let mut name = [0; 16];
    let length = socket_option(stream, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut name)?;
    let text = String::from_utf8_lossy(&name[..length]);
    let text = text.trim_end_matches('\0');
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_newer_kernels_are_absent_on_older_ones() {
        // Each 4 bytes hold their own offset.
        let info: Vec<u8> = (0..248_u32).step_by(4).flat_map(u32::to_ne_bytes).collect();
        let parse = |info: &[u8]| Connection::from_info(&TcpInfo::from_bytes(info));
        let newest = parse(&info);
        assert_eq!(newest.mss_bytes, Some(16));
        assert_eq!(newest.rtt_s, Some(68e-6));
        assert_eq!(newest.sent_bytes, Some(200 | 204 << 32));
        let of_4_9 = parse(&info[..168]);
        assert_eq!(of_4_9.retransmits, Some(100));
        assert_eq!((of_4_9.busy_s, of_4_9.sent_bytes), (None, None));
        assert_eq!(parse(&[]), Connection::default());
    }
}
