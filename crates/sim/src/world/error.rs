//! Errors of plans that cannot run in virtual time.

/// Error with location, problem and next step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    /// There is no route for packets between two interfaces.
    #[error(
        "expected a route from `{from}` to `{to}`, found none: {found}; correct `network.routes`, or \
         test the route with `venturi lab up` and `ping`"
    )]
    NoRoute {
        /// Interface or host of their origin.
        from: String,
        /// Interface or host of their destination.
        to: String,
        /// Position of the dead end.
        found: String,
    },
    /// The plan has no network, and a transfer needs it.
    #[error(
        "expected links between the hosts of the plan, to simulate a transfer from or to `{host}` over the \
         network, found none; add `[[testbed.link]]` tables to the scenario"
    )]
    NoNetwork {
        /// The host of the server.
        host: String,
    },
    /// A service or storage without a host.
    #[error(
        "{where_}: expected a host of the plan, found {found}; a simulation needs to know the host of each \
         server and storage: add `host` to the scenario, or run it with `--on hosts`"
    )]
    Unplaced {
        /// The path into the plan's header.
        where_: String,
        /// Found value.
        found: String,
    },
    /// A number is invalid for a resource.
    #[error("{where_}: expected {expected}, found {found}; correct it in the scenario")]
    Value {
        /// The path into the plan's header, or into the line `world`.
        where_: String,
        /// Expected value.
        expected: &'static str,
        /// Found value.
        found: String,
    },
    /// A name is unknown.
    #[error("{where_}: expected {expected}, found `{found}`")]
    Unknown {
        /// Location.
        where_: String,
        /// Kind of name.
        expected: &'static str,
        /// The name.
        found: String,
    },
    /// No event is left, and some actors have not ended.
    #[error(
        "the plan is stuck at {time_s} s: {waiting}; add the missing `signal` or `release` steps"
    )]
    Deadlock {
        /// Virtual time.
        time_s: f64,
        /// Waiting actors of all hosts, with reasons.
        waiting: String,
    },
    /// Time does not advance.
    #[error(
        "expected time to advance, found {happened} events at {time_s} s; a step repeats without taking \
         time: give it a size, a pause or a cost"
    )]
    Endless {
        /// Virtual time.
        time_s: f64,
        /// Number of events.
        happened: u64,
    },
    /// A plan that ends too late.
    #[error(
        "expected the plan to end within {max_s} s, found the next event after {time_s} s at {next_s} s; \
         correct a duration, a size or a cost that is far too large"
    )]
    TooLate {
        /// Virtual time.
        time_s: f64,
        /// Time of the next event.
        next_s: f64,
        /// The bound.
        max_s: f64,
    },
    /// The interpreter has failed.
    #[error("{host}: {source}")]
    Plan {
        /// The host.
        host: String,
        /// Cause of the failure.
        source: venturi_plan::Error,
    },
    /// The solver rejected a call: an error of this crate.
    #[error("{what} at {time_s} s: {source}; this is an error of Venturi; report it")]
    Solver {
        /// Rejected call.
        what: String,
        /// Virtual time.
        time_s: f64,
        /// Message of the solver.
        source: crate::fluid::FluidError,
    },
}
