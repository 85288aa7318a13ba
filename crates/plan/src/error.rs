//! Errors of plans, records and commands.

use crate::TrialId;

/// Location, expected and found value of an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input could not be read.
    #[error("line {line}: cannot read: {source}")]
    Read {
        /// Number of the line, from 1.
        line: u64,
        /// Error of the reader.
        source: std::io::Error,
    },
    /// A line is longer than any plan needs.
    #[error(
        "line {line}: expected at most {limit} bytes in a line; split the actor's steps over several lines"
    )]
    LineTooLong {
        /// Number of the line, from 1.
        line: u64,
        /// The bound, in bytes.
        limit: u64,
    },
    /// The first line is missing.
    #[error(
        "line 1: expected the header of a plan, found the end of the file; write the plan again with \
     `venturi plan`"
    )]
    Empty,
    /// The first line is the header of another format.
    #[error("line 1: expected \"format\": \"venturi-plan\", found {found}; is this a plan?")]
    Format {
        /// Value of `format`.
        found: String,
    },
    /// The plan has an unsupported version.
    #[error(
        "line 1: expected a plan of version {expected}, found version {found}; create the plan again \
         with this Venturi, or use the Venturi that created it"
    )]
    Version {
        /// The version that this program reads.
        expected: u32,
        /// The version of the plan.
        found: u64,
    },
    /// A line does not match the format.
    #[error("line {line}: {source}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// Expected and found value, with the column if it is known.
        source: serde_json::Error,
    },
    /// A command or record does not match the protocol.
    #[error("{what}: {source}")]
    Message {
        /// `command` or `record`.
        what: &'static str,
        /// Expected and found value.
        source: serde_json::Error,
    },
    /// A value could not be written as JSON, or its bytes could not be written.
    #[error("cannot write: {0}")]
    Write(#[from] std::io::Error),
    /// An endpoint is malformed.
    #[error("expected {expected}, found `{found}`")]
    Endpoint {
        /// Form of an endpoint.
        expected: &'static str,
        /// The text.
        found: String,
    },
    /// The service port of an endpoint is malformed.
    #[error("expected `service/service_port`, found `{found}`")]
    Via {
        /// The text.
        found: String,
    },
    /// A read with an offset, for a mover that has no argument for the offset.
    #[error(
        "`offset_bytes` of a read: expected 0, because the mover `{mover}` has no `{{offset_bytes}}` in \
         its arguments and reads from the start, found more"
    )]
    NoOffset {
        /// The mover.
        mover: String,
    },
    /// A trial id is malformed.
    #[error("expected a trial id such as `t0000012`, found `{found}`")]
    TrialId {
        /// The text.
        found: String,
    },
    /// An argument has a placeholder that is not a name of the plan or an option of the call.
    #[error(
        "argument `{argument}`: expected one of {known}, found the placeholder `{{{placeholder}}}`"
    )]
    UnknownPlaceholder {
        /// The argument as written.
        argument: String,
        /// The placeholder.
        placeholder: String,
        /// All known placeholders, with commas.
        known: String,
    },
    /// A placeholder outside of an optional group has no value.
    #[error(
        "argument `{argument}`: `{{{placeholder}}}` has no value here; put it into an optional group (a \
         list) or set a value"
    )]
    NoValue {
        /// The argument as written.
        argument: String,
        /// The placeholder.
        placeholder: String,
    },
    /// A brace is neither doubled nor part of a placeholder.
    #[error(
        "argument `{argument}`: expected `{{name}}`, `{{{{` or `}}}}`, found a single brace at byte {offset}"
    )]
    Brace {
        /// The argument as written.
        argument: String,
        /// Position of the brace.
        offset: usize,
    },
    /// A template of the header is malformed.
    #[error("{what}: {source}")]
    Template {
        /// Location of the template.
        what: String,
        /// Error of the template.
        source: Box<Error>,
    },
    /// A service of the header does not fit the rest of the header, or the request.
    #[error("service `{service}`: expected {expected}, found {found}")]
    Service {
        /// The service.
        service: String,
        /// Expected value.
        expected: String,
        /// Found value.
        found: String,
    },
    /// The plan does not have an object of this name.
    #[error("actor `{actor}`: expected the name of a {kind} of the plan's header, found `{found}`")]
    UnknownName {
        /// The actor.
        actor: String,
        /// Call, draw, pool, dataset, host, storage.
        kind: &'static str,
        /// The name.
        found: String,
    },
    /// A draw cannot return the values that its use requires.
    #[error("draw `{draw}`: expected {expected}, found {found}")]
    Draw {
        /// The stream.
        draw: String,
        /// Expected value.
        expected: &'static str,
        /// Found value.
        found: String,
    },
    /// An endpoint of a transfer cannot be reached by the service port in its step.
    #[error("actor `{actor}`, `{endpoint}` via `{via}`: {source}")]
    Unreachable {
        /// The actor.
        actor: String,
        /// The endpoint.
        endpoint: String,
        /// The service port.
        via: String,
        /// The reason.
        source: Box<Error>,
    },
    /// A value of a step is out of its range.
    #[error("actor `{actor}`, step `{step}`: expected {expected}, found {found}")]
    Step {
        /// The actor.
        actor: String,
        /// The kind of step.
        step: &'static str,
        /// Expected value.
        expected: &'static str,
        /// Found value.
        found: String,
    },
    /// The lines of an actor name different hosts.
    #[error(
        "actor `{actor}`: expected all of its lines on host `{expected}`, found a line on `{found}`"
    )]
    ActorMoved {
        /// The actor.
        actor: String,
        /// The host of its first line.
        expected: String,
        /// The other host.
        found: String,
    },
    /// A trial is at a position that does not support a resume.
    #[error(
        "actor `{actor}`: expected trial {trial} once, and not inside another step; found it {found}"
    )]
    TrialStorage {
        /// The actor.
        actor: String,
        /// The trial.
        trial: TrialId,
        /// Position of the trial.
        found: &'static str,
    },
    /// A loop would run forever while no time passes.
    #[error(
        "actor `{actor}`: expected a step in `repeat` that takes time or transfers bytes, found {rounds} \
         rounds without one; add a pause or a transfer"
    )]
    EndlessLoop {
        /// The actor.
        actor: String,
        /// Number of rounds.
        rounds: u64,
    },
    /// More slots were released than acquired.
    #[error(
        "actor `{actor}`: expected {count} acquired slots of pool `{pool}` at `release`, found {held} \
         acquired on this host"
    )]
    PoolNotAcquired {
        /// The actor.
        actor: String,
        /// The pool.
        pool: String,
        /// Number of slots to release.
        count: u32,
        /// Number of acquired slots.
        held: u32,
    },
}
