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
use globus_server::{GlobusServer, is_root};
use grid::{FULL, Grid, USER};
use venturi_gridftp::client::{
    ClientOutput, ClientSettings, CopyPair, Get, GetSource, Login, Put, ThirdParty,
    ThirdPartyOutput, TransferJob,
};
use venturi_gridftp::gsi::{Credential, Gsi, GsiPeer};
use venturi_gridftp::{ByteRanges, Dcau, FtpCommand, Mode, Protection};

/// Starts a Globus server that maps the user to a local account.
fn server(grid: &Grid, environment: &[(&str, &str)]) -> Result<GlobusServer, String> {
    let own = process::Command::new("id").arg("-un").output();
    let own = own.map_err(|error| error.to_string())?.stdout;
    // Servers started by root map no user to root.
    let local = if is_root() {
        "nobody".to_owned()
    } else {
        String::from_utf8_lossy(&own).trim().to_owned()
    };
    fs::write(grid.path("grid-mapfile"), format!("\"{USER}\" {local}\n"))
        .map_err(|error| error.to_string())?;
    GlobusServer::start_secured(|command| {
        grid.environment(command)
            .env("X509_USER_CERT", grid.path("host.pem"))
            .env("X509_USER_KEY", grid.path("host.key"))
            .envs(environment.iter().copied());
    })
}

fn settings(mode: Mode, connections: u16, data: Option<(Dcau, Protection)>) -> ClientSettings {
    ClientSettings {
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
        stall_timeout: Duration::from_secs(20),
    }
}

fn session(
    grid: &Grid,
    server: &GlobusServer,
    credential: &Credential,
    delegates: bool,
    settings: ClientSettings,
) -> Driver {
    let target = GsiPeer {
        host: "localhost".to_owned(),
        subject: None,
        delegates,
    };
    let gsi = Gsi::client(credential, &grid.trust_store(), &target, unix_s()).expect("a client");
    let mut driver = Driver::connect_secured(server.address, settings, Some(Box::new(gsi)));
    driver.ready();
    driver
}

fn with_server(environment: &[(&str, &str)], test: impl FnOnce(&Grid, &GlobusServer)) {
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

/// Uploads and downloads files.
fn transfer_all(driver: &mut Driver, server: &GlobusServer, label: &str) {
    let files: Vec<(u64, String, Vec<u8>)> = (0..)
        .zip(SIZES)
        .map(|(number, size)| (number, format!("{label}-{number}"), content(number, size)))
        .collect();
    let puts = files.iter().map(|(number, name, bytes)| {
        driver.sources.insert(*number, bytes.clone());
        TransferJob::Put(Put {
            transfer: *number,
            path: server.path(name),
            temporary: Some(server.path(&format!("{name}.part"))),
            size_bytes: bytes.len() as u64,
            checksum: None,
            modify_s: None,
            present: ByteRanges::default(),
            part: None,
            resumable: false,
        })
    });
    let puts = puts.collect();
    driver.run(puts);
    for (_, name, bytes) in &files {
        let found = server.read(name);
        assert!(
            found.as_ref() == Some(bytes),
            "{name}: {:?} {:?}",
            driver.rejected,
            driver.received_replies
        );
    }
    let gets = files.iter().map(|(number, name, bytes)| {
        TransferJob::Get(Get {
            transfer: 100 + number,
            source: GetSource::File,
            path: server.path(name),
            size_bytes: Some(bytes.len() as u64),
            present: ByteRanges::default(),
            stat_after: false,
        })
    });
    driver.run(gets.collect());
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
            driver.rejected,
            driver.received_replies
        );
    }
    let failed = driver
        .received_replies
        .iter()
        .any(|output| matches!(output, ClientOutput::Failed { .. }));
    assert!(!failed, "{label}: {:?}", driver.received_replies);
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
        transfer_all(&mut driver, server, "open");
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
            transfer_all(
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
        transfer_all(&mut driver, server, "limited");
    });
}

#[test]
fn a_server_without_a_delegated_proxy_accepts_one_for_data_connections_by_dcsc() {
    with_server(&[], |grid, server| {
        let credential = grid.credential(&grid.user_proxy());
        let data = Some((Dcau::User, Protection::Private));
        let settings = settings(Mode::Extended, 1, data);
        let mut driver = session(grid, server, &credential, false, settings);
        let command = FtpCommand::Dcsc(Some(credential.to_dcsc()));
        driver.client.request(Duration::ZERO, 7, command);
        driver.until(|driver| respond(driver, 7).is_some());
        assert_eq!(respond(&driver, 7), Some(250));
        transfer_all(&mut driver, server, "dcsc");
    });
}

fn respond(driver: &Driver, expected: u64) -> Option<u16> {
    driver
        .received_replies
        .iter()
        .find_map(|output| match output {
            ClientOutput::Reply { request, reply } if *request == expected => Some(reply.code),
            _ => None,
        })
}

#[test]
fn two_servers_copy_over_data_connections_secured_by_delegated_proxies() {
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
            CopyPair {
                transfer: number,
                from: source.path(&format!("{number}")),
                to: destination.path(&format!("{number}")),
                temporary: destination.path(&format!("{number}.part")),
                size_bytes: Some(50_000),
            }
        });
        let address = destination.address.ip();
        let mut copies = ThirdParty::new(pairs.collect(), Mode::Extended, 4, 1, address, false);
        let (mut done, start) = (0, Instant::now());
        while done < 4 {
            assert!(start.elapsed() < Duration::from_secs(30), "{done} are done");
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
fn tls_1_2_is_used_if_the_server_supports_no_newer_version() {
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
            transfer_all(&mut driver, server, &label);
        }
    });
}
