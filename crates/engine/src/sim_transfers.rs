//! `venturi-engine sim transfers`: reads columns of transfers, writes columns of their end times.

use std::io::{self, BufRead, BufWriter, Read, Write};
use std::process::ExitCode;
use std::time::Instant;

use serde::Deserialize;
use serde_json::json;
use venturi_plan::{ActorLines, Header, LINE_LIMIT_BYTES};
use venturi_sim::driver::columns::{TransferColumns, TransferResults, TransferRow, simulate};
use venturi_sim::world::Assumptions;

pub(crate) const HELP: &str = r#"Input: a line `{"world": {…}}`, the header of a plan, and this line:

  {"transfers": 2, "routes": [{"host": …, "call": …, "source": "STORAGE:PATH", "source_via": "SERVICE/SERVICE_PORT", "destination": …, "destination_via": …}]}

Then three columns follow, little-endian, with one value per transfer: the requested start (64-bit float, seconds, at least 0), the index in
`routes` (32-bit unsigned), and the bytes (64-bit float, a whole number).

Output: one JSON line, then a column with the end of each transfer (64-bit float, seconds; NaN if the transfer failed). If `explain` in
`world` is true (default), a second column follows with the main bottleneck of each transfer (32-bit unsigned): an index in `names` of the
JSON line.

`run_s` is the time of the simulation, without input and output.

Exit codes: 0 done; 1 cannot write a result; 2 cannot read or run the input."#;

/// Maximum number of rows: their indices have 32 bits.
const MAX_TRANSFERS: u32 = u32::MAX - 1;
const CHUNK_BYTES: usize = 1 << 18;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorldLine {
    world: Assumptions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TransfersRequest {
    transfers: u32,
    routes: Vec<TransferRow>,
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
    let started = Instant::now();
    let (header, assumptions, routes, columns) =
        read(&mut io::stdin().lock()).map_err(|message| (2, message))?;
    let read_s = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let results =
        simulate(header, assumptions, &routes, columns).map_err(|error| (2, error.to_string()))?;
    let run_s = started.elapsed().as_secs_f64();
    let mut out = BufWriter::with_capacity(CHUNK_BYTES, io::stdout().lock());
    write(&mut out, &results, [read_s, run_s])
        .map_err(|error| (1, format!("cannot write the result: {error}")))
}

fn read(
    input: &mut impl BufRead,
) -> Result<(Header, Assumptions, Vec<TransferRow>, TransferColumns), String> {
    let world = read_line(input, "world")?;
    let WorldLine { world } =
        serde_json::from_slice(&world).map_err(|error| format!("line `world`: {error}"))?;
    let header = read_line(input, "header")?;
    let header = ActorLines::new(&header[..])
        .map_err(|error| error.to_string())?
        .header;
    let request = read_line(input, "transfers")?;
    let request: TransfersRequest =
        serde_json::from_slice(&request).map_err(|error| format!("line `transfers`: {error}"))?;
    if request.transfers > MAX_TRANSFERS {
        return Err(format!(
            "expected at most {MAX_TRANSFERS} transfers, found {}",
            request.transfers
        ));
    }
    let count = request.transfers as usize;
    let columns = TransferColumns {
        start_s: read_column(input, count, "start_s", f64::from_le_bytes)?,
        route: read_column(input, count, "route", u32::from_le_bytes)?,
        bytes: read_column(input, count, "bytes", f64::from_le_bytes)?,
    };
    Ok((header, world, request.routes, columns))
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
        "expected the line `{name}` of at most {LINE_LIMIT_BYTES} bytes, found {} bytes without a newline; add the line",
        line.len()
    ))
}

/// Read a column of `count` values of `SIZE` bytes. Memory grows with the bytes that arrive, not with `count`.
fn read_column<const SIZE: usize, Value>(
    input: &mut impl Read,
    count: usize,
    name: &str,
    value_of: impl Fn([u8; SIZE]) -> Value,
) -> Result<Vec<Value>, String> {
    let mut column = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut remaining = count * SIZE;
    while remaining > 0 {
        let part = &mut chunk[..remaining.min(CHUNK_BYTES)];
        input.read_exact(part).map_err(|error| {
            format!("column {name}: expected {count} values of {SIZE} bytes, found the end of the input: {error}")
        })?;
        remaining -= part.len();
        let values = part.as_chunks::<SIZE>().0;
        column.extend(values.iter().map(|bytes| value_of(*bytes)));
    }
    Ok(column)
}

fn write(
    out: &mut impl Write,
    results: &TransferResults,
    [read_s, run_s]: [f64; 2],
) -> io::Result<()> {
    let unknown: Vec<_> = results
        .unknown
        .iter()
        .map(|(call, what)| json!([call, what]))
        .collect();
    let summary = json!({
        "transfers": results.end_s.len(),
        "peak_live": results.peak_live,
        "names": results.names,
        "unknown": unknown,
        "read_s": read_s,
        "run_s": run_s,
    });
    writeln!(out, "{summary}")?;
    for end_s in &results.end_s {
        out.write_all(&end_s.to_le_bytes())?;
    }
    for bottleneck in &results.bottleneck {
        out.write_all(&bottleneck.to_le_bytes())?;
    }
    out.flush()
}
