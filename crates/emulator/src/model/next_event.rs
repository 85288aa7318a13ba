//! Next event of all links: a tournament tree over the next due time of every link.
//!
//! Packets of a link keep their order, so only the first packet of each link matters, and a heap of
//! all packets would waste memory. The winner is known immediately; a changed time costs one
//! comparison per level.

/// Time of no event.
pub(crate) const NEVER: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Earliest {
    times_ns: Vec<u64>,
    /// `winners[1]` is the earliest of all; the children of `i` are `2i` and `2i + 1`; the leaves, from
    /// `times_ns.len()` on, are the players.
    winners: Vec<u16>,
}

impl Earliest {
    pub(crate) fn new(players: usize) -> Self {
        let size = players.next_power_of_two().max(2);
        let mut winners = vec![0; 2 * size];
        for (player, leaf) in winners[size..].iter_mut().enumerate() {
            *leaf = u16::try_from(player).expect("the number of links was checked");
        }
        let mut all = Self {
            times_ns: vec![NEVER; size],
            winners,
        };
        for node in (1..size).rev() {
            all.play(node);
        }
        all
    }

    /// Return the earliest time and its link.
    #[inline]
    pub(crate) fn first(&self) -> (u64, usize) {
        let winner = self.winners[1] as usize;
        (self.times_ns[winner], winner)
    }

    #[inline]
    pub(crate) fn set(&mut self, player: usize, time_ns: u64) {
        if self.times_ns[player] == time_ns {
            return;
        }
        self.times_ns[player] = time_ns;
        let mut node = (self.times_ns.len() + player) / 2;
        while node >= 1 {
            self.play(node);
            node /= 2;
        }
    }

    /// Return the winner of two links. With equal times, the lower number wins, so that the order
    /// is defined.
    #[inline]
    fn play(&mut self, node: usize) {
        let (left, right) = (self.winners[2 * node], self.winners[2 * node + 1]);
        let right_wins = self.times_ns[right as usize] < self.times_ns[left as usize];
        self.winners[node] = if right_wins { right } else { left };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_event_is_the_minimum_after_any_updates(
            players in 1_usize..70,
            settings in prop::collection::vec((0_usize..70, 0_u64..50), 0..200),
        ) {
            let mut earliest = Earliest::new(players);
            let mut plain = vec![NEVER; players];
            for (player, time) in settings {
                let player = player % players;
                plain[player] = time;
                earliest.set(player, time);
                let expected = plain.iter().enumerate().map(|(player, time)| (*time, player)).min();
                prop_assert_eq!(Some(earliest.first()), expected);
            }
        }
    }
}
