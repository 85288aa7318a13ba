//! Commands on files, and `operate`.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::{Value, json};

use crate::testkit::{ShellProcess, scene};

const CHUNK_BYTES: usize = 4 << 20;

/// Encodes bytes in base 64 with another program than the shell.
fn base64(bytes: &[u8]) -> String {
    let directory = scene();
    let path = directory.path().join("bytes");
    std::fs::write(&path, bytes).expect("a file");
    let output = std::process::Command::new("base64")
        .args(["-w", "0"])
        .arg(path)
        .output()
        .expect("base64 of coreutils");
    String::from_utf8(output.stdout).expect("text")
}

fn put(path: &Path, bytes: &[u8]) -> Value {
    json!({"command": "put", "path": path, "content": base64(bytes)})
}

/// Bytes of all values and lengths.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it exists").mode() & 0o7777
}

#[test]
fn binary_content_is_written_and_read_unchanged() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    for bytes in [0, 1, 2, 3, 256, 100_000] {
        let content = noise(bytes);
        let path = scene.path().join("new/parents").join(bytes.to_string());
        assert_eq!(shell.call(put(&path, &content)), json!({}));
        assert_eq!(std::fs::read(&path).expect("a file"), content);
        let got = shell.call(json!({"command": "get", "path": path}));
        assert_eq!(
            got,
            json!({"content": base64(&content), "size_bytes": bytes})
        );
    }
    let path = scene.path().join("new/parents/256");
    let got = shell.call(json!({"command": "get", "path": path, "offset": 250, "max_bytes": 3}));
    assert_eq!(
        got,
        json!({"content": base64(&noise(256)[250..253]), "size_bytes": 256})
    );
    let got = shell.call(json!({"command": "get", "path": path, "offset": 300}));
    assert_eq!(got, json!({"content": "", "size_bytes": 256}));
    assert_eq!(mode(&scene.path().join("new")), 0o700);
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn a_large_file_is_written_and_read_in_chunks() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let path = scene.path().join("large");
    let content = noise(9 * CHUNK_BYTES + 12_345);
    for (index, chunk) in content.chunks(CHUNK_BYTES).enumerate() {
        let mut command = put(&path, chunk);
        command["append"] = json!(index > 0);
        shell.call(command);
    }
    assert!(std::fs::read(&path).expect("a file") == content);
    let mut read = 0;
    while read < content.len() {
        let got = shell.call(json!({"command": "get", "path": path, "offset": read}));
        assert_eq!(got["size_bytes"], content.len());
        let text = got["content"].as_str().expect("text");
        let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
        let bytes = text.len() / 4 * 3 - padding;
        assert!(bytes <= 16 << 20);
        assert!(text == base64(&content[read..read + bytes]), "at {read}");
        read += bytes;
    }
}

#[test]
fn a_mode_is_set_exactly_and_a_file_is_replaced_at_once() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let path = scene.path().join("file");
    let mut command = put(&path, b"one");
    command["mode"] = json!(0o754);
    shell.call(command);
    assert_eq!(mode(&path), 0o754);
    // An open file keeps the old content, because the new content is in another file.
    let inode = std::fs::metadata(&path).expect("a file").ino();
    shell.call(put(&path, b"two"));
    assert_ne!(std::fs::metadata(&path).expect("a file").ino(), inode);
    assert_eq!(
        (std::fs::read(&path).expect("a file"), mode(&path)),
        (b"two".to_vec(), 0o600)
    );
    let mut command = put(&path, b", three");
    command["append"] = json!(true);
    shell.call(command);
    assert_eq!(std::fs::read(&path).expect("a file"), b"two, three");
    let names: Vec<_> = std::fs::read_dir(scene.path())
        .expect("a directory")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(names.len(), 2, "no temporary file remains: {names:?}");
}

#[test]
fn file_errors_are_classified_by_kind() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let directory = scene.path().join("directory");
    std::fs::create_dir(&directory).expect("a directory");
    std::fs::write(directory.join("file"), "x").expect("a file");
    let append =
        |path: &str| json!({"command": "put", "path": path, "content": "eA==", "append": true});
    for (command, kind) in [
        (
            json!({"command": "get", "path": "/no/such/file"}),
            "not_found",
        ),
        (
            json!({"command": "list", "path": "/no/such/directory"}),
            "not_found",
        ),
        (json!({"command": "get", "path": directory}), "invalid"),
        (
            json!({"command": "put", "path": directory, "content": ""}),
            "invalid",
        ),
        (
            json!({"command": "put", "path": "/", "content": ""}),
            "invalid",
        ),
        (
            json!({"command": "put", "path": directory.join("x"), "content": "?"}),
            "invalid",
        ),
        (
            json!({"command": "put", "path": directory.join("x"), "content": "", "mode": 65536}),
            "invalid",
        ),
        (
            json!({"command": "put", "path": directory.join("x".repeat(300)), "content": ""}),
            "invalid",
        ),
        (json!({"command": "remove", "path": directory}), "exists"),
        (
            json!({"command": "remove", "path": "/", "recursive": true}),
            "invalid",
        ),
        (
            json!({"command": "remove", "path": format!("{}/../x", directory.display())}),
            "invalid",
        ),
        (
            json!({"command": "make_directory", "path": directory.join("file")}),
            "exists",
        ),
        (append("/dev/full"), "no_space"),
        (append("/proc/sys/kernel/ostype"), "permission"),
    ] {
        assert_eq!(shell.kind(command.clone()), kind, "{command}");
    }
    let left = shell.call(json!({"command": "list", "path": directory}));
    assert_eq!(
        left,
        json!({"entries": [{"name": "file", "kind": "file", "size_bytes": 1}]})
    );
}

#[test]
fn special_files_do_not_block() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let fifo = scene.path().join("fifo");
    shell.run(&["mkfifo", fifo.to_str().expect("text")]);
    let got = shell.call(json!({"command": "get", "path": fifo}));
    assert_eq!(got["content"], "", "no writer");
    let append = json!({"command": "put", "path": fifo, "content": "eA==", "append": true});
    assert_eq!(shell.kind(append), "other", "no reader");
    let got = shell.call(json!({"command": "get", "path": "/proc/sys/kernel/ostype"}));
    assert_eq!(got, json!({"content": base64(b"Linux\n"), "size_bytes": 0}));
}

#[test]
fn stat_describes_files_directories_and_absent_paths() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let file = scene.path().join("file");
    std::fs::write(&file, "12345").expect("a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("ours");
    let metadata = std::fs::metadata(&file).expect("a file");
    let found = shell.call(json!({"command": "stat", "path": file}));
    for (key, value) in [
        ("kind", json!("file")),
        ("size_bytes", json!(5)),
        ("mode", json!(0o640)),
        ("owner_uid", json!(metadata.uid())),
        ("writable", json!(true)),
        ("noexec", json!(false)),
    ] {
        assert_eq!(found[key], value, "{key}");
    }
    assert!(found["free_bytes"].as_u64() > Some(0));
    let system = std::process::Command::new("stat")
        .args(["-f", "-c", "%T"])
        .arg(&file)
        .output()
        .expect("stat");
    let system = String::from_utf8(system.stdout).expect("text");
    // stat(1) has one name for ext2, ext3 and ext4.
    let expected = system.trim().split('/').next().expect("a name");
    let name = found["file_system"].as_str().expect("a name");
    assert!(name.starts_with(&expected[..3]), "{name}, {system}");

    let absent = shell.call(json!({"command": "stat", "path": scene.path().join("absent/file")}));
    for key in ["size_bytes", "mode", "owner_uid"] {
        assert!(absent[key].is_null(), "{key}");
    }
    assert_eq!(
        (&absent["kind"], &absent["writable"]),
        (&json!("absent"), &json!(true))
    );
    assert_eq!(absent["file_system"], found["file_system"]);

    let kind =
        |shell: &mut ShellProcess, path: &str| shell.call(json!({"command": "stat", "path": path}));
    assert_eq!(kind(&mut shell, "/")["kind"], "directory");
    assert_eq!(kind(&mut shell, "/dev/null")["kind"], "other");
    assert_eq!(kind(&mut shell, "/etc/passwd/x")["kind"], "absent");
    let proc = kind(&mut shell, "/proc/sys/kernel/ostype");
    assert_eq!(
        (&proc["file_system"], &proc["kind"]),
        (&json!("proc"), &json!("file"))
    );
}

#[test]
fn directories_are_made_listed_and_removed() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let path = scene.path().join("a/b");
    let make = json!({"command": "make_directory", "path": path, "mode": 0o1777});
    assert_eq!(shell.call(make.clone()), json!({"created": true}));
    assert_eq!(
        (mode(&path), mode(&scene.path().join("a"))),
        (0o1777, 0o700)
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("ours");
    assert_eq!(shell.call(make), json!({"created": false}));
    assert_eq!(mode(&path), 0o755);

    std::fs::write(path.join("file"), "123").expect("a file");
    std::fs::create_dir(path.join("directory")).expect("a directory");
    std::os::unix::fs::symlink("/etc", path.join("link")).expect("a link");
    let listed = shell.call(json!({"command": "list", "path": path}));
    let entries = listed["entries"].as_array().expect("a list");
    let kinds: Vec<_> = entries
        .iter()
        .map(|entry| (entry["name"].as_str(), entry["kind"].as_str()))
        .collect();
    assert_eq!(
        kinds,
        [
            ("directory", "directory"),
            ("file", "file"),
            ("link", "other")
        ]
        .map(|(name, kind)| (Some(name), Some(kind)))
    );

    let remove = |path: &Path, recursive: bool| json!({"command": "remove", "path": path, "recursive": recursive});
    assert_eq!(
        shell.call(remove(&path.join("link"), true)),
        json!({"removed": true})
    );
    assert!(
        Path::new("/etc/passwd").exists(),
        "a link is removed, not its target"
    );
    assert_eq!(
        shell.call(remove(&path.join("file"), false)),
        json!({"removed": true})
    );
    assert_eq!(
        shell.call(remove(&path.join("file"), false)),
        json!({"removed": false})
    );
    assert_eq!(
        shell.call(remove(&path.join("directory"), false)),
        json!({"removed": true})
    );
    assert_eq!(
        shell.call(remove(&scene.path().join("a"), true)),
        json!({"removed": true})
    );
    assert!(!scene.path().join("a").exists());
}

#[test]
fn an_owned_directory_is_new_and_is_removed_with_the_session() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let path = scene.path().join("owned");
    let make = json!({"command": "make_directory", "path": path, "owned": true});
    assert_eq!(shell.call(make.clone()), json!({"created": true}));
    assert_eq!(shell.kind(make), "exists");
    std::fs::write(path.join("file"), "x").expect("a file");
    let foreign = scene.path().join("foreign");
    std::fs::create_dir(&foreign).expect("a directory");
    let make = json!({"command": "make_directory", "path": foreign, "owned": true});
    assert_eq!(shell.kind(make), "exists");
    shell.leave();
    shell.finish();
    assert!(!path.exists() && foreign.exists());
}

#[test]
fn an_owned_directory_is_removed_after_a_kill() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let path = scene.path().join("owned");
    shell.call(json!({"command": "make_directory", "path": path, "owned": true}));
    std::fs::write(path.join("file"), "x").expect("a file");
    crate::testkit::kill(shell.pid(), libc::SIGKILL);
    shell.finish();
    assert!(!path.exists());
}

#[test]
fn operations_on_datasets_run_on_this_host() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let directory = scene.path().join("data/out");
    std::fs::create_dir_all(&directory).expect("a directory");
    let destination = directory.join("000000");
    std::fs::write(&destination, "old").expect("a file");
    let clear = json!({"operation": "clear", "path": destination, "files": null, "source": null, "in_scratch": true,
        "keep": false, "started": false});
    let result = shell.call(json!({"command": "operate", "operation": clear}));
    assert_eq!(result["outcome"]["kind"], "cleared", "{result}");
    assert!(!destination.exists() && directory.exists());
    assert_eq!(
        shell.kind(json!({"command": "operate", "operation": {"operation": "dance"}})),
        "invalid"
    );
}

#[test]
fn a_command_that_hangs_gets_a_reply_at_its_limit() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let directory = scene.path().join("set");
    std::fs::create_dir(&directory).expect("a directory");
    let lock = std::fs::File::create(directory.join(".venturi-dataset.lock")).expect("a file");
    lock.lock().expect("it is free");
    let prepare = |shell: &mut ShellProcess, timeout_s: f64| {
        shell.send(json!({"command": "operate", "timeout_s": timeout_s, "operation": {"operation": "prepare",
            "cache": "as_is", "stall_timeout_s": 600.0, "files": {"dataset": "set", "directory": directory, "seed": 1,
            "sizes": [{"files": 1, "size_bytes": 10}], "first": 0, "files": 1}}}))
    };
    let started = std::time::Instant::now();
    let number = prepare(&mut shell, 0.2);
    let reply = shell.reply(number);
    assert_eq!(reply["error"]["kind"], "timeout", "{reply}");
    let elapsed_s = started.elapsed().as_secs_f64();
    assert!((0.2..60.0).contains(&elapsed_s), "{elapsed_s}");
    lock.unlock().expect("ours");
    let number = prepare(&mut shell, 60.0);
    let reply = shell.reply(number);
    assert_eq!(reply["result"]["outcome"]["kind"], "prepared", "{reply}");
    assert!(directory.join("000000").exists());
}

#[test]
fn full_and_read_only_file_systems_are_recognized() {
    let scene = scene();
    let mount = scene.path().join("mount");
    std::fs::create_dir(&mount).expect("a directory");
    let script = format!(
        "mount -t tmpfs -o size=64k,noexec none {0} && exec {1} shell --session test --sessions {2}",
        mount.display(),
        crate::testkit::ENGINE,
        scene.path().join("sessions").display()
    );
    let mut unshare = std::process::Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    let mut shell = ShellProcess::start_by(unshare);
    let found = shell.call(json!({"command": "stat", "path": mount.join("new")}));
    for (key, value) in [
        ("kind", json!("absent")),
        ("file_system", json!("tmpfs")),
        ("noexec", json!(true)),
        ("free_bytes", json!(65536)),
        ("writable", json!(true)),
    ] {
        assert_eq!(found[key], value, "{key}");
    }
    let path = mount.join("file");
    assert_eq!(shell.kind(put(&path, &noise(100_000))), "no_space");
    let listed = shell.call(json!({"command": "list", "path": mount}));
    assert_eq!(listed, json!({"entries": []}), "no temporary file remains");
    shell.call(put(&path, b"x"));
    let remounted = shell.run(&["mount", "-o", "remount,ro", mount.to_str().expect("text")]);
    assert_eq!(remounted["exit_code"], 0, "{remounted}");
    assert_eq!(shell.kind(put(&path, b"y")), "read_only");
    let remove = json!({"command": "remove", "path": path});
    assert_eq!(shell.kind(remove), "read_only");
    assert_eq!(
        shell.call(json!({"command": "stat", "path": path}))["writable"],
        false
    );
}
