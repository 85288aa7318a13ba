//! The directory of a session, its lock, and the removal of sessions whose processes were killed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;

use super::processes;

const LOCK: &str = "lock";
const PROCESSES: &str = "processes";
const OWNED: &str = "owned";

/// In `owned`: the session is creating the directory.
const PENDING: u64 = 0;
/// In `owned`: the session has not created the directory.
const NONE: u64 = u64::MAX;

/// Lock of the directory of all sessions: held while sessions are created and searched.
const SESSIONS_LOCK: &str = ".lock";

/// A killed shell has removed its session within this time.
const LOCK_LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

const MAX_ID_BYTES: usize = 128;

/// A session directory of this process.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its absolute path.
    pub(crate) directory: PathBuf,
    /// Directories of dead sessions that were removed.
    pub(crate) removed: Vec<PathBuf>,
    log: File,
    _lock: Option<Flock<File>>,
}

/// A directory outside of the session directory, in the file `owned`: it is removed with the session.
#[derive(Debug)]
pub(crate) struct Ownership(File);

/// Appends processes to the file `processes` of a session.
#[derive(Debug)]
pub(crate) struct ProcessLog(File);

impl Session {
    /// Removes dead sessions in `sessions` and creates the session `id`.
    ///
    /// # Errors
    /// A message if the directory cannot be created or another process uses it.
    pub(crate) fn open(sessions: &Path, id: &str) -> Result<Self, String> {
        check_id(id)?;
        let failed = |path: &Path, verb: &str, error: io::Error| {
            format!(
                "{}: cannot {verb}: {error}. Set --sessions to a directory of yours.",
                path.display()
            )
        };
        make_private(sessions).map_err(|error| failed(sessions, "create the directory", error))?;
        let sessions = sessions
            .canonicalize()
            .map_err(|error| failed(sessions, "use the directory", error))?;
        check_owner(&sessions)?;
        let directory = sessions.join(id);
        let all = open_private(&sessions.join(SESSIONS_LOCK))
            .and_then(|file| lock_within(file, 3 * LOCK_LIMIT))
            .map_err(|error| failed(&sessions, "lock the directory", error))?;
        let mut dead = find_dead(&sessions, id);
        if directory.exists() {
            // The same session again: its last processes may be ending now.
            if let Some(session) = DeadSession::find(&directory, LOCK_LIMIT) {
                remove_dead(&session);
            }
            if directory.exists() {
                return Err(format!(
                    "{}: another process uses this session. End it, or use another --session.",
                    directory.display()
                ));
            }
        }
        let mut session = Self::create(directory.clone())
            .map_err(|error| failed(&directory, "create the session", error))?;
        drop(all);
        // Without the common lock, because directories can be large.
        dead.retain(remove_dead);
        session.removed = dead.into_iter().map(|dead| dead.directory).collect();
        Ok(session)
    }

    fn create(directory: PathBuf) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(&directory)?;
        let lock = lock_within(open_private(&directory.join(LOCK))?, Duration::ZERO)?;
        let mut log = open_private(&directory.join(PROCESSES))?;
        write!(log, "host {}\nboot {}\n", host_name(), boot_id())?;
        let session = Self {
            directory,
            removed: Vec::new(),
            log,
            _lock: lock,
        };
        session.record_own()?;
        Ok(session)
    }

    /// Records this process, which keeps the session alive.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub(crate) fn record_own(&self) -> io::Result<()> {
        let own = std::process::id().cast_signed();
        match processes::entry_of(own) {
            Some(own) => {
                (&self.log).write_all(format!("shell {} {}\n", own.pid, own.start_ticks).as_bytes())
            }
            None => Ok(()),
        }
    }

    /// Returns a log to record processes.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub(crate) fn process_log(&self) -> io::Result<ProcessLog> {
        self.log.try_clone().map(ProcessLog)
    }

    /// Removes the directory with all its files.
    ///
    /// # Errors
    /// The first error; all other files are removed.
    pub(crate) fn remove(&self) -> io::Result<()> {
        remove_session(&self.directory)
    }
}

impl Ownership {
    /// Records that the session will create this directory.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub(crate) fn announce(session: &Path, path: &Path) -> io::Result<Self> {
        if path.as_os_str().as_bytes().contains(&b'\n') {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut log = open_private(&session.join(OWNED))?;
        log.write_all(&owned_line(PENDING, path))?;
        Ok(Self(log))
    }

    /// Records that the session could not create the directory.
    pub(crate) fn retract(&self, path: &Path) {
        // Without this record, only an empty directory at this path would be removed.
        let _ = (&self.0).write_all(&owned_line(NONE, path));
    }

    /// Records the directory that the session has just created.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub(crate) fn confirm(mut self, path: &Path) -> io::Result<()> {
        let inode = std::fs::symlink_metadata(path)?.ino();
        self.0.write_all(&owned_line(inode, path))
    }
}

/// Returns one line of the file `owned`: the inode of the directory or [`PENDING`] or [`NONE`], and
/// its path.
fn owned_line(inode: u64, path: &Path) -> Vec<u8> {
    let number = format!("{inode} ");
    [number.as_bytes(), path.as_os_str().as_bytes(), b"\n"].concat()
}

impl ProcessLog {
    /// Adds an existing process.
    pub(crate) fn add(&self, pid: i32) {
        if let Some(process) = processes::entry_of(pid) {
            // One write, so that lines of two threads do not mix. A full disk must not stop the command.
            let line = format!("{pid} {}\n", process.start_ticks);
            let _ = (&self.0).write_all(line.as_bytes());
        }
    }
}

/// A session without a living process.
#[derive(Debug)]
struct DeadSession {
    directory: PathBuf,
    _lock: Option<Flock<File>>,
}

fn check_id(id: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_valid =
        (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(is_plain) && !id.starts_with('.');
    if is_valid {
        return Ok(());
    }
    Err(format!(
        "--session: expected 1 to {MAX_ID_BYTES} letters, digits and `-_.`, without a dot at the start, found `{id}`"
    ))
}

/// Checks the owner of the directory, because another user could otherwise exchange directories of
/// sessions.
fn check_owner(sessions: &Path) -> Result<(), String> {
    let metadata = std::fs::metadata(sessions)
        .map_err(|error| format!("{}: cannot use the directory: {error}", sessions.display()))?;
    let own = nix::unistd::geteuid().as_raw();
    if metadata.uid() == own && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(format!(
        "{}: expected a directory of user {own} that other users cannot write to, found owner {} and mode {:o}. \
         Set --sessions to another directory.",
        sessions.display(),
        metadata.uid(),
        metadata.mode() & 0o7777
    ))
}

fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(directory)
}

fn open_private(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

/// Locks a file; none if its file system has no locks, like some Lustre mounts.
fn lock_within(mut file: File, limit: Duration) -> io::Result<Option<Flock<File>>> {
    let end = Instant::now() + limit;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(Some(lock)),
            Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) if Instant::now() < end => file = back,
            Err((_, Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::ENOLCK)) => return Ok(None),
            Err((_, error)) => return Err(error.into()),
        }
        std::thread::sleep(PAUSE);
    }
}

impl DeadSession {
    /// Returns this session if it is dead or dies within `limit`: its lock is free, and its shell
    /// and watchdog do not exist.
    fn find(directory: &Path, limit: Duration) -> Option<Self> {
        let end = Instant::now() + limit;
        // A session without a lock was killed while it was created: sessions are created under the common lock.
        let lock = match File::options().read(true).open(directory.join(LOCK)) {
            Ok(file) => lock_within(file, limit).ok()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => return None,
        };
        while SessionRecord::read(directory).has_shell() {
            if Instant::now() >= end {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
        Some(Self {
            directory: directory.to_owned(),
            _lock: lock,
        })
    }
}

/// Content of the file `processes`.
#[derive(Debug, Default)]
struct SessionRecord {
    host: Option<String>,
    /// Whether the PIDs are from this boot; after another boot, they are useless.
    is_this_boot: bool,
    /// The shell and its watchdog.
    shells: Vec<(i32, u64)>,
    programs: Vec<(i32, u64)>,
}

impl SessionRecord {
    /// Reads a record; a missing file is empty.
    fn read(directory: &Path) -> Self {
        let text = std::fs::read_to_string(directory.join(PROCESSES)).unwrap_or_default();
        let mut record = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("host", host)) => record.host = Some(host.to_owned()),
                Some(("boot", boot)) => record.is_this_boot = boot == boot_id(),
                Some(("shell", process)) => record.shells.extend(parse_process(process)),
                _ => record.programs.extend(parse_process(line)),
            }
        }
        record
    }

    /// Returns whether the session can belong to another host with the same home directory. Not all
    /// file systems share locks.
    fn is_of_other_host(&self) -> bool {
        self.host.as_ref().is_some_and(|host| *host != host_name())
    }

    fn has_shell(&self) -> bool {
        let exists = |(pid, start_ticks): &(i32, u64)| {
            processes::entry_of(*pid)
                .is_some_and(|process| process.start_ticks == *start_ticks && !process.zombie)
        };
        self.is_this_boot && !self.is_of_other_host() && self.shells.iter().any(exists)
    }
}

/// Returns all dead sessions except `id`.
fn find_dead(sessions: &Path, id: &str) -> Vec<DeadSession> {
    let entries = std::fs::read_dir(sessions).into_iter().flatten().flatten();
    let dead = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let is_session = entry.file_type().is_ok_and(|kind| kind.is_dir())
            && name
                .to_str()
                .is_some_and(|name| check_id(name).is_ok() && name != id);
        if !is_session {
            return None;
        }
        DeadSession::find(&entry.path(), Duration::ZERO)
    };
    entries.filter_map(dead).collect()
}

/// Kills the processes of a dead session and removes its directory; returns whether it did. A session of another host is left alone.
fn remove_dead(session: &DeadSession) -> bool {
    let record = SessionRecord::read(&session.directory);
    if record.is_of_other_host() || !session.directory.exists() {
        return false;
    }
    let recorded = match record.is_this_boot {
        true => record.programs,
        false => Vec::new(),
    };
    kill_processes(&session.directory, &recorded);
    let removed = remove_session(&session.directory);
    if let Err(error) = &removed {
        eprintln!(
            "venturi-engine shell: {}: cannot remove a dead session: {error}",
            session.directory.display()
        );
    }
    removed.is_ok()
}

fn parse_process(line: &str) -> Option<(i32, u64)> {
    let (pid, start) = line.split_once(' ')?;
    Some((pid.parse().ok()?, start.parse().ok()?))
}

/// Kills recorded processes, their descendants, and processes with a marker of the session.
fn kill_processes(directory: &Path, recorded: &[(i32, u64)]) {
    const LIMIT: Duration = Duration::from_secs(5);
    let own = std::process::id().cast_signed();
    let prefix = format!("{}#", directory.display());
    let end = Instant::now() + LIMIT;
    loop {
        let all = processes::all();
        let is_recorded = |process: &processes::ProcessEntry| {
            recorded.contains(&(process.pid, process.start_ticks))
                || processes::marker_of(process.pid)
                    .is_some_and(|marker| marker.starts_with(&prefix))
        };
        let mut found: Vec<_> = all
            .iter()
            .copied()
            .filter(|process| !process.zombie && is_recorded(process))
            .collect();
        for process in found.clone() {
            found.extend(processes::descendants(process.pid, &all));
        }
        // A shell that was started by a program of the dead session is not part of that session.
        found.retain(|process| process.pid != own);
        if found.is_empty() || Instant::now() >= end {
            return;
        }
        for process in &found {
            processes::send(process, Signal::SIGKILL);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Removes the directories that a session owns, and then the session directory. If an owned
/// directory cannot be removed, the records stay for the next session.
///
/// The records are removed last, so that another process that finds the session does not mistake it for a dead one.
fn remove_session(directory: &Path) -> io::Result<()> {
    const RECORDS: [&str; 3] = [OWNED, PROCESSES, LOCK];
    let mut removed = remove_owned(directory);
    let device = std::fs::symlink_metadata(directory)?.dev();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if !RECORDS.iter().any(|name| path.ends_with(name)) {
            removed = removed.and(remove_entry(&path, device));
        }
    }
    removed?;
    for name in RECORDS {
        match std::fs::remove_file(directory.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    std::fs::remove_dir(directory)
}

/// Removes the directories in `owned`. A directory that another process has created there since
/// then stays, because its inode differs. If the shell was killed between the two records of a
/// directory, only an empty directory is removed.
fn remove_owned(directory: &Path) -> io::Result<()> {
    let records = match std::fs::read(directory.join(OWNED)) {
        Ok(records) => records,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut inodes: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for line in records.split(|byte| *byte == b'\n') {
        let blank = line.iter().position(|byte| *byte == b' ');
        let fields = blank.map(|blank| (&line[..blank], &line[blank + 1..]));
        let parsed = fields.and_then(|(inode, path)| {
            let inode: u64 = std::str::from_utf8(inode).ok()?.parse().ok()?;
            Some((PathBuf::from(OsStr::from_bytes(path)), inode))
        });
        if let Some((path, inode)) = parsed {
            // A failed second attempt does not change the owner of the first directory.
            let is_made = ![PENDING, NONE].contains(&inode);
            inodes
                .entry(path)
                .and_modify(|known| {
                    if is_made || [PENDING, NONE].contains(known) {
                        *known = inode;
                    }
                })
                .or_insert(inode);
        }
    }
    let mut first = Ok(());
    for (path, inode) in inodes {
        let Ok(metadata) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        if inode == metadata.ino() && metadata.is_dir() {
            first = first.and(remove_tree(&path));
        } else if inode == PENDING {
            // It fails if the directory is not empty, and then the session does not own it.
            let _ = std::fs::remove_dir(&path);
        }
    }
    first
}

/// Removes a directory with all its files, except other file systems that are mounted inside.
///
/// # Errors
/// The first error; the other files are removed.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let metadata = std::fs::symlink_metadata(path)?;
    remove_below(path, &metadata, metadata.dev())
}

/// Removes an entry, which another process may have removed already.
fn remove_entry(path: &Path, device: u64) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) => remove_below(path, &metadata, device),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn remove_below(path: &Path, metadata: &Metadata, device: u64) -> io::Result<()> {
    if !metadata.is_dir() {
        return match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    if metadata.dev() != device {
        let message = format!("{}: another file system is mounted here", path.display());
        return Err(io::Error::other(message));
    }
    if metadata.mode() & 0o700 != 0o700 {
        // Servers write-protect directories; only the owner can change the mode.
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700));
    }
    let mut first = Ok(());
    for entry in std::fs::read_dir(path)? {
        first = first.and(entry.and_then(|entry| remove_entry(&entry.path(), device)));
    }
    first?;
    match std::fs::remove_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn host_name() -> String {
    nix::unistd::gethostname()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_private_and_recorded() {
        let directory = tempfile::tempdir().expect("a directory");
        let sessions = directory.path().join("new/sessions");
        let session = Session::open(&sessions, "one").expect("a session");
        let mode = std::fs::metadata(&session.directory)
            .expect("it exists")
            .mode();
        assert_eq!(mode & 0o7777, 0o700);
        session
            .process_log()
            .expect("a log")
            .add(std::process::id().cast_signed());
        let text = std::fs::read_to_string(session.directory.join(PROCESSES)).expect("a file");
        let last = text
            .lines()
            .last()
            .and_then(parse_process)
            .expect("a process");
        assert_eq!(last.0, std::process::id().cast_signed());
        session.remove().expect("ours");
        assert!(!session.directory.exists() && sessions.exists());
    }

    #[test]
    fn identifiers_are_names_of_one_directory() {
        for id in ["a", "run-1.host_b", "0"] {
            assert_eq!(check_id(id), Ok(()));
        }
        for id in ["", ".", "..", ".lock", "a/b", "a b", "é", &"x".repeat(129)] {
            assert!(check_id(id).is_err(), "{id}");
        }
    }

    #[test]
    fn a_dead_session_is_removed_and_a_living_one_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let living = Session::open(directory.path(), "living").expect("a session");
        let dead = Session::open(directory.path(), "dead").expect("a session");
        let path = dead.directory.clone();
        let sealed = path.join("sealed");
        std::fs::create_dir(&sealed).expect("a directory");
        std::fs::write(sealed.join("file"), "x").expect("a file");
        std::fs::set_permissions(&sealed, std::fs::Permissions::from_mode(0o500)).expect("ours");
        drop(dead);
        // The processes of a dead session do not exist.
        std::fs::write(path.join(PROCESSES), "").expect("a file");
        assert!(path.exists());
        let next = Session::open(directory.path(), "next").expect("a session");
        assert!(!path.exists());
        assert!(living.directory.exists() && next.directory.exists());
    }

    #[test]
    fn a_session_without_a_lock_is_kept_while_its_processes_run() {
        let directory = tempfile::tempdir().expect("a directory");
        let session = Session::open(directory.path(), "one").expect("a session");
        let path = session.directory.clone();
        // Like on a file system without locks.
        std::fs::remove_file(path.join(LOCK)).expect("a file");
        drop(session);
        Session::open(directory.path(), "two").expect("a session");
        assert!(path.exists(), "this process is recorded, and it exists");
        let text = std::fs::read_to_string(path.join(PROCESSES)).expect("a file");
        let own = format!("shell {} ", std::process::id());
        assert!(text.contains(&own), "{text}");
        std::fs::write(path.join(PROCESSES), text.replace(&own, "shell 999999999 "))
            .expect("a file");
        Session::open(directory.path(), "three").expect("a session");
        assert!(!path.exists());
    }

    #[test]
    fn owned_directories_are_removed_with_the_session_and_others_are_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let session = Session::open(&directory.path().join("sessions"), "one").expect("a session");
        let make = |name: &str, announced: bool, confirmed: bool| {
            let path = directory.path().join(name);
            let ownership = announced
                .then(|| Ownership::announce(&session.directory, &path).expect("a record"));
            std::fs::create_dir(&path).expect("a directory");
            if let Some(ownership) = ownership.filter(|_| confirmed) {
                ownership.confirm(&path).expect("a record");
            }
            std::fs::write(path.join("file"), name).expect("a file");
            path
        };
        let owned = make("owned", true, true);
        let exchanged = make("exchanged", true, true);
        let unconfirmed = make("unconfirmed", true, false);
        let foreign = make("foreign", false, false);
        // The old directory stays as `moved`, so that the new one cannot have its inode.
        let moved = directory.path().join("moved");
        std::fs::rename(&exchanged, &moved).expect("ours");
        std::fs::create_dir(&exchanged).expect("a directory");
        session.remove().expect("ours");
        assert!(!owned.exists() && !session.directory.exists());
        for path in [exchanged, moved, unconfirmed, foreign] {
            assert!(path.exists(), "{}", path.display());
        }
    }

    #[test]
    fn a_session_of_another_host_is_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let far = directory.path().join("far");
        std::fs::create_dir(&far).expect("a directory");
        std::fs::write(far.join(PROCESSES), "host another.example.org\nboot x\n").expect("a file");
        std::fs::write(far.join(LOCK), "").expect("a file");
        Session::open(directory.path(), "near").expect("a session");
        assert!(far.exists());
    }

    #[test]
    fn a_directory_of_other_users_is_rejected() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(directory.path(), open).expect("ours");
        let error = Session::open(directory.path(), "one").expect_err("everybody can write");
        assert!(error.contains("777"), "{error}");
    }

    #[test]
    fn a_link_is_removed_and_its_target_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let kept = directory.path().join("kept");
        std::fs::create_dir(&kept).expect("a directory");
        let tree = directory.path().join("tree");
        std::fs::create_dir(&tree).expect("a directory");
        std::os::unix::fs::symlink(&kept, tree.join("link")).expect("a link");
        remove_tree(&tree).expect("ours");
        assert!(kept.exists() && !tree.exists());
    }
}
