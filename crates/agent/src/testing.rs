//! Plans for the tests of this crate.

use std::collections::BTreeSet;

use venturi_plan::{Header, Start};

/// Returns a header with only these storages, from JSON.
pub(crate) fn header(storages: &str) -> Header {
    let text = format!(
        r#"{{"format": "venturi-plan", "version": 2, "name": "test", "seed": 1, "scale": 1.0, "scenario": {{}},
            "hosts": {{"me": {{"ssh": null, "memory_bytes": null}}}}, "storages": {storages}, "datasets": {{}}, "calls": {{}},
            "draws": {{}}, "pools": {{}}, "measure": {{"interval_s": null, "counters": []}},
            "totals": {{"trials": 0, "transfers": 0, "bytes": 0, "disk_bytes": {{}}}}}}"#
    );
    serde_json::from_str(&text).expect("a header")
}

/// Returns the start of an agent of host `me` with the scratch directory `/scratch` and these
/// storages.
pub(crate) fn start(storages: &str) -> Start {
    Start {
        host: "me".into(),
        scratch: "/scratch".into(),
        epoch_unix_ns: 0,
        header: header(storages),
        skip: std::collections::BTreeSet::new(),
        search: Vec::new(),
        hosts: std::collections::BTreeMap::new(),
        services: std::collections::BTreeMap::new(),
        silence_s: None,
        cgroups: None,
        work_groups: Vec::new(),
        stay: false,
        server_failures: None,
        ended_services: BTreeSet::new(),
        run_directory: None,
    }
}
