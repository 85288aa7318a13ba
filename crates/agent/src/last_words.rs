//! What a tool that failed said last, short enough for a record: the reason is seldom in the very last line.

/// The longest error text in a record; the whole output stands beside it.
const LONGEST_CHARS: usize = 300;

/// Of one line that is longer than that by itself: what it begins with tells who speaks, what it ends with tells why.
const HEAD_CHARS: usize = 100;

const BETWEEN_LINES: &str = " / ";
const LEFT_OUT: &str = " … ";

/// The last lines of an error output, joined, as many as there is room for; nothing if there are none.
///
/// Of a line that was written over (carriage returns) only what stood there in the end counts, as on a terminal.
pub(crate) fn last_words(text: &str) -> Option<String> {
    let mut kept: Vec<String> = Vec::new();
    let mut room = LONGEST_CHARS;
    for line in text.lines().rev().filter_map(shown) {
        let length = line.chars().count() + BETWEEN_LINES.len();
        if kept.is_empty() {
            room = (room + BETWEEN_LINES.len()).saturating_sub(length);
            kept.push(shortened(line));
        } else if length <= room {
            room -= length;
            kept.push(line);
        } else {
            break;
        }
    }
    kept.reverse();
    (!kept.is_empty()).then(|| kept.join(BETWEEN_LINES))
}

/// A line as people see it, if there is anything to see.
fn shown(line: &str) -> Option<String> {
    let last = line
        .split('\r')
        .map(str::trim)
        .rfind(|part| !part.is_empty())?;
    let plain: String = last.chars().filter(|letter| !letter.is_control()).collect();
    (!plain.is_empty()).then_some(plain)
}

fn shortened(line: String) -> String {
    let length = line.chars().count();
    if length <= LONGEST_CHARS {
        return line;
    }
    let tail = LONGEST_CHARS - HEAD_CHARS - LEFT_OUT.chars().count();
    let head: String = line.chars().take(HEAD_CHARS).collect();
    let end: String = line.chars().skip(length - tail).collect();
    format!("{head}{LEFT_OUT}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error output of a recorded failure of a real tool.
    fn recorded(outputs: &str, case: &str) -> String {
        outputs
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON lines"))
            .find(|record| record["case"] == case)
            .and_then(|record| record["stderr"].as_str().map(str::to_owned))
            .unwrap_or_else(|| panic!("no case {case}"))
    }

    fn check(outputs: &str, case: &str, expected: &[&str]) {
        let said = last_words(&recorded(outputs, case)).expect("it said something");
        assert!(said.chars().count() <= LONGEST_CHARS, "{said}");
        for words in expected {
            assert!(said.contains(words), "{case}: {words} is not in: {said}");
        }
    }

    const GLOBUS: &str = include_str!("../../../tests/mover/outputs/globus-url-copy-10.12.jsonl");
    const GFAL: &str = include_str!("../../../tests/mover/outputs/gfal-copy-1.8.0.jsonl");
    const NUTTCP: &str = include_str!("../../../tests/mover/outputs/nuttcp-6.1.2.jsonl");
    const XRDCP: &str = include_str!("../../../tests/mover/outputs/xrdcp-5.5.3.jsonl");

    #[test]
    fn the_reason_is_among_the_last_words_of_real_tools() {
        check(
            GLOBUS,
            "no-file",
            &[
                "Unable to open file /lab/A/none",
                "No such file",
                "500 End.",
            ],
        );
        check(
            GLOBUS,
            "refused",
            &["Unable to connect to 10.99.0.1:2899", "Connection refused"],
        );
        check(
            GLOBUS,
            "expired-proxy",
            &["The proxy credential", "expired 1 minutes ago."],
        );
        check(GLOBUS, "disk-full", &["No space left on device"]);
        check(
            GFAL,
            "expired-proxy",
            &["gfal-copy error: 13 (Permission denied)", "has expired"],
        );
        check(NUTTCP, "refused", &["Connection refused / errno=111"]);
        check(XRDCP, "no-file", &["no such file or directory (source)"]);
    }

    #[test]
    fn one_line_stands_as_it_is() {
        assert_eq!(
            last_words("no thank you\n").as_deref(),
            Some("no thank you")
        );
        assert_eq!(last_words("\n \r\n\0\n"), None);
        assert_eq!(last_words(""), None);
    }

    #[test]
    fn only_whole_lines_are_added_and_a_long_last_one_keeps_both_its_ends() {
        let text = format!(
            "{}\n{}\n{}",
            "a".repeat(50),
            "b".repeat(200),
            "c".repeat(97)
        );
        assert_eq!(
            last_words(&text),
            Some(format!("{} / {}", "b".repeat(200), "c".repeat(97)))
        );
        let long = format!("first\nbegin{}end", "é".repeat(400));
        let said = last_words(&long).expect("a line");
        assert!(said.starts_with("begin") && said.ends_with("end"));
        assert_eq!(said.chars().count(), LONGEST_CHARS);
    }

    #[test]
    fn a_line_that_was_written_over_shows_what_stood_there_last() {
        assert_eq!(
            last_words("10 %\r50 %\rfailed: disk full\r\n").as_deref(),
            Some("failed: disk full")
        );
    }
}
