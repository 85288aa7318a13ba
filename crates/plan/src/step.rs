//! Lines after the header: the steps of each actor.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::{Bytes, Endpoint, Name, Scalar, Seconds, TrialId, Via};

/// One line of a plan: further steps of an actor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActorLine {
    /// Name of the actor. Its program is the sequence of all its lines.
    pub actor: Name,
    /// Its host.
    pub host: Name,
    /// Its next steps.
    pub steps: Vec<Step>,
}

/// A step of an actor's program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// Steps that are counted, journalled and resumed together.
    Trial(Box<TrialStep>),
    /// Call a mover.
    Transfer(Box<TransferStep>),
    /// Children that are armed, released together and joined at the end.
    Parallel(ParallelStep),
    /// A closed loop.
    Repeat(RepeatStep),
    /// An open loop.
    Arrivals(ArrivalsStep),
    /// Wait until a time of the run.
    At(AtStep),
    /// A CPU phase.
    Compute(ComputeStep),
    /// Read part of a file and discard the data.
    Read(Box<ReadStep>),
    /// Wait for a duration.
    Pause(PauseStep),
    /// Add to a named counter.
    Signal(SignalStep),
    /// Wait until a named counter has reached a value.
    Wait(WaitStep),
    /// Acquire slots of a named pool.
    Acquire(PoolStep),
    /// Release slots of a named pool.
    Release(PoolStep),
    /// Create missing files of a dataset.
    Prepare(PrepareStep),
    /// Flush and drop the page cache of files.
    DropCaches(DropCachesStep),
}

/// One execution of a design point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialStep {
    /// Its name, unique in the actor.
    pub id: TrialId,
    /// Number of the design point, from 0.
    pub point: u32,
    /// Number of the repetition within the point, from 0.
    pub repetition: u32,
    /// Number of the randomised block.
    pub block: u32,
    /// Factors of the design point, in base units.
    pub factors: BTreeMap<Name, Scalar>,
    /// The trial does not start at or after this time of the run, but is skipped like a completed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_s: Option<Seconds>,
    /// Counters and the numbers to add to them after a success. The recorder adds them, because it
    /// knows the outcome.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<Name, u64>,
    /// Steps of the trial.
    pub steps: Vec<Step>,
}

/// One call of a mover.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferStep {
    /// Call of the header.
    pub call: Name,
    /// Number of the concurrent transfer, from 0.
    pub slot: u32,
    /// Source of the bytes.
    pub source: OrDraw<Endpoint>,
    /// Service and service port for reading the source; null: a file of the actor's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_via: Option<Via>,
    /// Destination of the bytes.
    pub destination: OrDraw<Endpoint>,
    /// Service and service port for writing the destination; null: a file of the actor's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_via: Option<Via>,
    /// Number of files. If more than one, `source` is the first of this number of consecutive files of a dataset, and
    /// `destination` the directory for files of the same names.
    pub files: u64,
    /// Bytes of all files together.
    pub bytes: OrDraw<Bytes>,
    /// Whether the destination remains after the trial.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keep: bool,
    /// Labels that the workload needs in the results.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<Name, Scalar>,
}

impl TransferStep {
    /// Return whether the step has no draws, so that it is equal in each execution.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        matches!(self.source, OrDraw::Fixed(_))
            && matches!(self.destination, OrDraw::Fixed(_))
            && matches!(self.bytes, OrDraw::Fixed(_))
    }
}

/// A part of a file to read and discard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadStep {
    /// Call of the header.
    pub call: Name,
    /// Number of the concurrent transfer, from 0.
    pub slot: u32,
    /// The file.
    pub source: OrDraw<Endpoint>,
    /// Service and service port for reading; null: a file of the actor's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_via: Option<Via>,
    /// Offset in the file.
    pub offset_bytes: OrDraw<Bytes>,
    /// Bytes to read.
    pub bytes: OrDraw<Bytes>,
}

/// Lists of steps that run concurrently.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParallelStep {
    /// One list of steps per child.
    pub children: Vec<Vec<Step>>,
}

/// A loop, with its bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenRepeat", into = "WrittenRepeat")]
pub struct RepeatStep {
    /// Condition of its end.
    pub limit: RepeatLimit,
    /// Its body.
    pub steps: Vec<Step>,
}

/// Condition of the end of a `repeat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepeatLimit {
    /// After this number of rounds.
    Count(u64),
    /// No round starts at or after this time of the run.
    Until(Seconds),
    /// No round starts at or after this time since the start of the loop.
    For(Seconds),
}

/// An open loop: a body that starts repeatedly, independent of the end of earlier instances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrivalsStep {
    /// Times of the run with their rates of arrivals; the rate is interpolated in between. There
    /// are no arrivals before the first time, or at and after the last time.
    pub rate_per_s: Vec<(Seconds, f64)>,
    /// Gap between arrivals, as the integral of the rate between them. 1 gives even arrivals at
    /// this rate; exponential draws with mean 1 give a Poisson process of this rate.
    pub gap: OrDraw<f64>,
    /// Gap from the first time to the first arrival; null: like `gap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<OrDraw<f64>>,
    /// The body.
    pub steps: Vec<Step>,
}

/// A time of the run to wait for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AtStep {
    /// Time of the run.
    pub time_s: OrDraw<Seconds>,
}

/// Work for the CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ComputeStep {
    /// Seconds of one core.
    pub core_s: OrDraw<Seconds>,
}

/// Idle time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseStep {
    /// Duration.
    pub duration_s: OrDraw<Seconds>,
}

/// An addition to a counter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalStep {
    /// Name of the counter.
    pub counter: Name,
    /// Number to add.
    pub add: u64,
}

/// A counter to wait for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitStep {
    /// Name of the counter.
    pub counter: Name,
    /// The value that it must reach.
    pub until: u64,
}

/// Slots of a pool to acquire or release.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolStep {
    /// Name of the pool.
    pub pool: Name,
    /// Number of slots.
    pub count: u32,
}

/// Required files of a dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrepareStep {
    /// Name of the dataset.
    pub dataset: Name,
    /// First required file.
    pub first: u64,
    /// Number of files.
    pub files: u64,
    /// Whether they must be in the page cache.
    pub cache: Cache,
}

/// State of the page cache after a `prepare`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// Any state.
    AsIs,
    /// The files have just been read.
    Warm,
}

/// Files that must leave the page cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DropCachesStep {
    /// Name of the dataset.
    pub dataset: Name,
    /// Its first file.
    pub first: u64,
    /// Number of files.
    pub files: u64,
}

/// A value, or `{"draw": "name"}`: the next value of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum OrDraw<T> {
    /// The value itself.
    Fixed(T),
    /// The next value of this stream.
    Draw(DrawName),
}

impl<T> From<T> for OrDraw<T> {
    fn from(value: T) -> Self {
        Self::Fixed(value)
    }
}

/// `{"draw": "name"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DrawName {
    /// Name of a stream of the header.
    pub draw: Name,
}

// Not derived as `untagged`, because the error of every mistake would be "did not match any
// variant".
impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrDraw<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OrDrawVisitor(PhantomData))
    }
}

struct OrDrawVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OrDrawVisitor<T> {
    type Value = OrDraw<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or {\"draw\": \"name\"}")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<OrDraw<T>, E> {
        T::deserialize(text.into_deserializer()).map(OrDraw::Fixed)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<OrDraw<T>, E> {
        T::deserialize(number.into_deserializer()).map(OrDraw::Fixed)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<OrDraw<T>, E> {
        T::deserialize(number.into_deserializer()).map(OrDraw::Fixed)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<OrDraw<T>, E> {
        T::deserialize(number.into_deserializer()).map(OrDraw::Fixed)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OrDraw<T>, A::Error> {
        DrawName::deserialize(MapAccessDeserializer::new(map)).map(OrDraw::Draw)
    }
}

/// `repeat` as stored in a file, because the type cannot express "exactly one of these keys".
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WrittenRepeat {
    /// A number of rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// End of the loop as a time of the run; no round starts at or after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until_s: Option<Seconds>,
    /// Duration of the loop; no round starts at or after its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    for_s: Option<Seconds>,
    /// The body.
    steps: Vec<Step>,
}

impl TryFrom<WrittenRepeat> for RepeatStep {
    type Error = &'static str;

    fn try_from(written: WrittenRepeat) -> Result<Self, &'static str> {
        let limit = match (written.count, written.until_s, written.for_s) {
            (Some(count), None, None) => RepeatLimit::Count(count),
            (None, Some(time), None) => RepeatLimit::Until(time),
            (None, None, Some(time)) => RepeatLimit::For(time),
            (None, None, None) => {
                return Err("repeat: expected `count`, `until_s` or `for_s`, found none");
            }
            _ => return Err("repeat: expected one of `count`, `until_s` and `for_s`, found more"),
        };
        Ok(Self {
            limit,
            steps: written.steps,
        })
    }
}

impl From<RepeatStep> for WrittenRepeat {
    fn from(repeat: RepeatStep) -> Self {
        let (count, until_s, for_s) = match repeat.limit {
            RepeatLimit::Count(count) => (Some(count), None, None),
            RepeatLimit::Until(time) => (None, Some(time), None),
            RepeatLimit::For(time) => (None, None, Some(time)),
        };
        Self {
            count,
            until_s,
            for_s,
            steps: repeat.steps,
        }
    }
}

impl JsonSchema for RepeatStep {
    fn schema_name() -> Cow<'static, str> {
        "RepeatStep".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let steps = generator.subschema_for::<Vec<Step>>();
        json_schema!({
            "type": "object",
            "description": "A loop with its limit",
            "properties": {
                "count": {"type": "integer", "minimum": 0, "description": "A number of rounds"},
                "until_s": {"type": "number", "description": "Time limit of the run for the start of a round"},
                "for_s": {"type": "number", "description": "Time limit of the loop for the start of a round"},
                "steps": steps,
            },
            "required": ["steps"],
            "oneOf": [{"required": ["count"]}, {"required": ["until_s"]}, {"required": ["for_s"]}],
            "additionalProperties": false,
        })
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde calls it with a reference
fn is_false(value: &bool) -> bool {
    !*value
}
