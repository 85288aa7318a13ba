//! Network interfaces and protocol counters of this network namespace, and the packet queues of the cores.

use std::collections::HashMap;

use venturi_plan::Name;

use super::SampledCounters;

/// proc_pid_net(5): received bytes, packets, errors, drops and four more, then the same for sent data.
pub(super) fn parse_nics(text: &str, counters: &mut SampledCounters) {
    /// Keys of the counters of one direction.
    const KEYS: [&str; 4] = ["bytes", "packets", "errors", "dropped"];
    const SENT_FROM: usize = 8;
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else {
            continue;
        };
        let values: Vec<f64> = rest
            .split_ascii_whitespace()
            .filter_map(|value| value.parse().ok())
            .collect();
        let (Some(received), Some(sent)) = (
            values.get(..KEYS.len()),
            values.get(SENT_FROM..SENT_FROM + KEYS.len()),
        ) else {
            continue;
        };
        for (direction, values) in [("rx", received), ("tx", sent)] {
            let named = KEYS.iter().zip(values);
            counters.extend(named.map(|(key, value)| {
                (
                    format!("nic.{}.{direction}_{key}", name.trim()).into(),
                    *value,
                )
            }));
        }
    }
}

/// `/proc/net/softnet_stat`: a line for each core, in hexadecimal: packets, packets dropped from a full queue, and
/// rounds that ended with packets left.
pub(super) fn parse_softnet(text: &str, counters: &mut SampledCounters) {
    let (mut dropped, mut squeezed) = (0_u64, 0_u64);
    for line in text.lines() {
        let mut fields = line
            .split_ascii_whitespace()
            .map(|field| u64::from_str_radix(field, 16).unwrap_or(0));
        let (_, drops, squeezes) = (fields.next(), fields.next(), fields.next());
        dropped += drops.unwrap_or(0);
        squeezed += squeezes.unwrap_or(0);
    }
    counters.insert("softnet.dropped".into(), dropped as f64);
    counters.insert("softnet.squeezed".into(), squeezed as f64);
}

/// Group and name of a counter in `/proc/net/snmp` or `/proc/net/netstat`, and its name in a sample
/// (Documentation/networking/snmp_counter.rst).
const TCP: [(&str, &str, &str); 26] = [
    ("Tcp", "OutSegs", "sent_segments"),
    ("Tcp", "InSegs", "received_segments"),
    ("Tcp", "RetransSegs", "retransmitted_segments"),
    ("Tcp", "InErrs", "received_errors"),
    ("TcpExt", "ListenOverflows", "listen_overflows"),
    ("TcpExt", "ListenDrops", "listen_drops"),
    ("TcpExt", "TCPOFOQueue", "out_of_order"),
    ("TcpExt", "TCPFastRetrans", "fast_retransmits"),
    ("TcpExt", "TCPSlowStartRetrans", "slow_start_retransmits"),
    ("TcpExt", "TCPLostRetransmit", "lost_retransmits"),
    ("TcpExt", "TCPTimeouts", "timeouts"),
    ("TcpExt", "TCPLossProbes", "tail_loss_probes"),
    ("TcpExt", "TCPSpuriousRTOs", "spurious_rtos"),
    ("TcpExt", "TCPDSACKRecv", "dsack_received"),
    ("TcpExt", "TCPRcvCollapsed", "receive_collapsed"),
    ("TcpExt", "RcvPruned", "receive_pruned"),
    ("TcpExt", "PruneCalled", "prune_called"),
    ("TcpExt", "TCPBacklogDrop", "backlog_drops"),
    ("TcpExt", "TCPRcvQDrop", "receive_queue_drops"),
    ("TcpExt", "TCPZeroWindowDrop", "zero_window_drops"),
    ("TcpExt", "TCPToZeroWindowAdv", "to_zero_window"),
    ("TcpExt", "TCPFromZeroWindowAdv", "from_zero_window"),
    ("TcpExt", "TCPWantZeroWindowAdv", "want_zero_window"),
    ("TcpExt", "TCPMemoryPressures", "memory_pressures"),
    ("TcpExt", "TCPAbortOnMemory", "aborts_on_memory"),
    ("TcpExt", "TCPReqQFullDrop", "request_queue_drops"),
];

/// Return a parser of these files: pairs of lines with the names and values of a group. A counter that the kernel does
/// not have is absent.
pub(super) fn protocol() -> impl FnMut(&str, &mut SampledCounters) {
    let mut groups = HashMap::new();
    move |text, counters| parse_protocol(&mut groups, text, counters)
}

/// `groups`: for each line of names, the positions of the recorded counters. The kernel has 130, with the same names each
/// time.
fn parse_protocol(
    groups: &mut HashMap<String, Vec<(usize, Name)>>,
    text: &str,
    counters: &mut SampledCounters,
) {
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        if !groups.contains_key(names) {
            groups.insert(names.to_owned(), recorded(names));
        }
        let mut positions = groups[names].iter().peekable();
        let values = values.split_ascii_whitespace().skip(1); // the name of the group
        for (position, value) in values.enumerate() {
            match positions.peek() {
                None => break,
                Some((next, _)) if *next != position => {}
                Some((_, name)) => {
                    if let Ok(value) = value.parse() {
                        counters.insert(name.clone(), value);
                    }
                    positions.next();
                }
            }
        }
    }
}

/// Return the positions of the recorded counters in a line of names, and their names in a sample.
fn recorded(names: &str) -> Vec<(usize, Name)> {
    let (group, names) = names.split_once(':').unwrap_or_default();
    let found = names.split_ascii_whitespace().enumerate();
    let found = found.filter_map(|(position, name)| {
        let known = TCP.iter().find(|known| (known.0, known.1) == (group, name));
        Some((position, format!("tcp.{}", known?.2).into()))
    });
    found.collect()
}
