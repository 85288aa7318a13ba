//! Operations on files of a host: complete descriptions with absolute paths, which any process on
//! this host can execute.
//!
//! An agent runs them itself for its own files. For files of another host it sends a [`Request`](crate::Request), and the
//! controller lets the shell of that host run the operation. A path can be a URL of an existing server: then the controller
//! starts `venturi-engine file` in the shell of the host.

use std::collections::BTreeMap;
use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Bytes, Cache, CacheState, Finding, Name, Seconds, Sizes, file_name};

/// An operation on files of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "operation", rename_all = "snake_case")]
pub enum FileOperation {
    /// Create missing files of a dataset, and read them if they must be in the page cache.
    Prepare(PrepareOperation),
    /// Remove files of a dataset from the page cache.
    DropCaches(DropCachesOperation),
    /// Create the parent directories of a destination and remove remains of a killed run.
    Clear(ClearOperation),
    /// Measure received bytes.
    Check(CheckOperation),
    /// Remove destinations.
    Remove(RemoveOperation),
    /// Create a directory of links.
    Link(LinkOperation),
}

/// Result of a successful operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OperationOutcome {
    /// Result of `prepare` and of `drop_caches`.
    Prepared(PrepareOutcome),
    /// Result of `clear`.
    Cleared(ClearOutcome),
    /// Result of `check`.
    Checked(CheckOutcome),
    /// Result of `remove`.
    Removed(RemoveOutcome),
    /// Result of `link`.
    Linked(LinkOutcome),
}

/// The outcome of an operation, or the reason of its failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationResult {
    /// The outcome.
    Outcome(OperationOutcome),
    /// Location, expected and found value, next step.
    Error(String),
}

/// Consecutive files of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DatasetFiles {
    /// Name of the dataset, for messages.
    pub dataset: Name,
    /// Its directory, an absolute path.
    pub directory: String,
    /// Seed of the content.
    pub seed: u64,
    /// Size of each file by its number.
    pub sizes: Sizes,
    /// First file.
    pub first: u64,
    /// Number of files.
    pub files: u64,
    /// Paths of these files below `directory`, if they exist already; `sizes` are then their maximum sizes. Empty: numbered
    /// files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// Numbered files in the directory of a destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSet {
    /// First file.
    pub first: u64,
    /// Number of files.
    pub files: u64,
    /// Size of each file by its number; null: unknown.
    pub sizes: Option<Sizes>,
}

impl FileSet {
    /// Return the names of the files, in order.
    ///
    /// ```
    /// # use venturi_plan::FileSet;
    /// let set = FileSet { first: 8, files: 2, sizes: None };
    /// assert!(set.names().eq(["000008", "000009"]));
    /// ```
    pub fn names(&self) -> impl Iterator<Item = String> + use<> {
        self.numbers().map(file_name)
    }

    /// Return the numbers of the files.
    #[must_use]
    pub fn numbers(&self) -> Range<u64> {
        self.first..self.first.saturating_add(self.files)
    }
}

/// Create missing files of a dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrepareOperation {
    /// The files.
    pub files: DatasetFiles,
    /// Whether they must be in the page cache.
    pub cache: Cache,
    /// Maximum time without progress.
    pub stall_timeout_s: Seconds,
}

/// Remove files of a dataset from the page cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DropCachesOperation {
    /// The files.
    pub files: DatasetFiles,
    /// Maximum time without progress.
    pub stall_timeout_s: Seconds,
}

/// Result of `prepare` and of `drop_caches`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrepareOutcome {
    /// The event to record; null: nothing changed.
    pub event: Option<OperationEvent>,
    /// State of the page cache; null: unchanged.
    pub cache: Option<CacheState>,
    /// Findings about it.
    pub findings: Vec<Finding>,
    /// Whether the files are unusable, so that the trial cannot succeed.
    pub failed: bool,
    /// Size of each existing file by its path; empty for generated files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sizes: BTreeMap<String, Bytes>,
}

/// An event that an operation reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OperationEvent {
    /// Kind of event.
    pub kind: String,
    /// Its details.
    pub detail: BTreeMap<String, serde_json::Value>,
}

/// Create the parent directories of a destination and remove remains of a killed run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClearOperation {
    /// The destination: a file, or the directory of `files`. An absolute path.
    pub path: String,
    /// The files of a transfer of several files; null: one file, or a directory with arbitrary files.
    pub files: Option<FileSet>,
    /// The source, if it is on the same host: it is never removed.
    pub source: Option<String>,
    /// Whether the destination is in a scratch directory, where all files belong to Venturi.
    pub in_scratch: bool,
    /// Whether the plan keeps the destination.
    pub keep: bool,
    /// Whether a transfer of the same trial has written to the destination before.
    pub started: bool,
}

/// Result of `clear`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClearOutcome {
    /// Rule for the destination after the trial.
    pub removal: Removal,
    /// Names of all entries in the directory of the destination; null: too many, or unreadable.
    pub siblings: Option<Vec<String>>,
}

/// Rule for a destination after its trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Removal {
    /// The plan keeps it.
    Keep,
    /// Remove it.
    Remove,
    /// Remove its files: the directory existed before.
    Files,
    /// Report that it stays: it is the source, or a directory that existed before and is not in a scratch directory.
    Rejected,
}

/// Measure received bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckOperation {
    /// The destinations.
    pub destinations: Vec<CheckedDestination>,
    /// Time for servers to complete their files, counted from the start of the operation.
    pub grace_s: Seconds,
}

/// A destination to check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckedDestination {
    /// Its absolute path.
    pub path: String,
    /// The files of a transfer of several files; null: one file, or a directory with arbitrary files.
    pub files: Option<FileSet>,
    /// Bytes that the plan requests.
    pub requested_bytes: Bytes,
    /// Whether to wait for missing bytes: a server writes the file, and may be late.
    pub late: bool,
    /// The checksum to compare with the source; null: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<ChecksumCheck>,
}

/// Comparison of a destination on an existing server with its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChecksumCheck {
    /// Algorithm, such as `adler32`.
    pub algorithm: String,
    /// Host of the source.
    pub source_host: Name,
    /// The source: an absolute path or a URL of a file, or the directory of several files.
    pub source: String,
}

/// Result of `check`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckOutcome {
    /// The state of each destination, in the order of the operation.
    pub destinations: Vec<ReceiverState>,
}

/// State of a destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReceiverState {
    /// Its bytes and files.
    Received(ReceivedBytes),
    /// The reason why it cannot be read.
    Error(String),
}

/// Bytes and files of a receiver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceivedBytes {
    /// Bytes that it has.
    pub bytes: Bytes,
    /// Description of the missing part of the requested bytes; null: nothing is missing.
    pub lacking: Option<String>,
    /// Whether it has more bytes than requested.
    pub more: bool,
    /// Difference from the source by checksum; null: equal, or not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
    /// The checksum, equal to the checksum of the source, such as `adler32:03da0195`; null: none,
    /// or several files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Bytes and time of the first check, if bytes were missing only then; null: no bytes were
    /// missing, or they still are.
    pub late: Option<LateBytes>,
}

/// State of a receiver that lacked bytes at first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LateBytes {
    /// Bytes of the first check.
    pub first_bytes: Bytes,
    /// Time from the first check to the complete file.
    pub wait_s: Seconds,
}

/// Remove destinations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveOperation {
    /// The destinations.
    pub destinations: Vec<RemovedDestination>,
}

/// A destination to remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemovedDestination {
    /// Its absolute path.
    pub path: String,
    /// The files of a transfer of several files; null: one file, or a directory with arbitrary files.
    pub files: Option<FileSet>,
    /// Rule for the removal.
    pub removal: Removal,
    /// Whether a transfer failed, so partial files can exist.
    pub failed: bool,
}

/// Result of `remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveOutcome {
    /// For each destination in the order of the operation: the reason if some of it remains; null:
    /// it is removed.
    pub errors: Vec<Option<String>>,
}

/// Create a new directory of links to files, for tools that copy whole directories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkOperation {
    /// The directory for it, an absolute path; it is created if it does not exist.
    pub directory: String,
    /// Start of the name of the new directory; a number follows.
    pub name: String,
    /// The files.
    pub files: FileSet,
    /// Directory of the files, for hard links; null: symbolic links to `/dev/null`.
    pub source: Option<String>,
}

/// Result of `link`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkOutcome {
    /// Name of the new directory.
    pub name: String,
}
