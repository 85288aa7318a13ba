//! File system of a file: name, device, free space, and whether its data are in memory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use serde::Serialize;

/// Numbers of file systems (`linux/magic.h`, and those of GPFS, Lustre, ZFS).
const NAMES: [(u32, &str, Memory); 17] = [
    (0xef53, "ext4", Memory::No),
    (0x5846_5342, "xfs", Memory::No),
    (0x9123_683e, "btrfs", Memory::No),
    (0xf2f5_2010, "f2fs", Memory::No),
    (0x794c_7630, "overlay", Memory::No),
    (0x6969, "nfs", Memory::No),
    (0xff53_4d42, "cifs", Memory::No),
    (0xfe53_4d42, "smb2", Memory::No),
    (0x6573_5546, "fuse", Memory::Unknown),
    (0x0bd0_0bd0, "lustre", Memory::Unknown),
    (0x4750_4653, "gpfs", Memory::Unknown),
    (0x00c3_6400, "ceph", Memory::No),
    (0x2fc1_2fc1, "zfs", Memory::Unknown),
    (0x0102_1994, "tmpfs", Memory::Yes),
    (0x8584_58f6, "ramfs", Memory::Yes),
    (0x1373_5359, "orangefs", Memory::Unknown),
    (0xca45_1a4e, "bcachefs", Memory::No),
];

/// Whether reads come from memory even if they bypass the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    Yes,
    No,
    /// The file system has a cache of its own.
    Unknown,
}

/// File system of an open file.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FileSystem {
    /// Name, or its number in hexadecimal.
    pub(crate) file_system: String,
    /// Device of the file, `8:1`.
    pub(crate) device: String,
    #[serde(skip)]
    pub(super) memory: Memory,
    /// Space for this user.
    pub(crate) free_bytes: u64,
}

impl FileSystem {
    /// Reads the properties of the file system.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        // SAFETY: `statfs` is plain data, and the call fills it; the descriptor is open.
        let found = unsafe {
            let mut found: libc::statfs = std::mem::zeroed();
            if libc::fstatfs(file.as_raw_fd(), &raw mut found) != 0 {
                return Err(io::Error::last_os_error());
            }
            found
        };
        let number = found.f_type as u32; // the upper half is a sign extension
        let known = NAMES.iter().find(|(magic, _, _)| *magic == number);
        let device = file.metadata()?.dev();
        Ok(Self {
            file_system: known
                .map_or_else(|| format!("{number:#x}"), |(_, name, _)| (*name).to_owned()),
            device: format!("{}:{}", libc::major(device), libc::minor(device)),
            memory: known.map_or(Memory::Unknown, |(_, _, memory)| *memory),
            free_bytes: found.f_bavail as u64 * found.f_bsize as u64,
        })
    }
}
