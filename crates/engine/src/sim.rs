//! `venturi-engine sim`: what the simulated world can be asked.

use std::process::ExitCode;

use clap::Subcommand;

/// What to simulate.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Carry out a plan: the plan on stdin, what came of it on stdout, one JSON object a line
    #[command(after_long_help = RUN_HELP)]
    Run,
    /// Carry out a list of nothing but flows, as fast as the solver goes: one JSON object on stdout
    #[command(after_long_help = crate::sim_flows::HELP)]
    Flows(crate::sim_flows::Arguments),
    /// Carry out transfers given as columns, on the testbed of a plan: columns of their ends on stdout
    #[command(after_long_help = crate::sim_transfers::HELP)]
    Transfers,
}

const RUN_HELP: &str = r#"A line `{"world": {…}}` may stand before the plan: what transfers cost besides their bytes, and what holds where the plan is silent.

  venturi plan my.toml -o plan.jsonl
  venturi-engine sim run <plan.jsonl

Records and the keys of `world` are described in docs/reference/sim.md.

Exit codes: 0 done, 1 nobody reads any more, 2 the plan or its testbed does not allow to go on (a `fatal` record says why)."#;

pub(crate) fn serve(command: &Command) -> ExitCode {
    match command {
        Command::Run => crate::sim_run::serve(),
        Command::Flows(arguments) => crate::sim_flows::serve(arguments),
        Command::Transfers => crate::sim_transfers::serve(),
    }
}
