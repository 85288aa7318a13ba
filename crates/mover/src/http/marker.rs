//! The body of an answer to a third-party COPY: performance markers, and a last line that says what came of it.
//!
//! As XRootD, dCache and StoRM write it; the status 202 says nothing of the outcome.

/// Bytes of one line; a longer one is no answer of this kind.
const LONGEST_LINE: usize = 16 << 10;

/// What came of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    /// All is there.
    Success,
    /// It did not work, and why.
    Failure(String),
}

/// Reads the body as it comes.
#[derive(Debug, Default)]
pub(crate) struct Markers {
    line: Vec<u8>,
    stripe: usize,
    /// Bytes of each stripe, by its index.
    stripes: Vec<u64>,
    /// Whether there was any.
    begun: bool,
    last: Option<Told>,
}

/// Stripes that are told apart.
const MOST_STRIPES: usize = 1024;

impl Markers {
    /// Takes what came; how many bytes are there, if it said so.
    ///
    /// # Errors
    /// If a line has no end.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Option<u64>, String> {
        let mut told = None;
        for &byte in bytes {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                told = self.line(&String::from_utf8_lossy(&line)).or(told);
            } else if self.line.len() == LONGEST_LINE {
                return Err(format!("a line of more than {LONGEST_LINE} bytes"));
            } else {
                self.line.push(byte);
            }
        }
        Ok(told)
    }

    /// Whether this is about a transfer: else it is for people to read.
    pub(crate) fn are_there(&self) -> bool {
        self.begun
    }

    /// What came of it, when the body has ended: none if it does not say.
    pub(crate) fn end(mut self) -> Option<Told> {
        let line = std::mem::take(&mut self.line);
        self.line(&String::from_utf8_lossy(&line));
        self.last
    }

    fn line(&mut self, line: &str) -> Option<u64> {
        let line = line.trim();
        let lower = line.to_ascii_lowercase();
        let value = |name: &str| {
            lower
                .strip_prefix(name)?
                .trim()
                .strip_prefix(':')
                .map(str::trim)
        };
        self.begun |= lower == "perf marker";
        if let Some(index) = value("stripe index").and_then(|text| text.parse::<usize>().ok()) {
            self.stripe = index.min(MOST_STRIPES);
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
            self.last = Some(Told::Success);
        } else if ["failure", "failed", "aborted"]
            .iter()
            .any(|word| lower.starts_with(word))
        {
            self.last = Some(Told::Failure(line.chars().take(300).collect()));
        }
        None
    }
}

/// A marker of one stripe, as a server writes it.
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

/// The last line of a transfer that went well.
pub(crate) const SUCCESS: &str = "success: Created\n";

/// The last line of one that did not; line ends within the reason become blanks.
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

    fn read(text: &str) -> Option<Told> {
        let mut markers = Markers::default();
        markers.take(text.as_bytes()).expect("short lines");
        markers.end()
    }

    #[test]
    fn only_the_last_line_says_what_came_of_it() {
        assert_eq!(
            read(
                "Perf Marker\n\tStripe Index: 0\n\tStripe Bytes Transferred: 5\nEnd\nsuccess: Created\n"
            ),
            Some(Told::Success)
        );
        assert_eq!(read("success: Created"), Some(Told::Success));
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
            assert!(matches!(read(text), Some(Told::Failure(_))), "{text}");
        }
    }

    #[test]
    fn bytes_of_several_stripes_are_summed() {
        let mut markers = Markers::default();
        let mut take = |stripe, bytes| {
            let text = format!(
                "Perf Marker\n Stripe Index: {stripe}\n Stripe Bytes Transferred: {bytes}\n Total Stripe Count: 2\nEnd\n"
            );
            markers.take(text.as_bytes()).expect("short lines")
        };
        assert_eq!(take(0, 5), Some(5));
        assert_eq!(take(1, 7), Some(12));
        assert_eq!(take(0, 6), Some(13));
        assert!(markers.take(&[b'x'; LONGEST_LINE + 1]).is_err());
    }

    proptest! {
        #[test]
        fn what_a_server_writes_is_read_however_it_is_cut(bytes: u64, cut in 1..80_usize, reason: String) {
            let text = marker(1, bytes, &["tcp:127.0.0.1:1".into()]) + &failure(&reason);
            let mut markers = Markers::default();
            let mut told = Vec::new();
            for piece in text.as_bytes().chunks(cut) {
                told.extend(markers.take(piece).expect("short lines"));
            }
            prop_assert!(told.contains(&bytes));
            prop_assert!(matches!(markers.end(), Some(Told::Failure(_))));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut markers = Markers::default();
            let _ = markers.take(&bytes);
            let _ = markers.end();
        }
    }
}
