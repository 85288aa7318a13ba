//! Preparation of a transfer up to the barrier.

use std::time::Duration;

use venturi_plan::{
    Bytes, Call, ChecksumCheck, ClearOperation, ClearOutcome, Endpoint, Expect, FileOperation,
    FileSet, Name, OperationOutcome, Outcome, Removal, Seconds, Service, Transfer, TransferRecord,
    TrialRef, Values, Via, authority,
};

use crate::barrier::{self, Barrier, BarrierMethod, Launch};
use crate::capture::Capture;
use crate::cleared::ClearedDirectories;
use crate::directories::{self, Directories};
use crate::ends::{EndpointSide, ResolvedEndpoint};
use crate::findings;
use crate::list::{self, List, Listed};
use crate::program::Environment;
use crate::receiver::{self, ReceiverDestination};
use crate::requests::{Requests, wrong_outcome};
use crate::storages::{EndpointPath, Location, Storages, shown_host, utf8};
use crate::transfer::{ReadyTransfer, TransferEntry, exec_failure};

/// Properties of the host and the plan that arming needs.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    pub(crate) storages: Storages<'a>,
    pub(crate) environment: &'a Environment,
    pub(crate) requests: &'a Requests,
    /// Time for operations on a destination.
    pub(crate) timeout: Duration,
}

/// Slow work before a transfer is armed.
#[derive(Debug)]
pub(crate) enum Preparation {
    /// A transfer of many files.
    List(Box<List>),
    /// The destination is on another host.
    Clear(Location, ClearJob),
}

/// Result of the slow work before a transfer is armed.
#[derive(Debug)]
pub(crate) enum Prepared {
    /// The list of a transfer of many files.
    List(Box<Listed>),
    /// A destination on another host, with its rule.
    Cleared(Location, ClearOutcome),
}

impl Preparation {
    /// Do the work.
    ///
    /// # Errors
    /// A message if the transfer cannot be armed.
    pub(crate) fn make(self) -> Result<Prepared, String> {
        match self {
            Self::List(list) => list.make().map(|listed| Prepared::List(Box::new(listed))),
            Self::Clear(location, job) => job
                .run()
                .map(|outcome| Prepared::Cleared(location, outcome)),
        }
    }
}

/// The preparation of a destination before its transfer is timed: by this agent, or by request.
#[derive(Debug)]
pub(crate) struct ClearJob {
    operation: ClearOperation,
    /// The host to request it from; none: the agent sees the destination.
    request: Option<(Name, Requests, Duration)>,
}

impl ClearJob {
    /// Do the work.
    ///
    /// # Errors
    /// A message if a directory cannot be created, an old file cannot be removed, or the host does not respond.
    pub(crate) fn run(self) -> Result<ClearOutcome, String> {
        let Some((host, requests, timeout)) = self.request else {
            let removal = receiver::clear_destination(&self.operation)?;
            return Ok(ClearOutcome {
                removal,
                siblings: None,
            });
        };
        let pending = requests.send(&host, FileOperation::Clear(self.operation));
        match pending.wait(Some(timeout))? {
            OperationOutcome::Cleared(outcome) => Ok(outcome),
            other => Err(wrong_outcome(&host, &other)),
        }
    }
}

/// A transfer of the plan.
#[derive(Debug)]
pub(crate) struct TransferLaunch {
    pub(crate) trial: Option<TrialRef>,
    pub(crate) actor: Name,
    pub(crate) transfer: Transfer,
    pub(crate) intended: Option<Seconds>,
    /// A transfer of the same trial has written to this destination before.
    pub(crate) started: bool,
    /// The rule for the destination of that transfer.
    pub(crate) earlier: Option<Removal>,
    /// The rule for a destination on another host that needs no request.
    pub(crate) known: Option<Removal>,
}

impl TransferLaunch {
    /// Return the slow work before the transfer is armed, if there is any. `task` is the number of the transfer in the run.
    ///
    /// # Errors
    /// The entry of a transfer that cannot be armed.
    pub(crate) fn preparation(
        &self,
        site: &Site<'_>,
        task: u64,
    ) -> Result<Option<Preparation>, Box<TransferEntry>> {
        self.try_preparation(site, task)
            .map_err(|error| self.abort(error))
    }

    fn try_preparation(&self, site: &Site<'_>, task: u64) -> Result<Option<Preparation>, String> {
        if self.transfer.files > 1 {
            let list = self.list(site, task)?;
            return Ok(Some(Preparation::List(Box::new(list))));
        }
        // An invalid transfer fails later, when it is armed.
        let Ok((source, destination)) = self.ends(site) else {
            return Ok(None);
        };
        let Some(location) = destination.location.as_ref() else {
            return Ok(None);
        };
        if location.host.is_none() || self.known.is_some() {
            return Ok(None);
        }
        let job = self.clear_job(site, &source, &destination, None)?;
        Ok(job.map(|job| Preparation::Clear(location.clone(), job)))
    }

    /// Find the rule for a single file on another host that needs no request, and note that the transfer writes to it.
    pub(crate) fn find_known_rule(
        &mut self,
        storages: &Storages<'_>,
        cleared: &mut ClearedDirectories,
    ) {
        let Some(EndpointPath::Requested(location)) = storages.locate(&self.transfer.destination)
        else {
            return;
        };
        if self.transfer.files > 1 || self.transfer.source == self.transfer.destination {
            return;
        }
        self.known = match self.earlier {
            Some(earlier) => Some(later_rule(earlier, self.transfer.keep)),
            None if self.started => None,
            None => cleared.rule(&location, self.transfer.keep),
        };
        if self.known.is_some() {
            cleared.occupy(&location);
        }
    }

    fn list(&self, site: &Site<'_>, task: u64) -> Result<List, String> {
        let call = self.call(site)?;
        let (source, destination) = self.ends(site)?;
        let source = source.directory();
        let directories = call
            .takes_directory()
            .then(|| self.directories(site, &destination, task));
        let files = list::file_set(site.storages.header(), &self.transfer);
        let clear = self.clear_job(site, &source, &destination, Some(&files))?;
        Ok(List::new(
            site.storages.scratch(),
            task,
            call,
            (source, &destination),
            clear,
            (files, directories.transpose()?),
            site.requests,
        ))
    }

    /// Return the preparation of the destination; none if no operations on it are possible. For
    /// several files, both endpoints are directories.
    fn clear_job(
        &self,
        site: &Site<'_>,
        source: &ResolvedEndpoint,
        destination: &ResolvedEndpoint,
        files: Option<&FileSet>,
    ) -> Result<Option<ClearJob>, String> {
        let Some(location) = &destination.location else {
            return Ok(None);
        };
        let sibling = source.location.as_ref();
        let sibling = sibling.filter(|source| source.host == location.host);
        let operation = ClearOperation {
            path: utf8(&location.path)?.to_owned(),
            files: files.cloned(),
            source: sibling
                .map(|source| utf8(&source.path).map(str::to_owned))
                .transpose()?,
            in_scratch: location.in_scratch,
            keep: self.transfer.keep,
            started: self.started,
        };
        let host = location.host.as_ref();
        let request = host.map(|host| (host.clone(), site.requests.clone(), site.timeout));
        Ok(Some(ClearJob { operation, request }))
    }

    /// Directories for a tool that copies whole directories: source and destination.
    fn directories(
        &self,
        site: &Site<'_>,
        destination: &ResolvedEndpoint,
        task: u64,
    ) -> Result<Directories, String> {
        let Transfer {
            source,
            source_via,
            destination_via,
            slot,
            ..
        } = &self.transfer;
        let other_endpoint = format!("{}:{}", source.storage(), directories::DIRECTORY);
        let other_endpoint: Endpoint = other_endpoint
            .parse()
            .map_err(|error: venturi_plan::Error| error.to_string())?;
        let services = &site.storages.header().services;
        let server = destination_via
            .as_ref()
            .and_then(|via| services.get(via.service()));
        let sinks = if self.transfer.destination.is_built_in() {
            let above = self.sinks(site, server)?;
            Some(destination.replacing_device(above))
        } else {
            None
        };
        Ok(Directories {
            next_to_sources: ResolvedEndpoint::find(
                &site.storages,
                EndpointSide::Source,
                &other_endpoint,
                source_via.as_ref(),
                *slot,
            )?,
            sinks,
            task,
            requests: site.requests.clone(),
            timeout: site.timeout,
        })
    }

    /// Return the directory for links to `/dev/null`: in the first storage of the server, because a
    /// server on an existing host serves only its storages, or in the scratch directory.
    fn sinks(&self, site: &Site<'_>, server: Option<&Service>) -> Result<Location, String> {
        let storages = server.map_or(&[][..], |service| &service.storages);
        if let Some(mut root) = storages.iter().find_map(|name| site.storages.root(name)) {
            root.path.push(directories::DIRECTORY);
            return Ok(root);
        }
        let foreign = server.filter(|service| {
            let host = service.host.as_deref();
            !host.is_some_and(|host| site.storages.sees(host))
        });
        match foreign {
            None => Ok(Location {
                host: None,
                path: list::directory(site.storages.scratch()),
                in_scratch: true,
            }),
            Some(service) => Err(format!(
                "destination `null:`: expected a server with a storage on a host of the plan, to create a \
                 directory of links to /dev/null, found a server on {}; use a storage as destination",
                shown_host(service.host.as_deref())
            )),
        }
    }

    /// Returns the entry of a transfer that failed before it could be armed.
    pub(crate) fn abort(&self, error: String) -> Box<TransferEntry> {
        let mut entry = self.blank_entry();
        entry.record.error = Some(error);
        Box::new(entry)
    }

    /// Sends the tool to the barrier. A transfer that fails before the barrier is also a result;
    /// its entry has the reason.
    pub(crate) fn arm(
        self,
        site: &Site<'_>,
        prepared: Option<Prepared>,
        barrier: &mut Barrier,
    ) -> Result<ReadyTransfer, Box<TransferEntry>> {
        let mut entry = self.blank_entry();
        let (listed, removal) = match prepared {
            Some(Prepared::List(listed)) => {
                let removal = listed.removal;
                (Some(*listed), removal)
            }
            Some(Prepared::Cleared(_, outcome)) => (None, Some(outcome.removal)),
            None => (None, self.known),
        };
        entry.made = listed.as_ref().map_or_else(Vec::new, |it| it.made.clone());
        match self.try_arm(site, (listed, removal), barrier, &mut entry) {
            Ok((child, capture)) => {
                let call = &site.storages.header().calls[&self.transfer.call];
                Ok(ReadyTransfer::new(entry, call, child, capture))
            }
            Err((outcome, error)) => {
                entry.record.outcome = outcome;
                entry.record.error = Some(error);
                Err(Box::new(entry))
            }
        }
    }

    fn try_arm(
        &self,
        site: &Site<'_>,
        (listed, removal): (Option<Listed>, Option<Removal>),
        barrier: &mut Barrier,
        entry: &mut TransferEntry,
    ) -> Result<(barrier::Armed, Capture), (Outcome, String)> {
        let failed = |error: String| (Outcome::Failed, error);
        let call = self.call(site).map_err(failed)?;
        let (source, destination) = self.ends(site).map_err(failed)?;
        let argv = self
            .argv(call, &source, &destination, &site.storages, listed.as_ref())
            .map_err(failed)?;
        let name = argv
            .first()
            .ok_or_else(|| failed(format!("call `{}` has no argument", self.transfer.call)))?;
        let find = |tool: &String| {
            site.environment
                .find(tool)
                .map_err(|error| (Outcome::Missing, error))
        };
        let program = find(name)?;
        // Check the other requirements of the call here, because a shell without the tool would
        // only exit with 127.
        for tool in call.requires.iter().filter(|tool| *tool != name) {
            find(tool)?;
        }
        entry.destination = self
            .receiver(site, call, &source, &destination, removal)
            .map_err(failed)?;
        if entry.destination.is_none()
            && call.expect == Expect::Destination
            && !self.transfer.destination.is_built_in()
        {
            entry.findings.push(findings::receiver_not_checked(
                self.transfer.destination.as_str(),
            ));
        }
        if barrier.method_for(&program) == BarrierMethod::Pipe {
            entry
                .findings
                .push(findings::released_by_pipe(&program.path, barrier.method));
        }
        let capture = Capture::new().map_err(|error| {
            failed(format!(
                "cannot create a memory file for the output: {error}"
            ))
        })?;
        let (stdout, stderr) = capture.streams();
        let environment = site.environment;
        let launch = Launch {
            program: &program,
            argv: &argv,
            environment,
            directory: site.storages.scratch(),
            stdout,
            stderr,
        };
        let child = barrier
            .arm(&launch)
            .map_err(|error| exec_failure(&program.path, error))?;
        Ok((child, capture))
    }

    fn call<'a>(&self, site: &Site<'a>) -> Result<&'a Call, String> {
        let name = &self.transfer.call;
        let call = site.storages.header().calls.get(name);
        call.ok_or_else(|| format!("expected a call `{name}` in the plan, found none"))
    }

    fn ends(&self, site: &Site<'_>) -> Result<(ResolvedEndpoint, ResolvedEndpoint), String> {
        let transfer = &self.transfer;
        let find = |side, endpoint, via: &Option<Via>| {
            ResolvedEndpoint::find(&site.storages, side, endpoint, via.as_ref(), transfer.slot)
        };
        Ok((
            find(EndpointSide::Source, &transfer.source, &transfer.source_via)?,
            find(
                EndpointSide::Destination,
                &transfer.destination,
                &transfer.destination_via,
            )?,
        ))
    }

    /// Return the destination for checks and removal, if operations on it are possible. A single file of this machine is
    /// cleared here; all others have been cleared before.
    fn receiver(
        &self,
        site: &Site<'_>,
        call: &Call,
        source: &ResolvedEndpoint,
        destination: &ResolvedEndpoint,
        removal: Option<Removal>,
    ) -> Result<Option<ReceiverDestination>, String> {
        let Some(location) = &destination.location else {
            return Ok(None);
        };
        let removal = match (removal, self.clear_job(site, source, destination, None)?) {
            (Some(removal), _) => removal,
            (None, Some(job)) => job.run()?.removal,
            (None, None) => return Ok(None),
        };
        let earlier = self
            .earlier
            .map(|earlier| later_rule(earlier, self.transfer.keep));
        let removal = earlier.unwrap_or(removal);
        let header = site.storages.header();
        Ok(Some(ReceiverDestination {
            location: location.clone(),
            files: (self.transfer.files > 1).then(|| list::file_set(header, &self.transfer)),
            proves: call.expect == Expect::Destination,
            served: destination.is_served(),
            removal,
            checksum: self.checksum_check(site, source, location)?,
        }))
    }

    /// Return the comparison with the source by checksums, for a storage that has it.
    fn checksum_check(
        &self,
        site: &Site<'_>,
        source: &ResolvedEndpoint,
        destination: &Location,
    ) -> Result<Option<ChecksumCheck>, String> {
        let storages = &site.storages.header().storages;
        let storage = storages.get(self.transfer.destination.storage());
        let algorithm = storage.and_then(|storage| storage.checksum.as_ref());
        // A device has no checksum.
        let (Some(algorithm), Some(from)) = (algorithm, source.location.as_ref()) else {
            return Ok(None);
        };
        let own = Name::from(site.storages.host());
        let path = if self.transfer.files > 1 {
            source.directory().location.map(|it| it.path)
        } else {
            Some(from.path.clone())
        };
        let Some(path) = path.filter(|_| destination.is_url()) else {
            return Ok(None);
        };
        Ok(Some(ChecksumCheck {
            algorithm: algorithm.clone(),
            source_host: from.host.clone().unwrap_or(own),
            source: utf8(&path)?.to_owned(),
        }))
    }

    fn argv(
        &self,
        call: &Call,
        source: &ResolvedEndpoint,
        destination: &ResolvedEndpoint,
        storages: &Storages<'_>,
        listed: Option<&Listed>,
    ) -> Result<Vec<String>, String> {
        let urls = storages
            .call_urls(call)
            .map_err(|error| error.to_string())?;
        let list = listed.map(|listed| utf8(&listed.path)).transpose()?;
        let (source, destination) = match listed {
            Some(listed) => (
                listed.source.directory_text(call)?,
                listed.destination.directory_text(call)?,
            ),
            None => (source.text(call)?, destination.text(call)?),
        };
        let directory = listed.filter(|_| call.takes_directory()).map(|_| &*source);
        let server = |via: &Option<Via>, url| via.as_ref().and_then(|_| authority(url));
        let from = server(&self.transfer.source_via, &source);
        let to = server(&self.transfer.destination_via, &destination);
        let values = Values {
            source: &source,
            destination: &destination,
            bytes: self.transfer.bytes.get(),
            files: self.transfer.files,
            slot: self.transfer.slot,
            scratch: utf8(storages.scratch())?,
            offset_bytes: self.transfer.offset_bytes.map(Bytes::get),
            list,
            directory,
            source_host: from.map(|(host, _)| host),
            source_port: from.and_then(|(_, port)| port),
            destination_host: to.map(|(host, _)| host),
            destination_port: to.and_then(|(_, port)| port),
            urls: Some(&urls),
        };
        call.argv(&values).map_err(|error| error.to_string())
    }

    fn blank_entry(&self) -> TransferEntry {
        TransferEntry {
            record: self.blank_record(),
            trial: self.trial.clone(),
            destination: None,
            made: Vec::new(),
            findings: Vec::new(),
        }
    }

    fn blank_record(&self) -> TransferRecord {
        let trial = self.trial.as_ref().map(|trial| trial.trial);
        TransferRecord::of(&self.transfer, trial, self.actor.clone(), self.intended)
    }
}

/// Return the rule for a destination that an earlier transfer of the trial has written.
fn later_rule(earlier: Removal, keep: bool) -> Removal {
    match (keep, earlier) {
        (true, _) => Removal::Keep,
        (false, Removal::Keep) => Removal::Remove,
        (false, earlier) => earlier,
    }
}
