//! Open sessions with servers, kept between the requests of one thread.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::task::LocalSet;

use super::error::{ErrorKind, FileError};
use super::ftp::FtpFiles;
use super::http::HttpFiles;
use super::local::LocalFiles;
use super::location::{FileLocation, Protocol, ServerKey};
use super::s3::S3Files;
use super::server::FileServer;
use super::sftp::SftpFiles;
use super::srm::SrmFiles;
use super::xrootd::XrootdFiles;
use crate::net::grid::Grid;

/// Directories that are remembered, so that a batch of files does not look for them each time.
const MAX_KNOWN_DIRECTORIES: usize = 10_000;

/// Sessions with servers.
pub(super) struct FileServers {
    context: Context,
    open: HashMap<ServerKey, Box<dyn FileServer>>,
    existing_directories: HashSet<String>,
}

/// Shared state of all sessions of a thread.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) runtime: Rc<Runtime>,
    /// Maximum time without progress.
    pub(super) timeout: Duration,
    tls: Rc<std::cell::OnceCell<Arc<ClientConfig>>>,
    grid: Rc<std::cell::OnceCell<Grid>>,
}

/// Runtime of one thread, with the tasks of its connections.
pub(super) struct Runtime {
    runtime: tokio::runtime::Runtime,
    tasks: LocalSet,
}

impl Runtime {
    /// Run a future to its end.
    pub(super) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.tasks.block_on(&self.runtime, work)
    }
}

impl Context {
    /// Return the TLS configuration of the user.
    ///
    /// # Errors
    /// An unusable certificate, or no trusted CA.
    pub(super) fn tls(&self) -> Result<Arc<ClientConfig>, FileError> {
        if let Some(tls) = self.tls.get() {
            return Ok(Arc::clone(tls));
        }
        let tls = crate::http::tls::client().map_err(unusable)?;
        Ok(Arc::clone(self.tls.get_or_init(|| tls)))
    }

    /// Return the GSI credential of the user.
    ///
    /// # Errors
    /// No credential, an unusable one, or no trusted CA.
    pub(super) fn grid(&self) -> Result<&Grid, FileError> {
        if let Some(grid) = self.grid.get() {
            return Ok(grid);
        }
        let grid = Grid::load().map_err(unusable)?;
        Ok(self.grid.get_or_init(|| grid))
    }
}

/// Error of a credential.
pub(super) fn unusable(error: crate::error::CopyError) -> FileError {
    FileError::new(ErrorKind::Permission, error.to_string())
}

impl FileServers {
    /// Return no sessions yet.
    ///
    /// # Errors
    /// The kernel has no more threads or descriptors.
    pub(super) fn new(timeout: Duration) -> Result<Self, FileError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| FileError::system("cannot start", &error))?;
        Ok(Self {
            context: Context {
                runtime: Rc::new(Runtime {
                    runtime,
                    tasks: LocalSet::new(),
                }),
                timeout,
                tls: Rc::default(),
                grid: Rc::default(),
            },
            open: HashMap::new(),
            existing_directories: HashSet::new(),
        })
    }

    /// Return the shared state of all sessions.
    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Return the session with a server; open it if there is none.
    ///
    /// # Errors
    /// A missing or unusable credential.
    pub(super) fn server(&mut self, at: &FileLocation) -> Result<&mut dyn FileServer, FileError> {
        let key = at.server();
        if !self.open.contains_key(&key) {
            let context = self.context.clone();
            let server: Box<dyn FileServer> = match at.protocol {
                Protocol::Ftp => Box::new(FtpFiles::new(context, at)?),
                Protocol::Http => Box::new(HttpFiles::new(context, at)?),
                Protocol::S3 => Box::new(S3Files::new(context, at)?),
                Protocol::Sftp => Box::new(SftpFiles::new(context.timeout, at)?),
                Protocol::Xrootd => Box::new(XrootdFiles::new(context.timeout)),
                Protocol::Srm => Box::new(SrmFiles::new(context.timeout)),
                Protocol::Local => Box::new(LocalFiles),
            };
            self.open.insert(key.clone(), server);
        }
        Ok(self
            .open
            .get_mut(&key)
            .expect("it was just opened")
            .as_mut())
    }

    /// Record that a directory exists.
    pub(super) fn remember_directory(&mut self, at: &FileLocation) {
        if self.existing_directories.len() == MAX_KNOWN_DIRECTORIES {
            self.existing_directories.clear();
        }
        self.existing_directories.insert(key(at));
    }

    /// True if a directory existed when it was last used.
    pub(super) fn knows_directory(&self, at: &FileLocation) -> bool {
        self.existing_directories.contains(&key(at))
    }

    /// Forget all directories: one was removed.
    pub(super) fn forget_directories(&mut self) {
        self.existing_directories.clear();
    }
}

fn key(directory: &FileLocation) -> String {
    directory
        .with_path(directory.trimmed().to_vec())
        .to_string()
}
