//! Doubts about the emulation, in words.

use venturi_plan::Finding;

use crate::lateness::Histogram;
use crate::model::Extremes;

/// A delivery may be late by this share of the smallest round trip …
const LATE_SHARE: u64 = 100;
/// … but by so much in any case: below it the hosts' own waking up is what one measures.
const LATE_LEAST_NS: u64 = 100_000;
/// A second is judged if it had so many deliveries, as the 99th percentile of fewer is their maximum.
const JUDGED_DELIVERIES: u64 = 100;
/// Memory for sockets: both ends and the bookkeeping of the kernel hold what the network holds, about so many times.
const SOCKETS_HOLD: f64 = 3.0;

/// How late deliveries are: since the last sample, in the current second, and in all.
#[derive(Debug)]
pub(crate) struct Punctuality {
    limit_ns: u64,
    pub(crate) recent: Histogram,
    second: Histogram,
    total: Histogram,
    seconds: u64,
    late_seconds: u64,
    worst_p99_ns: u64,
}

impl Punctuality {
    pub(crate) fn new(extremes: &Extremes) -> Self {
        let share_ns = extremes.smallest_rtt_ns.unwrap_or(0) / LATE_SHARE;
        Self {
            limit_ns: share_ns.max(LATE_LEAST_NS),
            recent: Histogram::default(),
            second: Histogram::default(),
            total: Histogram::default(),
            seconds: 0,
            late_seconds: 0,
            worst_p99_ns: 0,
        }
    }

    /// To be called after each sample has taken what it wants of `recent`.
    pub(crate) fn sampled(&mut self) {
        self.second.merge(&self.recent);
        self.recent.clear();
    }

    /// To be called once a second.
    pub(crate) fn second_passed(&mut self) {
        self.sampled();
        self.total.merge(&self.second);
        if self.second.total() >= JUDGED_DELIVERIES {
            let p99_ns = self.second.quantile_ns(0.99).unwrap_or(0);
            self.seconds += 1;
            self.late_seconds += u64::from(p99_ns > self.limit_ns);
            self.worst_p99_ns = self.worst_p99_ns.max(p99_ns);
        }
        self.second.clear();
    }

    /// All deliveries, and the doubt about them if there is one.
    pub(crate) fn judge(&mut self) -> (&Histogram, Option<Finding>) {
        self.second_passed();
        let p99_ns = self.total.quantile_ns(0.99).unwrap_or(0);
        let late = self.late_seconds > 0 || p99_ns > self.limit_ns;
        let finding = late.then(|| Finding {
            code: "wire-late".into(),
            subject: "wire".into(),
            evidence: format!(
                "99 % of {} deliveries were at most {} late, in the worst second {}; in {} of {} busy seconds it was \
                 more than the {} that the smallest round trip allows",
                self.total.total(),
                microseconds(p99_ns),
                microseconds(self.worst_p99_ns.max(p99_ns)),
                self.late_seconds,
                self.seconds,
                microseconds(self.limit_ns),
            ),
            advice: "ask for less at once (rates, hosts, `scale`), or give the machine more or idler cores; do not \
                     trust round trips of this run to better than this"
                .into(),
        });
        (&self.total, finding)
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn microseconds(ns: u64) -> String {
    format!("{:.0} µs", ns as f64 / 1000.0)
}

/// Packets were lost where the model does not see it.
pub(crate) fn overrun(dropped: u64) -> Option<Finding> {
    (dropped > 0).then(|| Finding {
        code: "wire-overrun".into(),
        subject: "wire".into(),
        evidence: format!(
            "{dropped} packets were dropped by the devices of hosts before the network saw them"
        ),
        advice: "the emulation does not keep up: lower the rates, the number of streams or `scale`, or free a core; \
                 losses of this run are not the network's only"
            .into(),
    })
}

/// The sockets of the machine may not hold what the network does.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub(crate) fn memory(extremes: &Extremes, tcp_memory_bytes: Option<[u64; 3]>) -> Option<Finding> {
    let [_, pressure, most] = tcp_memory_bytes?;
    let wanted = SOCKETS_HOLD * extremes.held_bytes;
    (wanted > pressure as f64).then(|| Finding {
        code: "wire-memory".into(),
        subject: "net.ipv4.tcp_mem".into(),
        evidence: format!(
            "full pipes and queues hold {:.0} MB, for which sockets want about {:.0} MB; the kernel begins to save at \
             {:.0} MB and refuses at {:.0} MB for all sockets of the machine",
            extremes.held_bytes / 1e6,
            wanted / 1e6,
            pressure as f64 / 1e6,
            most as f64 / 1e6,
        ),
        advice: format!(
            "raise net.ipv4.tcp_mem to {0} {0} {1} pages, or lower rates, delays or `scale`; otherwise receivers throw \
             away what has arrived",
            (wanted / 4096.0).ceil(),
            (wanted / 4096.0 * 1.5).ceil(),
        ),
    })
}

/// There was no room for packets.
pub(crate) fn no_memory(dropped: u64) -> Option<Finding> {
    (dropped > 0).then(|| Finding {
        code: "wire-overrun".into(),
        subject: "memory".into(),
        evidence: format!("{dropped} packets were dropped because the memory for packets was full"),
        advice: "lower rates, delays or queues: links hold more than the wire has room for".into(),
    })
}

/// A host's interface has gone while the network was up.
pub(crate) fn gone(interface: &str) -> Finding {
    Finding {
        code: "wire-interface-gone".into(),
        subject: interface.into(),
        evidence: "its device can no longer be read".into(),
        advice: "take down the network before the hosts; do not delete its devices".into(),
    }
}

/// A file of a capture is not all that passed.
pub(crate) fn capture_incomplete(link: &str, evidence: String) -> Finding {
    Finding {
        code: "capture-incomplete".into(),
        subject: link.into(),
        evidence,
        advice: "capture to a faster place, fewer links at once, or with a smaller `snap_bytes`"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extremes(smallest_rtt_ns: u64, held_bytes: f64) -> Extremes {
        Extremes {
            smallest_rtt_ns: Some(smallest_rtt_ns),
            held_bytes,
            grains_us: vec![],
            destinations: 0,
        }
    }

    #[test]
    fn one_late_second_is_told_and_a_late_delivery_in_a_thousand_is_not() {
        let mut punctual = Punctuality::new(&extremes(50_000_000, 0.0));
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
            let (_, finding) = punctual.judge();
            assert_eq!(finding.is_some(), late, "{finding:?}");
        }
        let (all, _) = punctual.judge();
        assert_eq!(all.total(), 3000);
    }

    #[test]
    fn memory_is_doubted_when_the_sockets_would_want_more_than_the_kernel_likes() {
        let limits = Some([0, 1_500_000_000, 2_200_000_000]);
        assert!(memory(&extremes(0, 400e6), limits).is_none());
        let finding = memory(&extremes(0, 700e6), limits).expect("3 x 700 MB are more than 1500");
        assert!(finding.evidence.contains("2100 MB"), "{}", finding.evidence);
        assert!(memory(&extremes(0, 700e6), None).is_none(), "not measured");
    }
}
