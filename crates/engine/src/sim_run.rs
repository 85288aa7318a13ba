//! `venturi-engine sim run`: a plan on stdin, what came of it in virtual time on stdout, one JSON object a line.

use std::io::{self, BufRead, BufWriter, Cursor, Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Deserialize;
use venturi_plan::{ActorLine, Header, LINE_LIMIT_BYTES, Lines};
use venturi_sim::driver::{Line, Progress, Simulation};
use venturi_sim::world::Assumptions;

/// Time between two records of progress, and instants of virtual time between two looks at the clock.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
const STEPS_A_LOOK: u64 = 1024;

/// The plan or its testbed does not allow to go on.
const REFUSED: u8 = 2;

/// The line that may stand before the plan.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct World {
    world: Assumptions,
}

/// Carries out the plan on stdin.
pub(crate) fn serve() -> ExitCode {
    let mut out = BufWriter::with_capacity(1 << 18, io::stdout().lock());
    match run(io::stdin().lock(), &mut out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ended::Reader) => ExitCode::FAILURE,
        Err(Ended::Refused(message)) => {
            let fatal = serde_json::json!({"host": "", "record": "fatal", "message": message});
            let _ = writeln!(out, "{fatal}").and_then(|()| out.flush());
            REFUSED.into()
        }
    }
}

enum Ended {
    /// Nobody reads any more.
    Reader,
    Refused(String),
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        Self::Reader
    }
}

fn refused(error: impl std::fmt::Display) -> Ended {
    Ended::Refused(error.to_string())
}

fn run(input: impl BufRead, out: &mut impl Write) -> Result<(), Ended> {
    let (header, lines, assumptions) = read(input)?;
    let mut simulation = Simulation::new(header, lines, assumptions).map_err(refused)?;
    let mut text = Vec::new();
    let (mut said, mut steps) = (Instant::now(), 0_u64);
    loop {
        let goes_on = simulation.step();
        steps += 1;
        if steps.is_multiple_of(STEPS_A_LOOK) && said.elapsed() >= PROGRESS_INTERVAL {
            said = Instant::now();
            tell(simulation.progress(), out)?;
        }
        // What was said before an error has happened.
        while let Some(line) = simulation.poll_line() {
            emit(&line, &mut text, out)?;
        }
        if !goes_on.map_err(refused)? {
            return Ok(out.flush()?);
        }
    }
}

/// Says how far it is, for somebody who waits.
fn tell(progress: Progress, out: &mut impl Write) -> Result<(), Ended> {
    let Progress {
        time_s,
        until_s,
        transfers,
        live,
    } = progress;
    let line = serde_json::json!({"host": "", "record": "progress", "time_s": time_s, "until_s": until_s,
        "transfers": transfers, "live": live});
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn read(mut input: impl BufRead) -> Result<(Header, Vec<ActorLine>, Assumptions), Ended> {
    let mut first = Vec::new();
    let read = (&mut input)
        .take(LINE_LIMIT_BYTES)
        .read_until(b'\n', &mut first);
    read.map_err(refused)?;
    let mut assumptions = Assumptions::default();
    if first.trim_ascii_start().starts_with(br#"{"world""#) {
        let world: World = serde_json::from_slice(&first)
            .map_err(|error| refused(format!("line `world`: {error}")))?;
        assumptions = world.world;
        first.clear();
    }
    let mut lines = Lines::new(Cursor::new(first).chain(input)).map_err(refused)?;
    let actors = lines.by_ref().collect::<Result<_, _>>().map_err(refused)?;
    Ok((lines.header, actors, assumptions))
}

fn emit(line: &Line, text: &mut Vec<u8>, out: &mut impl Write) -> Result<(), Ended> {
    text.clear();
    serde_json::to_writer(&mut *text, line).map_err(refused)?;
    text.push(b'\n');
    Ok(out.write_all(text)?)
}
