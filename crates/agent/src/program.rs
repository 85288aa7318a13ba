//! Resolves the file of a command, its environment, and whether the tracing barrier works for it.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Name of the engine as a tool: this program, whose copy on this host can have another name.
const ENGINE: &str = "venturi-engine";

/// Directory of the link to the engine, below the scratch directory.
const LINKS: &str = ".venturi-bin";

/// An executable file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Executable {
    /// Path of the file.
    pub(crate) path: PathBuf,
    /// Whether the file has set-user-ID, set-group-ID or capabilities, which the kernel ignores for
    /// traced programs.
    pub(crate) privileged: bool,
}

/// Environment of all children: the environment of the agent, with `LC_ALL=C` and the additional
/// directories first in `PATH`.
#[derive(Debug)]
pub(crate) struct Environment {
    entries: Vec<CString>,
    path: Vec<PathBuf>,
}

impl Environment {
    /// Returns the environment of the agent with the directories of `search` before `PATH`.
    pub(crate) fn new(search: &[String]) -> Self {
        let own_path =
            std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        let path: Vec<PathBuf> = search
            .iter()
            .map(PathBuf::from)
            .chain(std::env::split_paths(&own_path))
            .collect();
        let joined = path
            .iter()
            .map(|directory| directory.as_os_str())
            .collect::<Vec<_>>()
            .join(OsStr::new(":"));
        let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        variables.insert("PATH".into(), joined);
        // Tools then print messages in the language of the parsers, and format numbers in the same
        // way on all hosts.
        variables.insert("LC_ALL".into(), "C".into());
        let entries = variables
            .iter()
            .filter_map(|(name, value)| {
                CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
            })
            .collect();
        Self { entries, path }
    }

    /// Returns the entries in the form of `execve`.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &CStr> {
        self.entries.iter().map(CString::as_c_str)
    }

    /// Returns the entries as pairs of name and value.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.entries.iter().filter_map(|entry| {
            let bytes = entry.to_bytes();
            // The first byte of a name can be `=`, so search for the separator after it.
            let at = 1 + bytes.get(1..)?.iter().position(|byte| *byte == b'=')?;
            Some((
                OsStr::from_bytes(&bytes[..at]),
                OsStr::from_bytes(&bytes[at + 1..]),
            ))
        })
    }

    /// Finds a program by the rules of `execvp`: a name with a slash is a path, and other names are
    /// searched in `PATH`.
    ///
    /// # Errors
    /// A message with the requested name and the searched directories.
    pub(crate) fn find(&self, name: &str) -> Result<Executable, String> {
        if let Some(own) = own_engine(name).and_then(|path| executable(&path)) {
            return Ok(own);
        }
        if name.contains('/') {
            return executable(Path::new(name)).ok_or_else(|| {
                format!(
                    "expected an executable file at `{name}`, found {}",
                    file_at(Path::new(name))
                )
            });
        }
        self.path.iter().find_map(|directory| executable(&directory.join(name))).ok_or_else(|| {
            let directories = self.path.iter().map(|directory| directory.display().to_string()).collect::<Vec<_>>().join(":");
            format!("expected a program `{name}` in PATH, found none; PATH={directories}; install it or \
             add its directory to `search`")
        })
    }
}

/// Create a directory with a link `venturi-engine` to this program, for shells of calls, which search `PATH`. The copy of the
/// engine on a host has another name.
///
/// # Errors
/// If the directory or the link cannot be created.
pub(crate) fn link_engine(scratch: &Path) -> io::Result<PathBuf> {
    let directory = scratch.join(LINKS);
    std::fs::create_dir_all(&directory)?;
    let (link, engine) = (directory.join(ENGINE), std::env::current_exe()?);
    if std::fs::read_link(&link).ok().as_deref() != Some(&*engine) {
        if link.symlink_metadata().is_ok() {
            std::fs::remove_file(&link)?;
        }
        std::os::unix::fs::symlink(engine, &link)?;
    }
    Ok(directory)
}

/// Returns the path of this program, if `name` is the name of the engine and the file still exists.
pub(crate) fn own_engine(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    (name == ENGINE && is_executable(&own)).then_some(own)
}

/// Returns whether this user can execute a file.
pub(crate) fn is_executable(path: &Path) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

fn executable(path: &Path) -> Option<Executable> {
    if !is_executable(path) {
        return None;
    }
    let metadata = path.metadata().ok()?;
    let special_bits = metadata.mode() & (libc::S_ISUID | libc::S_ISGID) != 0;
    Some(Executable {
        path: path.to_owned(),
        privileged: special_bits || has_capabilities(path),
    })
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: both names are NUL-terminated; a size of 0 requests only the length and writes nothing.
    unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        ) > 0
    }
}

fn file_at(path: &Path) -> String {
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => "a directory".into(),
        Ok(metadata) => format!(
            "a file with mode {:o} without permission to execute",
            metadata.permissions().mode() & 0o7777
        ),
        Err(error) => format!("nothing ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_is_found_in_path_and_a_missing_one_is_reported_with_the_path() {
        let environment = Environment::new(&[]);
        assert!(
            environment
                .find("sh")
                .expect("every host has a shell")
                .path
                .ends_with("sh")
        );
        let message = environment
            .find("no-such-tool")
            .expect_err("nobody has this tool");
        assert!(
            message.contains("no-such-tool") && message.contains("PATH=/"),
            "{message}"
        );
    }

    #[test]
    fn the_engine_is_this_executable() {
        let found = Environment::new(&[]).find("venturi-engine");
        assert_eq!(
            found.expect("it runs").path,
            std::env::current_exe().expect("it runs")
        );
    }

    #[test]
    fn a_shell_finds_the_engine_of_this_run_by_its_name() {
        let scratch = tempfile::tempdir().expect("a directory");
        let old = scratch.path().join(LINKS);
        std::fs::create_dir(&old).expect("created");
        std::os::unix::fs::symlink("/old/engine", old.join(ENGINE)).expect("linked");
        for _ in 0..2 {
            let directory = link_engine(scratch.path()).expect("linked");
            let found = std::fs::canonicalize(directory.join("venturi-engine"));
            assert_eq!(
                found.expect("it exists"),
                std::env::current_exe().expect("it runs")
            );
        }
    }

    #[test]
    fn search_directories_take_precedence_over_path() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let tool = directory.path().join("sh");
        std::fs::write(&tool, "#!/bin/sh\n").expect("a file");
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("its mode");
        let environment = Environment::new(&[directory.path().display().to_string()]);
        assert_eq!(
            environment.find("sh"),
            Ok(Executable {
                path: tool,
                privileged: false
            })
        );
    }

    #[test]
    fn a_set_user_id_program_is_privileged() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let tool = directory.path().join("tool");
        std::fs::write(&tool, "").expect("a file");
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o4755)).expect("its mode");
        let found = Environment::new(&[])
            .find(tool.to_str().expect("a plain name"))
            .expect("it is there");
        assert!(found.privileged);
    }

    #[test]
    fn a_file_without_execute_permission_is_reported() {
        let message = Environment::new(&[])
            .find("/etc/passwd")
            .expect_err("no program");
        assert!(
            message.contains("without permission to execute"),
            "{message}"
        );
    }
}
