//! Why a plan cannot be carried out in virtual time.

/// What is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no way for packets between two interfaces.
    #[error(
        "expected a way from `{from}` to `{to}`, found none: {found}; see the plan's `network.routes`, or `venturi lab up` and `ping`"
    )]
    NoWay {
        /// Interface or host that they leave.
        from: String,
        /// Interface or host that they should come to.
        to: String,
        /// Where they get stuck.
        found: String,
    },
    /// A number that no resource can have.
    #[error("{where_}: expected {expected}, found {found}; correct it in the scenario")]
    Value {
        /// The path into the plan's header, or into the line `world`.
        where_: String,
        /// What can stand there.
        expected: &'static str,
        /// What does.
        found: String,
    },
    /// A name that nothing has.
    #[error("{where_}: expected {expected}, found `{found}`")]
    Unknown {
        /// Where it stands.
        where_: String,
        /// What kind of name.
        expected: &'static str,
        /// The name.
        found: String,
    },
    /// Nothing will happen any more, and some are not at their end.
    #[error(
        "expected the plan to come to its end, found that at {time_s} s nothing can happen any more: {waiting}; \
         somebody must signal, or give back, what they wait for"
    )]
    Deadlock {
        /// Virtual time.
        time_s: f64,
        /// Who waits for what, host by host.
        waiting: String,
    },
    /// Time stands still.
    #[error(
        "expected time to go on, found {happened} events at {time_s} s; something begins again and again without taking time: \
         give it a size, a pause or a cost"
    )]
    Endless {
        /// Virtual time.
        time_s: f64,
        /// How many.
        happened: u64,
    },
    /// A plan that goes on for ages.
    #[error(
        "expected the plan to be over within {most_s} s, found that after {time_s} s the next thing in it happens at {next_s} s; \
         look for a duration, a size or a cost that is far too large"
    )]
    TooLate {
        /// Virtual time.
        time_s: f64,
        /// When it would go on.
        next_s: f64,
        /// The bound.
        most_s: f64,
    },
    /// The interpreter cannot go on.
    #[error("{host}: {source}")]
    Plan {
        /// The host.
        host: String,
        /// Why.
        source: venturi_plan::Error,
    },
    /// The solver was asked for what cannot be: a mistake of this crate.
    #[error("{what} at {time_s} s: {source}; this is an error of Venturi: please report it")]
    Solver {
        /// What was done.
        what: String,
        /// Virtual time.
        time_s: f64,
        /// What it said.
        source: crate::fluid::Error,
    },
}
