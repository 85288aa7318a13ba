//! Many files in one call: commands that wait for answers, several sessions, and how few phases that comes to.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | N | files of a session | – |
//! | p | files whose commands are under way together | – |
//! | R | round trips of a file × RTT | s |
//! | D | what a file takes of the session: opening, waiting of slow start, bytes | s |
//!
//! A session is a server that takes one file after the other, and a client that has p commands on their way. So file i can begin when
//! file i − 1 has ended, and not before R has passed since file i − p ended:
//!
//! T = R + (M − 1) max(p D, R + D) + r D, with M = ⌈N/p⌉ rounds, the last of r = N − (M−1) p files.
//!
//! For p = 1 this is N (R + D), for p = N it is R + N D. (Bresnahan et al., TG 2007, and Yildirim et al., TPDS 2016, have the limit
//! N R/p + N D for long sequences.) A round is: one file; then p − 1 files, and not before R. Rounds that are alike are added up: exact
//! as long as rates do not change within them, and there are at most [`MOST_GROUPS`] groups, so that they cannot for long.

use super::phase::{Bound, End, Phase, Why};
use super::{BeforeLoss, Dealing};

/// Groups of rounds that a call is divided into at most; each is one to twelve phases.
pub const MOST_GROUPS: u64 = 16;

/// Files of a call in order, as runs of equal sizes.
///
/// ```
/// use venturi_sim::cost::Files;
/// let files = Files::new([(3, 1_000), (0, 7), (2, 50)]);
/// assert_eq!((files.count(), files.bytes()), (5, 3_100.0));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    runs: Vec<(u64, u64)>,
}

impl Files {
    /// From pairs of a number of files and the bytes of each.
    #[must_use]
    pub fn new(runs: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self {
            runs: runs.into_iter().filter(|run| run.0 > 0).collect(),
        }
    }

    /// One file.
    #[must_use]
    pub fn one(bytes: u64) -> Self {
        Self::new([(1, bytes)])
    }

    /// The same with files of `large` bytes or more in pieces of `piece` bytes, each of them a file; the last piece of a file has the rest.
    #[must_use]
    pub fn in_pieces(&self, large: u64, piece: u64) -> Self {
        let piece = piece.max(1);
        Self::new(self.runs.iter().flat_map(|&(files, bytes)| {
            if bytes < large || bytes <= piece {
                return [(files, bytes), (0, 0)];
            }
            let whole = (bytes - 1) / piece;
            [
                (files.saturating_mul(whole), piece),
                (files, bytes - whole * piece),
            ]
        }))
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.runs
            .iter()
            .fold(0, |sum, run| sum.saturating_add(run.0))
    }

    /// Bytes of all.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.bytes_between(0, u64::MAX)
    }

    fn bytes_between(&self, first: u64, last: u64) -> f64 {
        self.between(first, last)
            .map(|(files, bytes)| files as f64 * bytes as f64)
            .sum()
    }

    /// The runs of files `first` to `last`, that one not included.
    fn between(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut below = 0_u64;
        self.runs.iter().filter_map(move |&(files, bytes)| {
            let (from, to) = (below.max(first), below.saturating_add(files).min(last));
            below = below.saturating_add(files);
            (from < to).then(|| (to - from, bytes))
        })
    }
}

/// What a file costs in a session besides round trips and bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FileCost {
    /// Time in which no processor works for it.
    pub delay_s: f64,
    /// Processor time of the client.
    pub client_core_s: f64,
    /// Processor time of servers.
    pub server_core_s: Vec<(End, f64)>,
}

/// How the sessions of a call take its files.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// Sessions side by side: files are dealt out to them in turn.
    pub lanes: u64,
    /// Files whose commands are under way together in one.
    pub pipelining: u64,
    /// Time of the round trips of a file.
    pub trips_s: f64,
    /// What a file costs besides.
    pub file: FileCost,
    /// How connections begin, and what each has of a file; `None` within one machine.
    pub dealing: Option<Dealing>,
    /// Whether a connection stays for the next file.
    pub keeps_connection: bool,
    /// The fastest that one session is.
    pub cap: f64,
    /// What bounds it.
    pub bound: Bound,
    /// What holds until its connections lose the first segment; `None` where `cap` holds from the beginning.
    pub before_loss: Option<BeforeLoss>,
    /// Weight of one session.
    pub weight: f64,
    /// The slowest link, empty: slow start ends where it is full.
    pub path_bytes_per_s: f64,
}

impl Session {
    /// Append the phases of all files.
    pub fn put(&self, files: &Files, phases: &mut Vec<Phase>) {
        let each = files.count().div_ceil(self.lanes.max(1));
        if each == 0 {
            return;
        }
        phases.push(Phase::Delay {
            seconds: self.trips_s,
            why: Why::Commands,
        });
        let rounds = each.div_ceil(self.pipelining);
        let whole = (rounds - 1) * self.pipelining;
        let groups = (rounds - 1).min(MOST_GROUPS);
        let mut first = 0;
        for group in 1..=groups {
            let end = share(rounds - 1, group, groups) * self.pipelining;
            self.put_rounds(files, first, end, phases);
            first = end;
        }
        self.put_in_row(files, whole, each, phases);
    }

    /// Whole rounds: the files `first` to `end` of each lane, as one file of each, and the others while the next answers come.
    fn put_rounds(&self, files: &Files, first: u64, end: u64, phases: &mut Vec<Phase>) {
        let rounds = (end - first) / self.pipelining;
        let waited_s = rounds as f64 * self.trips_s;
        if self.pipelining == 1 {
            self.put_in_row(files, first, end, phases);
            phases.push(Phase::Delay {
                seconds: waited_s,
                why: Why::Commands,
            });
            return;
        }
        self.put_in_row(files, first, first + rounds, phases);
        phases.push(Phase::Mark);
        self.put_in_row(files, first + rounds, end, phases);
        phases.push(Phase::NotBefore {
            seconds: waited_s,
            why: Why::Commands,
        });
    }

    /// Files `first` to `end` of each lane without a pause between them.
    fn put_in_row(&self, files: &Files, first: u64, end: u64, phases: &mut Vec<Phase>) {
        let count = files.count();
        // In the last turn there may be fewer files than lanes.
        let full = (count / self.lanes).clamp(first, end);
        self.put_lanes(files, first, full, self.lanes, phases);
        self.put_lanes(files, full, end, count % self.lanes, phases);
    }

    fn put_lanes(&self, files: &Files, first: u64, end: u64, lanes: u64, phases: &mut Vec<Phase>) {
        if first == end || lanes == 0 {
            return;
        }
        let (width, in_row) = (lanes as f64, (end - first) as f64);
        let chosen = (
            first.saturating_mul(self.lanes),
            end.saturating_mul(self.lanes).min(files.count()),
        );
        self.put_openings(width, in_row, phases);
        phases.push(Phase::Delay {
            seconds: self.slow_start_s(files, chosen, width),
            why: Why::SlowStart,
        });
        let all = files.bytes_between(chosen.0, chosen.1);
        let mut put = |bytes: f64, cap: f64, bound: Bound| {
            phases.push(Phase::Bytes {
                bytes,
                cap: width * cap,
                weight: width * self.weight,
                bound,
            });
        };
        let Some(before) = self.before_loss else {
            return put(all, self.cap, self.bound);
        };
        let early = self
            .over(files, chosen, |bytes| before.bytes(bytes))
            .min(all);
        let later_s = self.over(files, chosen, |bytes| before.later_s(bytes));
        put(early, before.cap, before.bound);
        // What is left of nothing by rounding has no time either.
        let rate = if later_s > 0.0 {
            (all - early) / later_s
        } else {
            self.cap
        };
        put(all - early, rate.max(self.cap), self.bound);
    }

    /// What files cost besides round trips and bytes, `in_row` of them in each of `width` lanes.
    fn put_openings(&self, width: f64, in_row: f64, phases: &mut Vec<Phase>) {
        let of_all = width * in_row;
        phases.push(Phase::Delay {
            seconds: in_row * self.file.delay_s,
            why: Why::File,
        });
        phases.push(Phase::ClientCpu {
            core_s: of_all * self.file.client_core_s,
            width,
            why: Why::File,
        });
        for &(end, core_s) in &self.file.server_core_s {
            phases.push(Phase::ServerCpu {
                end,
                core_s: of_all * core_s,
                width,
                why: Why::File,
            });
        }
    }

    /// The sum over the connections of these files of what a connection that carries so many bytes has; of connections that stay, what
    /// these files add to it.
    fn over(&self, files: &Files, chosen: (u64, u64), of: impl Fn(f64) -> f64) -> f64 {
        if self.keeps_connection {
            let lanes = self.lanes as f64;
            let until = |end: u64| of(files.bytes_between(0, end) / lanes);
            return lanes * (until(chosen.1) - until(chosen.0));
        }
        files
            .between(chosen.0, chosen.1)
            .map(|it| it.0 as f64 * of(it.1 as f64))
            .sum()
    }

    /// What a lane waits in slow starts while so many lanes move these files; on connections that stay, only in the first group. They are
    /// taken to meet no loss.
    fn slow_start_s(&self, files: &Files, chosen: (u64, u64), lanes: f64) -> f64 {
        let Some(dealing) = self.dealing else {
            return 0.0;
        };
        let cap = self.before_loss.map_or(self.cap, |before| before.cap);
        let rate = cap.min(self.path_bytes_per_s / lanes);
        let runs = files.between(chosen.0, chosen.1);
        if !self.keeps_connection {
            return runs
                .map(|it| it.0 as f64 / lanes * dealing.waiting_s(it.1 as f64, rate))
                .sum();
        }
        if chosen.0 > 0 {
            return 0.0;
        }
        // The whole sequence counts, for it is the connection that starts, not the file.
        dealing.waiting_of_many_s(&files.runs, self.lanes, rate)
    }
}

/// The first `part` of `parts` nearly equal parts of `whole`.
fn share(whole: u64, part: u64, parts: u64) -> u64 {
    (u128::from(whole) * u128::from(part) / u128::from(parts.max(1))) as u64
}
