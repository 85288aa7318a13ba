//! `venturi-engine sim transfers`: columns of transfers in, columns of their ends out.

use std::io::{self, BufRead, BufWriter, Read, Write};
use std::process::ExitCode;
use std::time::Instant;

use serde::Deserialize;
use serde_json::json;
use venturi_plan::{Header, LINE_LIMIT_BYTES, Lines};
use venturi_sim::driver::columns::{Columns, Moved, Way, carry_out};
use venturi_sim::world::Assumptions;

pub(crate) const HELP: &str = r#"In: a line `{"world": {…}}`, the header of a plan, a line

  {"transfers": 2, "ways": [{"host": …, "call": …, "source": "PLACE:PATH", "source_via": "SERVICE.DOOR", "destination": …, "destination_via": …}]}

and then the columns, little-endian, each as long as there are transfers: when it is asked for (64-bit float, seconds from 0 on), the number of
its way (32-bit unsigned), its bytes (64-bit float, whole).

Out: one JSON line, and then when each transfer ended (64-bit float, seconds; not a number of one that failed). With `explain` in `world` (the
default) also what bound it for most of its time (32-bit unsigned): a number in `names` of the JSON line.

`run_s` is the time of the simulation alone, without reading and writing.

Exit codes: 0 done, 1 a result cannot be written, 2 what was asked for cannot be read or carried out."#;

/// Rows that one run may have: numbers of rows are 32 bits.
const MOST_TRANSFERS: u32 = u32::MAX - 1;
const CHUNK_BYTES: usize = 1 << 18;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct World {
    world: Assumptions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    transfers: u32,
    ways: Vec<Way>,
}

pub(crate) fn serve() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, message)) => {
            eprintln!("venturi-engine sim transfers: {message}");
            ExitCode::from(code)
        }
    }
}

fn run() -> Result<(), (u8, String)> {
    let begin = Instant::now();
    let (header, assumptions, ways, columns) =
        read(&mut io::stdin().lock()).map_err(|message| (2, message))?;
    let read_s = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let moved =
        carry_out(header, assumptions, &ways, columns).map_err(|error| (2, error.to_string()))?;
    let run_s = begin.elapsed().as_secs_f64();
    let mut out = BufWriter::with_capacity(CHUNK_BYTES, io::stdout().lock());
    write(&mut out, &moved, [read_s, run_s])
        .map_err(|error| (1, format!("cannot write the result: {error}")))
}

fn read(input: &mut impl BufRead) -> Result<(Header, Assumptions, Vec<Way>, Columns), String> {
    let world = read_line(input, "world")?;
    let World { world } =
        serde_json::from_slice(&world).map_err(|error| format!("line `world`: {error}"))?;
    let header = read_line(input, "header")?;
    let header = Lines::new(&header[..])
        .map_err(|error| error.to_string())?
        .header;
    let asked = read_line(input, "transfers")?;
    let asked: Asked =
        serde_json::from_slice(&asked).map_err(|error| format!("line `transfers`: {error}"))?;
    if asked.transfers > MOST_TRANSFERS {
        return Err(format!(
            "expected at most {MOST_TRANSFERS} transfers, found {}",
            asked.transfers
        ));
    }
    let count = asked.transfers as usize;
    let columns = Columns {
        start_s: read_column(input, count, "start_s", f64::from_le_bytes)?,
        way: read_column(input, count, "way", u32::from_le_bytes)?,
        bytes: read_column(input, count, "bytes", f64::from_le_bytes)?,
    };
    Ok((header, world, asked.ways, columns))
}

fn read_line(input: &mut impl BufRead, name: &str) -> Result<Vec<u8>, String> {
    let mut line = Vec::new();
    let mut limited = input.take(LINE_LIMIT_BYTES);
    let read = limited.read_until(b'\n', &mut line);
    read.map_err(|error| format!("line `{name}`: {error}"))?;
    if line.last() == Some(&b'\n') {
        return Ok(line);
    }
    Err(format!(
        "expected the line `{name}`, at most {LINE_LIMIT_BYTES} bytes, found {} bytes without an end",
        line.len()
    ))
}

/// A column of so many values of `SIZE` bytes; memory is taken as bytes come, not as they are announced.
fn read_column<const SIZE: usize, Value>(
    input: &mut impl Read,
    count: usize,
    name: &str,
    value_of: impl Fn([u8; SIZE]) -> Value,
) -> Result<Vec<Value>, String> {
    let mut column = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut left = count * SIZE;
    while left > 0 {
        let part = &mut chunk[..left.min(CHUNK_BYTES)];
        input.read_exact(part).map_err(|error| {
            format!("column {name}: expected {count} values of {SIZE} bytes, found an end: {error}")
        })?;
        left -= part.len();
        let values = part.as_chunks::<SIZE>().0;
        column.extend(values.iter().map(|bytes| value_of(*bytes)));
    }
    Ok(column)
}

fn write(out: &mut impl Write, moved: &Moved, [read_s, run_s]: [f64; 2]) -> io::Result<()> {
    let unknown: Vec<_> = moved
        .unknown
        .iter()
        .map(|(call, what)| json!([call, what]))
        .collect();
    let summary = json!({
        "transfers": moved.end_s.len(),
        "peak_live": moved.peak_live,
        "names": moved.names,
        "unknown": unknown,
        "read_s": read_s,
        "run_s": run_s,
    });
    writeln!(out, "{summary}")?;
    for end_s in &moved.end_s {
        out.write_all(&end_s.to_le_bytes())?;
    }
    for bound in &moved.bound {
        out.write_all(&bound.to_le_bytes())?;
    }
    out.flush()
}
