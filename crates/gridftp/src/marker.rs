//! Progress markers of a server.

use crate::{ByteRanges, FtpError, FtpReply, number};

/// Performance marker of one stripe (112).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PerformanceMarker {
    /// Time in seconds since 1970, with a resolution of 0.1 s.
    pub timestamp_s: f64,
    /// Stripe index.
    pub stripe: u32,
    /// Bytes of this stripe.
    pub bytes: u64,
    /// Number of stripes.
    pub stripes: u32,
}

/// Progress marker.
#[derive(Debug, Clone, PartialEq)]
pub enum ProgressMarker {
    /// Performance of one stripe (112).
    Performance(PerformanceMarker),
    /// Ranges stored by the receiver (111). Incremental.
    Ranges(ByteRanges),
    /// Bytes covered by the checksum so far (113).
    Checksummed {
        /// Bytes.
        bytes: u64,
    },
}

impl ProgressMarker {
    /// Reads a preliminary reply; `None` if it is not a marker.
    ///
    /// # Errors
    /// If a marker is malformed.
    pub fn parse(reply: &FtpReply) -> Result<Option<Self>, FtpError> {
        match reply.code {
            111 => {
                let text = reply.field(b"Range Marker").ok_or_else(|| wrong(reply))?;
                ByteRanges::parse(text).map(Self::Ranges).map(Some)
            }
            112 => PerformanceMarker::parse(reply)
                .map(|marker| Some(Self::Performance(marker)))
                .ok_or_else(|| wrong(reply)),
            113 => reply
                .field(b"Bytes Processed:")
                .and_then(number)
                .map(|bytes| Some(Self::Checksummed { bytes }))
                .ok_or_else(|| wrong(reply)),
            _ => Ok(None),
        }
    }

    /// Writes the marker, as servers of the Globus toolkit do.
    #[must_use]
    pub fn reply(&self) -> FtpReply {
        let (code, title, lines) = match self {
            Self::Ranges(ranges) => return FtpReply::new(111, format!("Range Marker {ranges}")),
            Self::Performance(marker) => (112, "Perf Marker", marker.lines()),
            Self::Checksummed { bytes } => (
                113,
                "Status Marker",
                vec![format!("Bytes Processed: {bytes}")],
            ),
        };
        let mut texts = vec![title.as_bytes().to_vec()];
        texts.extend(lines.into_iter().map(String::into_bytes));
        FtpReply::block(code, texts)
    }
}

impl PerformanceMarker {
    fn parse(reply: &FtpReply) -> Option<Self> {
        let seconds = std::str::from_utf8(reply.field(b"Timestamp:")?).ok()?;
        Some(Self {
            timestamp_s: seconds
                .parse()
                .ok()
                .filter(|seconds: &f64| seconds.is_finite())?,
            stripe: number(reply.field(b"Stripe Index:")?)?,
            bytes: number(reply.field(b"Stripe Bytes Transferred:")?)?,
            stripes: number(reply.field(b"Total Stripe Count:")?)?,
        })
    }

    fn lines(&self) -> Vec<String> {
        vec![
            format!("Timestamp:  {:.1}", self.timestamp_s),
            format!("Stripe Index: {}", self.stripe),
            format!("Stripe Bytes Transferred: {}", self.bytes),
            format!("Total Stripe Count: {}", self.stripes),
        ]
    }
}

fn wrong(reply: &FtpReply) -> FtpError {
    FtpError::malformed("marker", "its fields", reply.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn markers_round_trip_through_replies(
            tenths in 0_u32.., stripe: u32, bytes: u64, stripes: u32, start: u32, length in 1_u32..,
        ) {
            let performance = PerformanceMarker { timestamp_s: f64::from(tenths) / 10.0, stripe, bytes, stripes };
            let range = u64::from(start)..u64::from(start) + u64::from(length);
            for marker in [
                ProgressMarker::Performance(performance),
                ProgressMarker::Ranges(ByteRanges::from_range(range)),
                ProgressMarker::Checksummed { bytes },
            ] {
                prop_assert_eq!(ProgressMarker::parse(&marker.reply()).unwrap(), Some(marker));
            }
        }

        #[test]
        fn no_reply_makes_the_parser_panic(code in 110_u16..115, lines: Vec<Vec<u8>>) {
            let _ = ProgressMarker::parse(&FtpReply { code, lines });
        }
    }
}
