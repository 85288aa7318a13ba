//! Line 1 of a plan: all objects that its actors refer to by name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{
    Bytes, Call, Cost, Draw, Endpoint, LabHost, Network, Seconds, Service, SizeGroup, Sizes,
    StorageSpec,
};

/// Version of the format that this crate reads and writes.
pub const VERSION: u32 = 2;
/// Value of `format` in every plan.
pub const FORMAT: &str = "venturi-plan";

/// A name in a plan: of an actor, a call, a host. It is shared, because all lines have the same few
/// names.
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
    /// Seed of all draws.
    pub seed: u64,
    /// Scale of the scenario, a factor of sizes.
    pub scale: f64,
    /// The resolved scenario, with includes, settings and defaults. It is a record only and is not
    /// read.
    pub scenario: serde_json::Value,
    /// Hosts by name.
    pub hosts: BTreeMap<Name, Host>,
    /// Storages by name, in addition to the built-in `null` and `zero`.
    pub storages: BTreeMap<Name, Storage>,
    /// Server programs by name.
    #[serde(default)]
    pub services: BTreeMap<Name, Service>,
    /// The network between the hosts; null: the existing network.
    #[serde(default)]
    pub network: Option<Network>,
    /// Datasets by name.
    pub datasets: BTreeMap<Name, Dataset>,
    /// Calls of movers by name.
    pub calls: BTreeMap<Name, Call>,
    /// Streams of random values by name.
    pub draws: BTreeMap<Name, Draw>,
    /// Slots of each pool, on each host.
    pub pools: BTreeMap<Name, u32>,
    /// Counters to sample.
    pub measure: Measure,
    /// Totals of the plan.
    pub totals: Totals,
    /// Costs from the scenario, for a simulation; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// The text `"venturi-plan"` as a type; it marks a document as a plan.
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

/// The version of the format that this crate reads: [`VERSION`].
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
        if found == u64::from(VERSION) {
            return Ok(Self(VERSION));
        }
        Err(format!(
            "expected a plan of version {VERSION}, found version {found}; create the plan again with \
             this Venturi, or use the Venturi that created it"
        ))
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
        json_schema!({"const": VERSION})
    }
}

/// A host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// `user@host`; null: this machine.
    pub ssh: Option<String>,
    /// Memory of the machine, if the scenario sets it.
    pub memory_bytes: Option<Bytes>,
    /// Properties of the host in a lab; null: an existing host.
    #[serde(default)]
    pub lab: Option<LabHost>,
    /// Words before a command that reach the host, instead of ssh: `["srun", "-w", "node7"]`; null:
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect: Option<Vec<String>>,
    /// Name or address at which other hosts reach its servers; null: the host name of `ssh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// First and last port that other hosts can reach; null: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_ports: Option<PortRange>,
    /// Directory of the host for the engine; null: the first usable one of the usual directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// Environment variables of its movers and servers, in addition to the login environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

/// First and last port of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "(u16, u16)", into = "(u16, u16)")]
#[schemars(with = "(u16, u16)")]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl TryFrom<(u16, u16)> for PortRange {
    type Error = String;

    fn try_from((first, last): (u16, u16)) -> Result<Self, String> {
        if first > last {
            return Err(format!(
                "expected the first and the last port of a range, found {first} and {last}"
            ));
        }
        Ok(Self { first, last })
    }
}

impl From<PortRange> for (u16, u16) {
    fn from(range: PortRange) -> Self {
        (range.first, range.last)
    }
}

/// A directory of a host, or of existing servers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// Host of the directory; null: only services reach it.
    pub host: Option<Name>,
    /// The directory; a relative path is below the agent's scratch directory. Empty with `url`.
    pub path: String,
    /// Properties of the storage in a lab; null: a plain directory.
    #[serde(default)]
    pub spec: Option<StorageSpec>,
    /// URL of a directory on existing servers. The shell of `host` handles its files through the protocol. Files of a run are
    /// in a directory of the run below it. Null: a directory of `host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Algorithm of the checksums that verify transfers to `url`; null: only sizes are verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Whether it has files of the user, which are never changed or removed. It is never a destination.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub existing: bool,
}

/// Files with content from a seed; file *i* is `path/` and *i* in six digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dataset {
    /// The storage of the files.
    pub storage: Name,
    /// Directory below the storage.
    pub path: String,
    /// Number of files.
    pub files: u64,
    /// Size of each file; of a mix, the largest one.
    pub size_bytes: Bytes,
    /// Seed of the content.
    pub seed: u64,
    /// Different sizes of files: groups in sequence, repeated in a cycle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mix: Vec<SizeGroup>,
    /// Paths of existing files below the storage; empty: generated files. `size_bytes` is then their maximum size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// True for existing files whose names are unknown before the run; the controller replaces this dataset by one with names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub listed: bool,
}

impl Dataset {
    /// Return the size of each file by its number.
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
    /// Return the dataset of a numbered file.
    #[must_use]
    pub fn dataset_of(&self, file: &Endpoint) -> Option<&Dataset> {
        let (directory, _) = file.numbered()?;
        let mut all = self.datasets.values();
        all.find(|it| &*it.storage == file.storage() && it.path == directory)
    }
}

/// Counters to sample, and the interval.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Interval between samples; null: no samples.
    pub interval_s: Option<Seconds>,
    /// Families of counters.
    pub counters: Vec<CounterFamily>,
    /// Detail of the records of transfers.
    #[serde(default, skip_serializing_if = "Recorded::is_each")]
    pub transfers: Recorded,
}

/// Detail of the records of transfers.
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
    /// One record per transfer.
    #[default]
    Each,
    /// Counts, sums and distributions of each route of a trial; in virtual time only.
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
    /// CPU time by state, of the machine and of each core.
    Cpu,
    /// Whole block devices, and mounts of NFS that have a storage.
    Disk,
    /// Available, cached and dirty memory.
    Memory,
    /// Network interfaces, and packet queues of the cores.
    Nic,
    /// Time lost while waiting for CPU, disk and memory.
    Pressure,
    /// Movers and servers of the host.
    Process,
    /// TCP protocol counters, and TCP sockets in separate records.
    Tcp,
}

/// Totals of the plan, for estimates and checks before it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    /// Number of trials.
    pub trials: u64,
    /// Number of transfers; null if it depends on the run (`until_s`).
    pub transfers: Option<u64>,
    /// Bytes to transfer; null if they depend on the run or a draw.
    pub bytes: Option<Bytes>,
    /// Peak use of each storage.
    pub disk_bytes: BTreeMap<Name, Bytes>,
}
