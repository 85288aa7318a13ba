//! Records the commit and the target of the build, if they are known.

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

/// Returns the commit of this repository; none without git, or if these sources are inside another
/// repository.
fn commit() -> Option<String> {
    // `ls-files` finds this file only in its own repository.
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// Returns the files of git that change when another commit is checked out or created; none in a
/// source archive.
///
/// A commit changes the branch of `HEAD`, and not `HEAD`. The paths come from git, because they are
/// not in one directory in a worktree.
fn moves_with_head() -> Vec<PathBuf> {
    let storage = |name: &str| git(&["rev-parse", "--git-path", name]).map(PathBuf::from);
    let fixed = ["HEAD", "packed-refs"].map(storage);
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]); // none if a commit is checked out directly
    // A branch in `packed-refs` only gets a file at its next commit, which changes the directory. A
    // missing file would count as changed at every build.
    let branch = branch.and_then(|branch| {
        let file = storage(&branch)?;
        file.ancestors()
            .find(|path| path.exists())
            .map(PathBuf::from)
    });
    let fixed = fixed.into_iter().flatten().filter(|path| path.exists());
    fixed.chain(branch).collect()
}

/// Returns the output of git; none if git fails, is missing, or prints nothing.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !printed.is_empty()).then_some(printed)
}
