//! `venturi-engine sim flows`: a file with flows in, their ends out.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use nix::time::{ClockId, clock_gettime};
use serde_json::json;
use venturi_sim::flows::{Outcome, Settings, Workload, carry_out};

/// Which flows, and how.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The workload, `-` for stdin
    file: PathBuf,
    /// By the definition, everything anew at each event: slow, to be believed
    #[arg(long)]
    reference: bool,
    /// Bytes of each flow under way at most: its rate is at most W / (2 · latency)
    #[arg(long, value_name = "BYTES")]
    window: Option<f64>,
    /// Write when each flow (of a batch: each job) ended, in seconds, one a line
    #[arg(long, value_name = "OUT")]
    ends: Option<PathBuf>,
    /// Write the flows of a closed workload as open ones, at the times at which this run asked for them
    #[arg(long, value_name = "OUT")]
    replay: Option<PathBuf>,
}

pub(crate) const HELP: &str = r#"Two flows of 1 GB and 2 GB over one link of 1 GB/s, both from 0 s on, end at 2 s and at 3 s:

  venturi-engine sim flows - --ends /dev/stderr <<'END'
  1
  1e9 0
  2
  1 0 0
  0 1 0
  open 2 2
  0 0 1 1e9
  0 0 1 2e9
  END

The file: the number of links, and of each `CAPACITY LATENCY` (bytes/s, seconds); the number of hosts, and of each `N LINK … M LINK …`,
its links out and in; then one of
  open HOSTS FLOWS        and of each flow, by time, `START FROM TO BYTES`
  closed AGENTS FLOWS     and of each flow `AGENT DELAY FROM TO BYTES`: so long after the agent's last one has ended
  batch SLOTS JOBS CHUNKS SERVER DISK CORES    and of each job `BYTES SECONDS` of a chunk: read from the server's disk, then computed with
A flow first takes the latency of its way, and then shares its links max-min fairly.

`run_s` is the time of the simulation alone, without reading and writing, `cpu_s` what the processor gave it; `peak_bytes` is the memory of all of it. Closed
workloads are chaotic: compare solvers on what `--replay` writes.

Exit codes: 0 done, 1 a result cannot be written, 2 the workload cannot be read or carried out."#;

pub(crate) fn serve(arguments: &Arguments) -> ExitCode {
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, message)) => {
            eprintln!("venturi-engine sim flows: {message}");
            ExitCode::from(code)
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), (u8, String)> {
    let file = arguments.file.display();
    if let Some(window) = arguments
        .window
        .filter(|window| !(window.is_finite() && *window > 0.0))
    {
        return Err((
            2,
            format!("--window: expected bytes above 0, found {window}"),
        ));
    }
    let begin = Instant::now();
    let workload =
        Workload::parse(open(&arguments.file).map_err(|error| (2, format!("{file}: {error}")))?)
            .map_err(|error| (2, format!("{file}: {error}")))?;
    let read_s = begin.elapsed().as_secs_f64();
    let settings = Settings {
        window_bytes: arguments.window,
        reference: arguments.reference,
    };
    let (begin, begin_cpu_s) = (Instant::now(), cpu_s());
    let outcome =
        carry_out(&workload, settings).map_err(|error| (2, format!("{file}: {error}")))?;
    let run_s = begin.elapsed().as_secs_f64();
    let used_s = cpu_s()
        .zip(begin_cpu_s)
        .map(|(end_s, begin_s)| end_s - begin_s);
    if let Some(path) = &arguments.ends {
        write(path, |out| {
            outcome
                .end_s
                .iter()
                .try_for_each(|end_s| writeln!(out, "{end_s:?}"))
        })?;
    }
    if let Some(path) = &arguments.replay {
        let replay = workload.replay(&outcome).ok_or_else(|| {
            (
                2,
                "--replay: expected a list of flows (open, closed), found a batch of jobs"
                    .to_owned(),
            )
        })?;
        write(path, |out| replay.write(out))?;
    }
    write(Path::new("-"), |out| {
        writeln!(
            out,
            "{}",
            summary(&workload, &outcome, [Some(read_s), Some(run_s), used_s])
        )
    })
}

/// Processor time of this process so far, in seconds: what other work on the machine leaves alone. `None` where the kernel does not tell.
fn cpu_s() -> Option<f64> {
    let told = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).ok()?;
    Some(told.tv_sec() as f64 + 1e-9 * told.tv_nsec() as f64)
}

/// The most memory that this process has had at once, in bytes. `None` where the kernel does not tell.
fn peak_bytes() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = told.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    Ok(Box::new(BufReader::with_capacity(
        1 << 20,
        File::open(path)?,
    )))
}

fn write(
    path: &Path,
    body: impl FnOnce(&mut Box<dyn Write>) -> io::Result<()>,
) -> Result<(), (u8, String)> {
    let out: io::Result<Box<dyn Write>> = if path == Path::new("-") {
        Ok(Box::new(io::stdout().lock()))
    } else {
        File::create(path).map(|file| Box::new(BufWriter::new(file)) as Box<dyn Write>)
    };
    let written = out.and_then(|mut out| body(&mut out).and_then(|()| out.flush()));
    written.map_err(|error| (1, format!("cannot write to {}: {error}", path.display())))
}

fn summary(
    workload: &Workload,
    outcome: &Outcome,
    [read_s, run_s, cpu_s]: [Option<f64>; 3],
) -> serde_json::Value {
    let end_s = outcome.end_s.iter().copied().fold(0.0, f64::max);
    json!({
        "activities": workload.activities(),
        "end_s": end_s,
        "read_s": read_s,
        "run_s": run_s,
        "cpu_s": cpu_s,
        "peak_live": outcome.peak_live,
        "peak_bytes": peak_bytes(),
        "changes": outcome.work.changes,
        "regions": outcome.work.regions,
        "classes": outcome.work.classes,
    })
}
