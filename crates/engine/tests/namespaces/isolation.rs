//! Properties of a namespace sandbox.

use std::fs;
use std::net::TcpListener;

use serde_json::json;

use crate::testkit::{
    Sandbox, SandboxUser, descriptors, mounts, namespace, open_directory, wait_until,
};

fn hosts_are_apart(user: SandboxUser) {
    if !user.is_possible() {
        return;
    }
    let sandbox = Sandbox::two_hosts(user);
    assert_eq!(sandbox.run_in("a", "hostname"), "a.lab.test");
    assert_eq!(
        sandbox.run_in("b", "cat /proc/sys/kernel/hostname"),
        "b.lab.test"
    );
    // A network setting of one host does not change the other host.
    sandbox.run_in("a", "echo 1 > /proc/sys/net/ipv4/ip_forward");
    let forwards = "cat /proc/sys/net/ipv4/ip_forward";
    assert_eq!(
        (sandbox.run_in("a", forwards), sandbox.run_in("b", forwards)),
        ("1".into(), "0".into())
    );
    // `lo` is up and private to the host.
    for host in ["a", "b"] {
        let devices = sandbox.run_in(host, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '");
        assert!(devices.lines().any(|device| device == "lo"), "{devices}");
        assert!(
            sandbox
                .run_in(host, "cat /proc/net/fib_trie")
                .contains("127.0.0.1")
        );
    }
    let ours = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = ours.local_addr().expect("an address").port();
    let knock = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' 2>&1 || true");
    assert!(
        sandbox.run_in("a", &knock).contains("refused"),
        "{}",
        sandbox.run_in("a", &knock)
    );
    let outside = std::process::Command::new("sh")
        .args(["-c", &knock])
        .output();
    assert_eq!(outside.expect("sh").stdout, b"", "the port itself is open");
    let networks =
        [sandbox.init(), sandbox.host("a"), sandbox.host("b")].map(|pid| namespace(pid, "net"));
    assert_ne!(networks[1], networks[2]);
    assert!(!networks[1..].contains(&networks[0]), "{networks:?}");
}

#[test]
fn hosts_have_separate_names_and_networks() {
    hosts_are_apart(SandboxUser::Current);
}

#[test]
fn an_ordinary_user_can_create_separate_hosts() {
    hosts_are_apart(SandboxUser::Unprivileged);
}

#[test]
fn the_user_namespace_is_reported_and_its_root_is_the_calling_user() {
    if !SandboxUser::Unprivileged.is_possible() {
        return;
    }
    let sandbox = Sandbox::two_hosts(SandboxUser::Unprivileged);
    assert_eq!(sandbox.ready["user_namespace"], true);
    assert_eq!(sandbox.run_in("a", "id -u"), "0");
    let own = sandbox.run_in("a", "cat /proc/self/uid_map");
    assert_eq!(
        own.split_whitespace().collect::<Vec<_>>(),
        ["0", "65534", "1"]
    );
    let by_root = Sandbox::two_hosts(SandboxUser::Current);
    assert_eq!(by_root.ready["user_namespace"], false);
}

fn mounts_are_inside(user: SandboxUser) {
    if !user.is_possible() {
        return;
    }
    let (directory, _engine) = open_directory();
    let path = |name: &str| directory.path().join(name);
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
    // Like /etc/resolv.conf, which links to /run on many machines.
    std::os::unix::fs::symlink("memory/deep/end", path("link")).expect("a link");
    let order = json!({"hosts": {"a": "a"}, "tmpfs": ["/dev/shm", path("memory")], "binds": [
        [path("lies-over"), path("file")], [path("over"), path("under")],
        [path("memory/hidden"), path("link")]]});
    let sandbox = Sandbox::start(user, &order);
    let read = |name: &str| sandbox.run_in("a", &format!("cat {}", path(name).display()));
    assert_eq!(read("file"), "above");
    assert_eq!(read("under/inner"), "inner");
    assert_eq!(read("link"), "hidden", "a tmpfs can hide another mount");
    let mode = |path: &str| sandbox.run_in("a", &format!("stat -c %a {path}"));
    assert_eq!(mode("/dev/shm"), "1777");
    assert_eq!(mode(&path("memory").display().to_string()), "777");
    assert_eq!(
        sandbox.run_in("a", "readlink /proc/1/ns/pid"),
        namespace(sandbox.init(), "pid").expect("it lives")
    );
    // A mount inside the sandbox is not visible outside.
    sandbox.run_in(
        "a",
        &format!(
            "mount -t tmpfs none {0} && touch {0}/mark",
            path("over").display()
        ),
    );
    assert!(!path("over/mark").exists());
    assert_eq!(fs::read_to_string(path("file")).expect("a file"), "below");
    assert!(!path("memory/deep").exists());
    let here = directory.path().display().to_string();
    assert!(!mounts().contains(&here), "nothing is mounted outside");
}

#[test]
fn mounts_of_the_sandbox_are_seen_inside_only() {
    mounts_are_inside(SandboxUser::Current);
}

#[test]
fn mounts_of_an_ordinary_users_sandbox_are_seen_inside_only() {
    mounts_are_inside(SandboxUser::Unprivileged);
}

#[test]
fn orphans_are_reaped() {
    if !SandboxUser::Current.is_possible() {
        return;
    }
    let sandbox = Sandbox::two_hosts(SandboxUser::Current);
    let orphan = sandbox.run_in("a", "sh -c 'sleep 600 >/dev/null 2>&1 & echo $!'");
    let orphan = orphan.parse().expect("a number");
    assert!(
        sandbox.child_of_init(orphan).is_some(),
        "PID 1 has inherited it"
    );
    sandbox.run_in("b", &format!("kill -9 {orphan}"));
    wait_until("its burial", || sandbox.child_of_init(orphan).is_none());
}

#[test]
fn sandboxed_processes_do_not_hold_the_pipes_of_the_controller() {
    if !SandboxUser::Current.is_possible() {
        return;
    }
    let sandbox = Sandbox::two_hosts(SandboxUser::Current);
    let outer = descriptors(i32::try_from(sandbox.child.id()).expect("a pid"));
    for pid in [sandbox.init(), sandbox.host("a"), sandbox.host("b")] {
        let held = descriptors(pid);
        for number in ["0", "1"] {
            let pipe = &outer[number];
            assert!(pipe.to_string_lossy().starts_with("pipe:"), "{pipe:?}");
            assert!(!held.values().any(|path| path == pipe), "{pid}: {held:?}");
        }
    }
    assert!(descriptors(sandbox.host("a")).is_empty());
}
