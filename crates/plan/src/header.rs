//! Line 1 of a plan: everything its actors refer to by name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{
    Bytes, Call, Cost, Draw, Endpoint, LabHost, Network, Portion, Seconds, Service, Sizes, Storage,
};

/// The newest version of the format that this crate reads, and the one it writes.
pub const VERSION: u32 = 1;
/// What stands as `format` in every plan.
pub const FORMAT: &str = "venturi-plan";

/// A name in a plan: of an actor, a call, a host. Shared, as the same few stand in every line.
pub type Name = Arc<str>;

/// The header of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Always `"venturi-plan"`.
    pub format: Format,
    /// Version of the format.
    pub version: Version,
    /// Name of the scenario.
    pub name: String,
    /// Seed of every draw.
    pub seed: u64,
    /// Scale of the scenario: what sizes were multiplied with.
    pub scale: f64,
    /// The scenario as resolved: includes merged, settings applied, defaults filled in. Kept for the record, never read.
    pub scenario: serde_json::Value,
    /// Hosts by name.
    pub hosts: BTreeMap<Name, Host>,
    /// Places by name, besides the built-in `null` and `zero`.
    pub places: BTreeMap<Name, Place>,
    /// Server programs by name.
    #[serde(default)]
    pub services: BTreeMap<Name, Service>,
    /// The network between the hosts; null: whatever there is.
    #[serde(default)]
    pub network: Option<Network>,
    /// Data sets by name.
    pub datasets: BTreeMap<Name, Dataset>,
    /// Calls of movers by name.
    pub calls: BTreeMap<Name, Call>,
    /// Streams of random values by name.
    pub draws: BTreeMap<Name, Draw>,
    /// Slots of each pool, on each host.
    pub pools: BTreeMap<Name, u32>,
    /// What to sample.
    pub measure: Measure,
    /// What the plan adds up to.
    pub totals: Totals,
    /// What the scenario says of costs, for a simulated world; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// The text `"venturi-plan"`, as a type: a document that has it is a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// `"venturi-plan"`.
    #[default]
    #[serde(rename = "venturi-plan")]
    VenturiPlan,
}

impl JsonSchema for Format {
    fn schema_name() -> Cow<'static, str> {
        "Format".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"const": FORMAT})
    }
}

/// A version that this crate can read: 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Version(u32);

impl Version {
    /// The number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl Default for Version {
    fn default() -> Self {
        Self(VERSION)
    }
}

impl TryFrom<u64> for Version {
    type Error = String;

    fn try_from(found: u64) -> Result<Self, String> {
        match u32::try_from(found) {
            Ok(0) => Err("expected a plan of version 1, found version 0".into()),
            Ok(version) if version <= VERSION => Ok(Self(version)),
            _ => Err(format!(
                "expected a plan of version {VERSION} or older, found version {found}; use a newer Venturi"
            )),
        }
    }
}

impl From<Version> for u64 {
    fn from(version: Version) -> Self {
        version.0.into()
    }
}

impl JsonSchema for Version {
    fn schema_name() -> Cow<'static, str> {
        "Version".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": 1, "maximum": VERSION})
    }
}

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// `user@host`; null is this machine.
    pub ssh: Option<String>,
    /// Memory of the machine, where the scenario says it.
    pub memory_bytes: Option<Bytes>,
    /// How a lab makes it; null: it is there.
    #[serde(default)]
    pub lab: Option<LabHost>,
}

/// A directory of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The host it is on.
    pub host: Name,
    /// The directory; a relative path is below the agent's scratch directory.
    pub path: String,
    /// How a lab makes it; null: a directory as any other.
    #[serde(default)]
    pub storage: Option<Storage>,
}

/// Files with content from a seed: file *i* is `path/` and *i* in six digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dataset {
    /// The place it is in.
    pub place: Name,
    /// Directory below the place.
    pub path: String,
    /// Number of files.
    pub files: u64,
    /// Size of each file; of a mix, the largest one.
    pub size_bytes: Bytes,
    /// Seed of the content.
    pub seed: u64,
    /// Sizes of the files where they differ: portions one after the other, and again from the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mix: Vec<Portion>,
}

impl Dataset {
    /// The size of each file by its number.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        if self.mix.is_empty() {
            Sizes::equal(self.size_bytes.get())
        } else {
            Sizes::mixed(&self.mix)
        }
    }
}

impl Header {
    /// The data set that a numbered file belongs to.
    #[must_use]
    pub fn dataset_of(&self, file: &Endpoint) -> Option<&Dataset> {
        let (folder, _) = file.numbered()?;
        let mut all = self.datasets.values();
        all.find(|it| &*it.place == file.place() && it.path == folder)
    }
}

/// What to sample, and how often.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Time from sample to sample; null: no samples.
    pub interval_s: Option<Seconds>,
    /// Which families of counters.
    pub counters: Vec<CounterFamily>,
    /// How transfers are recorded.
    #[serde(default, skip_serializing_if = "Recorded::is_each")]
    pub transfers: Recorded,
}

/// How transfers are recorded.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Recorded {
    /// Each for itself.
    #[default]
    Each,
    /// As counts, sums and distributions of each route of a trial; in virtual time only.
    Routes,
}

impl Recorded {
    #[allow(clippy::trivially_copy_pass_by_ref)] // serde calls it with a reference
    fn is_each(&self) -> bool {
        *self == Self::Each
    }
}

/// A family of kernel counters.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CounterFamily {
    /// Processor time by state.
    Cpu,
    /// Whole block devices.
    Disk,
    /// Available, cached, dirty.
    Memory,
    /// Network interfaces.
    Nic,
    /// TCP sockets, told in records of their own.
    Tcp,
}

/// What the plan adds up to, for estimates and checks before it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    /// Number of trials.
    pub trials: u64,
    /// Number of transfers; null where it depends on the run (`until_s`).
    pub transfers: Option<u64>,
    /// Bytes to transfer; null where they depend on the run or a draw.
    pub bytes: Option<Bytes>,
    /// Peak use of each place.
    pub disk_bytes: BTreeMap<Name, Bytes>,
}
