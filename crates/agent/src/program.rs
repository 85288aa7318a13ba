//! Which file a command names, in which environment it runs, and whether the tracing barrier may be used for it.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The engine as a tool: this very program, under whatever name it was copied to this host.
const ENGINE: &str = "venturi-engine";

/// An executable file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Set-user-ID, set-group-ID or file capabilities: traced, the kernel would run it without them.
    pub(crate) privileged: bool,
}

/// The environment of all children: the agent's own, with `LC_ALL=C` and the extra folders first in `PATH`.
#[derive(Debug)]
pub(crate) struct Environment {
    entries: Vec<CString>,
    path: Vec<PathBuf>,
}

impl Environment {
    /// The agent's environment with the folders of `search` before those of `PATH`.
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
            .map(|folder| folder.as_os_str())
            .collect::<Vec<_>>()
            .join(OsStr::new(":"));
        let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        variables.insert("PATH".into(), joined);
        // Tools speak the language of the parsers, and sort and print numbers the same way everywhere.
        variables.insert("LC_ALL".into(), "C".into());
        let entries = variables
            .iter()
            .filter_map(|(name, value)| {
                CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
            })
            .collect();
        Self { entries, path }
    }

    /// The entries as `execve` wants them.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &CStr> {
        self.entries.iter().map(CString::as_c_str)
    }

    /// The entries as pairs of name and value.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.entries.iter().filter_map(|entry| {
            let bytes = entry.to_bytes();
            // The first byte may be `=` in a strange name; the separator is looked for after it.
            let at = 1 + bytes.get(1..)?.iter().position(|byte| *byte == b'=')?;
            Some((
                OsStr::from_bytes(&bytes[..at]),
                OsStr::from_bytes(&bytes[at + 1..]),
            ))
        })
    }

    /// Finds a program by the rules of `execvp`: a name with a slash is a path, any other is looked for in `PATH`.
    ///
    /// # Errors
    /// A text that says what was looked for and where.
    pub(crate) fn find(&self, name: &str) -> Result<Program, String> {
        if name == ENGINE
            && let Some(own) = std::env::current_exe()
                .ok()
                .and_then(|path| executable(&path))
        {
            return Ok(own);
        }
        if name.contains('/') {
            return executable(Path::new(name)).ok_or_else(|| {
                format!(
                    "expected an executable file at `{name}`, found {}",
                    what_is_at(Path::new(name))
                )
            });
        }
        self.path.iter().find_map(|folder| executable(&folder.join(name))).ok_or_else(|| {
            let folders = self.path.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":");
            format!("expected a program `{name}` in PATH, found none; PATH={folders}; install it or name its folder in `search`")
        })
    }
}

fn executable(path: &Path) -> Option<Program> {
    let metadata = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    if !may_execute(path) {
        return None;
    }
    let special_bits = metadata.mode() & (libc::S_ISUID | libc::S_ISGID) != 0;
    Some(Program {
        path: path.to_owned(),
        privileged: special_bits || has_capabilities(path),
    })
}

fn may_execute(path: &Path) -> bool {
    nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: both names are NUL-terminated; a size of 0 asks only for the length and writes nothing.
    unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        ) > 0
    }
}

fn what_is_at(path: &Path) -> String {
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => "a directory".into(),
        Ok(metadata) => format!(
            "a file with mode {:o} that may not be executed",
            metadata.permissions().mode() & 0o7777
        ),
        Err(error) => format!("nothing ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_is_found_in_path_and_a_strange_one_is_told_with_the_path() {
        let environment = Environment::new(&[]);
        assert!(
            environment
                .find("sh")
                .expect("every host has a shell")
                .path
                .ends_with("sh")
        );
        let told = environment
            .find("no-such-tool")
            .expect_err("nobody has this tool");
        assert!(
            told.contains("no-such-tool") && told.contains("PATH=/"),
            "{told}"
        );
    }

    #[test]
    fn the_engine_is_this_program_wherever_it_lies() {
        let found = Environment::new(&[]).find("venturi-engine");
        assert_eq!(
            found.expect("it runs").path,
            std::env::current_exe().expect("it runs")
        );
    }

    #[test]
    fn search_folders_come_before_path() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let tool = folder.path().join("sh");
        std::fs::write(&tool, "#!/bin/sh\n").expect("a file");
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("its mode");
        let environment = Environment::new(&[folder.path().display().to_string()]);
        assert_eq!(
            environment.find("sh"),
            Ok(Program {
                path: tool,
                privileged: false
            })
        );
    }

    #[test]
    fn a_set_user_id_program_is_privileged() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let tool = folder.path().join("tool");
        std::fs::write(&tool, "").expect("a file");
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o4755)).expect("its mode");
        let found = Environment::new(&[])
            .find(tool.to_str().expect("a plain name"))
            .expect("it is there");
        assert!(found.privileged);
    }

    #[test]
    fn a_file_that_may_not_be_executed_is_told_as_such() {
        let told = Environment::new(&[])
            .find("/etc/passwd")
            .expect_err("no program");
        assert!(told.contains("may not be executed"), "{told}");
    }
}
