//! Many files in one call: commands that wait for replies, several sessions, and a small number of phases.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | N | files of a session | – |
//! | p | files whose commands are in flight together | – |
//! | R | round trips of a file × RTT | s |
//! | D | time of a file in the session: opening, waits of slow start, bytes | s |
//!
//! A session has a server that handles one file after the other, and a client with p commands in
//! flight. File i can start when file i − 1 has ended, but not before R has passed since the end of
//! file i − p:
//!
//! T = R + (M − 1) max(p D, R + D) + r D, with M = ⌈N/p⌉ rounds, the last of r = N − (M−1) p files.
//!
//! For p = 1 this is N (R + D), for p = N it is R + N D. (Bresnahan et al., TG 2007, and Yildirim
//! et al., IEEE Trans. Cloud Computing 4(1), 2016, give the limit N R/p + N D for long sequences.)
//! A round is one file, then p − 1 files after at least R. Equal rounds are added up. This is exact
//! while rates do not change within them, and [`MAX_GROUPS`] groups keep that time short.

use super::phase::{EndpointRole, TransferLimit, TransferPhase, Why};
use super::{BeforeLoss, Dealing};

/// Maximum number of groups of rounds in a call; each group is one to twelve phases.
pub const MAX_GROUPS: u64 = 16;

/// Files of a call in order, as runs of equal sizes.
///
/// ```
/// use venturi_sim::cost::CallFiles;
/// let files = CallFiles::new([(3, 1_000), (0, 7), (2, 50)]);
/// assert_eq!((files.count(), files.bytes()), (5, 3_100.0));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallFiles {
    runs: Vec<(u64, u64)>,
}

impl CallFiles {
    /// Create files from pairs of a number of files and the bytes of each.
    #[must_use]
    pub fn new(runs: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self {
            runs: runs.into_iter().filter(|run| run.0 > 0).collect(),
        }
    }

    /// Create one file.
    #[must_use]
    pub fn one(bytes: u64) -> Self {
        Self::new([(1, bytes)])
    }

    /// Return the same files, but each file of `large` bytes or more as chunks of `chunk` bytes
    /// that count as files. The last chunk of a file has the rest.
    #[must_use]
    pub fn in_chunks(&self, large: u64, chunk: u64) -> Self {
        let chunk = chunk.max(1);
        Self::new(self.runs.iter().flat_map(|&(files, bytes)| {
            if bytes < large || bytes <= chunk {
                return [(files, bytes), (0, 0)];
            }
            let whole = (bytes - 1) / chunk;
            [
                (files.saturating_mul(whole), chunk),
                (files, bytes - whole * chunk),
            ]
        }))
    }

    /// Return the number of files.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.runs
            .iter()
            .fold(0, |sum, run| sum.saturating_add(run.0))
    }

    /// Return the bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.bytes_between(0, u64::MAX)
    }

    fn bytes_between(&self, first: u64, last: u64) -> f64 {
        self.between(first, last)
            .map(|(files, bytes)| files as f64 * bytes as f64)
            .sum()
    }

    /// Return the runs of files `first` to `last`, excluding `last`.
    fn between(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut below = 0_u64;
        self.runs.iter().filter_map(move |&(files, bytes)| {
            let (from, to) = (below.max(first), below.saturating_add(files).min(last));
            below = below.saturating_add(files);
            (from < to).then(|| (to - from, bytes))
        })
    }
}

/// Costs of a file in a session in addition to round trips and bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FileCost {
    /// Time without CPU use.
    pub delay_s: f64,
    /// CPU time of the client.
    pub client_core_s: f64,
    /// CPU time of servers.
    pub server_core_s: Vec<(EndpointRole, f64)>,
}

/// Distribution of files over the sessions of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallSessions {
    /// Number of parallel sessions, which get files in turn.
    pub lanes: u64,
    /// Files whose commands are in flight together in one session.
    pub pipelining: u64,
    /// Time of the round trips of a file.
    pub trips_s: f64,
    /// Additional costs of a file.
    pub file: FileCost,
    /// Slow start of connections, and the part of a file for each; `None` within one machine.
    pub dealing: Option<Dealing>,
    /// Whether a connection stays open for the next file.
    pub keeps_connection: bool,
    /// Maximum rate of one session.
    pub cap: f64,
    /// Limit that causes `cap`.
    pub bottleneck: TransferLimit,
    /// Limit until its connections lose the first segment; `None` if `cap` applies from the start.
    pub before_loss: Option<BeforeLoss>,
    /// Weight of one session.
    pub weight: f64,
    /// Rate of the slowest link without other traffic; slow start ends when it is full.
    pub path_bytes_per_s: f64,
}

impl CallSessions {
    /// Append the phases of all files.
    pub fn put(&self, files: &CallFiles, phases: &mut Vec<TransferPhase>) {
        let each = files.count().div_ceil(self.lanes.max(1));
        if each == 0 {
            return;
        }
        phases.push(TransferPhase::Delay {
            seconds: self.trips_s,
            why: Why::Commands,
        });
        let rounds = each.div_ceil(self.pipelining);
        let whole = (rounds - 1) * self.pipelining;
        let groups = (rounds - 1).min(MAX_GROUPS);
        let mut first = 0;
        for group in 1..=groups {
            let end = part(rounds - 1, group, groups) * self.pipelining;
            self.put_rounds(files, first, end, phases);
            first = end;
        }
        self.put_in_row(files, whole, each, phases);
    }

    /// Append complete rounds: the files `first` to `end` of each lane, as one file per round, and
    /// the other files while the next replies arrive.
    fn put_rounds(&self, files: &CallFiles, first: u64, end: u64, phases: &mut Vec<TransferPhase>) {
        let rounds = (end - first) / self.pipelining;
        let waited_s = rounds as f64 * self.trips_s;
        if self.pipelining == 1 {
            self.put_in_row(files, first, end, phases);
            phases.push(TransferPhase::Delay {
                seconds: waited_s,
                why: Why::Commands,
            });
            return;
        }
        self.put_in_row(files, first, first + rounds, phases);
        phases.push(TransferPhase::Mark);
        self.put_in_row(files, first + rounds, end, phases);
        phases.push(TransferPhase::NotBefore {
            seconds: waited_s,
            why: Why::Commands,
        });
    }

    /// Append files `first` to `end` of each lane without a pause between them.
    fn put_in_row(&self, files: &CallFiles, first: u64, end: u64, phases: &mut Vec<TransferPhase>) {
        let count = files.count();
        // The last turn may have fewer files than lanes.
        let full = (count / self.lanes).clamp(first, end);
        self.put_lanes(files, first, full, self.lanes, phases);
        self.put_lanes(files, full, end, count % self.lanes, phases);
    }

    fn put_lanes(
        &self,
        files: &CallFiles,
        first: u64,
        end: u64,
        lanes: u64,
        phases: &mut Vec<TransferPhase>,
    ) {
        if first == end || lanes == 0 {
            return;
        }
        let (width, in_row) = (lanes as f64, (end - first) as f64);
        let chosen = (
            first.saturating_mul(self.lanes),
            end.saturating_mul(self.lanes).min(files.count()),
        );
        self.put_openings(width, in_row, phases);
        phases.push(TransferPhase::Delay {
            seconds: self.slow_start_s(files, chosen, width),
            why: Why::SlowStart,
        });
        let all = files.bytes_between(chosen.0, chosen.1);
        let mut put = |bytes: f64, cap: f64, bottleneck: TransferLimit| {
            phases.push(TransferPhase::Bytes {
                bytes,
                cap: width * cap,
                weight: width * self.weight,
                bottleneck,
            });
        };
        let Some(before) = self.before_loss else {
            return put(all, self.cap, self.bottleneck);
        };
        let early = self
            .over(files, chosen, |bytes| before.bytes(bytes))
            .min(all);
        let later_s = self.over(files, chosen, |bytes| before.later_s(bytes));
        put(early, before.cap, before.bottleneck);
        // A rounding remainder takes no time either.
        let rate = if later_s > 0.0 {
            (all - early) / later_s
        } else {
            self.cap
        };
        put(all - early, rate.max(self.cap), self.bottleneck);
    }

    /// Append the additional costs of files, `in_row` of them in each of `width` lanes.
    fn put_openings(&self, width: f64, in_row: f64, phases: &mut Vec<TransferPhase>) {
        let of_all = width * in_row;
        phases.push(TransferPhase::Delay {
            seconds: in_row * self.file.delay_s,
            why: Why::File,
        });
        phases.push(TransferPhase::ClientCpu {
            core_s: of_all * self.file.client_core_s,
            width,
            why: Why::File,
        });
        for &(end, core_s) in &self.file.server_core_s {
            phases.push(TransferPhase::ServerCpu {
                end,
                core_s: of_all * core_s,
                width,
                why: Why::File,
            });
        }
    }

    /// Return the sum of `of(bytes)` over the connections of these files; for open connections, the
    /// part that these files add.
    fn over(&self, files: &CallFiles, chosen: (u64, u64), of: impl Fn(f64) -> f64) -> f64 {
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

    /// Return the wait of a lane in slow starts while `lanes` lanes move these files. On open
    /// connections, only the first group waits. The model assumes no loss.
    fn slow_start_s(&self, files: &CallFiles, chosen: (u64, u64), lanes: f64) -> f64 {
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
        // The complete sequence counts, because the connection starts once, not once per file.
        dealing.waiting_of_many_s(&files.runs, self.lanes, rate)
    }
}

/// Return the end of part `part` of `parts` nearly equal parts of `whole`.
fn part(whole: u64, part: u64, parts: u64) -> u64 {
    (u128::from(whole) * u128::from(part) / u128::from(parts.max(1))) as u64
}
