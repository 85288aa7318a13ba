//! Notes which source and which target the engine is built from, as far as that is known.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let commit = commit().unwrap_or_else(|| "unknown".into());
    println!("cargo:rustc-env=VENTURI_COMMIT={commit}");
    for (name, variable) in [("VENTURI_PROFILE", "PROFILE"), ("VENTURI_TARGET", "TARGET")] {
        let value = std::env::var(variable).unwrap_or_else(|_| "unknown".into());
        println!("cargo:rustc-env={name}={value}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    for path in moves_with_head() {
        println!("cargo:rerun-if-changed={}", path.display());
    }
}

/// The commit of this repository; none without git, or when these sources lie inside somebody else's repository.
fn commit() -> Option<String> {
    // `ls-files` knows this very file only in its own repository.
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// The files of git of which one changes when another commit is checked out or made; none in a source archive.
///
/// A commit changes the branch that `HEAD` names, not `HEAD`. Git itself says where they are: in a worktree not all are in
/// one folder.
fn moves_with_head() -> Vec<PathBuf> {
    let place = |name: &str| git(&["rev-parse", "--git-path", name]).map(PathBuf::from);
    let fixed = ["HEAD", "packed-refs"].map(place);
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]); // none when a commit itself is checked out
    // One that stands in `packed-refs` alone gets a file at its next commit: that changes the folder. What is not there
    // would count as changed at every build.
    let branch = branch.and_then(|branch| {
        let file = place(&branch)?;
        file.ancestors()
            .find(|path| path.exists())
            .map(PathBuf::from)
    });
    let fixed = fixed.into_iter().flatten().filter(|path| path.exists());
    fixed.chain(branch).collect()
}

/// What git says; none if it fails, is not there, or says nothing.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !said.is_empty()).then_some(said)
}
