//! Third-party clients against the server, over loopback.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "real clients, and the files that they have"
)]

mod content;
mod host;

use std::fs;
use std::process::{Command, Stdio};

use content::content;
use host::Host;

/// Runs a client on the server's directory and its own. `{served}`, `{own}` and `{server}` are
/// placeholders.
fn with_client(
    program: &str,
    commands: &[&[&str]],
    check: impl Fn(&std::path::Path, &std::path::Path),
) {
    let known = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if let Err(error) = known {
        println!("SKIPPED: {program} cannot be started ({error})");
        return;
    }
    let (served, own) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    for (name, size) in [("empty", 0), ("small", 17), ("large", 1_000_003)] {
        fs::write(served.path().join(name), content(1, size)).expect("a file");
        fs::write(own.path().join(format!("{name}-up")), content(2, size)).expect("a file");
    }
    let host = Host::start(served.path().to_owned());
    for arguments in commands {
        let arguments: Vec<String> = arguments
            .iter()
            .map(|argument| {
                let own = own.path().to_str().expect("text");
                argument
                    .replace("{own}", own)
                    .replace("{server}", &host.address.to_string())
            })
            .collect();
        let out = Command::new("timeout")
            .arg("30")
            .arg(program)
            .args(&arguments)
            .output()
            .expect("it runs");
        let reply_text = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.success(),
            "{program} {arguments:?}: {reply_text}"
        );
    }
    check(served.path(), own.path());
}

fn assert_same(own: &std::path::Path, served: &std::path::Path) {
    for (name, size) in [("empty", 0), ("small", 17), ("large", 1_000_003)] {
        assert!(
            fs::read(own.join(name)).ok() == Some(content(1, size)),
            "{name} came back"
        );
        let up = format!("{name}-up");
        assert!(
            fs::read(served.join(&up)).ok() == Some(content(2, size)),
            "{up} arrived"
        );
    }
}

#[test]
fn curl_reads_and_writes() {
    let quiet = ["-sS", "--max-time", "20"];
    let commands: Vec<Vec<&str>> = ["empty", "small", "large"]
        .iter()
        .flat_map(|name| {
            let (from, to) = match *name {
                "empty" => ("ftp://{server}/empty", "{own}/empty"),
                "small" => ("ftp://{server}/small", "{own}/small"),
                _ => ("ftp://{server}/large", "{own}/large"),
            };
            let (up, at) = match *name {
                "empty" => ("{own}/empty-up", "ftp://{server}/empty-up"),
                "small" => ("{own}/small-up", "ftp://{server}/small-up"),
                _ => ("{own}/large-up", "ftp://{server}/large-up"),
            };
            [
                [&quiet[..], &[from, "-o", to]].concat(),
                [&quiet[..], &["-T", up, at]].concat(),
            ]
        })
        .chain([vec!["-sS", "-l", "ftp://{server}/", "-o", "{own}/names"]])
        .collect();
    let commands: Vec<&[&str]> = commands.iter().map(Vec::as_slice).collect();
    with_client("curl", &commands, |served, own| {
        assert_same(own, served);
        let names = fs::read_to_string(own.join("names")).expect("a listing");
        let mut names: Vec<_> = names.lines().collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "empty", "empty-up", "large", "large-up", "small", "small-up"
            ]
        );
    });
}

#[test]
fn globus_url_copy_reads_and_writes_over_one_and_four_cached_connections() {
    for options in [&["-fast"][..], &["-fast", "-p", "4"], &[]] {
        let down = ["empty", "small", "large"].map(|name| {
            (
                format!("ftp://{{server}}/{name}"),
                format!("file://{{own}}/{name}"),
            )
        });
        let up = ["empty-up", "small-up", "large-up"].map(|name| {
            (
                format!("file://{{own}}/{name}"),
                format!("ftp://{{server}}/{name}"),
            )
        });
        let pairs: Vec<_> = down.into_iter().chain(up).collect();
        let commands: Vec<Vec<&str>> = pairs
            .iter()
            .map(|(from, to)| [options, &[from.as_str(), to.as_str()]].concat())
            .collect();
        let commands: Vec<&[&str]> = commands.iter().map(Vec::as_slice).collect();
        with_client("globus-url-copy", &commands, |served, own| {
            assert_same(own, served)
        });
    }
}

#[test]
fn python_ftplib_lists_renames_and_resumes() {
    let script = r#"
import ftplib, sys, io
host, port = sys.argv[1].split(":")
ftp = ftplib.FTP(); ftp.connect(host, int(port), timeout=20); ftp.login()
assert sorted(name for name, facts in ftp.mlsd("/")) == ["empty", "large", "small"]
assert ftp.size("large") == 1000003
whole = io.BytesIO(); ftp.retrbinary("RETR large", whole.write)
rest = io.BytesIO(); ftp.retrbinary("RETR large", rest.write, rest=500000)
assert whole.getvalue()[500000:] == rest.getvalue()
ftp.storbinary("STOR up", io.BytesIO(whole.getvalue()))
ftp.rename("up", "kept"); ftp.mkd("d"); ftp.cwd("d"); assert ftp.pwd() == "/d"
try:
    ftp.size("none")
except ftplib.error_perm as error:
    assert str(error).startswith("550"), error
ftp.quit()
"#;
    with_client("python3", &[&["-c", script, "{server}"]], |served, _| {
        assert!(fs::read(served.join("kept")).ok() == Some(content(1, 1_000_003)));
        assert!(served.join("d").is_dir());
    });
}
