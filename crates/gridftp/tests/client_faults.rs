//! A server against a faulty client that fails, stalls, truncates, reorders, repeats or lies.
//! Injects each fault at each step of a session. The session ends within its timeout, every command
//! has one reply, and no incomplete file is finished.

mod faulty_client;
mod memory;

use std::collections::BTreeMap;
use std::time::Duration;

use faulty_client::{Act, ClientFaultRun};
use memory::policy;

const BLOCK: [&[u8]; 2] = [&[b'a'; 300], &[b'b'; 200]];

/// Fault of the client, instead of a step or before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientFault {
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

const FAULTS: &[ClientFault] = &[
    ClientFault::HangUp,
    ClientFault::Stall,
    ClientFault::Skip,
    ClientFault::Twice,
    ClientFault::Late,
    ClientFault::Half,
    ClientFault::Before("ABOR"),
    ClientFault::Before("PORT 192,0,2,9,200,1"),
    ClientFault::Before("SCKS LENGTH 7"),
    ClientFault::Before("ALLO 1"),
    ClientFault::Before("REST 18446744073709551615"),
    ClientFault::Before("STOR /no/such"),
    ClientFault::Before("USER other"),
    ClientFault::Before("MODE S"),
    ClientFault::LongLine,
    ClientFault::Flood,
    ClientFault::Binary,
    ClientFault::Noise,
    ClientFault::Reset,
    ClientFault::EndData,
    ClientFault::Extra,
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

fn send(lines: &[&str]) -> Vec<Act> {
    lines
        .iter()
        .map(|line| Act::Reply((*line).to_owned()))
        .collect()
}

fn honest(extended: bool) -> Vec<Act> {
    let mut acts = send(&["USER anonymous", "PASS x", "FEAT", "TYPE I"]);
    if extended {
        acts.extend(send(&["MODE E", "PASV", "STOR /a"]));
        acts.push(Act::Open);
        acts.extend(
            [
                block(0, BLOCK[0], 0),
                block(0, BLOCK[1], 300),
                block(0x48, &[], 1),
            ]
            .map(Act::Send),
        );
        acts.extend(send(&["SCKS LENGTH 500", "STOR /b"]));
        acts.extend([block(0, BLOCK[1], 300), block(0x48, &[], 1)].map(Act::Send));
        acts.extend(send(&[
            "PORT 192,0,2,1,200,1",
            "RETR /c",
            "MLSD /",
            "RETR /none",
        ]));
    } else {
        acts.extend(send(&["PASV", "STOR /a"]));
        acts.push(Act::Open);
        acts.extend([BLOCK[0].to_vec(), BLOCK[1].to_vec()].map(Act::Send));
        acts.push(Act::Close { cleanly: true });
        acts.extend(send(&["PORT 192,0,2,1,200,1", "RETR /c"]));
    }
    acts.extend(send(&["SIZE /a", "RNFR /a", "RNTO /z", "MLSC /", "QUIT"]));
    acts
}

/// Executes the acts, with a fault at one of them.
fn run(world: &mut ClientFaultRun, acts: &[Act], at: usize, fault: ClientFault) {
    let mut acts = acts.to_vec();
    if fault == ClientFault::Late && at + 1 < acts.len() {
        acts.swap(at, at + 1);
    }
    for (number, act) in acts.iter().enumerate() {
        if number != at {
            world.act(act);
            continue;
        }
        match fault {
            ClientFault::HangUp => {
                world.server.handle_closed();
                world.gone = true;
                world.unread.clear();
            }
            ClientFault::Stall => return world.finish(),
            ClientFault::Skip => continue,
            ClientFault::Half => {
                match act {
                    Act::Reply(line) => world.write(&line.as_bytes()[..line.len() / 2]),
                    Act::Send(bytes) => world.act(&Act::Send(bytes[..bytes.len() / 2].to_vec())),
                    _ => {}
                }
                return world.finish();
            }
            ClientFault::Before(line) => world.act(&Act::Reply(line.to_owned())),
            ClientFault::LongLine => world.write(&[&vec![b'x'; 100_000][..], b"\r\n"].concat()),
            ClientFault::Flood => world.write("NOOP\r\n".repeat(3000).as_bytes()),
            ClientFault::Binary => world.write(&(0..=255).chain([b'\n']).collect::<Vec<u8>>()),
            ClientFault::Noise => world.act(&Act::Send(vec![0xff; 40])),
            ClientFault::Reset => world.act(&Act::Close { cleanly: false }),
            ClientFault::EndData => world.act(&Act::Close { cleanly: true }),
            ClientFault::Extra => world.open_link(),
            ClientFault::Twice => world.act(act),
            ClientFault::Late | ClientFault::Nothing => {}
        }
        world.act(act);
    }
}

/// Returns `true` if the client itself considers the file complete: it omitted bytes, sent them
/// twice, ended early, or sent bytes of another file.
fn is_own_fault(fault: ClientFault) -> bool {
    use ClientFault as M;
    matches!(
        fault,
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
        for &fault in [ClientFault::Nothing].iter().chain(FAULTS) {
            let mut world = ClientFaultRun::new();
            run(&mut world, &acts, at, fault);
            let mut faults = Vec::new();
            if !world.fall_silent() {
                faults.push("no end".to_owned());
            }
            let stall_timeout =
                policy().stall_timeout + policy().idle_timeout + Duration::from_secs(1);
            if world.now > stall_timeout {
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
                if !known && !is_own_fault(fault) {
                    faults.push(format!("{} is finished and not whole", path.escape_ascii()));
                }
            }
            let all = if extended { 2 } else { 1 };
            if fault == ClientFault::Nothing
                && (world.finished.len() != all || world.finals != world.commands + 1)
            {
                faults.push("an honest client is not served".to_owned());
            }
            if !faults.is_empty() {
                wrong.push(format!("{fault:?} at {at} ({:?}): {faults:?}", acts[at]));
            }
        }
    }
    let sessions = acts.len() * (FAULTS.len() + 1);
    println!("{} steps, {sessions} sessions", acts.len());
    assert!(
        wrong.is_empty(),
        "{} of {sessions}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_client_fault_is_handled_at_every_step_of_mode_s() {
    check(false);
}

#[test]
fn every_client_fault_is_handled_at_every_step_of_mode_e() {
    check(true);
}
