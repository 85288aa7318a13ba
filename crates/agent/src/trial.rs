//! A running trial, and its finalizing: checks, removals and records after all timing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use venturi_plan::{
    CheckOperation, CheckedDestination, FileOperation, Finding, Name, OperationOutcome, Outcome,
    ReceiverState, RemoveOperation, RemovedDestination, Seconds, TaskId, TransferRecord, Trial,
    TrialRef,
};

use crate::directories;
use crate::findings;
use crate::operations;
use crate::reap::{group_can_run, group_is_alive};
use crate::receiver::LATE;
use crate::requests::{Requests, wrong_outcome};
use crate::storages::Location;
use crate::transfer::TransferEntry;

/// Time for killed processes to exit; the remaining processes are left to the watchdog.
const VANISH: Duration = Duration::from_secs(2);

/// Time before the first check for their exit; each further interval is twice as long.
const FIRST_CHECK: Duration = Duration::from_millis(1);

/// From this interval between checks on, all processes of the host are checked, because the
/// remaining processes may be zombies of another parent.
const CLOSE_CHECK: Duration = Duration::from_millis(16);

/// A started trial.
#[derive(Debug)]
pub(crate) struct AgentTrial {
    pub(crate) record: venturi_plan::OpenTrial,
    pub(crate) account: TrialAccount,
}

/// Ended transfers that are not finalized.
#[derive(Debug, Default)]
pub(crate) struct TrialAccount {
    /// Entries with the numbers of their tasks, which have the order of the plan.
    pub(crate) entries: Vec<(u64, TransferEntry)>,
    /// Process groups whose leader has ended, with other running processes.
    pub(crate) orphans: Vec<Pid>,
}

/// Owner of the transfers to finalize.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AccountOwner {
    /// Transfers of a trial.
    Trial(TrialRef),
    /// A transfer outside of any trial.
    Loose(TaskId),
}

/// Transfers during finalizing.
#[derive(Debug)]
pub(crate) struct FinalizingTrial {
    /// Deadline of finalizing, on the monotonic clock.
    pub(crate) due_ns: u64,
    /// The trial, and its end; none for a transfer outside of trials.
    pub(crate) open: Option<(AgentTrial, f64)>,
    /// Result to record if finalizing takes longer.
    pub(crate) unsettled: Finalized,
}

/// Result of finalizing.
#[derive(Debug)]
pub(crate) struct Finalized {
    pub(crate) transfers: Vec<TransferRecord>,
    pub(crate) findings: Vec<Finding>,
    /// Groups without remaining processes.
    pub(crate) vanished: Vec<Pid>,
    /// Removed destinations on other hosts.
    pub(crate) removed: Vec<Location>,
}

impl AgentTrial {
    /// Creates a trial that starts now.
    pub(crate) fn new(start_s: f64) -> Self {
        Self {
            record: venturi_plan::OpenTrial::new(start_s),
            account: TrialAccount::default(),
        }
    }

    /// Returns the record of the finalized trial.
    pub(crate) fn close(self, trial: &TrialRef, end_s: f64, finalized: Finalized) -> Trial {
        let is_good = |transfer: &TransferRecord| transfer.outcome == Outcome::Ok;
        let good = finalized.transfers.iter().all(is_good);
        let mut record = self.record;
        record.findings.extend(finalized.findings);
        record.findings = distinct(record.findings);
        record.close(trial, end_s, finalized.transfers, good)
    }
}

impl TrialAccount {
    /// Returns the result for finalizing without progress for `timeout_s`.
    pub(crate) fn unsettled(&self, timeout_s: f64) -> Finalized {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(task, _)| *task);
        let stalled = |entry: &TransferEntry| {
            let mut record = entry.record.clone();
            if record.outcome == Outcome::Ok {
                record.outcome = Outcome::Failed;
                record.error = Some(format!(
                    "cannot check the received files: the file system made no progress for {timeout_s} s"
                ));
            }
            record
        };
        let findings = entries.iter().flat_map(|(_, entry)| entry.findings.clone());
        let mut findings: Vec<Finding> = findings.collect();
        findings.extend(
            entries
                .first()
                .map(|(_, entry)| findings::finalizing_stalled(&entry.record.call, timeout_s)),
        );
        Finalized {
            transfers: entries.iter().map(|(_, entry)| stalled(entry)).collect(),
            findings: distinct(findings),
            vanished: Vec::new(),
            removed: Vec::new(),
        }
    }

    /// Kill remaining processes, check the receivers, remove the destinations. Slow.
    pub(crate) fn finalize(mut self, requests: &Requests) -> Finalized {
        let vanished = self
            .orphans
            .iter()
            .copied()
            .filter(|group| end_group(*group))
            .collect();
        self.entries.sort_by_key(|(task, _)| *task);
        let mut entries: Vec<TransferEntry> =
            self.entries.into_iter().map(|(_, entry)| entry).collect();
        // Check all before the first removal, because two transfers may share a destination.
        check_receivers(&mut entries, requests);
        let removed = remove_destinations(&mut entries, requests);
        let (transfers, findings): (_, Vec<_>) = entries
            .into_iter()
            .map(|entry| (entry.record, entry.findings))
            .unzip();
        Finalized {
            transfers,
            findings: distinct(findings.into_iter().flatten().collect()),
            vanished,
            removed,
        }
    }
}

/// Destinations of entries by host, with the numbers of the entries.
type ByHost<T> = BTreeMap<Option<Name>, Vec<(usize, T)>>;

fn by_host<T>(
    entries: &[TransferEntry],
    destination: impl Fn(&TransferEntry) -> Option<(Option<Name>, T)>,
) -> ByHost<T> {
    let mut found: ByHost<T> = BTreeMap::new();
    for (number, entry) in entries.iter().enumerate() {
        if let Some((host, destination)) = destination(entry) {
            found.entry(host).or_default().push((number, destination));
        }
    }
    found
}

fn check_receivers(entries: &mut [TransferEntry], requests: &Requests) {
    let checks = by_host(entries, TransferEntry::checked_destination);
    let operation = |destinations: &[(usize, CheckedDestination)]| CheckOperation {
        destinations: destinations.iter().map(|(_, it)| it.clone()).collect(),
        grace_s: Seconds::new(LATE.as_secs_f64()),
    };
    // Other hosts work while this one checks its own files.
    let mut pending = Vec::new();
    let mut own = Vec::new();
    for (host, destinations) in checks {
        match host {
            Some(host) => {
                let request = requests.send(&host, FileOperation::Check(operation(&destinations)));
                pending.push((host, destinations, request));
            }
            None => own = destinations,
        }
    }
    let states = operations::check(&operation(&own)).destinations;
    apply_states(entries, &own, states);
    for (host, destinations, request) in pending {
        let count = destinations.len();
        let states = match request.wait(None) {
            Ok(OperationOutcome::Checked(outcome)) if outcome.destinations.len() == count => {
                outcome.destinations
            }
            Ok(other) => vec![ReceiverState::Error(wrong_outcome(&host, &other)); count],
            Err(error) => vec![ReceiverState::Error(error); count],
        };
        apply_states(entries, &destinations, states);
    }
}

fn apply_states(
    entries: &mut [TransferEntry],
    destinations: &[(usize, CheckedDestination)],
    states: Vec<ReceiverState>,
) {
    for ((number, destination), state) in destinations.iter().zip(states) {
        entries[*number].take_state(&destination.path, state);
    }
}

/// Remove the destinations. Return removed destinations on other hosts.
fn remove_destinations(entries: &mut [TransferEntry], requests: &Requests) -> Vec<Location> {
    for entry in entries.iter() {
        directories::remove_made(&entry.made, requests);
    }
    let removals = by_host(entries, TransferEntry::removed_destination);
    let operation = |destinations: &[(usize, RemovedDestination)]| RemoveOperation {
        destinations: destinations.iter().map(|(_, it)| it.clone()).collect(),
    };
    let mut pending = Vec::new();
    let mut own = Vec::new();
    for (host, destinations) in removals {
        match host {
            Some(host) => {
                let request = requests.send(&host, FileOperation::Remove(operation(&destinations)));
                pending.push((host, destinations, request));
            }
            None => own = destinations,
        }
    }
    let errors = operations::remove(&operation(&own)).errors;
    report_remains(entries, &own, errors);
    let mut removed = Vec::new();
    for (host, destinations, request) in pending {
        let count = destinations.len();
        let errors = match request.wait(None) {
            Ok(OperationOutcome::Removed(outcome)) if outcome.errors.len() == count => {
                outcome.errors
            }
            Ok(other) => vec![Some(wrong_outcome(&host, &other)); count],
            Err(error) => vec![Some(error); count],
        };
        let gone = destinations
            .iter()
            .zip(&errors)
            .filter(|(_, error)| error.is_none());
        let location = |number: usize| Some(entries[number].destination.as_ref()?.location.clone());
        removed.extend(gone.filter_map(|((number, _), _)| location(*number)));
        report_remains(entries, &destinations, errors);
    }
    removed
}

fn report_remains(
    entries: &mut [TransferEntry],
    destinations: &[(usize, RemovedDestination)],
    errors: Vec<Option<String>>,
) {
    for ((number, destination), error) in destinations.iter().zip(errors) {
        if let Some(error) = error {
            let finding = findings::destination_not_removed(&destination.path, &error);
            entries[*number].findings.push(finding);
        }
    }
}

fn end_group(group: Pid) -> bool {
    let started = Instant::now();
    let mut pause = FIRST_CHECK;
    while group_is_alive(group) {
        let _ = killpg(group, Signal::SIGKILL);
        std::thread::sleep(pause);
        if pause >= CLOSE_CHECK && !group_can_run(group) {
            return true;
        }
        if started.elapsed() > VANISH {
            return false;
        }
        pause *= 2;
    }
    true
}

/// Return each finding once: 45 children that were released by pipe give one finding.
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
