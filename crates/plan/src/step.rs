//! Lines after the header: what each actor does, step by step.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::{Bytes, Endpoint, Name, Scalar, Seconds, TrialId, Via};

/// One line of a plan: some more steps of an actor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActorLine {
    /// Name of the actor. Its program is all of its lines, in order.
    pub actor: Name,
    /// The host it lives on.
    pub host: Name,
    /// What it does next.
    pub steps: Vec<Step>,
}

/// A step of an actor's program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// A body of steps that is counted, journalled and resumed as one.
    Trial(Box<TrialStep>),
    /// Call a mover.
    Transfer(Box<TransferStep>),
    /// Children armed, released together, joined at the end.
    Parallel(ParallelStep),
    /// A closed loop.
    Repeat(RepeatStep),
    /// An open loop.
    Arrivals(ArrivalsStep),
    /// Not before this time.
    At(AtStep),
    /// A CPU phase.
    Compute(ComputeStep),
    /// Stream part of a file without keeping it.
    Read(Box<ReadStep>),
    /// Let time pass.
    Pause(PauseStep),
    /// Add to a named counter.
    Signal(SignalStep),
    /// Wait until a named counter has reached a value.
    Wait(WaitStep),
    /// Take slots of a named pool.
    Acquire(PoolStep),
    /// Give slots of a named pool back.
    Release(PoolStep),
    /// Make files of a data set exist.
    Prepare(PrepareStep),
    /// Flush and drop the page cache of files.
    DropCaches(DropCachesStep),
}

/// One point of a sweep, carried out once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialStep {
    /// Its name, unique in the actor.
    pub id: TrialId,
    /// Number of the sweep point, from 0.
    pub point: u32,
    /// Number of the repetition within the point, from 0.
    pub repetition: u32,
    /// The randomised block it is in.
    pub block: u32,
    /// The sweep point, in base units.
    pub factors: BTreeMap<Name, Scalar>,
    /// It is not begun at or after this time of the run, but passed over like one that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_s: Option<Seconds>,
    /// Counters that grow by so much once it is recorded as good: whoever records it adds them, for only then is it known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<Name, u64>,
    /// What is done.
    pub steps: Vec<Step>,
}

/// One call of a mover.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferStep {
    /// Which call of the header.
    pub call: Name,
    /// Number of the concurrent transfer, from 0.
    pub slot: u32,
    /// Where the bytes come from.
    pub source: OrDraw<Endpoint>,
    /// The service and door through which the source is read; null: it is a file of the actor's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_via: Option<Via>,
    /// Where they go to.
    pub destination: OrDraw<Endpoint>,
    /// The service and door through which the destination is written; null: it is a file of the actor's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_via: Option<Via>,
    /// Number of files. If more than one, `source` is the first of so many consecutive files of a data set, and `destination` the
    /// directory that files of the same names come to be in.
    pub files: u64,
    /// Bytes in all files together.
    pub bytes: OrDraw<Bytes>,
    /// Whether the destination stays after the trial.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keep: bool,
    /// Whatever the workload wants to find again in the results.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<Name, Scalar>,
}

impl TransferStep {
    /// Whether it is the same each time: nothing of it is drawn.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        matches!(self.source, OrDraw::Fixed(_))
            && matches!(self.destination, OrDraw::Fixed(_))
            && matches!(self.bytes, OrDraw::Fixed(_))
    }
}

/// A part of a file to stream without keeping it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadStep {
    /// Which call of the header.
    pub call: Name,
    /// Number of the concurrent transfer, from 0.
    pub slot: u32,
    /// The file.
    pub source: OrDraw<Endpoint>,
    /// The service and door through which it is read; null: it is a file of the actor's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_via: Option<Via>,
    /// Where in it to begin.
    pub offset_bytes: OrDraw<Bytes>,
    /// How much of it to read.
    pub bytes: OrDraw<Bytes>,
}

/// Lists of steps that run side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParallelStep {
    /// One list of steps a child.
    pub children: Vec<Vec<Step>>,
}

/// A loop, with its bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenRepeat", into = "WrittenRepeat")]
pub struct RepeatStep {
    /// When it ends.
    pub limit: RepeatLimit,
    /// Its body.
    pub steps: Vec<Step>,
}

/// When a `repeat` ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepeatLimit {
    /// After so many rounds.
    Count(u64),
    /// No round begins at or after this time of the run.
    Until(Seconds),
    /// No round begins so long after the loop did, or later.
    For(Seconds),
}

/// An open loop: a body begun again and again, whether what was begun before has ended or not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrivalsStep {
    /// Times of the run and the rate of arrivals then; in between it is interpolated. None arrives before the first time, nor at
    /// the last one or later.
    pub rate_per_s: Vec<(Seconds, f64)>,
    /// From an arrival to the next one, in arrivals that the rate adds up to: 1 is as many as it says, evenly; drawn exponentially
    /// with a mean of 1, they are a Poisson process of that rate.
    pub gap: OrDraw<f64>,
    /// The same from the first time to the first arrival; null: as `gap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<OrDraw<f64>>,
    /// The body.
    pub steps: Vec<Step>,
}

/// A time not to be early for.
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
    /// How long.
    pub duration_s: OrDraw<Seconds>,
}

/// An addition to a counter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalStep {
    /// Name of the counter.
    pub counter: Name,
    /// What to add.
    pub add: u64,
}

/// A counter to wait for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitStep {
    /// Name of the counter.
    pub counter: Name,
    /// The value it must have reached.
    pub until: u64,
}

/// Slots of a pool, to take or to give back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolStep {
    /// Name of the pool.
    pub pool: Name,
    /// How many slots.
    pub count: u32,
}

/// Files of a data set that must be there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrepareStep {
    /// Name of the data set.
    pub dataset: Name,
    /// Its first file needed.
    pub first: u64,
    /// How many.
    pub files: u64,
    /// Whether they must be in the page cache.
    pub cache: Cache,
}

/// What the page cache must be like after a `prepare`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// However it happens to be.
    AsIs,
    /// The files have just been read.
    Warm,
}

/// Files that must leave the page cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DropCachesStep {
    /// Name of the data set.
    pub dataset: Name,
    /// Its first file.
    pub first: u64,
    /// How many.
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

// Not derived as `untagged`: that would answer every mistake with "did not match any variant".
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

/// `repeat` as it stands in the file, where the type cannot say "exactly one of the two".
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WrittenRepeat {
    /// A number of rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// A time of the run at or after which no round begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until_s: Option<Seconds>,
    /// A time after its beginning at or after which no round begins.
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
            "description": "A loop, with its bound",
            "properties": {
                "count": {"type": "integer", "minimum": 0, "description": "A number of rounds"},
                "until_s": {"type": "number", "description": "No round begins at or after this time of the run"},
                "for_s": {"type": "number", "description": "No round begins so long after the loop did, or later"},
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
