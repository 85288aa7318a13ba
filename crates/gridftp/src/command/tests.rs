//! Tests that write and parse commands.

use proptest::prelude::*;

use super::*;
use crate::FtpError;

fn paths() -> impl Strategy<Value = Path> {
    prop::collection::vec(any::<u8>(), 1..40)
        .prop_filter_map("no path", |bytes| Path::new(bytes).ok())
}

fn addresses() -> impl Strategy<Value = SocketAddr> {
    any::<SocketAddr>().prop_map(|address| SocketAddr::new(address.ip(), address.port()))
}

fn commands() -> impl Strategy<Value = FtpCommand> {
    use FtpCommand as C;
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
        (paths(), 0_u32..=0o7777)
            .prop_map(|(path, mode)| C::Site(SiteCommand::Chmod { mode, path })),
        (paths(), any::<u64>())
            .prop_map(|(path, length)| C::Site(SiteCommand::Truncate { length, path })),
    ];
    let setting = prop_oneof![
        any::<u64>().prop_map(C::Pbsz),
        any::<u64>().prop_map(C::Sbuf),
        any::<Vec<u8>>().prop_map(C::Adat),
        addresses().prop_map(C::Eprt),
        prop::collection::vec(addresses(), 1..5).prop_map(C::Spor),
        (any::<u64>(), 1..u64::MAX / 2)
            .prop_map(|(start, length)| (start / 2, start / 2 + length))
            .prop_map(|(start, end)| C::Rest(Restart::Ranges(ByteRanges::from_range(start..end)))),
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
    fn commands_round_trip_through_text(command in commands()) {
        prop_assert_eq!(FtpCommand::parse(&command.text()).unwrap(), command);
    }

    #[test]
    fn arbitrary_lines_do_not_panic_and_parsed_commands_round_trip(
        name in prop_oneof!["[A-Z]{3,4}", "SITE [A-Z]{4,8}", "OPTS (RETR|PASV|CKSM|MLST)", "ERET P"],
        argument in prop::collection::vec(any::<u8>().prop_filter("line end", |byte| *byte != b'\n' && *byte != b'\r'), 0..60),
    ) {
        let line = [name.as_bytes(), b" ", &argument].concat();
        if let Ok(command) = FtpCommand::parse(&line) {
            prop_assert!(!command.text().contains(&b'\n'));
            prop_assert_eq!(FtpCommand::parse(&command.text()).unwrap(), command);
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
            FtpCommand::Opts(Options::Retrieve(RetrieveOptions {
                parallelism: Some(4),
                ..RetrieveOptions::default()
            })),
        ),
        (
            "OPTS RETR StripeLayout=Blocked;BlockSize=1048576;",
            FtpCommand::Opts(Options::Retrieve(RetrieveOptions {
                layout: Some(Layout::Blocked {
                    block_bytes: Some(1_048_576),
                }),
                ..RetrieveOptions::default()
            })),
        ),
        (
            "SITE STORBUFSIZE 65536",
            FtpCommand::Site(SiteCommand::Buffer {
                name: BufferName::StorBufSize,
                bytes: 65_536,
            }),
        ),
        (
            "CKSM MD5 0 -1 /a b",
            FtpCommand::Cksm {
                algorithm: "MD5".to_owned(),
                offset: 0,
                length: None,
                path: path("/a b"),
            },
        ),
        // lftp, curl, ftplib, wget
        ("LIST -la /x", FtpCommand::List(Some(path("/x")))),
        ("list", FtpCommand::List(None)),
        ("type i", FtpCommand::Type(b'I')),
        ("TYPE A N", FtpCommand::Type(b'A')),
        ("EPSV", FtpCommand::Epsv(None)),
        ("XPWD", FtpCommand::Pwd),
        ("ALLO 10 R 20", FtpCommand::Allo(10)),
    ] {
        assert_eq!(
            FtpCommand::parse(line.as_bytes()).unwrap(),
            expected,
            "{line}"
        );
    }
    assert_eq!(
        FtpCommand::parse(b"\xff\xf4\xff\xf2ABOR").unwrap(),
        FtpCommand::Abor
    );
}

#[test]
fn unknown_commands_and_invalid_commands_are_distinguished() {
    for unknown in ["", "NOPE", "STORE x", "\u{e9}"] {
        let error = FtpCommand::parse(unknown.as_bytes()).unwrap_err();
        assert!(
            matches!(error, FtpError::UnknownCommand { .. }),
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
        let error = FtpCommand::parse(wrong.as_bytes()).unwrap_err();
        assert!(
            matches!(error, FtpError::Malformed { .. }),
            "{wrong}: {error}"
        );
    }
    let stripes = format!("SPOR{}", " 1,2,3,4,5,6".repeat(257));
    assert!(matches!(
        FtpCommand::parse(stripes.as_bytes()),
        Err(FtpError::Limit { .. })
    ));
}
