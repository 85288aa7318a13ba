//! `venturi-engine sim flows`: reads flows from a file, writes their end times.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use nix::time::{ClockId, clock_gettime};
use serde_json::json;
use venturi_sim::flows::{self, FlowSettings, Workload, WorkloadResult};

/// Options of `sim flows`.
#[derive(Debug, Args)]
pub(crate) struct FlowsArgs {
    /// File with the workload; `-` for stdin
    file: PathBuf,
    /// Use the reference solver, which solves all rates again at each event: slow, for comparison with the fast solver
    #[arg(long)]
    reference: bool,
    /// Window W of each flow, in bytes: limits its rate to W / (2 · latency)
    #[arg(long, value_name = "BYTES")]
    window: Option<f64>,
    /// Write the end time of each flow to this file, in seconds, one per line; of a batch, the end time of each job
    #[arg(long, value_name = "OUT")]
    ends: Option<PathBuf>,
    /// Write the flows of a closed workload to this file as an open workload, with the start times of this run
    #[arg(long, value_name = "OUT")]
    replay: Option<PathBuf>,
}

pub(crate) const HELP: &str = r#"Two flows of 1 GB and 2 GB start at 0 s over one link of 1 GB/s. They end at 2 s and at 3 s:

  venturi-engine sim flows - --ends /dev/stderr <<'END'
  1
  1e9 0
  2
  1 0 0
  0 0
  open 2 2
  0 0 1 1e9
  0 0 1 2e9
  END

Format of the file:
  1. the number of links, then a line `CAPACITY LATENCY` per link (bytes/s, seconds)
  2. the number of hosts, then a line `N LINK … M LINK …` per host: its N outgoing links and its M incoming links. A flow crosses the
     outgoing links of its source and the incoming links of its destination. Name a link that both hosts share only once.
  3. one of these workloads:
     open HOSTS FLOWS        then a line `START FROM TO BYTES` per flow, sorted by time
     closed AGENTS FLOWS     then a line `AGENT DELAY FROM TO BYTES` per flow: it starts DELAY after the previous flow of the agent has ended
     batch SLOTS JOBS CHUNKS SERVER DISK CORES    then a line `BYTES SECONDS` per job: for each chunk, bytes to read from the disk of the
                                                  server and seconds to compute
First, a flow waits for the latency of its route. Then the flows share the links max-min fairly.

`run_s` is the time of the simulation, without input and output. `cpu_s` is its CPU time. `peak_bytes` is the peak memory of the process.
Closed workloads are chaotic. To compare solvers, run both on the output of `--replay`.

Exit codes: 0 done; 1 cannot write a result; 2 cannot read or run the workload."#;

pub(crate) fn serve(arguments: &FlowsArgs) -> ExitCode {
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, message)) => {
            eprintln!("venturi-engine sim flows: {message}");
            ExitCode::from(code)
        }
    }
}

fn run(arguments: &FlowsArgs) -> Result<(), (u8, String)> {
    let file = arguments.file.display();
    if let Some(window) = arguments
        .window
        .filter(|window| !(window.is_finite() && *window > 0.0))
    {
        return Err((
            2,
            format!("--window: expected a number of bytes above 0, found {window}"),
        ));
    }
    let started = Instant::now();
    let workload =
        Workload::parse(open(&arguments.file).map_err(|error| (2, format!("{file}: {error}")))?)
            .map_err(|error| (2, format!("{file}: {error}")))?;
    let read_s = started.elapsed().as_secs_f64();
    let settings = FlowSettings {
        window_bytes: arguments.window,
        reference: arguments.reference,
    };
    let (started, start_cpu_s) = (Instant::now(), cpu_s());
    let outcome =
        flows::run(&workload, settings).map_err(|error| (2, format!("{file}: {error}")))?;
    let run_s = started.elapsed().as_secs_f64();
    let used_s = cpu_s()
        .zip(start_cpu_s)
        .map(|(end_s, start_s)| end_s - start_s);
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
                "--replay: expected an `open` or `closed` workload, found a batch of jobs; remove --replay"
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

/// Return the CPU time of this process in seconds, which does not depend on other load. `None` if the kernel does not report it.
fn cpu_s() -> Option<f64> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).ok()?;
    Some(time.tv_sec() as f64 + 1e-9 * time.tv_nsec() as f64)
}

/// Return the peak memory of this process in bytes. `None` if the kernel does not report it.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
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
    outcome: &WorkloadResult,
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
