//! A server against a client that fails, stalls, cuts, reorders, repeats or lies: each misdeed at each step of a session. The session
//! ends within its patience, every command has one reply, and no file is finished that is not whole.

mod memory;
mod stranger;

use std::collections::BTreeMap;
use std::time::Duration;

use memory::policy;
use stranger::{Act, World};

const BLOCK: [&[u8]; 2] = [&[b'a'; 300], &[b'b'; 200]];

/// What it does instead, or before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Misdeed {
    Nothing,
    HangUp,
    Stall,
    Skip,
    Twice,
    Late,
    Half,
    Before(&'static str),
    LongLine,
    Flood,
    Binary,
    Noise,
    Reset,
    EndData,
    Extra,
}

const MISDEEDS: &[Misdeed] = &[
    Misdeed::HangUp,
    Misdeed::Stall,
    Misdeed::Skip,
    Misdeed::Twice,
    Misdeed::Late,
    Misdeed::Half,
    Misdeed::Before("ABOR"),
    Misdeed::Before("PORT 192,0,2,9,200,1"),
    Misdeed::Before("SCKS LENGTH 7"),
    Misdeed::Before("ALLO 1"),
    Misdeed::Before("REST 18446744073709551615"),
    Misdeed::Before("STOR /no/such"),
    Misdeed::Before("USER other"),
    Misdeed::Before("MODE S"),
    Misdeed::LongLine,
    Misdeed::Flood,
    Misdeed::Binary,
    Misdeed::Noise,
    Misdeed::Reset,
    Misdeed::EndData,
    Misdeed::Extra,
];

fn block(descriptor: u8, bytes: &[u8], offset: u64) -> Vec<u8> {
    let count = bytes.len() as u64;
    [
        &[descriptor][..],
        &count.to_be_bytes(),
        &offset.to_be_bytes(),
        bytes,
    ]
    .concat()
}

fn say(lines: &[&str]) -> Vec<Act> {
    lines
        .iter()
        .map(|line| Act::Say((*line).to_owned()))
        .collect()
}

fn honest(extended: bool) -> Vec<Act> {
    let mut acts = say(&["USER anonymous", "PASS x", "FEAT", "TYPE I"]);
    if extended {
        acts.extend(say(&["MODE E", "PASV", "STOR /a"]));
        acts.push(Act::Open);
        acts.extend(
            [
                block(0, BLOCK[0], 0),
                block(0, BLOCK[1], 300),
                block(0x48, &[], 1),
            ]
            .map(Act::Send),
        );
        acts.extend(say(&["SCKS LENGTH 500", "STOR /b"]));
        acts.extend([block(0, BLOCK[1], 300), block(0x48, &[], 1)].map(Act::Send));
        acts.extend(say(&[
            "PORT 192,0,2,1,200,1",
            "RETR /c",
            "MLSD /",
            "RETR /none",
        ]));
    } else {
        acts.extend(say(&["PASV", "STOR /a"]));
        acts.push(Act::Open);
        acts.extend([BLOCK[0].to_vec(), BLOCK[1].to_vec()].map(Act::Send));
        acts.push(Act::Close { cleanly: true });
        acts.extend(say(&["PORT 192,0,2,1,200,1", "RETR /c"]));
    }
    acts.extend(say(&["SIZE /a", "RNFR /a", "RNTO /z", "MLSC /", "QUIT"]));
    acts
}

/// Carries the acts out, with a misdeed at one of them.
fn run(world: &mut World, acts: &[Act], at: usize, misdeed: Misdeed) {
    let mut acts = acts.to_vec();
    if misdeed == Misdeed::Late && at + 1 < acts.len() {
        acts.swap(at, at + 1);
    }
    for (number, act) in acts.iter().enumerate() {
        if number != at {
            world.act(act);
            continue;
        }
        match misdeed {
            Misdeed::HangUp => {
                world.server.handle_closed();
                world.gone = true;
                world.unread.clear();
            }
            Misdeed::Stall => return world.settle(),
            Misdeed::Skip => continue,
            Misdeed::Half => {
                match act {
                    Act::Say(line) => world.write(&line.as_bytes()[..line.len() / 2]),
                    Act::Send(bytes) => world.act(&Act::Send(bytes[..bytes.len() / 2].to_vec())),
                    _ => {}
                }
                return world.settle();
            }
            Misdeed::Before(line) => world.act(&Act::Say(line.to_owned())),
            Misdeed::LongLine => world.write(&[&vec![b'x'; 100_000][..], b"\r\n"].concat()),
            Misdeed::Flood => world.write("NOOP\r\n".repeat(3000).as_bytes()),
            Misdeed::Binary => world.write(&(0..=255).chain([b'\n']).collect::<Vec<u8>>()),
            Misdeed::Noise => world.act(&Act::Send(vec![0xff; 40])),
            Misdeed::Reset => world.act(&Act::Close { cleanly: false }),
            Misdeed::EndData => world.act(&Act::Close { cleanly: true }),
            Misdeed::Extra => world.open_link(),
            Misdeed::Twice => world.act(act),
            Misdeed::Late | Misdeed::Nothing => {}
        }
        world.act(act);
    }
}

/// What the client itself takes for a whole file: bytes that it left out, sent twice, ended early, or sent for another file.
fn is_own_fault(misdeed: Misdeed) -> bool {
    use Misdeed as M;
    matches!(
        misdeed,
        M::Skip
            | M::Twice
            | M::Late
            | M::EndData
            | M::Noise
            | M::Before("MODE S" | "REST 18446744073709551615")
    )
}

fn check(extended: bool) {
    let acts = honest(extended);
    let mut wrong = Vec::new();
    let whole = BTreeMap::from([
        (b"/a".to_vec(), BLOCK.concat()),
        (b"/b".to_vec(), [&[0; 300][..], BLOCK[1]].concat()),
    ]);
    for at in 0..acts.len() {
        for &misdeed in [Misdeed::Nothing].iter().chain(MISDEEDS) {
            let mut world = World::new();
            run(&mut world, &acts, at, misdeed);
            let mut faults = Vec::new();
            if !world.fall_silent() {
                faults.push("no end".to_owned());
            }
            let patience = policy().data_patience + policy().idle_patience + Duration::from_secs(1);
            if world.now > patience {
                faults.push(format!("it took {:?}", world.now));
            }
            if world.finals > world.commands + 2 {
                faults.push(format!(
                    "{} replies to {} commands",
                    world.finals, world.commands
                ));
            }
            for path in &world.finished {
                let known = whole
                    .get(path)
                    .is_some_and(|whole| *whole == world.files[path]);
                if !known && !is_own_fault(misdeed) {
                    faults.push(format!("{} is finished and not whole", path.escape_ascii()));
                }
            }
            let all = if extended { 2 } else { 1 };
            if misdeed == Misdeed::Nothing
                && (world.finished.len() != all || world.finals != world.commands + 1)
            {
                faults.push("an honest client is not served".to_owned());
            }
            if !faults.is_empty() {
                wrong.push(format!("{misdeed:?} at {at} ({:?}): {faults:?}", acts[at]));
            }
        }
    }
    let sessions = acts.len() * (MISDEEDS.len() + 1);
    println!("{} steps, {sessions} sessions", acts.len());
    assert!(
        wrong.is_empty(),
        "{} of {sessions}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_misdeed_of_a_client_at_every_step_of_mode_s() {
    check(false);
}

#[test]
fn every_misdeed_of_a_client_at_every_step_of_mode_e() {
    check(true);
}
