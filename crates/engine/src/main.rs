//! Command line of `venturi-engine`: one sub-command per crate, JSON Lines on stdin and stdout.

#![deny(missing_docs)]

mod inetd;
mod sim;
mod sim_flows;
mod sim_run;
mod sim_transfers;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::json;

/// The engine of Venturi. `venturi` starts it; run it by hand to try out one part.
#[derive(Debug, Parser)]
#[command(name = "venturi-engine", version = VERSION, max_term_width = 110, arg_required_else_help = true)]
struct EngineArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the part of a plan that belongs to this host: read commands from stdin, write records to stdout, one JSON object per line
    #[command(after_long_help = AGENT_HELP)]
    Agent,
    /// Copy files and directories: locally, or to and from FTP, GridFTP and HTTP servers
    Copy(Box<venturi_transfer::CopyArgs>),
    /// Print the load of this host: CPU, CPU quota, pressure, and the disks of some paths
    Counters(venturi_measure::CountersArgs),
    /// Measure a disk: read or write without a network
    #[command(subcommand)]
    Disk(venturi_measure::DiskCommand),
    /// Create, inspect, check and remove files on an existing server: print JSON Lines
    File(venturi_transfer::FileArgs),
    /// Create the namespaces of a lab and keep them until stdin ends: read one JSON line, write one
    #[command(after_long_help = NAMESPACES_HELP)]
    Namespaces,
    /// Generate HTTP load with thousands of clients that fetch repeatedly: write records to stdout, one JSON object per line
    #[command(after_long_help = HTTP_LOAD_HELP)]
    HttpLoad(venturi_http_load::LoadArguments),
    /// Listen on an address and start a program for each client, with the connection as its standard input and output
    #[command(after_long_help = inetd::HELP)]
    Inetd(inetd::InetdArgs),
    /// Print the JSON Schema of a format
    Schema {
        /// Format to describe
        format: Format,
    },
    /// Run programs, servers, file commands and probes for a controller: read commands from stdin, write records to stdout, one JSON object per line
    #[command(after_long_help = SHELL_HELP)]
    Shell(ShellArguments),
    /// Serve a directory over FTP, GridFTP, HTTP and WebDAV
    Serve(Box<venturi_transfer::serve::ServeArgs>),
    /// Simulate in virtual time: JSON Lines on stdin and stdout
    #[command(subcommand)]
    Sim(sim::SimCommand),
    /// Measure a network: TCP from memory to memory between two hosts
    #[command(subcommand)]
    Stream(venturi_measure::StreamCommand),
    /// Emulate the network of a lab: read commands from stdin, write records to stdout, one JSON object per line
    #[command(after_long_help = EMULATOR_HELP)]
    Emulator,
    /// Print version and build as one line of JSON
    Version,
    /// Print the monotonic clock at the start of the process, in nanoseconds
    #[command(hide = true)]
    Probe {
        /// Time to sleep before printing, in milliseconds. Without it, a probe can end before the other probes of its
        /// barrier get a core. Default: 0
        #[arg(long, default_value_t = 0)]
        sleep_ms: u64,
    },
}

#[derive(Debug, Args)]
struct ShellArguments {
    /// Name of the session directory: letters, digits and `-_.`
    #[arg(long, value_name = "ID")]
    session: String,
    /// Directory of all sessions. Sessions that no process uses are removed. Default: `sessions` next to this program
    #[arg(long, value_name = "DIRECTORY")]
    sessions: Option<PathBuf>,
    /// Time without input after which the shell ends, in seconds. Default: 60
    #[arg(long, value_name = "SECONDS", default_value_t = 60, hide_default_value = true, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    silence_s: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Lines of a plan
    Plan,
    /// Records from an agent
    Record,
    /// Commands to an agent
    Command,
}

/// Version and build, for `--version` and the agent's `hello`.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("VENTURI_COMMIT"),
    ", ",
    env!("VENTURI_PROFILE"),
    ", ",
    env!("VENTURI_TARGET"),
    ")"
);

const AGENT_HELP: &str = r#"The agent exits when the plan is done. If stdin ends, it exits immediately and ends all processes that it started.
To run it by hand, keep stdin open. This example prints the properties of this host:

  { sleep 1; } | venturi-engine agent

This example copies one file, with a timeout of 10 s, and prints the result:

  { cat <<'END'
{"command": "start", "host": "me", "scratch": "/tmp/venturi-by-hand", "epoch_unix_ns": 0, "skip": [], "search": [], "header": {"format": "venturi-plan", "version": 2, "name": "by-hand", "seed": 1, "scale": 1.0, "scenario": {}, "hosts": {"me": {"ssh": null, "memory_bytes": null}}, "storages": {"disk": {"host": "me", "path": "data"}}, "datasets": {"small": {"storage": "disk", "path": "set", "files": 1, "size_bytes": 1000000, "seed": 1}}, "calls": {"cp": {"mover": "cp", "options": {}, "argv": ["cp", "{source}", "{destination}"], "requires": ["cp"], "timeout_s": 10.0, "capture": false, "expect": "destination"}}, "draws": {}, "pools": {}, "measure": {"interval_s": null, "counters": []}, "totals": {"trials": 1, "transfers": 1, "bytes": 1000000, "disk_bytes": {}}}}
{"command": "actor", "line": {"actor": "one", "host": "me", "steps": [{"step": "prepare", "dataset": "small", "first": 0, "files": 1, "cache": "warm"}, {"step": "trial", "id": "t0000000", "point": 0, "repetition": 0, "block": 0, "factors": {}, "steps": [{"step": "transfer", "call": "cp", "slot": 0, "source": "disk:set/000000", "destination": "disk:out/000000", "files": 1, "bytes": 1000000}]}]}}
{"command": "go"}
END
    sleep 2; } | venturi-engine agent

For commands and records, see docs/reference/agent.md. For plans, see docs/reference/plan.md.

Exit codes: 0 done, or stopped by a command; 1 the controller has exited; 2 the plan or the host is unusable (a `fatal`
record has the reason); 128 + n ended by signal n."#;

const SHELL_HELP: &str = r#"The shell exits after the command `end` or when stdin ends. It then ends all processes that it started and removes its
session directory. This example runs a program, starts a server and stops it:

  { cat <<'END'
{"command": "run", "number": 1, "argv": ["uname", "-m"], "timeout_s": 10}
{"command": "start", "number": 2, "process": "sleeper", "argv": ["sleep", "1000"], "log": "/tmp/venturi-by-hand/sleeper.log"}
END
    sleep 1; echo '{"command": "stop", "number": 3, "process": "sleeper"}'
    sleep 1; echo '{"command": "end", "number": 4}'; } | venturi-engine shell --session by-hand --sessions /tmp/venturi-by-hand

For commands and records, see docs/reference/shell.md.

Exit codes: 0 after `end` or the end of stdin; 1 the controller has exited or was silent; 2 the session is unusable (a
`fatal` record has the reason); 128 + n ended by signal n."#;

const NAMESPACES_HELP: &str = r#"This example creates two hosts without a network between them, and prints the name of one host:

  mkfifo order; venturi-engine namespaces <order & exec 9>order
  echo '{"hosts": {"a": "a.lab.test", "b": "b.lab.test"}, "tmpfs": ["/run"]}' >&9
  pgrep --parent PID_OF_THE_READY_RECORD      # the hosts
  nsenter --target PID_OF_A_HOST --mount --uts --net --pid hostname
  exec 9>&-                                   # removes all hosts

Without root, add `--user --preserve-credentials` to `nsenter`. See docs/reference/namespaces.md.

Exit codes: 0 stdin has ended; 2 the configuration is invalid or this machine rejects it (a `fatal` record has the reason); 128 + n ended
by signal n."#;

const EMULATOR_HELP: &str = r#"This example connects two namespaces with a round-trip time of 10 ms and 100 Mb/s for one minute. Create them first with
`ip netns add a` and `ip netns add b`:

  { cat <<'END'
{"command": "start", "epoch_unix_ns": 0, "seed": 1, "namespaces": {"a": "/run/netns/a", "b": "/run/netns/b"}, "interval_s": 1, "network": {"interfaces": {"a.eth0": {"host": "a", "device": "eth0", "address": "10.77.0.1"}, "b.eth0": {"host": "b", "device": "eth0", "address": "10.77.0.2"}}, "links": {"a>b": {"from": "a.eth0", "to": "b.eth0", "rate_bit_per_s": 1e8, "delay_s": 0.005, "queue_bytes": 125000}, "b>a": {"from": "b.eth0", "to": "a.eth0", "rate_bit_per_s": 1e8, "delay_s": 0.005, "queue_bytes": 125000}}}}
{"command": "go"}
END
    sleep 60; echo '{"command": "stop"}'; } | venturi-engine emulator

After the record `ready`, run in another shell:

  for host in a b; do ip -n $host link set eth0 up; ip -n $host route add 10.77.0.0/16 dev eth0; done
  ip -n a address add 10.77.0.1/32 dev eth0; ip -n b address add 10.77.0.2/32 dev eth0
  ip netns exec a ping 10.77.0.2

For commands and records, see docs/reference/emulator.md. For the model of a link, see docs/concepts/emulator.md.

Exit codes: 0 stopped by a command; 1 the controller has exited; 2 the network or this machine is unusable (a `fatal`
record has the reason); 128 + n ended by signal n."#;

const HTTP_LOAD_HELP: &str = r#"This example fetches one object through a proxy with 1000 clients for 30 s, and excludes the first 5 s from the results:

  venturi-engine http-load http://origin:8000/set/000000 --proxy http://squid:3128 --clients 1000 --duration-s 30 --ramp-s 5

For records, see docs/reference/http-load.md. Each client needs one open file; raise the limit with `ulimit -n`.

Exit codes: 0 at least one fetch was complete; 1 no fetch was complete; 2 the options are invalid or this machine rejects them; 128 + n ended
by signal n."#;

fn main() -> ExitCode {
    // Read the clock first, because the probe reports the time of its first instructions.
    let start_ns = venturi_agent::monotonic_ns();
    let arguments = EngineArgs::try_parse().unwrap_or_else(|wrong| {
        venturi_transfer::report_usage_error(std::env::args_os(), &wrong);
        wrong.exit()
    });
    let printed = match arguments.command {
        Command::Agent => return venturi_agent::serve(VERSION).into(),
        Command::Shell(arguments) => {
            let options = venturi_agent::ShellOptions {
                session: arguments.session,
                sessions: arguments.sessions,
                silence: Duration::from_secs(arguments.silence_s),
            };
            return venturi_agent::serve_shell(VERSION, &options).into();
        }
        Command::Copy(arguments) => return venturi_transfer::copy(*arguments),
        Command::Counters(arguments) => return venturi_measure::counters(&arguments),
        Command::Disk(command) => return venturi_measure::disk(&command),
        Command::File(arguments) => return venturi_transfer::file(arguments),
        Command::Namespaces => return venturi_namespaces::serve().into(),
        Command::HttpLoad(arguments) => return venturi_http_load::serve(arguments),
        Command::Inetd(arguments) => return inetd::serve(&arguments),
        Command::Serve(arguments) => return venturi_transfer::serve::serve(*arguments),
        Command::Sim(command) => return sim::serve(&command),
        Command::Stream(command) => return venturi_measure::stream(&command),
        Command::Emulator => return venturi_emulator::serve().into(),
        Command::Schema { format } => print(&format!("{:#}", schema(format))),
        Command::Version => print(&build().to_string()),
        Command::Probe { sleep_ms } => {
            std::thread::sleep(Duration::from_millis(sleep_ms));
            print(&start_ns.to_string())
        }
    };
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the pipe, like `head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("venturi-engine: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

fn schema(format: Format) -> serde_json::Value {
    let schema = match format {
        Format::Plan => venturi_plan::schema::plan(),
        Format::Record => venturi_plan::schema::record(),
        Format::Command => venturi_plan::schema::command(),
    };
    schema.to_value()
}

fn build() -> serde_json::Value {
    json!({
        "name": env!("CARGO_PKG_NAME"),
        "version": env!("CARGO_PKG_VERSION"),
        "commit": env!("VENTURI_COMMIT"),
        "profile": env!("VENTURI_PROFILE"),
        "target": env!("VENTURI_TARGET"),
        "protocol": venturi_plan::PROTOCOL,
        "plan_version": venturi_plan::VERSION,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        EngineArgs::command().debug_assert();
    }

    #[test]
    fn agent_parses_the_example_of_its_help() {
        let commands: Vec<_> = AGENT_HELP
            .lines()
            .filter(|line| line.starts_with("{\"command\""))
            .collect();
        assert_eq!(commands.len(), 3);
        for line in commands {
            venturi_plan::Command::parse(line.as_bytes())
                .unwrap_or_else(|error| panic!("{error} in {line}"));
        }
    }
}
