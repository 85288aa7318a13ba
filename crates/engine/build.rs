//! Notes which source and which target the engine is built from, as far as that is known.

use std::process::Command;

fn main() {
    let commit = commit().unwrap_or_else(|| "unknown".into());
    println!("cargo:rustc-env=VENTURI_COMMIT={commit}");
    for (name, variable) in [("VENTURI_PROFILE", "PROFILE"), ("VENTURI_TARGET", "TARGET")] {
        let value = std::env::var(variable).unwrap_or_else(|_| "unknown".into());
        println!("cargo:rustc-env={name}={value}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    // Absent in a source archive, which cargo then takes for changed; that costs only a run of this script.
    for file in ["../../.git/HEAD", "../../.git/logs/HEAD"] {
        if std::path::Path::new(file).exists() {
            println!("cargo:rerun-if-changed={file}");
        }
    }
}

/// The commit of this repository; none without git, or when these sources lie inside somebody else's repository.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // `ls-files` knows this very file only in its own repository.
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    git(&["rev-parse", "--short=12", "HEAD"]).filter(|commit| !commit.is_empty())
}
