//! Consecutive failures at each server, and the decision to end its trials.
//!
//! Other users share an existing server, so a run does not repeat rejected requests.

use std::collections::{BTreeMap, BTreeSet};

use venturi_plan::{EndReason, Name, Outcome};

/// Statuses of an HTTP server that is overloaded (RFC 6585 section 4, RFC 9110 section 15.6.4).
const OVERLOADED: [(u16, &str, &str); 2] = [
    (429, "429", "too many requests"),
    (503, "503", "service unavailable"),
];

/// Words before the number of a status in messages of `curl`, `wget`, `gfal-copy`, `rclone` and `venturi copy`.
const BEFORE_STATUS: [&str; 9] = [
    "http", "http/1.0", "http/1.1", "http/2", "error", "status", "code", "returned", "response",
];

/// Consecutive failures by service.
#[derive(Debug, Default)]
pub(crate) struct ServerFailures {
    /// Number of consecutive failures that ends the trials; none: they never end.
    limit: Option<u32>,
    in_a_row: BTreeMap<Name, u32>,
    ended: BTreeSet<Name>,
}

impl ServerFailures {
    pub(crate) fn new(limit: Option<u32>) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// End the trials at a service. Return whether they had not ended before.
    pub(crate) fn end(&mut self, service: &Name) -> bool {
        self.ended.insert(service.clone())
    }

    /// Count the result of a transfer, or of another operation at services. Return the reason if
    /// the trials there end now.
    ///
    /// A missing tool, a signal or the end of the run is not a failure of a server. `texts` are the
    /// messages of a failure.
    pub(crate) fn count<'a>(
        &mut self,
        services: impl Iterator<Item = Name>,
        outcome: Outcome,
        texts: impl IntoIterator<Item = &'a str>,
    ) -> Vec<(Name, EndReason)> {
        let Some(limit) = self.limit else {
            return Vec::new();
        };
        let failed = match outcome {
            Outcome::Ok => false,
            Outcome::Failed | Outcome::Timeout | Outcome::Short => true,
            Outcome::Killed | Outcome::Missing | Outcome::Stopped => return Vec::new(),
        };
        let status = texts.into_iter().filter(|_| failed).find_map(status_in);
        let mut ended = Vec::new();
        for service in services.collect::<BTreeSet<Name>>() {
            if !failed {
                self.in_a_row.remove(&service);
                continue;
            }
            let failures = self.in_a_row.entry(service.clone()).or_default();
            *failures += 1;
            let reason = match status {
                Some(status) => EndReason::Status(status),
                None if *failures >= limit => EndReason::Failures(*failures),
                None => continue,
            };
            if self.end(&service) {
                ended.push((service, reason));
            }
        }
        ended
    }
}

/// Return the status in a text. Only a number next to a word such as `error` counts, because paths,
/// sizes and times can contain 503, too.
fn status_in(text: &str) -> Option<u16> {
    text.lines().find_map(|line| {
        let line = line.to_ascii_lowercase();
        let words: Vec<&str> = line
            .split(|letter: char| letter.is_whitespace() || "()[]\"',;=".contains(letter))
            .map(|word| word.trim_end_matches([':', '.', '!']))
            .filter(|word| !word.is_empty())
            .collect();
        OVERLOADED.into_iter().find_map(|(status, number, name)| {
            let near = |at: usize| {
                let before = at.checked_sub(1).and_then(|before| words.get(before));
                let after = words[at + 1..].iter().take(2).copied();
                let after: Vec<&str> = after.collect();
                before.is_some_and(|word| BEFORE_STATUS.contains(word))
                    || name.starts_with(&after.join(" ")) && !after.is_empty()
            };
            let found = words.iter().enumerate();
            found
                .filter(|(_, word)| **word == number)
                .any(|(at, _)| near(at))
                .then_some(status)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_found_in_the_messages_of_real_tools() {
        for (text, status) in [
            ("curl: (22) The requested URL returned error: 503", 503),
            ("curl: (22) The requested URL returned error: 429", 429),
            ("2026-11-29 19:00:00 ERROR 503: Service Unavailable.", 503),
            (
                "gfal-copy error: 70 (Communication error on send) - Result HTTP 429 : Unexpected server error: 429 after 1 attempts",
                429,
            ),
            ("HTTP/1.1 503 Service Temporarily Unavailable", 503),
            ("Failed to copy: 429 Too Many Requests", 429),
            ("http://dtn:8080/x: status 503", 503),
        ] {
            assert_eq!(status_in(text), Some(status), "{text}");
        }
    }

    #[test]
    fn other_numbers_in_messages_are_not_taken_for_a_status() {
        for text in [
            "cannot open /data/sets/503: No such file or directory",
            "error: received 503 bytes of 1000",
            "http://dtn:503/file: connection refused",
            "exit code 1: file 000429 is missing",
            "curl: (22) The requested URL returned error: 404",
            "",
        ] {
            assert_eq!(status_in(text), None, "{text}");
        }
    }

    #[test]
    fn only_consecutive_failures_at_one_server_end_its_trials_and_only_once() {
        let mut failures = ServerFailures::new(Some(3));
        let mut count = |service: &str, outcome| {
            let services = [Name::from(service)].into_iter();
            failures.count(services, outcome, ["refused"]).len()
        };
        assert_eq!(count("a", Outcome::Failed), 0);
        assert_eq!(count("a", Outcome::Timeout), 0);
        assert_eq!(count("b", Outcome::Failed), 0);
        assert_eq!(count("a", Outcome::Ok), 0);
        assert_eq!(count("a", Outcome::Failed), 0);
        assert_eq!(count("a", Outcome::Failed), 0);
        assert_eq!(count("a", Outcome::Missing), 0);
        assert_eq!(count("a", Outcome::Failed), 1);
        assert_eq!(count("a", Outcome::Failed), 0);
        assert_eq!(count("b", Outcome::Failed), 0);
    }

    #[test]
    fn an_overload_status_ends_trials_immediately_unless_there_is_no_limit() {
        let texts = ["", "curl: (22) The requested URL returned error: 429"];
        let services = || [Name::from("a")].into_iter();
        let mut failures = ServerFailures::new(Some(5));
        assert_eq!(
            failures.count(services(), Outcome::Failed, texts),
            [("a".into(), EndReason::Status(429))]
        );
        let mut failures = ServerFailures::new(None);
        assert!((0..9).all(|_| {
            let ended = failures.count(services(), Outcome::Failed, texts);
            ended.is_empty()
        }));
    }
}
