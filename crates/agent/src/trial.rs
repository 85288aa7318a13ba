//! A trial while it runs, and its settlement: what is looked at, removed and written down when all timing is over.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use venturi_plan::{Finding, Outcome, Task, TransferRecord, Trial, TrialRef};

use crate::findings;
use crate::reap::{group_can_run, group_is_alive};
use crate::receiver::LATE;
use crate::transfer::Entry;

/// How long killed processes may take to vanish; what is still there is left to the guardian.
const VANISH: Duration = Duration::from_secs(2);

/// After this time it is looked for the first time whether they have; each next time is twice as long.
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// From looks so far apart on, all processes of the host are looked at: what is left may be somebody else's zombie.
const CLOSE_LOOK: Duration = Duration::from_millis(16);

/// A trial that has begun.
#[derive(Debug)]
pub(crate) struct OpenTrial {
    pub(crate) told: venturi_plan::OpenTrial,
    pub(crate) account: Account,
}

/// Transfers that have ended and are not settled.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// By the number of their task, which is the order of the plan.
    pub(crate) entries: Vec<(u64, Entry)>,
    /// Process groups whose leader has ended and others have not.
    pub(crate) left_behind: Vec<Pid>,
}

/// Whose account it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Settlement {
    /// That of a trial.
    Trial(TrialRef),
    /// That of a transfer outside any trial.
    Loose(Task),
}

/// An account while it is settled.
#[derive(Debug)]
pub(crate) struct Settling {
    /// Until when that is waited for, on the monotonic clock.
    pub(crate) due_ns: u64,
    /// The trial, and when it ended; none for a transfer outside any.
    pub(crate) open: Option<(OpenTrial, f64)>,
    /// What is taken where it lasts longer.
    pub(crate) unsettled: Settled,
}

/// A settled account.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) transfers: Vec<TransferRecord>,
    pub(crate) findings: Vec<Finding>,
    /// Groups of which nothing is left.
    pub(crate) vanished: Vec<Pid>,
}

impl OpenTrial {
    /// A trial that begins now.
    pub(crate) fn new(start_s: f64) -> Self {
        Self {
            told: venturi_plan::OpenTrial::new(start_s),
            account: Account::default(),
        }
    }

    /// The record of the trial, once its account is settled.
    pub(crate) fn close(self, trial: &TrialRef, end_s: f64, settled: Settled) -> Trial {
        let is_good = |transfer: &TransferRecord| transfer.outcome == Outcome::Ok;
        let good = settled.transfers.iter().all(is_good);
        let mut told = self.told;
        told.findings.extend(settled.findings);
        told.findings = distinct(told.findings);
        told.close(trial, end_s, settled.transfers, good)
    }
}

impl Account {
    /// What is known of it before it is settled, for the case that this stands still for `patience_s`.
    pub(crate) fn unsettled(&self, patience_s: f64) -> Settled {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(task, _)| *task);
        let stalled = |entry: &Entry| {
            let mut record = entry.record.clone();
            if record.outcome == Outcome::Ok {
                record.outcome = Outcome::Failed;
                record.error = Some(format!(
                    "expected to see what the receiver holds, found its file system still for {patience_s} s"
                ));
            }
            record
        };
        let findings = entries.iter().flat_map(|(_, entry)| entry.findings.clone());
        let mut findings: Vec<Finding> = findings.collect();
        findings.extend(
            entries
                .first()
                .map(|(_, entry)| findings::settling_stalled(&entry.record.call, patience_s)),
        );
        Settled {
            transfers: entries.iter().map(|(_, entry)| stalled(entry)).collect(),
            findings: distinct(findings),
            vanished: Vec::new(),
        }
    }

    /// Kills what was left behind, looks at the receivers, removes the destinations. Slow.
    pub(crate) fn settle(mut self) -> Settled {
        let vanished = self
            .left_behind
            .iter()
            .copied()
            .filter(|group| end_group(*group))
            .collect();
        self.entries.sort_by_key(|(task, _)| *task);
        let mut entries: Vec<Entry> = self.entries.into_iter().map(|(_, entry)| entry).collect();
        // All are looked at before the first is removed: two transfers may share a destination.
        let end = Instant::now() + LATE;
        entries
            .iter_mut()
            .for_each(|entry| entry.check_receiver(end));
        entries.iter_mut().for_each(Entry::clear_away);
        let (transfers, findings): (_, Vec<_>) = entries
            .into_iter()
            .map(|entry| (entry.record, entry.findings))
            .unzip();
        Settled {
            transfers,
            findings: distinct(findings.into_iter().flatten().collect()),
            vanished,
        }
    }
}

fn end_group(group: Pid) -> bool {
    let begun = Instant::now();
    let mut pause = FIRST_LOOK;
    while group_is_alive(group) {
        let _ = killpg(group, Signal::SIGKILL);
        std::thread::sleep(pause);
        if pause >= CLOSE_LOOK && !group_can_run(group) {
            return true;
        }
        if begun.elapsed() > VANISH {
            return false;
        }
        pause *= 2;
    }
    true
}

/// Each doubt once: 45 children that were released by pipe say nothing that one does not say.
fn distinct(findings: Vec<Finding>) -> Vec<Finding> {
    let mut kept: Vec<Finding> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for finding in findings {
        if seen.insert((finding.code.clone(), finding.subject.clone())) {
            kept.push(finding);
        }
    }
    kept
}
