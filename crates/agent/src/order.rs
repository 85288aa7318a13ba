//! A transfer as the plan wants it, on its way to the starting line.

use std::path::Path;

use venturi_plan::{
    Bytes, Call, Endpoint, Expect, Header, Name, Outcome, Seconds, Transfer, TransferRecord,
    TrialRef, Values, Via, authority,
};

use crate::barrier::{self, Barrier, Launch, Method};
use crate::capture::Capture;
use crate::ends::{End, Side};
use crate::findings;
use crate::folders::{self, Folders};
use crate::list::{self, List, Listed};
use crate::places::Places;
use crate::program::Environment;
use crate::receiver::{self, Destination};
use crate::transfer::{Entry, Ready, exec_failure};

/// What arming needs to know of the host and the plan.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    pub(crate) places: Places<'a>,
    pub(crate) environment: &'a Environment,
}

/// A transfer as the plan wants it.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) trial: Option<TrialRef>,
    pub(crate) actor: Name,
    pub(crate) transfer: Transfer,
    pub(crate) intended: Option<Seconds>,
    /// A transfer of the same trial has written to this destination before.
    pub(crate) begun: bool,
}

impl Order {
    /// The list of a transfer of many files, which is to be made before it is armed; none for a single file. `task` is the number
    /// of the transfer in the run.
    ///
    /// # Errors
    /// The entry of a transfer that cannot be armed.
    pub(crate) fn list(&self, site: &Site<'_>, task: u64) -> Result<Option<List>, Box<Entry>> {
        if self.transfer.files <= 1 {
            return Ok(None);
        }
        self.try_list(site, task)
            .map(Some)
            .map_err(|error| self.give_up(error))
    }

    fn try_list(&self, site: &Site<'_>, task: u64) -> Result<List, String> {
        let call = self.call(site)?;
        let (source, destination) = self.ends(site)?;
        let folders = call
            .takes_folder()
            .then(|| self.folders(site, &destination, task));
        let shares = list::shares(site.places.header(), &self.transfer);
        Ok(List::new(
            site.places.scratch(),
            task,
            call,
            &self.transfer,
            self.begun,
            (&source, &destination),
            (shares, folders.transpose()?),
        ))
    }

    /// Where a tool that takes whole folders shall find its files, and have them end.
    fn folders(&self, site: &Site<'_>, destination: &End, task: u64) -> Result<Folders, String> {
        let Transfer {
            source,
            source_via,
            destination_via,
            slot,
            ..
        } = &self.transfer;
        let beside = format!("{}:{}", source.place(), folders::FOLDER);
        let beside: Endpoint = beside
            .parse()
            .map_err(|error: venturi_plan::Error| error.to_string())?;
        let services = &site.places.header().services;
        let server = destination_via
            .as_ref()
            .and_then(|via| services.get(via.service()));
        let sinks = if self.transfer.destination.is_built_in() {
            if let Some(service) = server.filter(|service| !site.places.sees(&service.host)) {
                return Err(format!(
                    "destination `null:`: expected a server whose files this agent sees, for a folder of links to /dev/null, \
                     found one on `{}`; let the files come to a place",
                    service.host
                ));
            }
            Some(destination.in_place_of_device(&list::folder(site.places.scratch())))
        } else {
            None
        };
        Ok(Folders {
            beside_sources: End::find(
                &site.places,
                Side::Source,
                &beside,
                source_via.as_ref(),
                *slot,
            )?,
            sinks,
            task,
        })
    }

    /// The entry of a transfer that failed before it could be armed.
    pub(crate) fn give_up(&self, error: String) -> Box<Entry> {
        let mut entry = self.blank_entry();
        entry.record.error = Some(error);
        Box::new(entry)
    }

    /// Sends the tool to the starting line. A transfer that cannot get there is a result too: its entry says why.
    pub(crate) fn arm(
        self,
        site: &Site<'_>,
        listed: Option<Listed>,
        barrier: &mut Barrier,
    ) -> Result<Ready, Box<Entry>> {
        let mut entry = self.blank_entry();
        entry.made = listed.as_ref().map_or_else(Vec::new, |listed| {
            let folders = listed.folders.iter();
            folders.chain([&listed.path]).cloned().collect()
        });
        match self.try_arm(site, listed, barrier, &mut entry) {
            Ok((child, capture)) => {
                let call = &site.places.header().calls[&self.transfer.call];
                Ok(Ready::new(entry, call, child, capture))
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
        listed: Option<Listed>,
        barrier: &mut Barrier,
        entry: &mut Entry,
    ) -> Result<(barrier::Armed, Capture), (Outcome, String)> {
        let failed = |error: String| (Outcome::Failed, error);
        let call = self.call(site).map_err(failed)?;
        let (source, destination) = self.ends(site).map_err(failed)?;
        let argv = self
            .argv(
                call,
                &source,
                &destination,
                site.places.scratch(),
                listed.as_ref(),
            )
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
        // A shell that calls the tool would only exit with 127: what else the call needs is looked for here.
        for tool in call.requires.iter().filter(|tool| *tool != name) {
            find(tool)?;
        }
        entry.destination = self
            .make_way(site.places.header(), call, &source, &destination, listed)
            .map_err(failed)?;
        if entry.destination.is_none()
            && call.expect == Expect::Destination
            && !self.transfer.destination.is_built_in()
        {
            entry.findings.push(findings::receiver_not_checked(
                self.transfer.destination.as_str(),
            ));
        }
        if barrier.method_for(&program) == Method::Pipe {
            entry
                .findings
                .push(findings::released_by_pipe(&program.path, barrier.method));
        }
        let capture = Capture::new()
            .map_err(|error| failed(format!("no memory file for the output: {error}")))?;
        let (stdout, stderr) = capture.streams();
        let environment = site.environment;
        let launch = Launch {
            program: &program,
            argv: &argv,
            environment,
            folder: site.places.scratch(),
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
        let call = site.places.header().calls.get(name);
        call.ok_or_else(|| format!("expected a call `{name}` in the plan, found none"))
    }

    fn ends(&self, site: &Site<'_>) -> Result<(End, End), String> {
        let transfer = &self.transfer;
        let find = |side, endpoint, via: &Option<Via>| {
            End::find(&site.places, side, endpoint, via.as_ref(), transfer.slot)
        };
        Ok((
            find(Side::Source, &transfer.source, &transfer.source_via)?,
            find(
                Side::Destination,
                &transfer.destination,
                &transfer.destination_via,
            )?,
        ))
    }

    /// Makes the way free for the destination, if the agent sees it; for many files that is done already.
    fn make_way(
        &self,
        header: &Header,
        call: &Call,
        source: &End,
        destination: &End,
        listed: Option<Listed>,
    ) -> Result<Option<Destination>, String> {
        let Some(location) = &destination.location else {
            return Ok(None);
        };
        let many = listed.is_some();
        let removal = match listed.and_then(|listed| listed.removal) {
            Some(removal) => removal,
            None => {
                let source = source.location.as_ref().map(|it| it.path.as_path());
                receiver::make_way(location, source, self.transfer.keep, self.begun).map_err(
                    |error| format!("destination `{}`: {error}", location.path.display()),
                )?
            }
        };
        Ok(Some(Destination {
            path: location.path.clone(),
            shares: many.then(|| list::shares(header, &self.transfer)),
            proves: call.expect == Expect::Destination,
            served: destination.is_served(),
            removal,
        }))
    }

    fn argv(
        &self,
        call: &Call,
        source: &End,
        destination: &End,
        scratch: &Path,
        listed: Option<&Listed>,
    ) -> Result<Vec<String>, String> {
        let utf8 = |path: &Path| {
            let text = path.to_str().map(str::to_owned);
            text.ok_or_else(|| format!("`{}` is no UTF-8", path.display()))
        };
        let list = listed.map(|listed| utf8(&listed.path)).transpose()?;
        let (source, destination) = match listed {
            Some(listed) => (
                listed.source.folder_text(call)?,
                listed.destination.folder_text(call)?,
            ),
            None => (source.text(call)?, destination.text(call)?),
        };
        let folder = listed.filter(|_| call.takes_folder()).map(|_| &*source);
        let server = |via: &Option<Via>, url| via.as_ref().and_then(|_| authority(url));
        let from = server(&self.transfer.source_via, &source);
        let to = server(&self.transfer.destination_via, &destination);
        let values = Values {
            source: &source,
            destination: &destination,
            bytes: self.transfer.bytes.get(),
            files: self.transfer.files,
            slot: self.transfer.slot,
            scratch: &utf8(scratch)?,
            offset_bytes: self.transfer.offset_bytes.map(Bytes::get),
            list: list.as_deref(),
            folder,
            source_host: from.map(|(host, _)| host),
            source_port: from.and_then(|(_, port)| port),
            destination_host: to.map(|(host, _)| host),
            destination_port: to.and_then(|(_, port)| port),
        };
        call.argv(&values).map_err(|error| error.to_string())
    }

    fn blank_entry(&self) -> Entry {
        Entry {
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
