//! Body of a third-party COPY response: performance markers and a final result line.
//!
//! This is the format of XRootD, dCache and StoRM. The status 202 does not include the result.

/// Maximum bytes of a line; a longer line is invalid.
const MAX_LINE_BYTES: usize = 16 << 10;

/// Result of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CopyOutcome {
    /// Complete.
    Success,
    /// Failed, with the reason.
    Failure(String),
}

/// Incremental reader of the body.
#[derive(Debug, Default)]
pub(crate) struct Markers {
    partial_line: Vec<u8>,
    stripe: usize,
    /// Bytes of each stripe, by its index.
    stripes: Vec<u64>,
    /// True after the first marker.
    started: bool,
    last: Option<CopyOutcome>,
}

/// Number of distinct stripes.
const MAX_STRIPES: usize = 1024;

impl Markers {
    /// Parse received bytes and return the total bytes of the transfer, if reported.
    ///
    /// # Errors
    /// A line without end.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Option<u64>, String> {
        let mut reported = None;
        for &byte in bytes {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.partial_line);
                reported = self
                    .parse_line(&String::from_utf8_lossy(&line))
                    .or(reported);
            } else if self.partial_line.len() == MAX_LINE_BYTES {
                return Err(format!("a line of more than {MAX_LINE_BYTES} bytes"));
            } else {
                self.partial_line.push(byte);
            }
        }
        Ok(reported)
    }

    /// Return whether the body reports a transfer; otherwise it is a text for people.
    pub(crate) fn were_received(&self) -> bool {
        self.started
    }

    /// Return the result at the end of the body; none if it has none.
    pub(crate) fn finish(mut self) -> Option<CopyOutcome> {
        let line = std::mem::take(&mut self.partial_line);
        self.parse_line(&String::from_utf8_lossy(&line));
        self.last
    }

    fn parse_line(&mut self, line: &str) -> Option<u64> {
        let line = line.trim();
        let lower = line.to_ascii_lowercase();
        let value = |name: &str| {
            lower
                .strip_prefix(name)?
                .trim()
                .strip_prefix(':')
                .map(str::trim)
        };
        self.started |= lower == "perf marker";
        if let Some(index) = value("stripe index").and_then(|text| text.parse::<usize>().ok()) {
            self.stripe = index.min(MAX_STRIPES);
        } else if let Some(bytes) =
            value("stripe bytes transferred").and_then(|text| text.parse().ok())
        {
            if self.stripes.len() <= self.stripe {
                self.stripes.resize(self.stripe + 1, 0);
            }
            self.stripes[self.stripe] = bytes;
            let sum = self
                .stripes
                .iter()
                .fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
            return Some(sum);
        } else if lower.starts_with("success") {
            self.last = Some(CopyOutcome::Success);
        } else if ["failure", "failed", "aborted"]
            .iter()
            .any(|word| lower.starts_with(word))
        {
            self.last = Some(CopyOutcome::Failure(line.chars().take(300).collect()));
        }
        None
    }
}

/// Return a marker of one stripe in the format of servers.
pub(crate) fn marker(timestamp_s: u64, bytes: u64, connections: &[String]) -> String {
    let remote = if connections.is_empty() {
        String::new()
    } else {
        format!("    RemoteConnections: {}\n", connections.join(","))
    };
    format!(
        "Perf Marker\n    Timestamp: {timestamp_s}\n    Stripe Index: 0\n    Stripe Bytes Transferred: {bytes}\n    Total Stripe Count: 1\n{remote}End\n"
    )
}

/// Final line of a success.
pub(crate) const SUCCESS: &str = "success: Created\n";

/// Return the final line of a failure; line breaks in the reason become blanks.
pub(crate) fn failure(reason: &str) -> String {
    let line: String = reason
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    format!("failure: {line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Option<CopyOutcome> {
        let mut markers = Markers::default();
        markers.feed(text.as_bytes()).expect("short lines");
        markers.finish()
    }

    #[test]
    fn only_the_last_line_contains_the_result() {
        assert_eq!(
            read(
                "Perf Marker\n\tStripe Index: 0\n\tStripe Bytes Transferred: 5\nEnd\nsuccess: Created\n"
            ),
            Some(CopyOutcome::Success)
        );
        assert_eq!(read("success: Created"), Some(CopyOutcome::Success));
        assert_eq!(
            read("Perf Marker\nStripe Bytes Transferred: 5\nEnd\n"),
            None
        );
        assert_eq!(read(""), None);
        for text in [
            "failure: no such file\n",
            "failed: x",
            "success\naborted: by the operator\n",
        ] {
            assert!(
                matches!(read(text), Some(CopyOutcome::Failure(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn bytes_of_several_stripes_are_summed() {
        let mut markers = Markers::default();
        let mut take = |stripe, bytes| {
            let text = format!(
                "Perf Marker\n Stripe Index: {stripe}\n Stripe Bytes Transferred: {bytes}\n Total Stripe Count: 2\nEnd\n"
            );
            markers.feed(text.as_bytes()).expect("short lines")
        };
        assert_eq!(take(0, 5), Some(5));
        assert_eq!(take(1, 7), Some(12));
        assert_eq!(take(0, 6), Some(13));
        assert!(markers.feed(&[b'x'; MAX_LINE_BYTES + 1]).is_err());
    }

    proptest! {
        #[test]
        fn markers_and_the_result_are_parsed_for_any_fragmentation(bytes: u64, cut in 1..80_usize, reason: String) {
            let text = marker(1, bytes, &["tcp:127.0.0.1:1".into()]) + &failure(&reason);
            let mut markers = Markers::default();
            let mut reported = Vec::new();
            for chunk in text.as_bytes().chunks(cut) {
                reported.extend(markers.feed(chunk).expect("short lines"));
            }
            prop_assert!(reported.contains(&bytes));
            prop_assert!(matches!(markers.finish(), Some(CopyOutcome::Failure(_))));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut markers = Markers::default();
            let _ = markers.feed(&bytes);
            let _ = markers.finish();
        }
    }
}
