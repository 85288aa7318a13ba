//! The client against the server, in memory, with any order, any division of the bytes, and any
//! single fault.

mod content;
mod memory;

use std::time::Duration;

use content::content;
use memory::{InMemorySession, InjectedFault};
use proptest::prelude::*;
use venturi_gridftp::client::{
    ClientOutput, ClientSettings, Get, GetSource, Login, Put, TransferJob, UploadMode,
};
use venturi_gridftp::{ByteRanges, ListEntry, Mode, Path};

fn path(text: String) -> Path {
    Path::new(text).expect("a path")
}

fn settings(mode: Mode, connections: u16, depth: usize, upload: UploadMode) -> ClientSettings {
    ClientSettings {
        login: Login::Anonymous,
        server: "192.0.2.2".parse().expect("an address"),
        mode,
        connections,
        depth,
        block_bytes: 500,
        buffer_bytes: Some(65_536),
        data: None,
        upload: Some(upload),
        attempts: 3,
        striped: false,
        stall_timeout: Duration::from_secs(120),
    }
}

/// Returns uploads, with downloads among them if `mixed`; every fifth must fail.
fn jobs(
    world: &mut InMemorySession,
    sizes: &[usize],
    mixed: bool,
    checked: bool,
) -> Vec<TransferJob> {
    let mut jobs = Vec::new();
    for (number, &size) in (0_u64..).zip(sizes) {
        let bytes = content(number, size);
        let rejected = number % 5 == 3;
        if mixed && number % 3 == 0 {
            let name = if rejected {
                format!("/none{number}")
            } else {
                format!("/source{number}")
            };
            world
                .files
                .insert(format!("/source{number}").into_bytes(), bytes);
            jobs.push(TransferJob::Get(Get {
                transfer: number,
                source: GetSource::File,
                path: path(name),
                size_bytes: Some(size as u64),
                present: ByteRanges::default(),
                stat_after: number % 2 == 0,
            }));
        } else {
            world.sources.insert(number, bytes);
            let name = if rejected {
                format!("/no/such/{number}")
            } else {
                format!("/file{number}")
            };
            jobs.push(TransferJob::Put(Put {
                transfer: number,
                path: path(name.clone()),
                temporary: (number % 7 != 6).then(|| path(format!("{name}.part"))),
                size_bytes: size as u64,
                checksum: checked.then(|| ("LENGTH".to_owned(), size.to_string())),
                modify_s: (number % 2 == 0).then_some(1_700_000_000),
                present: ByteRanges::default(),
                part: None,
                resumable: false,
            }));
        }
    }
    jobs
}

/// Checks that every transfer was reported, and that reported results are true.
fn check(world: &InMemorySession, sizes: &[usize], mixed: bool) -> Result<Vec<u64>, TestCaseError> {
    let mut done = Vec::new();
    let mut reported = vec![0; sizes.len()];
    for output in &world.received_replies {
        match output {
            ClientOutput::Done { transfer, .. } => {
                done.push(*transfer);
                reported[*transfer as usize] += 1;
            }
            ClientOutput::Failed { transfer, .. } => reported[*transfer as usize] += 1,
            _ => {}
        }
    }
    prop_assert!(
        reported.iter().all(|&count| count == 1),
        "told {:?}",
        reported
    );
    for &number in &done {
        let bytes = content(number, sizes[number as usize]);
        let empty = Vec::new();
        let found = if mixed && number % 3 == 0 {
            world.sinks.get(&number).unwrap_or(&empty)
        } else {
            world
                .files
                .get(format!("/file{number}").as_bytes())
                .unwrap_or(&empty)
        };
        prop_assert!(found == &bytes, "transfer {} holds other bytes", number);
    }
    Ok(done)
}

fn modes() -> impl Strategy<Value = (Mode, u16)> {
    prop_oneof![
        Just((Mode::Stream, 1)),
        (1_u16..4).prop_map(|count| (Mode::Extended, count))
    ]
}

fn uploads() -> impl Strategy<Value = UploadMode> {
    prop_oneof![Just(UploadMode::Eager), Just(UploadMode::Gated)]
}

fn faults() -> impl Strategy<Value = InjectedFault> {
    prop_oneof![
        (0_usize..60).prop_map(InjectedFault::BreakData),
        (0_usize..60).prop_map(InjectedFault::EndData),
        (0_usize..60).prop_map(InjectedFault::StallData),
        (0_usize..30).prop_map(InjectedFault::File),
        (0_usize..200).prop_map(InjectedFault::BreakControl),
        (0_usize..60).prop_map(InjectedFault::Swallow),
    ]
}

/// Returns replies that replace the correct one.
fn lying() -> impl Strategy<Value = InjectedFault> {
    let texts = prop_oneof![
        Just("226 Transfer Complete.\r\n"),
        Just("150 Beginning transfer.\r\n"),
        Just("500 Command failed.\r\n"),
        Just("250 OK.\r\n350 OK.\r\n226 OK.\r\n"),
        Just("227 Entering Passive Mode (300,0,0,1,1,1)\r\n"),
        Just("229 (|||99999|)\r\n"),
        Just("112-Perf Marker\r\n 112 End.\r\n112 End.\r\n"),
        Just("111 Range Marker 9-3,x\r\n"),
        Just("421 Service not available.\r\n"),
        Just("\r\n\r\nnoise\r\n"),
        Just("213-never ends\r\n"),
    ];
    (0_usize..60, texts).prop_map(|(at, text)| InjectedFault::Lie(at, text))
}

proptest! {
    #[test]
    fn all_valid_transfers_succeed_without_a_fault(
        seed: u64, (mode, connections) in modes(), upload in uploads(), depth in 1_usize..20,
        sizes in prop::collection::vec(0_usize..2500, 1..14), mixed: bool, checked: bool,
    ) {
        let mut world = InMemorySession::new(settings(mode, connections, depth, upload), seed, InjectedFault::None);
        let list = jobs(&mut world, &sizes, mixed, checked);
        world.run(list);
        let mut done = check(&world, &sizes, mixed)?;
        done.sort_unstable();
        let expected: Vec<u64> = (0..sizes.len() as u64).filter(|number| number % 5 != 3).collect();
        prop_assert_eq!(done, expected);
        prop_assert!(world.files.keys().all(|name| !name.ends_with(b".part")));
    }

    #[test]
    fn no_fault_corrupts_a_file_or_hangs_the_session(
        seed: u64, (mode, connections) in modes(), upload in uploads(), depth in 1_usize..20,
        sizes in prop::collection::vec(0_usize..2500, 1..14), mixed: bool, checked: bool, fault in faults(),
    ) {
        let mut world = InMemorySession::new(settings(mode, connections, depth, upload), seed, fault);
        let list = jobs(&mut world, &sizes, mixed, checked);
        world.run(list);
        check(&world, &sizes, mixed)?;
    }

    #[test]
    fn an_abandoned_transfer_fails_alone_and_publishes_no_partial_file(
        seed: u64, (mode, connections) in modes(), upload in uploads(), depth in 1_usize..20,
        sizes in prop::collection::vec(0_usize..2500, 1..14), mixed: bool, steps in 0_usize..300, which: prop::sample::Index,
    ) {
        let mut world = InMemorySession::new(settings(mode, connections, depth, upload), seed, InjectedFault::None);
        let number = which.index(sizes.len()) as u64;
        world.abandons = Some((steps, number));
        let list = jobs(&mut world, &sizes, mixed, false);
        world.run(list);
        let done = check(&world, &sizes, mixed)?;
        let failures = |output: &ClientOutput| matches!(output, ClientOutput::Failed { transfer, failure } if *transfer == number && failure.reason == "cut meanwhile");
        if world.received_replies.iter().any(failures) && number % 7 != 6 {
            // The rename may have succeeded, because all bytes were stored then.
            let found = world.files.get(format!("/file{number}").as_bytes());
            prop_assert!(found.is_none_or(|found| *found == content(number, sizes[number as usize])));
        }
        for other in (0..sizes.len() as u64).filter(|&other| other != number && other % 5 != 3) {
            let failed = world.received_replies.iter().filter(|output| matches!(output, ClientOutput::Failed { .. }));
            prop_assert!(done.contains(&other), "{} failed too: {:?}", other, failed.collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_transfer_is_reported_once_for_any_server_output(
        seed: u64, (mode, connections) in modes(), upload in uploads(), depth in 1_usize..20,
        sizes in prop::collection::vec(0_usize..2500, 1..14), mixed: bool,
        fault in prop_oneof![lying(), (0_usize..60).prop_map(InjectedFault::Flip)],
    ) {
        let mut world = InMemorySession::new(settings(mode, connections, depth, upload), seed, fault);
        let list = jobs(&mut world, &sizes, mixed, false);
        world.run(list);
        let reported = |output: &&ClientOutput| matches!(output, ClientOutput::Done { .. } | ClientOutput::Failed { .. });
        prop_assert_eq!(world.received_replies.iter().filter(reported).count(), sizes.len());
    }
}

#[test]
fn a_directory_listing_is_complete_over_data_connections() {
    for (mode, connections) in [(Mode::Stream, 1), (Mode::Extended, 1), (Mode::Extended, 3)] {
        let mut world = InMemorySession::new(
            settings(mode, connections, 4, UploadMode::Eager),
            7,
            InjectedFault::None,
        );
        // A listing line cannot contain this name, and must not forge another.
        world.files.insert(b"/x\n; forged".to_vec(), Vec::new());
        for number in 0..200 {
            world
                .files
                .insert(format!("/file {number}").into_bytes(), Vec::new());
        }
        let listing = |transfer| {
            TransferJob::Get(Get {
                transfer,
                source: GetSource::Directory,
                path: Path::root(),
                size_bytes: None,
                present: ByteRanges::default(),
                stat_after: true,
            })
        };
        world.run(vec![listing(0), listing(1)]);
        for transfer in 0..2 {
            let lines = world.sinks[&transfer].split(|&byte| byte == b'\n');
            let names: Vec<_> = lines
                .filter(|line| !line.is_empty())
                .map(|line| {
                    ListEntry::parse(line.trim_ascii_end())
                        .expect("an entry")
                        .name
                })
                .collect();
            let expected: Vec<_> = world
                .files
                .keys()
                .filter(|name| !name.contains(&b'\n'))
                .map(|name| name[1..].to_vec())
                .collect();
            assert_eq!(names, expected, "{mode:?} {connections}");
        }
    }
}
