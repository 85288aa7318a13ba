//! GSI clients of the Grid Community Toolkit and of gfal2 against the server, over loopback.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "real clients, and the files that they have"
)]

mod content;
mod grid;
mod host;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use content::content;
use grid::{Grid, USER};
use host::{Guard, Host};
use venturi_gridftp::Security;
use venturi_gridftp::gsi::{GridMap, Gsi};

/// Newest TLS version that a client of the toolkit is allowed to use.
const TLS_1_3: &str = "TLS1_3_VERSION";
const TLS_1_2: &str = "TLS1_2_VERSION";

fn unix_s() -> u64 {
    UNIX_EPOCH.elapsed().unwrap_or(Duration::ZERO).as_secs()
}

/// Starts a server with the grid's host certificate that accepts the users of the map.
fn host(grid: &Grid, root: &Path, map: &str) -> Host {
    let (credential, trust_store) = (grid.pair("host"), grid.trust_store());
    let security = move || {
        let gsi = Gsi::server(&credential, &trust_store, unix_s()).expect("a credential");
        Box::new(gsi) as Box<dyn Security>
    };
    let guard = Guard {
        security: Box::new(security),
        map: GridMap::parse(map).expect("a map"),
    };
    Host::start_guarded(root.to_owned(), Some(guard))
}

fn is_there(program: &str) -> bool {
    let known = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    if let Err(error) = &known {
        println!("SKIPPED: {program} cannot be started ({error})");
    }
    known.is_ok()
}

fn run(grid: &Grid, tls: &str, proxy: &Path, program: &str, arguments: &[String]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["30", program]).args(arguments);
    grid.environment(&mut command)
        .env("X509_USER_PROXY", proxy)
        .env("GLOBUS_GSSAPI_MAX_TLS_PROTOCOL", tls)
        // The modules of gfal2 belong to the system's Python, which may not be the first in the
        // path.
        .env("GFAL_PYTHONBIN", "/usr/bin/python3")
        .output()
        .expect("it runs")
}

fn with_client(program: &str, test: impl FnOnce(&Grid)) {
    match Grid::new() {
        Ok(grid) if is_there(program) => test(&grid),
        Ok(_) => {}
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}

/// Replaces the default proxy by one of the toolkit.
fn proxy_of_globus(grid: &Grid) -> bool {
    let mut command = Command::new("grid-proxy-init");
    command.args(["-valid", "12:0", "-bits", "2048", "-out"]);
    let made = grid
        .environment(command.arg(grid.path("usual.proxy")))
        .env("X509_USER_CERT", grid.path("user.pem"))
        .env("X509_USER_KEY", grid.path("user.key"))
        .stdin(Stdio::null())
        .output();
    match made {
        Ok(made) => {
            let reply_text = String::from_utf8_lossy(&made.stderr);
            assert!(made.status.success(), "grid-proxy-init: {reply_text}");
        }
        Err(error) => println!("SKIPPED: grid-proxy-init cannot be started ({error})"),
    }
    grid.path("usual.proxy").exists()
}

#[test]
fn globus_url_copy_copies_with_a_proxy_of_grid_proxy_init() {
    with_client("globus-url-copy", |grid| {
        if proxy_of_globus(grid) {
            copy_in_both_directions(grid, "globus-url-copy", &[]);
            copy_in_both_directions(grid, "globus-url-copy", &["-dcpriv"]);
        }
    });
}

/// Downloads and uploads files with a client and these options.
fn copy_in_both_directions(grid: &Grid, program: &str, options: &[&str]) {
    copy_in_both_directions_by(grid, TLS_1_3, program, options);
}

fn copy_in_both_directions_by(grid: &Grid, tls: &str, program: &str, options: &[&str]) {
    let (served, own) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let proxy = grid.path("usual.proxy");
    let host = host(grid, served.path(), &format!("\"{USER}\" somebody"));
    let url = |name: &str| format!("gsiftp://localhost:{}/{name}", host.address.port());
    for (name, size) in [("empty", 0), ("large", 1_000_003)] {
        fs::write(served.path().join(name), content(1, size)).expect("a file");
        let up = own.path().join(format!("{name}-up"));
        fs::write(&up, content(2, size)).expect("a file");
        let down = own.path().join(name);
        let pairs = [
            (url(name), format!("file://{}", down.display())),
            (
                format!("file://{}", up.display()),
                url(&format!("{name}-up")),
            ),
        ];
        for (from, to) in pairs {
            let options = options.iter().map(|&option| option.to_owned());
            let arguments: Vec<String> = options.chain([from, to]).collect();
            let out = run(grid, tls, &proxy, program, &arguments);
            let reply_text = String::from_utf8_lossy(&out.stderr);
            assert!(
                out.status.success(),
                "{program} {arguments:?}: {reply_text}"
            );
        }
        assert!(
            fs::read(down).ok() == Some(content(1, size)),
            "{name} came back"
        );
        let arrived = fs::read(served.path().join(format!("{name}-up"))).ok();
        assert!(arrived == Some(content(2, size)), "{name} arrived");
    }
}

#[test]
fn globus_url_copy_copies_with_every_kind_of_data_connection() {
    with_client("globus-url-copy", |grid| {
        grid.user_proxy();
        for options in [
            &[][..],
            &["-nodcau"],
            &["-dcsafe"],
            &["-dcpriv"],
            &["-fast", "-p", "4"],
            &["-dcpriv", "-p", "3"],
        ] {
            copy_in_both_directions(grid, "globus-url-copy", options);
        }
    });
}

#[test]
fn globus_url_copy_copies_when_limited_to_tls_1_2() {
    with_client("globus-url-copy", |grid| {
        grid.user_proxy();
        for options in [&[][..], &["-dcpriv"]] {
            copy_in_both_directions_by(grid, TLS_1_2, "globus-url-copy", options);
        }
    });
}

#[test]
fn gfal_copy_copies() {
    with_client("gfal-copy", |grid| {
        grid.user_proxy();
        copy_in_both_directions(grid, "gfal-copy", &["-f"]);
    });
}

#[test]
fn a_user_without_an_entry_in_the_map_is_not_authorized() {
    with_client("globus-url-copy", |grid| {
        let served = tempfile::tempdir().expect("a directory");
        fs::write(served.path().join("file"), b"secret").expect("a file");
        let host = host(grid, served.path(), "\"/O=Test Grid/CN=Another\" somebody");
        let to = grid.path("got");
        let arguments = [
            format!("gsiftp://localhost:{}/file", host.address.port()),
            format!("file://{}", to.display()),
        ];
        let out = run(
            grid,
            TLS_1_3,
            &grid.user_proxy(),
            "globus-url-copy",
            &arguments,
        );
        assert!(!out.status.success());
        let reply_text = String::from_utf8_lossy(&out.stderr);
        assert!(reply_text.contains("530"), "{reply_text}");
    });
}
