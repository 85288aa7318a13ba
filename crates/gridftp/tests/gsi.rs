//! GSI against the programs of the Grid Community Toolkit, over loopback.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "real servers and clients, and the files that they have"
)]

mod content;
mod driver;
mod globus_server;
mod grid;

use std::fs;
use std::process;
use std::time::{Duration, Instant};

use content::content;
use driver::relay::relay;
use driver::{Driver, unix_s};
use globus_server::{Server, is_root};
use grid::{FULL, Grid, USER};
use venturi_gridftp::client::{
    Get, Job, Login, Output, Pair, Put, Settings, Source, ThirdParty, ThirdPartyOutput,
};
use venturi_gridftp::gsi::{Credential, Gsi, Target};
use venturi_gridftp::{ByteRanges, Command, Dcau, Mode, Protection};

/// A server of the Globus toolkit that maps the user to somebody on this machine.
fn server(grid: &Grid, environment: &[(&str, &str)]) -> Result<Server, String> {
    let own = process::Command::new("id").arg("-un").output();
    let own = own.map_err(|error| error.to_string())?.stdout;
    // Servers that root starts log nobody in as root.
    let local = if is_root() {
        "nobody".to_owned()
    } else {
        String::from_utf8_lossy(&own).trim().to_owned()
    };
    fs::write(grid.path("grid-mapfile"), format!("\"{USER}\" {local}\n"))
        .map_err(|error| error.to_string())?;
    Server::start_secured(|command| {
        grid.environment(command)
            .env("X509_USER_CERT", grid.path("host.pem"))
            .env("X509_USER_KEY", grid.path("host.key"))
            .envs(environment.iter().copied());
    })
}

fn settings(mode: Mode, connections: u16, data: Option<(Dcau, Protection)>) -> Settings {
    Settings {
        login: Login::Mapped,
        server: "127.0.0.1".parse().expect("an address"),
        mode,
        connections,
        depth: 8,
        block_bytes: 100_000,
        buffer_bytes: None,
        data,
        upload: None,
        attempts: 2,
        striped: false,
        patience: Duration::from_secs(20),
    }
}

fn session(
    grid: &Grid,
    server: &Server,
    credential: &Credential,
    delegates: bool,
    settings: Settings,
) -> Driver {
    let target = Target {
        host: "localhost".to_owned(),
        subject: None,
        delegates,
    };
    let gsi = Gsi::client(credential, &grid.authorities(), &target, unix_s()).expect("a client");
    let mut driver = Driver::connect_secured(server.address, settings, Some(Box::new(gsi)));
    driver.ready();
    driver
}

fn with_server(environment: &[(&str, &str)], test: impl FnOnce(&Grid, &Server)) {
    let grid = match Grid::new() {
        Ok(grid) => grid,
        Err(reason) => return println!("SKIPPED: {reason}"),
    };
    match server(&grid, environment) {
        Ok(server) => test(&grid, &server),
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}

const SIZES: [usize; 4] = [0, 1, 300_007, 16_384];

/// Sends files there and back.
fn carry(driver: &mut Driver, server: &Server, label: &str) {
    let files: Vec<(u64, String, Vec<u8>)> = (0..)
        .zip(SIZES)
        .map(|(number, size)| (number, format!("{label}-{number}"), content(number, size)))
        .collect();
    let puts = files.iter().map(|(number, name, bytes)| {
        driver.sources.insert(*number, bytes.clone());
        Job::Put(Put {
            transfer: *number,
            path: server.path(name),
            temporary: Some(server.path(&format!("{name}.part"))),
            size_bytes: bytes.len() as u64,
            checksum: None,
            modify_s: None,
            present: ByteRanges::default(),
            part: None,
            goes_on: false,
        })
    });
    let puts = puts.collect();
    driver.carry_out(puts);
    for (_, name, bytes) in &files {
        let found = server.read(name);
        assert!(
            found.as_ref() == Some(bytes),
            "{name}: {:?} {:?}",
            driver.refused,
            driver.heard
        );
    }
    let gets = files.iter().map(|(number, name, bytes)| {
        Job::Get(Get {
            transfer: 100 + number,
            source: Source::File,
            path: server.path(name),
            size_bytes: Some(bytes.len() as u64),
            present: ByteRanges::default(),
            see: false,
        })
    });
    driver.carry_out(gets.collect());
    for (number, name, bytes) in &files {
        let found = driver
            .sinks
            .get(&(100 + number))
            .map_or(&[][..], Vec::as_slice);
        assert!(
            found == bytes,
            "{name}: {} of {} bytes, {:?} {:?}",
            found.len(),
            bytes.len(),
            driver.refused,
            driver.heard
        );
    }
    let failed = driver
        .heard
        .iter()
        .any(|output| matches!(output, Output::Failed { .. }));
    assert!(!failed, "{label}: {:?}", driver.heard);
}

#[test]
fn a_session_without_delegation_moves_files_over_open_data_connections() {
    with_server(&[], |grid, server| {
        let credential = grid.credential(&grid.user_proxy());
        assert_eq!(credential.identity(), USER);
        let mut driver = session(
            grid,
            server,
            &credential,
            false,
            settings(Mode::Extended, 2, None),
        );
        assert_eq!(
            driver.client.peer().map(|peer| peer.subject.as_str()),
            Some("/O=Test Grid/CN=localhost")
        );
        carry(&mut driver, server, "open");
    });
}

#[test]
fn a_session_with_delegation_moves_files_over_data_connections_of_every_protection() {
    with_server(&[], |grid, server| {
        let credential = grid.credential(&grid.user_proxy());
        for (protection, mode, connections) in [
            (Protection::Clear, Mode::Stream, 1),
            (Protection::Clear, Mode::Extended, 3),
            (Protection::Safe, Mode::Extended, 1),
            (Protection::Private, Mode::Stream, 1),
            (Protection::Private, Mode::Extended, 3),
        ] {
            let data = Some((Dcau::User, protection));
            let settings = settings(mode, connections, data);
            let mut driver = session(grid, server, &credential, true, settings);
            assert_eq!(driver.client.mode(), mode);
            carry(
                &mut driver,
                server,
                &format!("{protection:?}-{mode:?}-{connections}"),
            );
        }
    });
}

#[test]
fn a_limited_proxy_secures_data_connections() {
    with_server(&[], |grid, server| {
        let limited = FULL.replace("id-ppl-inheritAll", "1.3.6.1.4.1.3536.1.1.1.9");
        let subject = format!("{USER}/CN=42");
        let file = grid.proxy_for(
            "limited",
            "user",
            &subject,
            &limited,
            &["-days", "1"],
            "rsa",
        );
        let data = Some((Dcau::User, Protection::Clear));
        let settings = settings(Mode::Extended, 1, data);
        let mut driver = session(grid, server, &grid.credential(&file), true, settings);
        carry(&mut driver, server, "limited");
    });
}

#[test]
fn a_server_without_a_delegated_proxy_takes_one_for_data_connections_by_dcsc() {
    with_server(&[], |grid, server| {
        let credential = grid.credential(&grid.user_proxy());
        let data = Some((Dcau::User, Protection::Private));
        let settings = settings(Mode::Extended, 1, data);
        let mut driver = session(grid, server, &credential, false, settings);
        let command = Command::Dcsc(Some(credential.for_data_channels()));
        driver.client.request(Duration::ZERO, 7, command);
        driver.until(|driver| answer(driver, 7).is_some());
        assert_eq!(answer(&driver, 7), Some(250));
        carry(&mut driver, server, "dcsc");
    });
}

fn answer(driver: &Driver, wanted: u64) -> Option<u16> {
    driver.heard.iter().find_map(|output| match output {
        Output::Answer { request, reply } if *request == wanted => Some(reply.code),
        _ => None,
    })
}

#[test]
fn two_servers_copy_over_data_connections_that_delegated_proxies_secure() {
    with_server(&[], |grid, source| {
        let destination = server(grid, &[]).expect("another server");
        let credential = grid.credential(&grid.user_proxy());
        let mut sessions = [source, &destination].map(|server| {
            let data = Some((Dcau::User, Protection::Private));
            session(
                grid,
                server,
                &credential,
                true,
                settings(Mode::Extended, 2, data),
            )
        });
        let pairs = (0..4).map(|number| {
            source.write(&format!("{number}"), &content(number, 50_000));
            Pair {
                transfer: number,
                from: source.path(&format!("{number}")),
                to: destination.path(&format!("{number}")),
                temporary: destination.path(&format!("{number}.part")),
                size_bytes: Some(50_000),
            }
        });
        let address = destination.address.ip();
        let mut copies = ThirdParty::new(pairs.collect(), Mode::Extended, 4, 1, address, false);
        let (mut done, begin) = (0, Instant::now());
        while done < 4 {
            assert!(begin.elapsed() < Duration::from_secs(30), "{done} are done");
            match relay(&mut copies, &mut sessions) {
                Some(ThirdPartyOutput::Done { .. }) => done += 1,
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
        for number in 0..4 {
            assert!(destination.read(&format!("{number}")) == Some(content(number, 50_000)));
        }
    });
}

#[test]
fn tls_1_2_is_spoken_where_the_server_has_no_newer_one() {
    let old = [("GLOBUS_GSSAPI_MAX_TLS_PROTOCOL", "TLS1_2_VERSION")];
    with_server(&old, |grid, server| {
        let credential = grid.credential(&grid.user_proxy());
        for (delegates, data) in [
            (false, None),
            (true, Some((Dcau::User, Protection::Clear))),
            (
                true,
                Some((Dcau::Subject(USER.into()), Protection::Private)),
            ),
        ] {
            let label = format!("{data:?}").replace(|c: char| !c.is_ascii_alphanumeric(), "");
            let settings = settings(Mode::Extended, 2, data);
            let mut driver = session(grid, server, &credential, delegates, settings);
            carry(&mut driver, server, &label);
        }
    });
}
