//! What is in the root, in the words of the protocol.

use rustix::fs::FileType;
use rustix::io::Errno;
use venturi_gridftp::server::Refusal;
use venturi_gridftp::{Entry, Kind};

use crate::checksum::Algorithm;
use crate::serve::root::Facts;

/// Checksums that are taken, the cheapest first.
pub(super) const CHECKSUMS: [&str; 3] = ["ADLER32", "MD5", "SHA256"];

/// The algorithm of a name of [`CHECKSUMS`].
pub(super) fn algorithm(name: &str) -> Option<Algorithm> {
    match name {
        "ADLER32" => Some(Algorithm::Adler32),
        "MD5" => Some(Algorithm::Md5),
        "SHA256" => Some(Algorithm::Sha256),
        _ => None,
    }
}

/// Lower-case hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a client is told of something that has this name.
pub(super) fn entry(name: Vec<u8>, facts: &Facts, writes: bool) -> Entry {
    let mut entry = Entry::named(name);
    let (kind, permissions) = match (facts.kind, writes) {
        (FileType::RegularFile, false) => (Kind::File, "r"),
        (FileType::RegularFile, true) => (Kind::File, "adfrw"),
        (FileType::Directory, false) => (Kind::Directory, "el"),
        (FileType::Directory, true) => (Kind::Directory, "cdeflmp"),
        // One that leads nowhere, or out.
        (FileType::Symlink, _) => (Kind::Link, ""),
        (_, _) => (Kind::Other("OS.unix=special".to_owned()), ""),
    };
    entry.size_bytes = facts.is_file().then_some(facts.bytes);
    entry.kind = Some(kind);
    entry.modify_s = Some(facts.modified_s);
    entry.mode = Some(facts.mode);
    entry.permissions = Some(permissions.to_owned());
    entry.unique = Some(format!("{:x}-{:x}", facts.identity.0, facts.identity.1));
    entry
}

/// Why something cannot be done.
pub(super) fn refusal(errno: Errno) -> Refusal {
    match errno {
        Errno::NOENT => Refusal::NotFound,
        Errno::EXIST | Errno::NOTEMPTY => Refusal::Exists,
        Errno::ISDIR => Refusal::IsDirectory,
        Errno::NOTDIR => Refusal::NotDirectory,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Refusal::NoSpace,
        Errno::BUSY => Refusal::Busy,
        Errno::STALE => Refusal::Changed,
        Errno::XDEV => Refusal::OtherFileSystem,
        Errno::ACCESS
        | Errno::PERM
        | Errno::ROFS
        | Errno::INVAL
        | Errno::NAMETOOLONG
        | Errno::LOOP => Refusal::Denied,
        _ => Refusal::Internal,
    }
}
