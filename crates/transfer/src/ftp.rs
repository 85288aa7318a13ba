//! FTP and GridFTP client: downloads, uploads and copies between two servers.
//!
//! The scanners ([`mod@download`], [`mod@upload`]) find files and add them to a queue ([`queue`]). Sessions take them from it, each on its own thread
//! ([`session`]), and never wait for the disk ([`writer`], [`sender`], [`opener`]). The protocol logic is in
//! `venturi_gridftp`, without input and output.
//!
//! No module depends on a module that depends on it: files and items are in [`files`] and [`work`], messages to sessions in [`messages`], session settings
//! in [`session_config`]. Read [`session`] first.

mod batch;
mod chunks;
mod concurrency;
pub(crate) mod control_connection;
mod data_connection;
mod download;
mod failures;
mod files;
mod interval;
mod listing;
mod messages;
pub(crate) mod names;
mod opener;
mod parent_dirs;
mod parts;
mod pipeline_depth;
mod protection;
mod queue;
mod received;
mod resolve_paths;
mod secure_channel;
mod sender;
mod session;
pub(crate) mod session_config;
pub(crate) mod session_handle;
pub(crate) mod session_pool;
mod session_stats;
mod shared;
mod size_estimate;
mod skip_check;
mod symlinks;
mod third_party;
mod upload;
mod verify;
mod work;
mod writer;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use venturi_gridftp::Mode;
use venturi_gridftp::client::TransferDirection;

use crate::error::CopyError;
use crate::inputs::CopyInputs;
use crate::net::grid::Grid;
use crate::net::pacing;
use crate::net::sockets::Tcp;
use crate::net::url::{Scheme, Url};
use crate::options::CopyOptions;
use crate::outcome::{self, CopyExit};
use crate::process;
use crate::report::Report;
use crate::stop::CancelToken;
use crate::threads;
use crate::totals::CopyTotals;
use concurrency::ConcurrencyController;
use download::Download;
use listing::Lister;
use resolve_paths::{EndpointLocation, LocalStat, ServerStat};
use session_config::DataProtectionRequest;
use session_config::{ServerCapabilities, SessionConfig};
use session_handle::SessionHandle;
use shared::Shared;
use size_estimate::Expected;
use third_party::{ServerEnd, ServerEnds};
use upload::Upload;

/// Sessions that can fail with an item before the item fails.
const MAX_SESSIONS_PER_ITEM: u32 = 2;
/// Timeout of a session without progress: a disk behind a server can take a minute.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of checks for the end and for more sessions.
const GLANCE: Duration = Duration::from_millis(100);
/// Interval of checks for the first connection.
const SOON: Duration = Duration::from_millis(2);
/// Size of a sent block, bytes: the costs of its header and its queue entry are negligible.
const BLOCK_BYTES: u64 = 1 << 20;

/// Executes a copy with at least one FTP server.
///
/// # Errors
/// Locations that do not fit together, or a failed login; nothing was copied.
pub(crate) fn execute(
    options: &CopyOptions,
    stop: &CancelToken,
    inputs: &CopyInputs,
) -> Result<CopyExit, CopyError> {
    let servers = resolve_paths::servers(inputs)?;
    for server in [&servers.source, &servers.destination]
        .into_iter()
        .flatten()
    {
        resolve_paths::check_login(server)?;
    }
    match (servers.source, servers.destination) {
        (Some(server), None) => {
            with_server(options, stop, inputs, server, TransferDirection::Receive)
        }
        (None, Some(server)) => with_server(options, stop, inputs, server, TransferDirection::Send),
        (Some(source), Some(destination)) => between(options, stop, inputs, source, destination),
        (None, None) => Err(CopyError::InvalidOption {
            option: "--list",
            expected: "pairs of sources and destinations",
            found: "none".into(),
        }),
    }
}

/// Copies from one server to another.
fn between(
    options: &CopyOptions,
    stop: &CancelToken,
    inputs: &CopyInputs,
    source: Url,
    destination: Url,
) -> Result<CopyExit, CopyError> {
    let protection_request = DataProtectionRequest::of(options, &[&source, &destination])?;
    let grid = load_grid(&[&source, &destination])?;
    let (report, totals) = (Report::new(options.output, stop), CopyTotals::default());
    let shared = Shared::new(options, stop, &totals, &report, source.clone(), grid);
    let shared = &shared;
    report.start(options);
    let mut configs = (
        config(options, inputs, source.clone(), None, protection_request),
        config(
            options,
            inputs,
            destination.clone(),
            None,
            protection_request,
        ),
    );
    let result = std::thread::scope(|scope| {
        let _ticking = report.ticking(scope, &totals);
        let open = |config: &SessionConfig| {
            let (handle, ready) = session_pool::open(scope, shared, config.clone(), true);
            let capabilities = ready.recv().unwrap_or(Err("session closed".into()));
            capabilities
                .map(|capabilities| (handle, capabilities))
                .map_err(|found| connect_error(options, &config.server, found))
        };
        let result = open(&configs.0).and_then(|from| {
            let result = open(&configs.1).and_then(|to| {
                let end = |(handle, capabilities), server| ServerEnd {
                    handle,
                    capabilities,
                    server,
                };
                let ends = ServerEnds {
                    source: end((&from.0, &from.1), &source),
                    destination: end((&to.0, &to.1), &destination),
                };
                protection::agree(&mut configs, (&from.1, &to.1));
                protection::report(shared, &configs.0, &from.1);
                let result = relay_between(scope, shared, inputs, &configs, &ends);
                to.0.close();
                result
            });
            from.0.close();
            result
        });
        shared.end();
        result
    });
    result.map(|()| outcome::end(stop, &totals, &report))
}

fn relay_between<'s, 'o: 's>(
    scope: &'s std::thread::Scope<'s, '_>,
    shared: &'o Shared<'o>,
    inputs: &CopyInputs,
    configs: &(SessionConfig, SessionConfig),
    ends: &ServerEnds<'_>,
) -> Result<(), CopyError> {
    let (from, to) = (ends.source.stat(), ends.destination.stat());
    if shared.options.verify {
        verify::check_support(&ends.source.capabilities.features, false)?;
        verify::check_support(&ends.destination.capabilities.features, false)?;
    }
    let is_unfinished = |from: &EndpointLocation, to: &EndpointLocation| {
        is_unfinished(ends.destination.handle, from, to)
    };
    let roots = resolve_paths::resolve(shared.options, inputs, &from, &to, is_unfinished)?;
    third_party::relay(scope, shared, configs, ends, &roots);
    Ok(())
}

/// Loads the credential of the user if a server needs it.
fn load_grid(servers: &[&Url]) -> Result<Option<Grid>, CopyError> {
    let needed = servers.iter().any(|server| server.scheme == Scheme::Gsiftp);
    needed.then(Grid::load).transpose()
}

fn with_server(
    options: &CopyOptions,
    stop: &CancelToken,
    inputs: &CopyInputs,
    server: Url,
    direction: TransferDirection,
) -> Result<CopyExit, CopyError> {
    process::raise_open_files();
    let protection_request = DataProtectionRequest::of(options, &[&server])?;
    let grid = load_grid(&[&server])?;
    let (report, totals) = (Report::new(options.output, stop), CopyTotals::default());
    let shared = Shared::new(options, stop, &totals, &report, server, grid);
    let shared = &shared;
    report.start(options);
    let config = config(
        options,
        inputs,
        shared.server.clone(),
        Some(direction),
        protection_request,
    );
    let result = std::thread::scope(|scope| {
        let _ticking = report.ticking(scope, &totals);
        let (handle, ready) = session_pool::open(scope, shared, config.clone(), true);
        handle.prefetch(size_estimate::requests(options, inputs, direction));
        let mut controller = ConcurrencyController::new(scope, shared, config.clone());
        let result = match connected(&ready, &mut controller) {
            Ok(capabilities) => {
                protection::report(shared, &config, &capabilities);
                pacing::report(&config.tcp, &report);
                let scan = move || {
                    let work = match direction {
                        TransferDirection::Receive => download,
                        TransferDirection::Send => upload,
                    };
                    let result = work(shared, inputs, &handle, &capabilities);
                    shared.end();
                    handle.close();
                    result
                };
                match threads::start(scope, scan.clone()) {
                    Ok(scanning) => {
                        while !scanning.is_finished()
                            && !stop.is_cancelled()
                            && !shared.queue.wait(GLANCE)
                        {
                            controller.tick();
                        }
                        let ended = scanning.join();
                        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                    }
                    // No thread can start, so more sessions are impossible, too.
                    Err(_) => scan(),
                }
            }
            Err(_) if stop.is_cancelled() => Ok(()),
            Err(found) => Err(connect_error(options, &shared.server, found)),
        };
        shared.end();
        result
    });
    result.map(|()| outcome::end(stop, &totals, &report))
}

/// Waits for the first session; opens further sessions in the meantime.
fn connected<'o: 's, 's>(
    ready: &Receiver<Result<ServerCapabilities, String>>,
    controller: &mut ConcurrencyController<'s, 'o, '_>,
) -> Result<ServerCapabilities, String> {
    // A session that is not ready in time reports the reason.
    loop {
        match ready.recv_timeout(SOON) {
            Ok(ready) => return ready.inspect(|capabilities| controller.connected(capabilities)),
            Err(RecvTimeoutError::Disconnected) => return Err("session closed".into()),
            Err(RecvTimeoutError::Timeout) => controller.hasten(),
        }
    }
}

fn connect_error(options: &CopyOptions, server: &Url, found: String) -> CopyError {
    // `found` with its own "expected" needs a noun before it.
    let found = match found.starts_with("expected ") {
        true => format!("none: {found}"),
        false => found,
    };
    CopyError::Location {
        location: server.with_path(b"/".to_vec()).to_string().into(),
        expected: "a successful login",
        found,
        advice: if options.network.data_channel.is_some() {
            "check host, port, user and password; if the server rejects DCAU, PROT or PBSZ, omit --data-channel or use another value"
        } else {
            "check host, port, user and password"
        },
    }
}

fn download(
    shared: &Shared<'_>,
    inputs: &CopyInputs,
    handle: &SessionHandle,
    capabilities: &ServerCapabilities,
) -> Result<(), CopyError> {
    let lister = Lister::of(&capabilities.features);
    let remote = ServerStat { handle, lister };
    let options = shared.options;
    if options.verify {
        verify::check_support(&capabilities.features, false)?;
    }
    let roots = resolve_paths::resolve(
        options,
        inputs,
        &remote,
        &LocalStat,
        download::is_unfinished,
    )?;
    let mut download = Download::new(shared, handle, capabilities);
    download.scan(roots);
    download.finish(shared.wait());
    Ok(())
}

/// True if a directory at a server is the unfinished copy of this source.
fn is_unfinished(handle: &SessionHandle, from: &EndpointLocation, to: &EndpointLocation) -> bool {
    let journal = names::journal(from, to).remote_path().ok();
    journal.is_some_and(|journal| matches!(handle.stat(&journal), Ok(Some(_))))
}

fn upload(
    shared: &Shared<'_>,
    inputs: &CopyInputs,
    handle: &SessionHandle,
    capabilities: &ServerCapabilities,
) -> Result<(), CopyError> {
    let lister = Lister::of(&capabilities.features);
    let remote = ServerStat { handle, lister };
    let is_unfinished =
        |from: &EndpointLocation, to: &EndpointLocation| is_unfinished(handle, from, to);
    if shared.options.verify {
        verify::check_support(&capabilities.features, true)?;
    }
    let roots = resolve_paths::resolve(shared.options, inputs, &LocalStat, &remote, is_unfinished)?;
    let mut upload = Upload::new(shared, handle, capabilities);
    upload.scan(&roots);
    if let Err(session_handle::SessionClosed) = upload.finish(shared.wait()) {
        shared.session_lost();
    }
    Ok(())
}

/// Returns the initial session settings: as requested, or chosen for the path. With `--fixed`, one file at a time.
fn config(
    options: &CopyOptions,
    inputs: &CopyInputs,
    server: Url,
    direction: Option<TransferDirection>,
    data: DataProtectionRequest,
) -> SessionConfig {
    let network = &options.network;
    let fixed_ahead = options.fixed.then_some(1);
    SessionConfig {
        server,
        mode: Mode::Extended,
        direction,
        streams: network.streams.or(options.fixed.then_some(1)),
        striped: network.stripe,
        pipelining: network
            .pipelining
            .or(fixed_ahead)
            .map(|ahead| ahead as usize),
        expected: match direction {
            Some(direction) => Expected::of(options, inputs, direction),
            None => Expected::Tree,
        },
        block_bytes: options.block_bytes.unwrap_or(BLOCK_BYTES),
        tcp: Tcp {
            window_bytes: network.window_bytes,
            congestion: network.congestion.clone(),
            pacing_bytes_per_s: network.pacing_bytes_per_s,
        },
        data,
        secured: Arc::default(),
        timeout: STALL_TIMEOUT,
    }
}
