//! What a lab makes of a host and of a place, where they are made and not found.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bytes;

/// The congestion control of a lab host for which the scenario names none: the kernel's own default differs from machine to
/// machine.
pub const CONGESTION_CONTROL: &str = "cubic";

/// How a lab makes a host. Each key may be absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LabHost {
    /// The site it belongs to; for people and pictures.
    pub site: Option<String>,
    /// The cores that its processes are pinned to; null: any.
    pub cpus: Option<Vec<u32>>,
    /// How many cores its processes may use together; null: all.
    pub cpu_limit_cores: Option<f64>,
    /// How much memory they may use together; null: all.
    pub memory_limit_bytes: Option<Bytes>,
    /// TCP congestion control of every socket of the host.
    pub congestion_control: String,
    /// Kernel settings of its network namespace: `net.ipv4.tcp_rmem` → `4096 131072 33554432`.
    pub sysctls: BTreeMap<String, String>,
    /// Devices out of which private addresses are hidden behind the host's own (masquerade).
    pub nat: Vec<String>,
    /// Addresses that are reached by another device than `default_device`: address → device.
    pub routes: BTreeMap<String, String>,
    /// The device that all other addresses are reached by; null: none are.
    pub default_device: Option<String>,
}

impl Default for LabHost {
    fn default() -> Self {
        Self {
            site: None,
            cpus: None,
            cpu_limit_cores: None,
            memory_limit_bytes: None,
            congestion_control: CONGESTION_CONTROL.into(),
            sysctls: BTreeMap::new(),
            nat: Vec::new(),
            routes: BTreeMap::new(),
            default_device: None,
        }
    }
}

/// How a lab makes a place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// What it is.
    pub kind: StorageKind,
    /// How much it holds; null: as much as is there (`directory` only).
    #[serde(default)]
    pub size_bytes: Option<Bytes>,
    /// The fastest it may be read; null: as fast as it can.
    #[serde(default)]
    pub read_bytes_per_s: Option<f64>,
    /// The fastest it may be written; null: as fast as it can.
    #[serde(default)]
    pub write_bytes_per_s: Option<f64>,
}

/// What a place is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StorageKind {
    /// A directory of the machine's own file system.
    Directory,
    /// Memory.
    Tmpfs,
    /// An ext4 file system of its own, on a loop device.
    Disk,
}
