//! Findings about the quality of the emulation.

use venturi_plan::Finding;

use crate::lateness::Histogram;
use crate::model::TopologyLimits;

/// Deliveries can be late by this fraction of the smallest round-trip time …
const LATE_DIVISOR: u64 = 100;
/// … but at least this: below it, the wake-up time of the hosts dominates.
const MIN_LATE_NS: u64 = 100_000;
/// Minimum number of deliveries in a checked second, as the 99th percentile of fewer is their maximum.
const CHECKED_DELIVERIES: u64 = 100;
/// Socket memory per byte in the network: both endpoints and the kernel's bookkeeping need about this factor.
const SOCKET_BUFFER_FACTOR: f64 = 3.0;

/// Lateness of deliveries: since the last sample, in the current second, and in total.
#[derive(Debug)]
pub(crate) struct DeliveryTiming {
    limit_ns: u64,
    pub(crate) recent: Histogram,
    second: Histogram,
    total: Histogram,
    seconds: u64,
    late_seconds: u64,
    worst_p99_ns: u64,
}

impl DeliveryTiming {
    pub(crate) fn new(extremes: &TopologyLimits) -> Self {
        let rtt_part_ns = extremes.smallest_rtt_ns.unwrap_or(0) / LATE_DIVISOR;
        Self {
            limit_ns: rtt_part_ns.max(MIN_LATE_NS),
            recent: Histogram::default(),
            second: Histogram::default(),
            total: Histogram::default(),
            seconds: 0,
            late_seconds: 0,
            worst_p99_ns: 0,
        }
    }

    /// Return number and summed lateness of all deliveries.
    pub(crate) fn deliveries(&self) -> (u64, u64) {
        let parts = [&self.recent, &self.second, &self.total];
        let deliveries = parts.iter().map(|part| part.total()).sum();
        (deliveries, parts.iter().map(|part| part.sum_ns()).sum())
    }

    /// Reset `recent`; call this after each sample has read it.
    pub(crate) fn sampled(&mut self) {
        self.second.merge(&self.recent);
        self.recent.clear();
    }

    /// Evaluate the past second; call this once per second.
    pub(crate) fn second_passed(&mut self) {
        self.sampled();
        self.total.merge(&self.second);
        if self.second.total() >= CHECKED_DELIVERIES {
            let p99_ns = self.second.quantile_ns(0.99).unwrap_or(0);
            self.seconds += 1;
            self.late_seconds += u64::from(p99_ns > self.limit_ns);
            self.worst_p99_ns = self.worst_p99_ns.max(p99_ns);
        }
        self.second.clear();
    }

    /// Return the histogram of all deliveries, and a finding if they were late.
    pub(crate) fn check_timing(&mut self) -> (&Histogram, Option<Finding>) {
        self.second_passed();
        let p99_ns = self.total.quantile_ns(0.99).unwrap_or(0);
        let late = self.late_seconds > 0 || p99_ns > self.limit_ns;
        let finding = late.then(|| Finding {
            code: "emulator-late".into(),
            subject: "wire".into(),
            evidence: format!(
                "99 % of {} deliveries were at most {} late, in the worst second {}; in {} of {} busy \
                 seconds, lateness exceeded the {} that the shortest round trip allows",
                self.total.total(),
                microseconds(p99_ns),
                microseconds(self.worst_p99_ns.max(p99_ns)),
                self.late_seconds,
                self.seconds,
                microseconds(self.limit_ns),
            ),
            advice: "lower the rates, the number of hosts or `scale`, or use a machine with more free \
             cores; treat this lateness as the error of round-trip times in this run"
                .into(),
        });
        (&self.total, finding)
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn microseconds(ns: u64) -> String {
    format!("{:.0} µs", ns as f64 / 1000.0)
}

/// Report packets that were lost outside of the model.
pub(crate) fn overrun(dropped: u64) -> Option<Finding> {
    (dropped > 0).then(|| Finding {
        code: "emulator-overrun".into(),
        subject: "wire".into(),
        evidence: format!(
            "the devices of hosts dropped {dropped} packets before they reached the emulator"
        ),
        advice:
            "the emulator is overloaded, and this run has losses that the network model does not \
         cause; lower the rates, the number of streams or `scale`, or free a core"
                .into(),
    })
}

/// Report that the socket memory of the machine is too small for the network.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub(crate) fn memory(
    extremes: &TopologyLimits,
    tcp_memory_bytes: Option<[u64; 3]>,
) -> Option<Finding> {
    let [_, pressure, max] = tcp_memory_bytes?;
    let required = SOCKET_BUFFER_FACTOR * extremes.held_bytes;
    (required > pressure as f64).then(|| Finding {
        code: "emulator-memory".into(),
        subject: "net.ipv4.tcp_mem".into(),
        evidence: format!(
            "full links and queues contain {:.0} MB, and sockets need about {:.0} MB for them; for all \
             sockets of the machine, the kernel saves memory above {:.0} MB and rejects more above {:.0} \
             MB",
            extremes.held_bytes / 1e6,
            required / 1e6,
            pressure as f64 / 1e6,
            max as f64 / 1e6,
        ),
        advice: format!(
            "raise net.ipv4.tcp_mem to {0} {0} {1} pages, or lower rates, delays or `scale`; otherwise \
             receivers discard packets",
            (required / 4096.0).ceil(),
            (required / 4096.0 * 1.5).ceil(),
        ),
    })
}

/// Report packets that were dropped for lack of memory.
pub(crate) fn no_memory(dropped: u64) -> Option<Finding> {
    (dropped > 0).then(|| Finding {
        code: "emulator-overrun".into(),
        subject: "memory".into(),
        evidence: format!(
            "the emulator dropped {dropped} packets because its packet memory was full"
        ),
        advice:
            "lower rates, delays or queues; the links contain more bytes than the packet memory of \
         the emulator"
                .into(),
    })
}

/// Report an interface of a host that disappeared while the network was active.
pub(crate) fn gone(interface: &str) -> Finding {
    Finding {
        code: "emulator-interface-gone".into(),
        subject: interface.into(),
        evidence: "cannot read its device any more".into(),
        advice: "stop the network before the hosts, and do not delete its devices".into(),
    }
}

/// Report that a capture file is incomplete.
pub(crate) fn capture_incomplete(link: &str, evidence: String) -> Finding {
    Finding {
        code: "capture-incomplete".into(),
        subject: link.into(),
        evidence,
        advice:
            "write the capture to faster storage, capture fewer links at the same time, or lower \
         `snap_bytes`"
                .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extremes(smallest_rtt_ns: u64, held_bytes: f64) -> TopologyLimits {
        TopologyLimits {
            smallest_rtt_ns: Some(smallest_rtt_ns),
            held_bytes,
            grains_us: vec![],
            destinations: 0,
        }
    }

    #[test]
    fn one_late_second_is_reported_and_a_late_delivery_in_a_thousand_is_not() {
        let mut punctual = DeliveryTiming::new(&extremes(50_000_000, 0.0));
        for late in [false, true] {
            for number in 0..1000 {
                punctual
                    .recent
                    .add(if number == 0 { 50_000_000 } else { 20_000 });
                if late {
                    punctual.recent.add(600_000);
                }
            }
            punctual.second_passed();
            let (_, finding) = punctual.check_timing();
            assert_eq!(finding.is_some(), late, "{finding:?}");
        }
        let (all, _) = punctual.check_timing();
        assert_eq!(all.total(), 3000);
    }

    #[test]
    fn a_finding_reports_sockets_that_need_more_memory_than_the_kernel_limit() {
        let limits = Some([0, 1_500_000_000, 2_200_000_000]);
        assert!(memory(&extremes(0, 400e6), limits).is_none());
        let finding = memory(&extremes(0, 700e6), limits).expect("3 x 700 MB are more than 1500");
        assert!(finding.evidence.contains("2100 MB"), "{}", finding.evidence);
        assert!(memory(&extremes(0, 700e6), None).is_none(), "not measured");
    }
}
