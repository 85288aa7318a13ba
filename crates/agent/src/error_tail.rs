//! Tail of the error output of a failed tool, short enough for a record. It has several lines,
//! because the reason is rarely in the last line.

/// Maximum length of an error text in a record; another field has the whole output.
const MAX_CHARS: usize = 300;

/// Kept start of a longer line: the start names the program, and the end has the reason.
const HEAD_CHARS: usize = 100;

const BETWEEN_LINES: &str = " / ";
const LEFT_OUT: &str = " … ";

/// Return the last lines of an error output, joined, up to the maximum length; none without lines.
///
/// Only the final text of an overwritten line (carriage returns) counts, as on a terminal.
pub(crate) fn error_tail(text: &str) -> Option<String> {
    let mut kept: Vec<String> = Vec::new();
    let mut capacity = MAX_CHARS;
    for line in text.lines().rev().filter_map(shown) {
        let length = line.chars().count() + BETWEEN_LINES.len();
        if kept.is_empty() {
            capacity = (capacity + BETWEEN_LINES.len()).saturating_sub(length);
            kept.push(shortened(line));
        } else if length <= capacity {
            capacity -= length;
            kept.push(line);
        } else {
            break;
        }
    }
    kept.reverse();
    (!kept.is_empty()).then(|| kept.join(BETWEEN_LINES))
}

/// Return the visible text of a line, if any.
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
    if length <= MAX_CHARS {
        return line;
    }
    let tail = MAX_CHARS - HEAD_CHARS - LEFT_OUT.chars().count();
    let head: String = line.chars().take(HEAD_CHARS).collect();
    let end: String = line.chars().skip(length - tail).collect();
    format!("{head}{LEFT_OUT}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Return the error output of a recorded failure of a real tool.
    fn recorded(outputs: &str, case: &str) -> String {
        outputs
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON lines"))
            .find(|record| record["case"] == case)
            .and_then(|record| record["stderr"].as_str().map(str::to_owned))
            .unwrap_or_else(|| panic!("no case {case}"))
    }

    fn check(outputs: &str, case: &str, expected: &[&str]) {
        let tail = error_tail(&recorded(outputs, case)).expect("it said something");
        assert!(tail.chars().count() <= MAX_CHARS, "{tail}");
        for fields in expected {
            assert!(tail.contains(fields), "{case}: {fields} is not in: {tail}");
        }
    }

    const GLOBUS: &str = include_str!("../../../tests/mover/outputs/globus-url-copy-10.12.jsonl");
    const GFAL: &str = include_str!("../../../tests/mover/outputs/gfal-copy-1.8.0.jsonl");
    const NUTTCP: &str = include_str!("../../../tests/mover/outputs/nuttcp-6.1.2.jsonl");
    const XRDCP: &str = include_str!("../../../tests/mover/outputs/xrdcp-5.5.3.jsonl");

    #[test]
    fn the_error_tail_of_real_tools_contains_the_reason() {
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
    fn a_single_line_is_kept_unchanged() {
        assert_eq!(
            error_tail("no thank you\n").as_deref(),
            Some("no thank you")
        );
        assert_eq!(error_tail("\n \r\n\0\n"), None);
        assert_eq!(error_tail(""), None);
    }

    #[test]
    fn only_complete_lines_are_added_and_a_long_last_line_keeps_both_ends() {
        let text = format!(
            "{}\n{}\n{}",
            "a".repeat(50),
            "b".repeat(200),
            "c".repeat(97)
        );
        assert_eq!(
            error_tail(&text),
            Some(format!("{} / {}", "b".repeat(200), "c".repeat(97)))
        );
        let long = format!("first\nbegin{}end", "é".repeat(400));
        let tail = error_tail(&long).expect("a line");
        assert!(tail.starts_with("begin") && tail.ends_with("end"));
        assert_eq!(tail.chars().count(), MAX_CHARS);
    }

    #[test]
    fn an_overwritten_line_shows_its_last_text() {
        assert_eq!(
            error_tail("10 %\r50 %\rfailed: disk full\r\n").as_deref(),
            Some("failed: disk full")
        );
    }
}
