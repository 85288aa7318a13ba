//! Properties of hosts and storages that a lab creates.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bytes;

/// Default congestion control of a lab host; the default of the kernel differs between machines.
pub const CONGESTION_CONTROL: &str = "cubic";

/// Properties of a lab host. Each key is optional.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LabHost {
    /// Site of the host, for reports and diagrams.
    pub site: Option<String>,
    /// CPU cores of its processes; null: all.
    pub cpus: Option<Vec<u32>>,
    /// Limit of CPU cores for all its processes together; null: unlimited.
    pub cpu_limit_cores: Option<f64>,
    /// Limit of memory for all its processes together; null: unlimited.
    pub memory_limit_bytes: Option<Bytes>,
    /// TCP congestion control of all sockets of the host.
    pub congestion_control: String,
    /// Kernel settings of its network namespace: `net.ipv4.tcp_rmem` → `4096 131072 33554432`.
    pub sysctls: BTreeMap<String, String>,
    /// Devices with network address translation for private addresses (masquerade).
    pub nat: Vec<String>,
    /// Routes that do not use `default_device`: address → device.
    pub routes: BTreeMap<String, String>,
    /// Device of the default route; null: no default route.
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

/// Properties of a lab storage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageSpec {
    /// Kind of storage.
    pub kind: StorageKind,
    /// Capacity; null: the free space (`directory` only).
    #[serde(default)]
    pub size_bytes: Option<Bytes>,
    /// Maximum read rate; null: unlimited.
    #[serde(default)]
    pub read_bytes_per_s: Option<f64>,
    /// Maximum write rate; null: unlimited.
    #[serde(default)]
    pub write_bytes_per_s: Option<f64>,
}

/// Kind of storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StorageKind {
    /// A directory of a file system of the machine.
    Directory,
    /// Memory.
    Tmpfs,
    /// A separate ext4 file system on a loop device.
    Disk,
}
