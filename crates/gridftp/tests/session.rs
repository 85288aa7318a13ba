//! The whole client against the whole server, in memory: any order, any cut of the bytes, any one thing going wrong.

mod content;
mod memory;

use std::time::Duration;

use content::content;
use memory::{Fault, World};
use proptest::prelude::*;
use venturi_gridftp::client::{Get, Job, Login, Output, Put, Settings, Source, Upload};
use venturi_gridftp::{ByteRanges, Entry, Mode, Path};

fn path(text: String) -> Path {
    Path::new(text).expect("a path")
}

fn settings(mode: Mode, connections: u16, depth: usize, upload: Upload) -> Settings {
    Settings {
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
        patience: Duration::from_secs(120),
    }
}

/// Uploads and downloads in turns; every fifth cannot succeed.
fn jobs(world: &mut World, sizes: &[usize], mixed: bool, checked: bool) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (number, &size) in (0_u64..).zip(sizes) {
        let bytes = content(number, size);
        let refused = number % 5 == 3;
        if mixed && number % 3 == 0 {
            let name = if refused {
                format!("/none{number}")
            } else {
                format!("/source{number}")
            };
            world
                .files
                .insert(format!("/source{number}").into_bytes(), bytes);
            jobs.push(Job::Get(Get {
                transfer: number,
                source: Source::File,
                path: path(name),
                size_bytes: Some(size as u64),
                present: ByteRanges::default(),
                see: number % 2 == 0,
            }));
        } else {
            world.sources.insert(number, bytes);
            let name = if refused {
                format!("/no/such/{number}")
            } else {
                format!("/file{number}")
            };
            jobs.push(Job::Put(Put {
                transfer: number,
                path: path(name.clone()),
                temporary: (number % 7 != 6).then(|| path(format!("{name}.part"))),
                size_bytes: size as u64,
                checksum: checked.then(|| ("LENGTH".to_owned(), size.to_string())),
                modify_s: (number % 2 == 0).then_some(1_700_000_000),
                present: ByteRanges::default(),
                part: None,
                goes_on: false,
            }));
        }
    }
    jobs
}

/// What was said to be done is done, and everything was said to be something.
fn check(world: &World, sizes: &[usize], mixed: bool) -> Result<Vec<u64>, TestCaseError> {
    let mut done = Vec::new();
    let mut told = vec![0; sizes.len()];
    for output in &world.heard {
        match output {
            Output::Done { transfer, .. } => {
                done.push(*transfer);
                told[*transfer as usize] += 1;
            }
            Output::Failed { transfer, .. } => told[*transfer as usize] += 1,
            _ => {}
        }
    }
    prop_assert!(told.iter().all(|&count| count == 1), "told {:?}", told);
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

fn uploads() -> impl Strategy<Value = Upload> {
    prop_oneof![Just(Upload::Eager), Just(Upload::Gated)]
}

fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![
        (0_usize..60).prop_map(Fault::BreakData),
        (0_usize..60).prop_map(Fault::EndData),
        (0_usize..60).prop_map(Fault::StallData),
        (0_usize..30).prop_map(Fault::File),
        (0_usize..200).prop_map(Fault::BreakControl),
        (0_usize..60).prop_map(Fault::Swallow),
    ]
}

/// Replies that come instead of the right one.
fn lies() -> impl Strategy<Value = Fault> {
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
    (0_usize..60, texts).prop_map(|(at, text)| Fault::Lie(at, text))
}

proptest! {
    #[test]
    fn without_a_fault_everything_that_can_succeed_does(
        seed: u64, (mode, connections) in modes(), upload in uploads(), depth in 1_usize..20,
        sizes in prop::collection::vec(0_usize..2500, 1..14), mixed: bool, checked: bool,
    ) {
        let mut world = World::new(settings(mode, connections, depth, upload), seed, Fault::None);
        let list = jobs(&mut world, &sizes, mixed, checked);
        world.carry_out(list);
        let mut done = check(&world, &sizes, mixed)?;
        done.sort_unstable();
        let expected: Vec<u64> = (0..sizes.len() as u64).filter(|number| number % 5 != 3).collect();
        prop_assert_eq!(done, expected);
        prop_assert!(world.files.keys().all(|name| !name.ends_with(b".part")));
    }

    #[test]
    fn whatever_fails_no_file_has_a_wrong_byte_and_nothing_hangs(
        seed: u64, (mode, connections) in modes(), upload in uploads(), depth in 1_usize..20,
        sizes in prop::collection::vec(0_usize..2500, 1..14), mixed: bool, checked: bool, fault in faults(),
    ) {
        let mut world = World::new(settings(mode, connections, depth, upload), seed, fault);
        let list = jobs(&mut world, &sizes, mixed, checked);
        world.carry_out(list);
        check(&world, &sizes, mixed)?;
    }

    #[test]
    fn a_transfer_that_is_given_up_at_any_moment_fails_alone_and_no_part_of_it_has_its_name(
        seed: u64, (mode, connections) in modes(), upload in uploads(), depth in 1_usize..20,
        sizes in prop::collection::vec(0_usize..2500, 1..14), mixed: bool, steps in 0_usize..300, which: prop::sample::Index,
    ) {
        let mut world = World::new(settings(mode, connections, depth, upload), seed, Fault::None);
        let number = which.index(sizes.len()) as u64;
        world.gives_up = Some((steps, number));
        let list = jobs(&mut world, &sizes, mixed, false);
        world.carry_out(list);
        let done = check(&world, &sizes, mixed)?;
        let given_up = |output: &Output| matches!(output, Output::Failed { transfer, failure } if *transfer == number && failure.reason == "cut meanwhile");
        if world.heard.iter().any(given_up) && number % 7 != 6 {
            // Where it was about to get its name, it may have it: all its bytes are there then.
            let found = world.files.get(format!("/file{number}").as_bytes());
            prop_assert!(found.is_none_or(|found| *found == content(number, sizes[number as usize])));
        }
        for other in (0..sizes.len() as u64).filter(|&other| other != number && other % 5 != 3) {
            let failed = world.heard.iter().filter(|output| matches!(output, Output::Failed { .. }));
            prop_assert!(done.contains(&other), "{} failed too: {:?}", other, failed.collect::<Vec<_>>());
        }
    }

    #[test]
    fn whatever_a_server_says_nothing_hangs_and_every_transfer_is_told_of_once(
        seed: u64, (mode, connections) in modes(), upload in uploads(), depth in 1_usize..20,
        sizes in prop::collection::vec(0_usize..2500, 1..14), mixed: bool,
        fault in prop_oneof![lies(), (0_usize..60).prop_map(Fault::Flip)],
    ) {
        let mut world = World::new(settings(mode, connections, depth, upload), seed, fault);
        let list = jobs(&mut world, &sizes, mixed, false);
        world.carry_out(list);
        let told = |output: &&Output| matches!(output, Output::Done { .. } | Output::Failed { .. });
        prop_assert_eq!(world.heard.iter().filter(told).count(), sizes.len());
    }
}

#[test]
fn a_directory_comes_whole_over_data_connections() {
    for (mode, connections) in [(Mode::Stream, 1), (Mode::Extended, 1), (Mode::Extended, 3)] {
        let mut world = World::new(
            settings(mode, connections, 4, Upload::Eager),
            7,
            Fault::None,
        );
        // A line cannot tell this one; nor may it tell of another.
        world.files.insert(b"/x\n; forged".to_vec(), Vec::new());
        for number in 0..200 {
            world
                .files
                .insert(format!("/file {number}").into_bytes(), Vec::new());
        }
        let listing = |transfer| {
            Job::Get(Get {
                transfer,
                source: Source::Directory,
                path: Path::root(),
                size_bytes: None,
                present: ByteRanges::default(),
                see: true,
            })
        };
        world.carry_out(vec![listing(0), listing(1)]);
        for transfer in 0..2 {
            let lines = world.sinks[&transfer].split(|&byte| byte == b'\n');
            let names: Vec<_> = lines
                .filter(|line| !line.is_empty())
                .map(|line| Entry::parse(line.trim_ascii_end()).expect("an entry").name)
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
