//! Commands as they are written and read.

use proptest::prelude::*;

use super::*;
use crate::Error;

fn paths() -> impl Strategy<Value = Path> {
    prop::collection::vec(any::<u8>(), 1..40)
        .prop_filter_map("no path", |bytes| Path::new(bytes).ok())
}

fn addresses() -> impl Strategy<Value = SocketAddr> {
    any::<SocketAddr>().prop_map(|address| SocketAddr::new(address.ip(), address.port()))
}

fn commands() -> impl Strategy<Value = Command> {
    use Command as C;
    let path = prop_oneof![
        paths().prop_map(C::Stor),
        paths().prop_map(C::Cwd),
        prop::option::of(paths()).prop_map(C::Mlsc),
        (paths(), 0_i64..250_000_000_000).prop_map(|(path, time_s)| C::Mfmt { time_s, path }),
        (paths(), any::<u64>(), any::<u64>()).prop_map(|(path, offset, length)| C::Eret {
            part: Partial::Region { offset, length },
            path
        }),
        (paths(), any::<u64>()).prop_map(|(path, offset)| C::Esto { offset, path }),
        (paths(), any::<u64>(), any::<Option<u64>>()).prop_map(|(path, offset, length)| {
            let algorithm = "ADLER32".to_owned();
            C::Cksm {
                algorithm,
                offset,
                length,
                path,
            }
        }),
        (paths(), 0_u32..=0o7777).prop_map(|(path, mode)| C::Site(Site::Chmod { mode, path })),
        (paths(), any::<u64>()).prop_map(|(path, length)| C::Site(Site::Truncate { length, path })),
    ];
    let setting = prop_oneof![
        any::<u64>().prop_map(C::Pbsz),
        any::<u64>().prop_map(C::Sbuf),
        any::<Vec<u8>>().prop_map(C::Adat),
        addresses().prop_map(C::Eprt),
        prop::collection::vec(addresses(), 1..5).prop_map(C::Spor),
        (any::<u64>(), 1..u64::MAX / 2)
            .prop_map(|(start, length)| (start / 2, start / 2 + length))
            .prop_map(|(start, end)| C::Rest(Restart::Ranges(ByteRanges::of(start..end)))),
        any::<u64>().prop_map(|offset| C::Rest(Restart::Offset(offset))),
        (
            any::<Option<u16>>(),
            any::<Option<u64>>(),
            any::<Option<u64>>()
        )
            .prop_map(|(parallelism, block, markers_s)| {
                let parallelism = parallelism.filter(|&count| count > 0);
                let layout = block.map(|block| Layout::Blocked {
                    block_bytes: Some(block),
                });
                C::Opts(Options::Retrieve(RetrieveOptions {
                    parallelism,
                    layout,
                    markers_s,
                }))
            }),
        Just(C::Prot(Protection::Private)),
        Just(C::Dcau(Dcau::Subject(b"/O=Grid/CN=a b".to_vec()))),
        Just(C::Epsv(Some(Family::All))),
        Just(C::Opts(Options::DelayedPassive(true))),
        Just(C::Trev {
            marker: Marker::Restart,
            interval_s: 5
        }),
        Just(C::Abor),
    ];
    prop_oneof![path, setting]
}

proptest! {
    #[test]
    fn a_command_that_is_written_is_read_as_itself(command in commands()) {
        prop_assert_eq!(Command::parse(&command.text()).unwrap(), command);
    }

    #[test]
    fn no_line_makes_the_parser_panic_and_what_it_reads_it_writes_without_line_end(
        name in prop_oneof!["[A-Z]{3,4}", "SITE [A-Z]{4,8}", "OPTS (RETR|PASV|CKSM|MLST)", "ERET P"],
        argument in prop::collection::vec(any::<u8>().prop_filter("line end", |byte| *byte != b'\n' && *byte != b'\r'), 0..60),
    ) {
        let line = [name.as_bytes(), b" ", &argument].concat();
        if let Ok(command) = Command::parse(&line) {
            prop_assert!(!command.text().contains(&b'\n'));
            prop_assert_eq!(Command::parse(&command.text()).unwrap(), command);
        }
    }
}

#[test]
fn commands_of_other_clients_are_understood() {
    let path = |text: &str| Path::new(text).unwrap();
    for (line, expected) in [
        // globus-url-copy 10.12
        (
            "OPTS RETR Parallelism=4,4,4;",
            Command::Opts(Options::Retrieve(RetrieveOptions {
                parallelism: Some(4),
                ..RetrieveOptions::default()
            })),
        ),
        (
            "OPTS RETR StripeLayout=Blocked;BlockSize=1048576;",
            Command::Opts(Options::Retrieve(RetrieveOptions {
                layout: Some(Layout::Blocked {
                    block_bytes: Some(1_048_576),
                }),
                ..RetrieveOptions::default()
            })),
        ),
        (
            "SITE STORBUFSIZE 65536",
            Command::Site(Site::Buffer {
                name: BufferName::StorBufSize,
                bytes: 65_536,
            }),
        ),
        (
            "CKSM MD5 0 -1 /a b",
            Command::Cksm {
                algorithm: "MD5".to_owned(),
                offset: 0,
                length: None,
                path: path("/a b"),
            },
        ),
        // lftp, curl, ftplib, wget
        ("LIST -la /x", Command::List(Some(path("/x")))),
        ("list", Command::List(None)),
        ("type i", Command::Type(b'I')),
        ("TYPE A N", Command::Type(b'A')),
        ("EPSV", Command::Epsv(None)),
        ("XPWD", Command::Pwd),
        ("ALLO 10 R 20", Command::Allo(10)),
    ] {
        assert_eq!(Command::parse(line.as_bytes()).unwrap(), expected, "{line}");
    }
    assert_eq!(
        Command::parse(b"\xff\xf4\xff\xf2ABOR").unwrap(),
        Command::Abor
    );
}

#[test]
fn what_is_no_command_and_what_is_a_wrong_one_are_told_apart() {
    for unknown in ["", "NOPE", "STORE x", "\u{e9}"] {
        let error = Command::parse(unknown.as_bytes()).unwrap_err();
        assert!(
            matches!(error, Error::UnknownCommand { .. }),
            "{unknown}: {error}"
        );
    }
    for wrong in [
        "STOR",
        "REST x",
        "REST 9-3",
        "MODE B",
        "PORT 1,2,3,4,5,256",
        "SIZE a\0b",
        "PROT Q",
        "EPRT |||1|",
        "SPOR",
    ] {
        let error = Command::parse(wrong.as_bytes()).unwrap_err();
        assert!(matches!(error, Error::Malformed { .. }), "{wrong}: {error}");
    }
    let stripes = format!("SPOR{}", " 1,2,3,4,5,6".repeat(257));
    assert!(matches!(
        Command::parse(stripes.as_bytes()),
        Err(Error::Limit { .. })
    ));
}
