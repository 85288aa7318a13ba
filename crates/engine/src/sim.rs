//! `venturi-engine sim`: commands of the simulator.

use std::process::ExitCode;

use clap::Subcommand;

/// Workload to simulate.
#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run a plan: read the plan from stdin, write the results to stdout, one JSON object per line
    #[command(after_long_help = RUN_HELP)]
    Run,
    /// Run a list of flows at the full speed of the solver: write one JSON object to stdout
    #[command(after_long_help = crate::sim_flows::HELP)]
    Flows(crate::sim_flows::FlowsArgs),
    /// Run transfers from columns on the testbed of a plan: write columns of end times to stdout
    #[command(after_long_help = crate::sim_transfers::HELP)]
    Transfers,
}

const RUN_HELP: &str = r#"To set costs of transfers and defaults for values that the plan does not set, put a line `{"world": {…}}` before the plan.

  venturi plan my.toml -o plan.jsonl
  venturi-engine sim run <plan.jsonl

For records and the keys of `world`, see docs/reference/sim.md.

Exit codes: 0 done; 1 the reader of stdout has exited; 2 the plan or its testbed is unusable (a `fatal` record has the reason)."#;

pub(crate) fn serve(command: &SimCommand) -> ExitCode {
    match command {
        SimCommand::Run => crate::sim_run::serve(),
        SimCommand::Flows(arguments) => crate::sim_flows::serve(arguments),
        SimCommand::Transfers => crate::sim_transfers::serve(),
    }
}
