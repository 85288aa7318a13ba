//! Thousands of valid and broken plans: none makes the driver panic or hang, and each gives the
//! same lines twice.

use serde_json::{Map, Value, json};
use venturi_plan::Plan;

use super::super::{SimLine, Simulation};
use crate::world::Assumptions;

/// Maximum number of instants of a plan; an endless loop is cut off here.
const MAX_INSTANTS: usize = 1_000;
/// Maximum number of lines of a plan that are kept.
const MAX_LINES: usize = 20_000;

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Return a valid plan; its actors may still wait forever.
fn valid(dice: &mut Dice) -> Value {
    let hosts = 1 + dice.below(3);
    let name = |host: usize| ["a", "b", "c"][host].to_owned();
    let mut header = json!({
        "format": "venturi-plan", "version": 2, "name": "x", "seed": dice.below(9), "scale": 1.0, "scenario": {},
        "hosts": {}, "storages": {}, "services": {}, "datasets": {}, "calls": {}, "pools": {"p": 1 + dice.below(3)},
        "network": {"interfaces": {}, "routers": ["r"], "links": {}, "routes": {"r": {}}, "changes": []},
        "draws": {"size": {"kind": "uniform", "low": 1.0, "high": 1e6}, "gap": {"kind": "exponential", "mean": 1.0},
            "file": {"kind": "choice", "values": ["pa:set/000000", "pa:set/000001", "pa:x"]}},
        "measure": {"interval_s": dice.one(&[json!(null), json!(0.5), json!(10)]), "counters": ["nic"]},
        "totals": {"trials": 0, "transfers": null, "bytes": null, "disk_bytes": {}},
    });
    for host in 0..hosts {
        add_host(dice, &mut header, &name(host), host);
    }
    header["datasets"]["set"] =
        json!({"storage": "pa", "path": "set", "files": 4, "size_bytes": 50_000, "seed": 1});
    header["calls"]["get"] = call(json!({}));
    header["calls"]["tries"] = call(
        json!({"retries": 2, "restart_interval_s": 0.5, "streams": 3, "concurrency": 2, "pipelining": 4}),
    );
    header["calls"]["timed"] = call(json!({"time_s": 1.5}));
    header["calls"]["proxied"] = call(json!({"proxy": "http://a:3128"}));
    header["calls"]["load"] = call(
        json!({"clients": 1 + dice.below(5), "duration_s": 2.0, "think_s": 0.1, "spread_s": 0.5}),
    );
    header["calls"]["load"]["mover"] = json!("http-load");
    let mut times: Vec<usize> = (0..dice.below(4)).map(|_| dice.below(20)).collect();
    times.sort_unstable();
    for time_s in times {
        let set = match dice.below(3) {
            0 => json!({"up": dice.chance(60)}),
            1 => json!({"rate_bit_per_s": 1e6}),
            _ => json!({"loss": {"kind": "independent", "probability": 0.01}}),
        };
        let link = format!("{}{}", name(dice.below(hosts)), dice.one(&["-up", "-down"]));
        let changes = header["network"]["changes"]
            .as_array_mut()
            .expect("made so");
        changes.push(json!({"time_s": time_s, "link": link, "set": set}));
    }
    let actors = 1 + dice.below(4);
    let lines = (0..actors).map(|actor| {
        let steps = steps(dice, 3, actor * 100);
        json!({"actor": format!("x{actor}"), "host": name(dice.below(hosts)), "steps": steps})
    });
    let lines: Vec<Value> = lines.collect();
    json!({"header": header, "lines": lines, "world": world(dice)})
}

fn add_host(dice: &mut Dice, header: &mut Value, name: &str, number: usize) {
    let end = format!("{name}.eth0");
    header["hosts"][name] = json!({"ssh": null, "memory_bytes": dice.one(&[json!(null), json!(120_000)]),
        "lab": {"default_device": "eth0", "cpu_limit_cores": dice.one(&[json!(null), json!(0.5), json!(2.0)])}});
    header["network"]["interfaces"][&end] =
        json!({"host": name, "device": "eth0", "address": format!("10.77.0.{}", number + 1)});
    for (link, from, to) in [("up", end.as_str(), "r"), ("down", "r", end.as_str())] {
        let lossy = json!({"kind": "independent", "probability": 1e-3});
        header["network"]["links"][format!("{name}-{link}")] = json!({"from": from, "to": to, "rate_bit_per_s": 1e7,
            "delay_s": dice.one(&[0.0, 0.01]), "queue_bytes": 100_000, "loss": dice.one(&[json!(null), lossy])});
    }
    header["network"]["routes"]["r"][&end] = json!(format!("{name}-down"));
    let storage = format!("p{name}");
    header["storages"][&storage] = json!({"host": name, "path": "p"});
    header["services"][format!("ftp-{name}")] = json!({"kind": "gridftp", "host": name, "interface": end, "storages": [storage],
        "ports": [2811], "service_ports": {"ftp": format!("ftp://{name}.lab.test:{{port}}{{path}}")}});
    if number == 0 {
        header["services"]["squid"] = json!({"kind": "squid", "host": name, "interface": end, "storages": [], "ports": [3128],
            "service_ports": {"http-proxy": "http://a.lab.test:{port}"},
            "options": {"instances": 1 + dice.below(3), "cache_memory_bytes": 60_000, "collapsed_forwarding": dice.chance(50)}});
    }
}

fn call(options: Value) -> Value {
    json!({"mover": "get", "options": options, "argv": ["get", "{source}", "{destination}"], "requires": [], "timeout_s": 30.0,
        "capture": false, "expect": "nothing"})
}

fn world(dice: &mut Dice) -> Value {
    let cost = json!({"start_s": 0.01, "session_round_trips": 3.0, "file_round_trips": 1.0, "stall_timeout_s": 2.0, "retry_pause_s": 0.3,
        "resumes": dice.chance(50), "keeps_connection": dice.chance(50)});
    let each = json!([{"source": "ftp", "destination": "file", "cost": cost}]);
    json!({"costs": {"calls": {"get": each, "tries": each}, "services": {"ftp-a": {"sessions": 1 + dice.below(3), "auth_core_s": 0.01}}},
        "explain": dice.chance(70)})
}

fn steps(dice: &mut Dice, depth: usize, number: usize) -> Value {
    let mut all = Vec::new();
    for at in 0..1 + dice.below(3) {
        let next = step(dice, depth, number * 10 + at);
        if dice.chance(12) {
            let slots = |step: &str| json!({"step": step, "pool": "p", "count": 1});
            all.extend([slots("acquire"), next, slots("release")]);
        } else {
            all.push(next);
        }
    }
    all.into()
}

fn step(dice: &mut Dice, depth: usize, number: usize) -> Value {
    if depth > 0 && dice.chance(45) {
        let body = steps(dice, depth - 1, number);
        return match dice.below(5) {
            0 if depth == 3 => {
                json!({"step": "trial", "id": format!("t{number:07}"), "point": 0, "repetition": 0, "block": 0, "factors": {}, "steps": body})
            }
            0 | 1 => {
                json!({"step": "parallel", "children": [body, steps_without_trials(dice, depth - 1)]})
            }
            2 => json!({"step": "repeat", "count": dice.below(5), "steps": body}),
            3 => json!({"step": "repeat", "for_s": 5.0, "steps": body}),
            _ => {
                json!({"step": "arrivals", "rate_per_s": [[0.0, 2.0], [5.0, 3.0]], "gap": {"draw": "gap"}, "steps": body})
            }
        };
    }
    simple(dice)
}

fn steps_without_trials(dice: &mut Dice, depth: usize) -> Value {
    steps(dice, depth.min(2), 0)
}

fn simple(dice: &mut Dice) -> Value {
    match dice.below(14) {
        0 => json!({"step": "pause", "duration_s": dice.one(&[0.0, 0.3])}),
        1 | 2 => json!({"step": "compute", "core_s": 0.2}),
        3..=5 => json!({"step": "signal", "counter": "go", "add": 2}),
        6 if dice.chance(50) => {
            json!({"step": "wait", "counter": "go", "until": 1 + dice.below(3)})
        }
        6 => {
            let cache = dice.one(&["warm", "as_is"]);
            json!({"step": "prepare", "dataset": "set", "first": 0, "files": 1 + dice.below(4), "cache": cache})
        }
        7 => json!({"step": "drop_caches", "dataset": "set", "first": 0, "files": 4}),
        8 => json!({"step": "at", "time_s": dice.below(10)}),
        _ => {
            let call = dice.one(&["get", "get", "tries", "timed", "proxied", "load"]);
            let sources = [
                json!("pa:x"),
                json!("pa:set/000002"),
                json!({"draw": "file"}),
            ];
            let source = dice.one(&sources);
            json!({"step": "transfer", "call": call, "slot": dice.below(2), "source": source, "source_via": "ftp-a/ftp",
                "destination": "null:", "files": 1, "bytes": dice.one(&[json!(0), json!(70_000), json!({"draw": "size"})])})
        }
    }
}

/// Return an invalid value of the same type, sometimes of another type.
fn nasty(dice: &mut Dice, value: &Value) -> Value {
    let numbers = [
        json!(0),
        json!(-1),
        json!(1),
        json!(2),
        json!(7),
        json!(0.5),
        json!(1e9),
        json!(1e30),
        json!(1e300),
        json!(-1e300),
        json!(1e-300),
        json!(1_u64 << 20),
        json!(1_u64 << 53),
        json!(1_u64 << 63),
        json!(u64::MAX),
        json!(i64::MIN),
    ];
    let texts = [
        "",
        "a",
        "b",
        "r",
        "pa",
        "pb:y",
        "pa:set/000001",
        "pa:set/999999",
        "null:",
        "get",
        "tries",
        "load",
        "ftp-a/ftp",
        "ftp-b/ftp",
        "ftp-a",
        "a.eth0",
        "a-up",
        "b-down",
        "10.77.0.2",
        "set",
        "p",
        "go",
        "size",
        "t0000001",
        "http://b:1",
        "warm",
        "up",
    ];
    let others = [
        json!(null),
        json!(true),
        json!([]),
        json!({}),
        json!({"draw": "gap"}),
        json!([[0.0, 1e300], [1e30, 1.0]]),
    ];
    match value {
        Value::Number(_) if dice.chance(95) => dice.one(&numbers).clone(),
        Value::String(_) if dice.chance(95) => json!(dice.one(&texts)),
        Value::Bool(it) if dice.chance(95) => json!(!it),
        _ => dice.one(&others).clone(),
    }
}

/// Change one value in a document.
fn mutate(dice: &mut Dice, value: &mut Value) {
    match value {
        Value::Array(list) if !list.is_empty() && dice.chance(99) => mutate_list(dice, list),
        Value::Object(map) if !map.is_empty() && dice.chance(99) => mutate_map(dice, map),
        _ => *value = nasty(dice, value),
    }
}

fn mutate_list(dice: &mut Dice, list: &mut Vec<Value>) {
    let at = dice.below(list.len());
    match dice.below(20) {
        0 => {
            list.remove(at);
        }
        1 => {
            let again = list[at].clone();
            list.push(again);
        }
        _ => mutate(dice, &mut list[at]),
    }
}

fn mutate_map(dice: &mut Dice, map: &mut Map<String, Value>) {
    let keys: Vec<String> = map.keys().cloned().collect();
    let key = dice.one(&keys).clone();
    match dice.below(40) {
        0 => {
            map.remove(&key);
        }
        1 => {
            let other = map[dice.one(&keys)].clone();
            map.insert(key, other);
        }
        _ => mutate(dice, map.get_mut(&key).expect("one of its keys")),
    }
}

fn text_of(document: &Value) -> String {
    let mut text = document["header"].to_string();
    for line in document["lines"].as_array().into_iter().flatten() {
        text += "\n";
        text += &line.to_string();
    }
    text
}

/// Outcome of a plan.
#[derive(Debug, PartialEq)]
enum Ended {
    /// The plan was rejected, with this error.
    Unread,
    Rejected(String),
    /// The plan ended, or reached the maximum number of instants.
    Whole(Vec<SimLine>),
    CutOff(Vec<SimLine>),
}

fn simulate(document: &Value) -> Ended {
    let Ok(plan) = Plan::read(text_of(document).as_bytes()) else {
        return Ended::Unread;
    };
    let Ok(assumptions) = serde_json::from_value::<Assumptions>(document["world"].clone()) else {
        return Ended::Unread;
    };
    let mut simulation = match Simulation::new(plan.header, plan.lines, assumptions) {
        Ok(simulation) => simulation,
        Err(error) => return Ended::Rejected(error.to_string()),
    };
    let mut lines = Vec::new();
    for _ in 0..MAX_INSTANTS {
        let went = simulation.step();
        lines.extend(std::iter::from_fn(|| simulation.poll_line()));
        match went {
            Ok(true) if lines.len() < MAX_LINES => {}
            Ok(true) => break,
            Ok(false) => return Ended::Whole(lines),
            Err(error) => return Ended::Rejected(error.to_string()),
        }
    }
    Ended::CutOff(lines)
}

/// Return the plan of a number: a third are valid, the others changed at some positions.
fn document(number: u64) -> Value {
    let mut dice = Dice(number.wrapping_mul(0x5851_f42d_4c95_7f2d));
    let mut document = valid(&mut dice);
    if !number.is_multiple_of(3) {
        for _ in 0..1 + dice.below(4) {
            mutate(&mut dice, &mut document);
        }
    }
    document
}

/// Run each plan twice. Return the numbers of plans that were unread, rejected, completed and cut
/// off.
fn try_all(numbers: std::ops::Range<u64>) -> [usize; 4] {
    let mut counts = [0; 4];
    for number in numbers {
        let document = document(number);
        let first = simulate(&document);
        let kind = match &first {
            Ended::Unread => 0,
            Ended::Rejected(text) => {
                assert!(
                    !text.contains("an error of Venturi"),
                    "plan {number}: {text}"
                );
                1
            }
            Ended::Whole(_) => 2,
            Ended::CutOff(_) => 3,
        };
        counts[kind] += 1;
        assert_eq!(
            first,
            simulate(&document),
            "plan {number} differs from itself"
        );
    }
    counts
}

#[test]
fn no_plan_panics_hangs_or_is_nondeterministic() {
    let [unread, rejected, whole, cut_off] = try_all(0..1_200);
    // The test is meaningful only if the generator reaches all outcomes.
    assert!(
        whole > 300 && rejected > 300 && unread > 100,
        "{unread} {rejected} {whole} {cut_off}"
    );
}

#[test]
#[ignore = "ten minutes: cargo test --release -p venturi-sim -- --ignored --nocapture many_plans"]
fn many_plans_do_not_panic_hang_or_differ() {
    for thousand in 3..1_000 {
        let counts = try_all(thousand * 1_000..(thousand + 1) * 1_000);
        println!("{} plans: {counts:?}", thousand * 1_000);
    }
}
