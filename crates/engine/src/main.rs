//! The one binary of Venturi: a sub-command for each crate, JSON Lines in and out, nothing else on the host.

#![deny(missing_docs)]

mod sim;
mod sim_flows;
mod sim_run;
mod sim_transfers;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use serde_json::json;

/// The engine of Venturi. `venturi` calls it; by hand it is for trying out one part alone.
#[derive(Debug, Parser)]
#[command(name = "venturi-engine", version = VERSION, max_term_width = 110, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Carry out this host's part of a plan: commands on stdin, records on stdout, one JSON object a line
    #[command(after_long_help = AGENT_HELP)]
    Agent,
    /// Copy files and trees: on this host, and from and to servers of FTP, GridFTP and HTTP
    Copy(Box<venturi_mover::Arguments>),
    /// Hold the namespaces of a lab for as long as stdin is open: one JSON line in, one out
    #[command(after_long_help = HOLD_HELP)]
    Hold,
    /// Fetch over HTTP with thousands of clients, each again and again: records on stdout, one JSON object a line
    #[command(after_long_help = LOAD_HELP)]
    Load(venturi_load::Arguments),
    /// Print the JSON Schema of a format
    Schema {
        /// Which format
        format: Format,
    },
    /// Serve a directory over FTP, GridFTP, HTTP and WebDAV
    Serve(Box<venturi_mover::serve::Arguments>),
    /// The simulated world, in virtual time: JSON Lines in and out
    #[command(subcommand)]
    Sim(sim::Command),
    /// Be the network of a lab: commands on stdin, records on stdout, one JSON object a line
    #[command(after_long_help = WIRE_HELP)]
    Wire,
    /// Tell version and build as one line of JSON
    Version,
    /// Tell the monotonic clock at the start of the process, in nanoseconds, to standard output
    #[command(hide = true)]
    Probe {
        /// Sleep so long before telling: a transfer does not end at its start either, and would otherwise have ended
        /// before its neighbours got a core
        #[arg(long, default_value_t = 0)]
        hold_ms: u64,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// The lines of a plan
    Plan,
    /// What an agent says
    Record,
    /// What is said to an agent
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

const AGENT_HELP: &str = r#"The agent ends when the plan is done, or at once, with all that it has started, when stdin ends.
So keep stdin open when you call it by hand. This asks what the agent knows of this host:

  { sleep 1; } | venturi-engine agent

and this copies one file, with a time limit of 10 s, and prints what came of it:

  { cat <<'END'
{"command": "start", "host": "me", "scratch": "/tmp/venturi-by-hand", "epoch_unix_ns": 0, "skip": [], "search": [], "header": {"format": "venturi-plan", "version": 1, "name": "by-hand", "seed": 1, "scale": 1.0, "scenario": {}, "hosts": {"me": {"ssh": null, "memory_bytes": null}}, "places": {"disk": {"host": "me", "path": "data"}}, "datasets": {"small": {"place": "disk", "path": "set", "files": 1, "size_bytes": 1000000, "seed": 1}}, "calls": {"cp": {"mover": "cp", "options": {}, "argv": ["cp", "{source}", "{destination}"], "requires": ["cp"], "timeout_s": 10.0, "capture": false, "expect": "destination"}}, "draws": {}, "pools": {}, "measure": {"interval_s": null, "counters": []}, "totals": {"trials": 1, "transfers": 1, "bytes": 1000000, "disk_bytes": {}}}}
{"command": "actor", "line": {"actor": "one", "host": "me", "steps": [{"step": "prepare", "dataset": "small", "first": 0, "files": 1, "cache": "warm"}, {"step": "trial", "id": "t0000000", "point": 0, "repetition": 0, "block": 0, "factors": {}, "steps": [{"step": "transfer", "call": "cp", "slot": 0, "source": "disk:set/000000", "destination": "disk:out/000000", "files": 1, "bytes": 1000000}]}]}}
{"command": "go"}
END
    sleep 2; } | venturi-engine agent

Commands and records are described in docs/reference/agent.md, plans in docs/reference/plan.md.

Exit codes: 0 done or stopped by command, 1 the controller went away, 2 the plan or the host does not allow to go on (a
`fatal` record says why), 128 + n ended by signal n."#;

const HOLD_HELP: &str = r#"This makes two hosts that cannot reach each other, and shows the name of one of them:

  mkfifo order; venturi-engine hold <order & exec 9>order
  echo '{"hosts": {"a": "a.lab.test", "b": "b.lab.test"}, "tmpfs": ["/run"]}' >&9
  pgrep --parent PID_OF_THE_READY_RECORD      # the hosts
  nsenter --target PID_OF_A_HOST --mount --uts --net --pid hostname
  exec 9>&-                                   # all is gone

Without root, add `--user --preserve-credentials` to `nsenter`. See docs/reference/hold.md.

Exit codes: 0 stdin ended, 2 the order is wrong or this machine refuses (a `fatal` record says why), 128 + n ended by signal n."#;

const WIRE_HELP: &str = r#"This puts 10 ms and 100 Mb/s between two namespaces that you have made (`ip netns add a`, `ip netns add b`), for a minute:

  { cat <<'END'
{"command": "start", "epoch_unix_ns": 0, "seed": 1, "namespaces": {"a": "/run/netns/a", "b": "/run/netns/b"}, "interval_s": 1, "network": {"interfaces": {"a.eth0": {"host": "a", "device": "eth0", "address": "10.77.0.1"}, "b.eth0": {"host": "b", "device": "eth0", "address": "10.77.0.2"}}, "links": {"a>b": {"from": "a.eth0", "to": "b.eth0", "rate_bit_per_s": 1e8, "delay_s": 0.005, "queue_bytes": 125000}, "b>a": {"from": "b.eth0", "to": "a.eth0", "rate_bit_per_s": 1e8, "delay_s": 0.005, "queue_bytes": 125000}}}}
{"command": "go"}
END
    sleep 60; echo '{"command": "stop"}'; } | venturi-engine wire

and when it has said `ready`, in another shell:

  for host in a b; do ip -n $host link set eth0 up; ip -n $host route add 10.77.0.0/16 dev eth0; done
  ip -n a address add 10.77.0.1/32 dev eth0; ip -n b address add 10.77.0.2/32 dev eth0
  ip netns exec a ping 10.77.0.2

Commands and records are described in docs/reference/wire.md, what a link does to a packet in docs/concepts/wire.md.

Exit codes: 0 stopped by command, 1 the controller went away, 2 the network or this machine does not allow to go on (a
`fatal` record says why), 128 + n ended by signal n."#;

const LOAD_HELP: &str = r#"This asks a proxy for one object with 1000 clients for 30 s, and leaves out the first 5 s:

  venturi-engine load http://origin:8000/set/000000 --proxy http://squid:3128 --clients 1000 --duration-s 30 --ramp-s 5

Records are described in docs/reference/load.md. Each client takes an open file: `ulimit -n`.

Exit codes: 0 some fetch was whole, 1 none was, 2 the order is wrong or this machine refuses, 128 + n ended by signal n."#;

fn main() -> ExitCode {
    // Read before anything else: the probe is there to tell when its first instructions ran.
    let begin_ns = venturi_agent::monotonic_ns();
    let arguments = Arguments::try_parse().unwrap_or_else(|wrong| {
        venturi_mover::misused(std::env::args_os(), &wrong);
        wrong.exit()
    });
    let printed = match arguments.command {
        Command::Agent => return venturi_agent::serve(VERSION).into(),
        Command::Copy(arguments) => return venturi_mover::copy(*arguments),
        Command::Hold => return venturi_hold::serve().into(),
        Command::Load(arguments) => return venturi_load::serve(arguments),
        Command::Serve(arguments) => return venturi_mover::serve::serve(*arguments),
        Command::Sim(command) => return sim::serve(&command),
        Command::Wire => return venturi_wire::serve().into(),
        Command::Schema { format } => print(&format!("{:#}", schema(format))),
        Command::Version => print(&build().to_string()),
        Command::Probe { hold_ms } => {
            std::thread::sleep(std::time::Duration::from_millis(hold_ms));
            print(&begin_ns.to_string())
        }
    };
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has seen enough (`| head`).
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
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_example_in_the_help_is_a_plan_that_the_agent_understands() {
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
