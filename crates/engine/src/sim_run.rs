//! `venturi-engine sim run`: reads a plan from stdin, writes its results in virtual time to stdout, one JSON object per line.

use std::io::{self, BufRead, BufWriter, Cursor, Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Deserialize;
use venturi_plan::{ActorLine, ActorLines, Header, LINE_LIMIT_BYTES};
use venturi_sim::driver::{SimLine, SimProgress, Simulation};
use venturi_sim::world::Assumptions;

/// Time between two progress records, and simulation steps between two reads of the clock.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
const STEPS_PER_POLL: u64 = 1024;

/// Exit code: the plan or its testbed is unusable.
const REJECTED: u8 = 2;

/// Optional line before the plan.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorldLine {
    world: Assumptions,
}

/// Run the plan on stdin.
pub(crate) fn serve() -> ExitCode {
    let mut out = BufWriter::with_capacity(1 << 18, io::stdout().lock());
    match run(io::stdin().lock(), &mut out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(RunError::Reader) => ExitCode::FAILURE,
        Err(RunError::Rejected(message)) => {
            let fatal = serde_json::json!({"host": "", "record": "fatal", "message": message});
            let _ = writeln!(out, "{fatal}").and_then(|()| out.flush());
            REJECTED.into()
        }
    }
}

enum RunError {
    /// The reader of stdout has exited.
    Reader,
    Rejected(String),
}

impl From<io::Error> for RunError {
    fn from(_: io::Error) -> Self {
        Self::Reader
    }
}

fn rejected(error: impl std::fmt::Display) -> RunError {
    RunError::Rejected(error.to_string())
}

fn run(input: impl BufRead, out: &mut impl Write) -> Result<(), RunError> {
    let (header, lines, assumptions) = read(input)?;
    let mut simulation = Simulation::new(header, lines, assumptions).map_err(rejected)?;
    let mut text = Vec::new();
    let (mut reported, mut steps) = (Instant::now(), 0_u64);
    loop {
        let has_more = simulation.step();
        steps += 1;
        if steps.is_multiple_of(STEPS_PER_POLL) && reported.elapsed() >= PROGRESS_INTERVAL {
            reported = Instant::now();
            report(simulation.progress(), out)?;
        }
        // Records before an error are valid.
        while let Some(line) = simulation.poll_line() {
            emit(&line, &mut text, out)?;
        }
        if !has_more.map_err(rejected)? {
            return Ok(out.flush()?);
        }
    }
}

/// Write a progress record.
fn report(progress: SimProgress, out: &mut impl Write) -> Result<(), RunError> {
    let SimProgress {
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

fn read(mut input: impl BufRead) -> Result<(Header, Vec<ActorLine>, Assumptions), RunError> {
    let mut first = Vec::new();
    let read = (&mut input)
        .take(LINE_LIMIT_BYTES)
        .read_until(b'\n', &mut first);
    read.map_err(rejected)?;
    let mut assumptions = Assumptions::default();
    if first.trim_ascii_start().starts_with(br#"{"world""#) {
        let world: WorldLine = serde_json::from_slice(&first)
            .map_err(|error| rejected(format!("line `world`: {error}")))?;
        assumptions = world.world;
        first.clear();
    }
    let mut lines = ActorLines::new(Cursor::new(first).chain(input)).map_err(rejected)?;
    let actors = lines.by_ref().collect::<Result<_, _>>().map_err(rejected)?;
    Ok((lines.header, actors, assumptions))
}

fn emit(line: &SimLine, text: &mut Vec<u8>, out: &mut impl Write) -> Result<(), RunError> {
    text.clear();
    serde_json::to_writer(&mut *text, line).map_err(rejected)?;
    text.push(b'\n');
    Ok(out.write_all(text)?)
}
