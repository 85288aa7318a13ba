//! Capture files: pcap with nanoseconds, link type RAW (draft-ietf-opsawg-pcap;
//! <https://www.tcpdump.org/linktypes.html>).

/// Magic number of files with nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: (u16, u16) = (2, 4);
/// `LINKTYPE_RAW`: each packet starts with its IP header.
const LINKTYPE_RAW: u32 = 101;
/// Maximum length of an IP packet, for complete captures.
pub const WHOLE_BYTES: u32 = 65535;
const NS_PER_S: u64 = 1_000_000_000;

/// Return the file header of a capture of at most `snap_bytes` per packet.
#[must_use]
pub fn file_header(snap_bytes: u32) -> [u8; 24] {
    let mut header = [0; 24];
    header[..4].copy_from_slice(&MAGIC.to_ne_bytes());
    header[4..6].copy_from_slice(&VERSION.0.to_ne_bytes());
    header[6..8].copy_from_slice(&VERSION.1.to_ne_bytes());
    header[16..20].copy_from_slice(&snap_bytes.to_ne_bytes());
    header[20..].copy_from_slice(&LINKTYPE_RAW.to_ne_bytes());
    header
}

/// Append a packet, in two parts, to the output.
pub fn push_packet(out: &mut Vec<u8>, unix_ns: u64, parts: [&[u8]; 2], snap_bytes: u32) {
    let length = parts[0].len() + parts[1].len();
    let kept = length.min(snap_bytes as usize);
    for field in [
        unix_ns / NS_PER_S,
        unix_ns % NS_PER_S,
        kept as u64,
        length as u64,
    ] {
        // The seconds wrap in 2106, as the format defines.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the width of the format's fields"
        )]
        out.extend_from_slice(&(field as u32).to_ne_bytes());
    }
    let first = kept.min(parts[0].len());
    out.extend_from_slice(&parts[0][..first]);
    out.extend_from_slice(&parts[1][..kept - first]);
}
