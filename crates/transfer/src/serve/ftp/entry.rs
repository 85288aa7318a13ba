//! Conversion of directory entries and errors to protocol terms.

use rustix::fs::FileType;
use rustix::io::Errno;
use venturi_gridftp::server::GlobusError;
use venturi_gridftp::{EntryKind, ListEntry};

use crate::checksum::Algorithm;
use crate::serve::confined_root::ServedMetadata;

/// Supported checksums, the cheapest first.
pub(super) const CHECKSUMS: [&str; 3] = ["ADLER32", "MD5", "SHA256"];

/// Return the algorithm of a name in [`CHECKSUMS`].
pub(super) fn algorithm(name: &str) -> Option<Algorithm> {
    match name {
        "ADLER32" => Some(Algorithm::Adler32),
        "MD5" => Some(Algorithm::Md5),
        "SHA256" => Some(Algorithm::Sha256),
        _ => None,
    }
}

/// Return lower-case hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Return the listing entry of a name.
pub(super) fn entry(name: Vec<u8>, metadata: &ServedMetadata, writes: bool) -> ListEntry {
    let mut entry = ListEntry::named(name);
    let (kind, permissions) = match (metadata.kind, writes) {
        (FileType::RegularFile, false) => (EntryKind::File, "r"),
        (FileType::RegularFile, true) => (EntryKind::File, "adfrw"),
        (FileType::Directory, false) => (EntryKind::Directory, "el"),
        (FileType::Directory, true) => (EntryKind::Directory, "cdeflmp"),
        // A link without target, or to a path outside of the root.
        (FileType::Symlink, _) => (EntryKind::Link, ""),
        (_, _) => (EntryKind::Other("OS.unix=special".to_owned()), ""),
    };
    entry.size_bytes = metadata.is_file().then_some(metadata.bytes);
    entry.kind = Some(kind);
    entry.modify_s = Some(metadata.modified_s);
    entry.mode = Some(metadata.mode);
    entry.permissions = Some(permissions.to_owned());
    entry.unique = Some(format!(
        "{:x}-{:x}",
        metadata.identity.0, metadata.identity.1
    ));
    entry
}

/// Return the protocol error for a kernel error.
pub(super) fn rejection(errno: Errno) -> GlobusError {
    match errno {
        Errno::NOENT => GlobusError::NotFound,
        Errno::EXIST | Errno::NOTEMPTY => GlobusError::Exists,
        Errno::ISDIR => GlobusError::IsDirectory,
        Errno::NOTDIR => GlobusError::NotDirectory,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => GlobusError::NoSpace,
        Errno::BUSY => GlobusError::Busy,
        Errno::STALE => GlobusError::Changed,
        Errno::XDEV => GlobusError::OtherFileSystem,
        Errno::ACCESS
        | Errno::PERM
        | Errno::ROFS
        | Errno::INVAL
        | Errno::NAMETOOLONG
        | Errno::LOOP => GlobusError::Denied,
        _ => GlobusError::Internal,
    }
}
