//! What a ground is like.

use std::fs;
use std::net::TcpListener;

use serde_json::json;

use crate::testkit::{Hold, Who, descriptors, mounts, namespace, open_folder, wait_until};

fn hosts_are_apart(who: Who) {
    if !who.is_possible() {
        return;
    }
    let hold = Hold::two_hosts(who);
    assert_eq!(hold.ask("a", "hostname"), "a.lab.test");
    assert_eq!(hold.ask("b", "cat /proc/sys/kernel/hostname"), "b.lab.test");
    // A setting of the network of one is not one of the other's.
    hold.ask("a", "echo 1 > /proc/sys/net/ipv4/ip_forward");
    let forwards = "cat /proc/sys/net/ipv4/ip_forward";
    assert_eq!(
        (hold.ask("a", forwards), hold.ask("b", forwards)),
        ("1".into(), "0".into())
    );
    // `lo` is up, and is nobody else's.
    for host in ["a", "b"] {
        let devices = hold.ask(host, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '");
        assert!(devices.lines().any(|device| device == "lo"), "{devices}");
        assert!(
            hold.ask(host, "cat /proc/net/fib_trie")
                .contains("127.0.0.1")
        );
    }
    let ours = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = ours.local_addr().expect("an address").port();
    let knock = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' 2>&1 || true");
    assert!(
        hold.ask("a", &knock).contains("refused"),
        "{}",
        hold.ask("a", &knock)
    );
    let outside = std::process::Command::new("sh")
        .args(["-c", &knock])
        .output();
    assert_eq!(outside.expect("sh").stdout, b"", "the port itself is open");
    let networks = [hold.init(), hold.host("a"), hold.host("b")].map(|pid| namespace(pid, "net"));
    assert_ne!(networks[1], networks[2]);
    assert!(!networks[1..].contains(&networks[0]), "{networks:?}");
}

#[test]
fn hosts_have_their_names_and_do_not_see_each_others_network() {
    hosts_are_apart(Who::Caller);
}

#[test]
fn an_ordinary_user_has_hosts_as_well() {
    hosts_are_apart(Who::Nobody);
}

#[test]
fn the_user_namespace_is_told_and_its_root_is_the_caller() {
    if !Who::Nobody.is_possible() {
        return;
    }
    let hold = Hold::two_hosts(Who::Nobody);
    assert_eq!(hold.ready["user_namespace"], true);
    assert_eq!(hold.ask("a", "id -u"), "0");
    let own = hold.ask("a", "cat /proc/self/uid_map");
    assert_eq!(
        own.split_whitespace().collect::<Vec<_>>(),
        ["0", "65534", "1"]
    );
    let by_root = Hold::two_hosts(Who::Caller);
    assert_eq!(by_root.ready["user_namespace"], false);
}

fn mounts_are_inside(who: Who) {
    if !who.is_possible() {
        return;
    }
    let (folder, _engine) = open_folder();
    let path = |name: &str| folder.path().join(name);
    for name in ["memory", "under", "over"] {
        fs::create_dir(path(name)).expect("a folder");
    }
    for (name, text) in [
        ("file", "below"),
        ("lies-over", "above"),
        ("over/inner", "inner"),
        ("memory/hidden", "hidden"),
    ] {
        fs::write(path(name), text).expect("a file");
    }
    // As /etc/resolv.conf leads into /run on many machines.
    std::os::unix::fs::symlink("memory/deep/end", path("link")).expect("a link");
    let order = json!({"hosts": {"a": "a"}, "tmpfs": ["/dev/shm", path("memory")], "binds": [
        [path("lies-over"), path("file")], [path("over"), path("under")],
        [path("memory/hidden"), path("link")]]});
    let hold = Hold::start(who, &order);
    let read = |name: &str| hold.ask("a", &format!("cat {}", path(name).display()));
    assert_eq!(read("file"), "above");
    assert_eq!(read("under/inner"), "inner");
    assert_eq!(
        read("link"),
        "hidden",
        "what a tmpfs hides can still lie over something"
    );
    let mode = |path: &str| hold.ask("a", &format!("stat -c %a {path}"));
    assert_eq!(mode("/dev/shm"), "1777");
    assert_eq!(mode(&path("memory").display().to_string()), "777");
    assert_eq!(
        hold.ask("a", "readlink /proc/1/ns/pid"),
        namespace(hold.init(), "pid").expect("it lives")
    );
    // A mount that is made inside stays inside.
    hold.ask(
        "a",
        &format!(
            "mount -t tmpfs none {0} && touch {0}/mark",
            path("over").display()
        ),
    );
    assert!(!path("over/mark").exists());
    assert_eq!(fs::read_to_string(path("file")).expect("a file"), "below");
    assert!(!path("memory/deep").exists());
    let here = folder.path().display().to_string();
    assert!(!mounts().contains(&here), "nothing is mounted outside");
}

#[test]
fn mounts_of_the_ground_are_seen_inside_only() {
    mounts_are_inside(Who::Caller);
}

#[test]
fn mounts_of_an_ordinary_users_ground_are_seen_inside_only() {
    mounts_are_inside(Who::Nobody);
}

#[test]
fn orphans_are_reaped() {
    if !Who::Caller.is_possible() {
        return;
    }
    let hold = Hold::two_hosts(Who::Caller);
    let orphan = hold.ask("a", "sh -c 'sleep 600 >/dev/null 2>&1 & echo $!'");
    let orphan = orphan.parse().expect("a number");
    assert!(
        hold.child_of_init(orphan).is_some(),
        "PID 1 has inherited it"
    );
    hold.ask("b", &format!("kill -9 {orphan}"));
    wait_until("its burial", || hold.child_of_init(orphan).is_none());
}

#[test]
fn nobody_inside_keeps_the_controllers_pipes_open() {
    if !Who::Caller.is_possible() {
        return;
    }
    let hold = Hold::two_hosts(Who::Caller);
    let outer = descriptors(i32::try_from(hold.child.id()).expect("a pid"));
    for pid in [hold.init(), hold.host("a"), hold.host("b")] {
        let held = descriptors(pid);
        for number in ["0", "1"] {
            let pipe = &outer[number];
            assert!(pipe.to_string_lossy().starts_with("pipe:"), "{pipe:?}");
            assert!(!held.values().any(|path| path == pipe), "{pid}: {held:?}");
        }
    }
    assert!(descriptors(hold.host("a")).is_empty());
}
