//! What can be wrong with a plan, a record or a command.

use crate::TrialId;

/// What was expected, what was found, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes could not be read at all.
    #[error("line {line}: cannot read: {source}")]
    Read {
        /// Number of the line, from 1.
        line: u64,
        /// What the reader said.
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
    /// There is no first line.
    #[error("expected a plan (line 1: its header), found nothing")]
    Empty,
    /// The first line is the header of something else.
    #[error("line 1: expected \"format\": \"venturi-plan\", found {found}; is this a plan?")]
    Format {
        /// What stands as `format`.
        found: String,
    },
    /// The plan is newer than this program.
    #[error(
        "line 1: expected a plan of version {expected} or older, found version {found}; use a newer Venturi"
    )]
    Version {
        /// The newest version this program reads.
        expected: u32,
        /// The version of the plan.
        found: u64,
    },
    /// A line is not what the format says.
    #[error("line {line}: {source}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// What was expected and found, and the column where it is known.
        source: serde_json::Error,
    },
    /// A command or record is not what the protocol says.
    #[error("{what}: {source}")]
    Message {
        /// `command` or `record`.
        what: &'static str,
        /// What was expected and found.
        source: serde_json::Error,
    },
    /// A value could not be written as JSON, or its bytes could not be written.
    #[error("cannot write: {0}")]
    Write(#[from] std::io::Error),
    /// An endpoint is malformed.
    #[error("expected {expected}, found `{found}`")]
    Endpoint {
        /// What an endpoint must be.
        expected: &'static str,
        /// The text.
        found: String,
    },
    /// The way to an end of a transfer is malformed.
    #[error("expected `service/door`, found `{found}`")]
    Via {
        /// The text.
        found: String,
    },
    /// A part of a file that does not begin at its beginning, and a mover that cannot be told where.
    #[error(
        "`offset_bytes` of a read: expected 0 (the mover `{mover}` names no `{{offset_bytes}}` and would read from the beginning), found more"
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
    /// An argument has a placeholder that neither the plan nor the call's options know.
    #[error(
        "argument `{argument}`: expected one of {known}, found the placeholder `{{{placeholder}}}`"
    )]
    UnknownPlaceholder {
        /// The argument as written.
        argument: String,
        /// The placeholder.
        placeholder: String,
        /// All that are known, with commas.
        known: String,
    },
    /// A placeholder outside any optional group has no value here.
    #[error(
        "argument `{argument}`: `{{{placeholder}}}` has no value here; put it into an optional group (a list) or give it one"
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
        /// Where the brace stands.
        offset: usize,
    },
    /// A template of the header is malformed.
    #[error("{what}: {source}")]
    Template {
        /// Which.
        what: String,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// A service of the header does not fit the rest of it, or what it is asked for.
    #[error("service `{service}`: expected {expected}, found {found}")]
    Service {
        /// The service.
        service: String,
        /// What is needed.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The plan has no such thing.
    #[error("actor `{actor}`: expected the name of a {kind} of the plan's header, found `{found}`")]
    UnknownName {
        /// The actor.
        actor: String,
        /// Call, draw, pool, data set, host, place.
        kind: &'static str,
        /// The name.
        found: String,
    },
    /// A draw cannot give what its use needs.
    #[error("draw `{draw}`: expected {expected}, found {found}")]
    Draw {
        /// The stream.
        draw: String,
        /// What is needed.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// An end of a transfer cannot be reached by the way that its step names.
    #[error("actor `{actor}`, `{endpoint}` via `{via}`: {source}")]
    Unreachable {
        /// The actor.
        actor: String,
        /// The end.
        endpoint: String,
        /// The way.
        via: String,
        /// Why.
        source: Box<Error>,
    },
    /// A value of a step is out of its range.
    #[error("actor `{actor}`, step `{step}`: expected {expected}, found {found}")]
    Step {
        /// The actor.
        actor: String,
        /// The kind of step.
        step: &'static str,
        /// What is needed.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// An actor is on another host than its lines say elsewhere.
    #[error(
        "actor `{actor}`: expected all of its lines on host `{expected}`, found one on `{found}`"
    )]
    ActorMoved {
        /// The actor.
        actor: String,
        /// The host of its first line.
        expected: String,
        /// The other host.
        found: String,
    },
    /// A trial stands where it cannot be resumed as one.
    #[error(
        "actor `{actor}`: expected trial {trial} once, and not inside another step; found it {found}"
    )]
    TrialPlace {
        /// The actor.
        actor: String,
        /// The trial.
        trial: TrialId,
        /// Where it was found.
        found: &'static str,
    },
    /// A loop would run for ever without time passing.
    #[error(
        "actor `{actor}`: expected time to pass or a transfer to run in a `repeat`, found {rounds} rounds in which neither happened"
    )]
    EndlessLoop {
        /// The actor.
        actor: String,
        /// How many rounds were tried.
        rounds: u64,
    },
    /// More slots were given back than were taken.
    #[error(
        "actor `{actor}`: expected to hold {count} of pool `{pool}` at `release`, found {held} taken on this host"
    )]
    PoolNotHeld {
        /// The actor.
        actor: String,
        /// The pool.
        pool: String,
        /// How many are to be given back.
        count: u32,
        /// How many are taken.
        held: u32,
    },
}
