//! Copies from and to servers of FTP and GridFTP, and between two of them.
//!
//! Some look for files ([`download`]), and give them to a queue ([`queue`]); sessions take them from it, each on a thread of its own
//! ([`session`]), and the disk is never waited for there ([`writer`], [`sender`], [`opener`]). What GridFTP asks for is decided in
//! `venturi_gridftp`, without any of this.
//!
//! No module here needs one that needs it: what is copied is in [`files`] and [`work`], what threads tell a session in [`messages`], how sessions are to
//! be in [`mod@manner`]. Read [`session`] first.

mod ahead;
mod batch;
mod chunks;
mod crew;
mod desk;
mod download;
mod failures;
mod field;
mod files;
mod forecast;
mod guard;
mod interval;
mod judge;
mod link;
mod links;
mod listing;
mod manner;
mod messages;
mod names;
mod opener;
mod parts;
mod pilot;
mod places;
mod protection;
mod queue;
mod received;
mod relay;
mod sender;
mod session;
mod shared;
mod upload;
mod verify;
mod ways;
mod wire;
mod work;
mod writer;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use venturi_gridftp::Mode;
use venturi_gridftp::client::Direction;

use crate::error::Error;
use crate::given::Given;
use crate::net::grid::Grid;
use crate::net::pacing;
use crate::net::sockets::Tcp;
use crate::net::url::{Scheme, Url};
use crate::order::Order;
use crate::outcome::{self, Outcome};
use crate::process;
use crate::report::Report;
use crate::stop::Stop;
use crate::threads;
use crate::totals::Totals;
use desk::Desk;
use download::Download;
use forecast::Expected;
use listing::Lister;
use manner::Wish;
use manner::{Manner, Welcome};
use pilot::Pilot;
use places::{Here, Spot, There};
use relay::{End, Ends};
use shared::Shared;
use upload::Upload;

/// Sessions that may fail with a file before it has failed.
const MOST_SESSIONS_AN_ITEM: u32 = 2;
/// How long nothing may move before a session is given up: a disk behind a server may take a minute.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is seen whether all is done, and whether more sessions pay.
const GLANCE: Duration = Duration::from_millis(100);
/// How often it is seen whether the first session has a connection.
const SOON: Duration = Duration::from_millis(2);
/// Bytes of a block that is sent: its header and its place in the queue cost nothing then.
const BLOCK_BYTES: u64 = 1 << 20;

/// Carries out an order of which a place is at a server.
///
/// # Errors
/// If its places do not fit together, or a server does not let us in: nothing was done then.
pub(crate) fn carry_out(order: &Order, stop: &Stop, given: &Given) -> Result<Outcome, Error> {
    let servers = places::servers(given)?;
    for server in [&servers.source, &servers.destination]
        .into_iter()
        .flatten()
    {
        places::see_login(server)?;
    }
    match (servers.source, servers.destination) {
        (Some(server), None) => with_server(order, stop, given, server, Direction::Receive),
        (None, Some(server)) => with_server(order, stop, given, server, Direction::Send),
        (Some(source), Some(destination)) => between(order, stop, given, source, destination),
        (None, None) => Err(Error::Order {
            option: "--list",
            expected: "pairs of places",
            found: "none".into(),
        }),
    }
}

/// Copies from one server to another.
fn between(
    order: &Order,
    stop: &Stop,
    given: &Given,
    source: Url,
    destination: Url,
) -> Result<Outcome, Error> {
    let wish = Wish::of(order, &[&source, &destination])?;
    let grid = grid_of(&[&source, &destination])?;
    let (report, totals) = (Report::new(order.output, stop), Totals::default());
    let shared = Shared::new(order, stop, &totals, &report, source.clone(), grid);
    let shared = &shared;
    report.start(order);
    let mut manners = (
        manner(order, given, source.clone(), None, wish),
        manner(order, given, destination.clone(), None, wish),
    );
    let result = std::thread::scope(|scope| {
        let _ticking = report.ticking(scope, &totals);
        let open = |manner: &Manner| {
            let (desk, told) = crew::open(scope, shared, manner.clone(), true);
            let welcome = told.recv().unwrap_or(Err("the session ended".into()));
            welcome
                .map(|welcome| (desk, welcome))
                .map_err(|found| refused(order, &manner.server, found))
        };
        let result = open(&manners.0).and_then(|from| {
            let result = open(&manners.1).and_then(|to| {
                let end = |(desk, welcome), server| End {
                    desk,
                    welcome,
                    server,
                };
                let ends = Ends {
                    source: end((&from.0, &from.1), &source),
                    destination: end((&to.0, &to.1), &destination),
                };
                protection::agree(&mut manners, (&from.1, &to.1));
                protection::tell(shared, &manners.0, &from.1);
                let result = relayed(scope, shared, given, &manners, &ends);
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

fn relayed<'s, 'o: 's>(
    scope: &'s std::thread::Scope<'s, '_>,
    shared: &'o Shared<'o>,
    given: &Given,
    manners: &(Manner, Manner),
    ends: &Ends<'_>,
) -> Result<(), Error> {
    let (from, to) = (ends.source.look(), ends.destination.look());
    if shared.order.verify {
        verify::see(&ends.source.welcome.features, false)?;
        verify::see(&ends.destination.welcome.features, false)?;
    }
    let is_unfinished = |from: &Spot, to: &Spot| is_unfinished(ends.destination.desk, from, to);
    let roots = places::resolve(shared.order, given, &from, &to, is_unfinished)?;
    relay::relay(scope, shared, manners, ends, &roots);
    Ok(())
}

/// The user's credential, if a server asks for one.
fn grid_of(servers: &[&Url]) -> Result<Option<Grid>, Error> {
    let asked = servers.iter().any(|server| server.scheme == Scheme::Gsiftp);
    asked.then(Grid::of_user).transpose()
}

fn with_server(
    order: &Order,
    stop: &Stop,
    given: &Given,
    server: Url,
    direction: Direction,
) -> Result<Outcome, Error> {
    process::raise_open_files();
    let wish = Wish::of(order, &[&server])?;
    let grid = grid_of(&[&server])?;
    let (report, totals) = (Report::new(order.output, stop), Totals::default());
    let shared = Shared::new(order, stop, &totals, &report, server, grid);
    let shared = &shared;
    report.start(order);
    let manner = manner(order, given, shared.server.clone(), Some(direction), wish);
    let result = std::thread::scope(|scope| {
        let _ticking = report.ticking(scope, &totals);
        let (desk, told) = crew::open(scope, shared, manner.clone(), true);
        desk.foresee(forecast::questions(order, given, direction));
        let mut pilot = Pilot::new(scope, shared, manner.clone());
        let result = match welcomed(&told, &mut pilot) {
            Ok(welcome) => {
                protection::tell(shared, &manner, &welcome);
                pacing::tell(&manner.tcp, &report);
                let look = move || {
                    let work = match direction {
                        Direction::Receive => download,
                        Direction::Send => upload,
                    };
                    let result = work(shared, given, &desk, &welcome);
                    shared.end();
                    desk.close();
                    result
                };
                match threads::start(scope, look.clone()) {
                    Ok(looking) => {
                        while !looking.is_finished() && !stop.asked() && !shared.queue.wait(GLANCE)
                        {
                            pilot.tick();
                        }
                        let ended = looking.join();
                        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                    }
                    // Then nobody decides on more sessions, for which there are no threads either.
                    Err(_) => look(),
                }
            }
            Err(_) if stop.asked() => Ok(()),
            Err(found) => Err(refused(order, &shared.server, found)),
        };
        shared.end();
        result
    });
    result.map(|()| outcome::end(stop, &totals, &report))
}

/// Waits for the first session; others are opened meanwhile.
fn welcomed<'o: 's, 's>(
    told: &Receiver<Result<Welcome, String>>,
    pilot: &mut Pilot<'s, 'o, '_>,
) -> Result<Welcome, String> {
    // A session that is not ready in time says so itself.
    loop {
        match told.recv_timeout(SOON) {
            Ok(told) => return told.inspect(|welcome| pilot.welcomed(welcome)),
            Err(RecvTimeoutError::Disconnected) => return Err("the session ended".into()),
            Err(RecvTimeoutError::Timeout) => pilot.hasten(),
        }
    }
}

fn refused(order: &Order, server: &Url, found: String) -> Error {
    // What says itself what was expected is no answer to what is expected here.
    let found = match found.starts_with("expected ") {
        true => format!("none: {found}"),
        false => found,
    };
    Error::Place {
        place: server.with_path(b"/".to_vec()).to_string().into(),
        expected: "a server that lets us in",
        found,
        advice: if order.network.data_channel.is_some() {
            "see host, port, user and password; if it is DCAU, PROT or PBSZ that is refused, leave --data-channel out, or name another"
        } else {
            "see host, port, user and password"
        },
    }
}

fn download(
    shared: &Shared<'_>,
    given: &Given,
    desk: &Desk,
    welcome: &Welcome,
) -> Result<(), Error> {
    let lister = Lister::of(&welcome.features);
    let there = There { desk, lister };
    let order = shared.order;
    if order.verify {
        verify::see(&welcome.features, false)?;
    }
    let roots = places::resolve(order, given, &there, &Here, download::is_unfinished)?;
    let mut download = Download::new(shared, desk, welcome);
    download.look(roots);
    download.finish(shared.wait());
    Ok(())
}

/// Whether a directory at a server is the unfinished copy of a source under this very name.
fn is_unfinished(desk: &Desk, from: &Spot, to: &Spot) -> bool {
    let journal = names::journal(from, to).there().ok();
    journal.is_some_and(|journal| matches!(desk.see(&journal), Ok(Some(_))))
}

fn upload(shared: &Shared<'_>, given: &Given, desk: &Desk, welcome: &Welcome) -> Result<(), Error> {
    let lister = Lister::of(&welcome.features);
    let there = There { desk, lister };
    let is_unfinished = |from: &Spot, to: &Spot| is_unfinished(desk, from, to);
    if shared.order.verify {
        verify::see(&welcome.features, true)?;
    }
    let roots = places::resolve(shared.order, given, &Here, &there, is_unfinished)?;
    let mut upload = Upload::new(shared, desk, welcome);
    upload.look(&roots);
    if let Err(desk::Gone) = upload.finish(shared.wait()) {
        shared.gone();
    }
    Ok(())
}

/// How sessions begin: what was asked for, and else as the path suggests; or, where nothing is to be decided, one file after the other.
fn manner(
    order: &Order,
    given: &Given,
    server: Url,
    direction: Option<Direction>,
    data: Wish,
) -> Manner {
    let network = &order.network;
    let fixed_ahead = order.fixed.then_some(1);
    Manner {
        server,
        mode: Mode::Extended,
        direction,
        streams: network.streams.or(order.fixed.then_some(1)),
        striped: network.stripe,
        pipelining: network
            .pipelining
            .or(fixed_ahead)
            .map(|ahead| ahead as usize),
        expected: match direction {
            Some(direction) => Expected::of(order, given, direction),
            None => Expected::Tree,
        },
        block_bytes: order.block_bytes.unwrap_or(BLOCK_BYTES),
        tcp: Tcp {
            window_bytes: network.window_bytes,
            congestion: network.congestion.clone(),
            pacing_bytes_per_s: network.pacing_bytes_per_s,
        },
        data,
        secured: Arc::default(),
        patience: PATIENCE,
    }
}
