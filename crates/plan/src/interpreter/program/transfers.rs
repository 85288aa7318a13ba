//! Transfers and reads against the header: their calls, their ends, the ways to these.

use std::sync::Arc;

use super::{Compiler, Op, unknown};
use crate::interpreter::streams::Drawn;
use crate::{Call, Endpoint, Error, Name, OrDraw, ReadStep, TransferStep, Values, Via, authority};

/// Most files in one call of a mover: their list is made in memory.
const MAX_FILES: u64 = 1_000_000;

/// What decides which placeholders of a call have a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape {
    read: bool,
    list: bool,
    source: Option<Remote>,
    destination: Option<Remote>,
}

/// An end behind a door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Remote {
    port: Option<u16>,
}

impl Compiler<'_> {
    pub(super) fn transfer(&mut self, step: TransferStep) -> Result<Op, Error> {
        let source = self.end(&step.source, step.source_via.as_ref(), step.slot)?;
        let destination = self.end(&step.destination, step.destination_via.as_ref(), step.slot)?;
        self.drawable(&step.bytes)?;
        self.list(&step)?;
        let shape = Shape {
            read: false,
            list: step.files > 1,
            source,
            destination,
        };
        self.call(&step.call, shape)?;
        Ok(Op::Transfer(Arc::new(step)))
    }

    pub(super) fn read(&mut self, step: ReadStep) -> Result<Op, Error> {
        let shape = Shape {
            read: true,
            list: false,
            source: self.end(&step.source, step.source_via.as_ref(), step.slot)?,
            destination: None,
        };
        self.drawable(&step.offset_bytes)?;
        self.drawable(&step.bytes)?;
        self.call(&step.call, shape)?;
        Ok(Op::Read(Arc::new(step)))
    }

    /// Many files in one call have names and sizes that everybody can tell.
    fn list(&self, step: &TransferStep) -> Result<(), Error> {
        if step.files <= 1 {
            return Ok(());
        }
        let wrong = |expected, found| Err(self.wrong("transfer", expected, found));
        if step.files > MAX_FILES {
            let found = format!("{} files", step.files);
            return wrong("at most a million files in one call", found);
        }
        self.bytes_of_many(step)?;
        if step.source == OrDraw::Fixed(Endpoint::zero())
            && self
                .header
                .calls
                .get(&step.call)
                .is_some_and(Call::takes_folder)
        {
            let found = format!("`zero:` and {} files", step.files);
            return wrong("files of a data set for a tool that takes folders", found);
        }
        let unnumbered = self.values(&step.source)?.into_iter().find(|source| {
            let last = source
                .numbered()
                .map(|(_, first)| first.checked_add(step.files));
            !source.is_built_in() && last.flatten().is_none()
        });
        match unnumbered {
            Some(source) => wrong(
                "the first of several files of a data set, such as `place:sets/x/000003`",
                format!("`{source}` and {} files", step.files),
            ),
            None => Ok(()),
        }
    }

    /// The bytes of many files are those of the data set, or are shared evenly.
    fn bytes_of_many(&self, step: &TransferStep) -> Result<(), Error> {
        let OrDraw::Fixed(bytes) = &step.bytes else {
            return Ok(());
        };
        let found = format!("{bytes} bytes in {} files", step.files);
        let mixed = match &step.source {
            OrDraw::Fixed(source) => {
                let dataset = self.header.dataset_of(source);
                let dataset = dataset.filter(|dataset| !dataset.mix.is_empty());
                dataset.zip(source.numbered())
            }
            OrDraw::Draw(_) => None,
        };
        match mixed {
            None if bytes.get() % step.files == 0 => Ok(()),
            None => Err(self.wrong("transfer", "files of equal size", found)),
            Some((dataset, (_, first)))
                if dataset.sizes().sum(first, step.files) == bytes.get() =>
            {
                Ok(())
            }
            Some(_) => Err(self.wrong(
                "transfer",
                "the sum of the sizes in the data set's mix",
                found,
            )),
        }
    }

    fn call(&mut self, name: &Name, shape: Shape) -> Result<(), Error> {
        let call = self.known("call", &self.header.calls, name)?;
        if self.calls.insert((name.clone(), shape)) {
            call.local("/")?;
            let host = |end: Option<Remote>| end.map(|_| "host");
            let port = |end: Option<Remote>| end.and_then(|remote| remote.port);
            call.argv(&Values {
                offset_bytes: shape.read.then_some(0),
                list: shape.list.then_some("list"),
                folder: shape.list.then_some("folder"),
                source_host: host(shape.source),
                source_port: port(shape.source),
                destination_host: host(shape.destination),
                destination_port: port(shape.destination),
                ..Values::default()
            })?;
        }
        Ok(())
    }

    /// Checks an end and the way to it. That a local end is on a host whose files the agent sees, only the agent can tell.
    fn end(
        &self,
        endpoint: &OrDraw<Endpoint>,
        via: Option<&Via>,
        slot: u32,
    ) -> Result<Option<Remote>, Error> {
        let endpoints = self.values(endpoint)?;
        for endpoint in &endpoints {
            self.place(endpoint)?;
        }
        let Some(via) = via else { return Ok(None) };
        let mut port = None;
        for endpoint in &endpoints {
            let url = self.url(endpoint, via, slot);
            let url = url.map_err(|source| Error::Unreachable {
                actor: self.actor.as_ref().into(),
                endpoint: endpoint.to_string(),
                via: via.to_string(),
                source: Box::new(source),
            })?;
            port = authority(&url).and_then(|(_, port)| port);
        }
        Ok(Some(Remote { port }))
    }

    /// A URL of an end; the scratch directory of the host is not known here, and left out.
    fn url(&self, endpoint: &Endpoint, via: &Via, slot: u32) -> Result<String, Error> {
        let door = self.header.door(via, slot)?;
        let Some(place) = self.header.places.get(endpoint.place()) else {
            return door.url(Some("/dev"), None);
        };
        let service = &self.header.services[via.service()];
        if !service.places.iter().any(|it| &**it == endpoint.place()) {
            let served: Vec<_> = service.places.iter().map(AsRef::as_ref).collect();
            return Err(Error::Service {
                service: via.service().into(),
                expected: format!("one of the places that it serves ({})", served.join(", ")),
                found: format!("`{}`", endpoint.place()),
            });
        }
        let path = format!("/{}/{}", place.path, endpoint.path());
        door.url(Some(&path), Some(endpoint.path()))
    }

    /// All that can stand there.
    fn values(&self, endpoint: &OrDraw<Endpoint>) -> Result<Vec<Endpoint>, Error> {
        self.drawable(endpoint)?;
        Ok(match endpoint {
            OrDraw::Fixed(endpoint) => vec![endpoint.clone()],
            OrDraw::Draw(name) => {
                let values = self.known("draw", &self.header.draws, &name.draw)?.range();
                values.iter().filter_map(Endpoint::from_scalar).collect()
            }
        })
    }

    fn place(&self, endpoint: &Endpoint) -> Result<(), Error> {
        if !endpoint.is_built_in() && !self.header.places.contains_key(endpoint.place()) {
            return Err(unknown(&self.actor, "place", endpoint.place()));
        }
        Ok(())
    }
}
