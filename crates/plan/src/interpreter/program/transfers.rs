//! Validation of transfers and reads with the header: calls, endpoints, service ports.

use std::sync::Arc;

use super::{Compiler, Op, unknown};
use crate::interpreter::streams::Drawn;
use crate::{Call, Endpoint, Error, Name, OrDraw, ReadStep, TransferStep, Values, Via, authority};

/// Maximum number of files in one call of a mover, because their list is created in memory.
const MAX_FILES: u64 = 1_000_000;

/// Properties that determine which placeholders of a call have a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape {
    read: bool,
    list: bool,
    source: Option<Remote>,
    destination: Option<Remote>,
}

/// An endpoint at a service port.
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

    /// Check that several files in one call have known names and sizes.
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
                .is_some_and(Call::takes_directory)
        {
            let found = format!("`zero:` and {} files", step.files);
            return wrong(
                "files of a dataset for a tool that copies directories",
                found,
            );
        }
        let unnumbered = self.values(&step.source)?.into_iter().find(|source| {
            let last = source
                .numbered()
                .map(|(_, first)| first.checked_add(step.files));
            !source.is_built_in() && last.flatten().is_none()
        });
        match unnumbered {
            Some(source) => wrong(
                "the first of several files of a dataset, such as `storage:sets/x/000003`",
                format!("`{source}` and {} files", step.files),
            ),
            None => Ok(()),
        }
    }

    /// Check that the bytes of several files are equal to the dataset, or are distributed evenly.
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
                "the sum of the sizes in the mix of the dataset",
                found,
            )),
        }
    }

    fn call(&mut self, name: &Name, shape: Shape) -> Result<(), Error> {
        let call = self.known("call", &self.header.calls, name)?;
        if self.calls.insert((name.clone(), shape)) {
            call.local("/")?;
            let urls = self.header.call_urls(call, |_| None)?;
            let host = |end: Option<Remote>| end.map(|_| "host");
            let port = |end: Option<Remote>| end.and_then(|remote| remote.port);
            call.argv(&Values {
                offset_bytes: shape.read.then_some(0),
                list: shape.list.then_some("list"),
                directory: shape.list.then_some("folder"),
                source_host: host(shape.source),
                source_port: port(shape.source),
                destination_host: host(shape.destination),
                destination_port: port(shape.destination),
                urls: Some(&urls),
                ..Values::default()
            })?;
        }
        Ok(())
    }

    /// Check an endpoint and its service port. Only the agent can check that it sees the files of a
    /// local endpoint.
    fn end(
        &self,
        endpoint: &OrDraw<Endpoint>,
        via: Option<&Via>,
        slot: u32,
    ) -> Result<Option<Remote>, Error> {
        let endpoints = self.values(endpoint)?;
        for endpoint in &endpoints {
            self.storage(endpoint)?;
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

    /// Return a URL of an endpoint, without the scratch directory of the host, which is unknown
    /// here.
    fn url(&self, endpoint: &Endpoint, via: &Via, slot: u32) -> Result<String, Error> {
        let service_port = self.header.service_port(via, slot, None)?;
        let Some(storage) = self.header.storages.get(endpoint.storage()) else {
            return service_port.url(Some("/dev"), None);
        };
        let service = &self.header.services[via.service()];
        if !service
            .storages
            .iter()
            .any(|it| &**it == endpoint.storage())
        {
            let served: Vec<_> = service.storages.iter().map(AsRef::as_ref).collect();
            return Err(Error::Service {
                service: via.service().into(),
                expected: format!("one of the storages that it serves ({})", served.join(", ")),
                found: format!("`{}`", endpoint.storage()),
            });
        }
        let path = format!("/{}/{}", storage.path, endpoint.path());
        service_port.url(Some(&path), Some(endpoint.path()))
    }

    /// Return all possible values.
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

    fn storage(&self, endpoint: &Endpoint) -> Result<(), Error> {
        if !endpoint.is_built_in() && !self.header.storages.contains_key(endpoint.storage()) {
            return Err(unknown(&self.actor, "storage", endpoint.storage()));
        }
        Ok(())
    }
}
