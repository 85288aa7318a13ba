//! Markers: what a server tells while it transfers.

use crate::{ByteRanges, Error, Reply, number};

/// How far one stripe is (112).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Performance {
    /// When, in seconds since 1970; whole tenths.
    pub timestamp_s: f64,
    /// Which stripe.
    pub stripe: u32,
    /// How much it has.
    pub bytes: u64,
    /// How many stripes there are.
    pub stripes: u32,
}

/// A marker.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// 112.
    Performance(Performance),
    /// Ranges that the receiver has on its disk (111). Incremental: all of them together count.
    Ranges(ByteRanges),
    /// Bytes of which the checksum is taken (113).
    Checksummed {
        /// Bytes.
        bytes: u64,
    },
}

impl Progress {
    /// Reads a preliminary reply; nothing if it is none of the markers.
    ///
    /// # Errors
    /// A marker that is wrong.
    pub fn parse(reply: &Reply) -> Result<Option<Self>, Error> {
        match reply.code {
            111 => {
                let text = reply.field(b"Range Marker").ok_or_else(|| wrong(reply))?;
                ByteRanges::parse(text).map(Self::Ranges).map(Some)
            }
            112 => Performance::parse(reply)
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
    pub fn reply(&self) -> Reply {
        let (code, title, lines) = match self {
            Self::Ranges(ranges) => return Reply::new(111, format!("Range Marker {ranges}")),
            Self::Performance(marker) => (112, "Perf Marker", marker.lines()),
            Self::Checksummed { bytes } => (
                113,
                "Status Marker",
                vec![format!("Bytes Processed: {bytes}")],
            ),
        };
        let mut texts = vec![title.as_bytes().to_vec()];
        texts.extend(lines.into_iter().map(String::into_bytes));
        Reply::block(code, texts)
    }
}

impl Performance {
    fn parse(reply: &Reply) -> Option<Self> {
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

fn wrong(reply: &Reply) -> Error {
    Error::malformed("marker", "its fields", reply.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn markers_that_are_written_are_read_as_themselves(
            tenths in 0_u32.., stripe: u32, bytes: u64, stripes: u32, start: u32, length in 1_u32..,
        ) {
            let performance = Performance { timestamp_s: f64::from(tenths) / 10.0, stripe, bytes, stripes };
            let range = u64::from(start)..u64::from(start) + u64::from(length);
            for marker in [
                Progress::Performance(performance),
                Progress::Ranges(ByteRanges::of(range)),
                Progress::Checksummed { bytes },
            ] {
                prop_assert_eq!(Progress::parse(&marker.reply()).unwrap(), Some(marker));
            }
        }

        #[test]
        fn no_reply_makes_the_parser_panic(code in 110_u16..115, lines: Vec<Vec<u8>>) {
            let _ = Progress::parse(&Reply { code, lines });
        }
    }
}
