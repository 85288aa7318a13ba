//! Plans with two hosts and one link in each direction, whose results are known.

use serde_json::{Value, json};
use venturi_plan::Plan;

/// Link rate for 1 MB of payload per second: a packet of 1052 bytes carries 1000.
const RATE_BIT_PER_S: f64 = 1.052 * 8e6;
const MTU: u32 = 1052;

/// Return a plan; actors are pairs of a host (`a` or `b`) and steps.
pub(super) fn plan(
    delay_s: f64,
    change: impl FnOnce(&mut Value),
    actors: &[(&str, Value)],
) -> Plan {
    let link = |from: &str, to: &str| {
        json!({"from": format!("{from}.eth0"), "to": format!("{to}.eth0"), "rate_bit_per_s": RATE_BIT_PER_S,
               "delay_s": delay_s, "queue_bytes": 100_000})
    };
    let interface = |host: &str, number: u8| json!({"host": host, "device": "eth0", "address": format!("10.77.0.{number}"), "mtu": MTU});
    let call = |options: Value| {
        json!({"mover": "get", "options": options, "argv": ["get", "{source}", "{destination}"], "requires": [],
               "timeout_s": 100.0, "capture": false, "expect": "destination"})
    };
    let host = json!({"ssh": null, "memory_bytes": null, "lab": {"default_device": "eth0", "cpu_limit_cores": 1.0}});
    let mut header = json!({
        "format": "venturi-plan", "version": 2, "name": "x", "seed": 1, "scale": 1.0, "scenario": {},
        "hosts": {"a": host, "b": host},
        "storages": {"src": {"host": "a", "path": "src"}, "dst": {"host": "b", "path": "dst"}},
        "services": {"ftp": {"kind": "gridftp", "host": "a", "interface": "a.eth0", "storages": ["src"], "ports": [2811],
                             "service_ports": {"ftp": "ftp://a.lab.test:{port}{path}"}}},
        "network": {"interfaces": {"a.eth0": interface("a", 1), "b.eth0": interface("b", 2)},
                    "links": {"a>b": link("a", "b"), "b>a": link("b", "a")}},
        "datasets": {}, "calls": {"get": call(json!({})), "narrow": call(json!({"window_bytes": 10_000}))},
        "draws": {}, "pools": {}, "measure": {"interval_s": null, "counters": []},
        "totals": {"trials": 0, "transfers": null, "bytes": null, "disk_bytes": {}},
    });
    change(&mut header);
    let mut text = header.to_string();
    for (number, (host, steps)) in actors.iter().enumerate() {
        text += "\n";
        text +=
            &json!({"actor": format!("actor{number}"), "host": host, "steps": steps}).to_string();
    }
    Plan::read(text.as_bytes()).expect("a plan")
}

/// Return a transfer of a file from `a` to `b`, requested by `b`.
pub(super) fn get(call: &str, bytes: u64) -> Value {
    json!({"step": "transfer", "call": call, "slot": 0, "source": "src:x", "source_via": "ftp/ftp",
           "destination": "dst:x", "files": 1, "bytes": bytes})
}
