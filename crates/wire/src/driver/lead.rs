//! How long handing a packet over takes, so that it can begin as much before the packet is due.
//!
//! The kernel does the receiver's part of the network in the write: the packet is there at its end, not at its beginning.

/// No packet is handed over earlier than this, whatever was measured: on a machine that is too busy, what takes long is not the write.
const MOST_NS: u64 = 20_000;
/// What was measured counts as far as this part of the lead, and this many ns, beyond it: one that was interrupted moves it little.
const STEP_PART: u64 = 16;
const STEP_NS: u64 = 50;

#[derive(Debug, Default)]
pub(crate) struct Lead {
    ns: u64,
}

impl Lead {
    /// So much before it is due a packet is to be handed over.
    #[inline]
    pub(crate) fn ns(&self) -> u64 {
        self.ns
    }

    /// Handing one segment over took so long.
    #[inline]
    pub(crate) fn took(&mut self, ns: u64) {
        let step_ns = self.ns / STEP_PART + STEP_NS;
        let nearer_ns = ns.clamp(self.ns.saturating_sub(step_ns), self.ns + step_ns);
        self.ns = nearer_ns.min(MOST_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_becomes_what_writes_take_and_an_interruption_moves_it_little() {
        let mut lead = Lead::default();
        for _ in 0..100 {
            lead.took(5_000);
        }
        assert_eq!(lead.ns(), 5_000);
        lead.took(3_000_000);
        assert!((5_001..5_400).contains(&lead.ns()), "{}", lead.ns());
        lead.took(5_000);
        assert_eq!(lead.ns(), 5_000);
    }

    #[test]
    fn nothing_is_handed_over_much_too_early_where_all_writes_take_long() {
        let mut lead = Lead::default();
        for _ in 0..1000 {
            lead.took(1_000_000);
        }
        assert_eq!(lead.ns(), MOST_NS);
    }
}
