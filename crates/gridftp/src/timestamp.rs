//! Times in the format of FTP (RFC 3659 section 2.3): `YYYYMMDDHHMMSS`, UTC.

use crate::{FtpError, number};

/// 9999-12-31 23:59:59, the last second with a four-digit year.
const LAST_S: i64 = 253_402_300_799;
const DAY_S: i64 = 86_400;
/// Days of 400 years of the Gregorian calendar.
const ERA_DAYS: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// Parses a time as seconds since 1970. A fraction is ignored.
///
/// # Errors
/// If the text is not fourteen digits, or no valid date.
pub fn parse_timestamp(text: &[u8]) -> Result<i64, FtpError> {
    let wrong = || FtpError::malformed("time", "`YYYYMMDDHHMMSS`", text);
    let whole = text.split(|&byte| byte == b'.').next().unwrap_or(text);
    if whole.len() != 14 {
        return Err(wrong());
    }
    let field = |from: usize, to: usize| number::<i64>(&whole[from..to]).ok_or_else(wrong);
    let (year, month, day) = (field(0, 4)?, field(4, 6)?, field(6, 8)?);
    let (hour, minute, second) = (field(8, 10)?, field(10, 12)?, field(12, 14)?);
    let days = to_days(year, month, day);
    // 60 is a leap second, which seconds since 1970 do not count.
    let known = (1..=12).contains(&month) && to_date(days) == (year, month, day);
    if !known || hour > 23 || minute > 59 || second > 60 {
        return Err(wrong());
    }
    Ok(days * DAY_S + hour * 3600 + minute * 60 + second.min(59))
}

/// Formats seconds since 1970. Years before 0 and after 9999 are clamped to the nearest valid time.
#[must_use]
pub fn write_timestamp(time_s: i64) -> String {
    let time_s = time_s.clamp(-62_167_219_200, LAST_S);
    let (year, month, day) = to_date(time_s.div_euclid(DAY_S));
    let second = time_s.rem_euclid(DAY_S);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}{month:02}{day:02}{hour:02}{minute:02}{:02}",
        second % 60
    )
}

/// Returns the days from 1970 to a date. Years are counted from March, so that the leap day comes
/// last.
fn to_days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let in_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = in_era * 365 + in_era / 4 - in_era / 100 + day_of_year;
    year.div_euclid(400) * ERA_DAYS + days - EPOCH_DAYS
}

/// Returns the year, month and day of a day since 1970.
fn to_date(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS;
    let in_era = days.rem_euclid(ERA_DAYS);
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let day_of_year = in_era - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year + days.div_euclid(ERA_DAYS) * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn timestamps_match_those_of_date_utc() {
        // `date -u -d @N +%Y%m%d%H%M%S`
        for (seconds, text) in [
            (0, "19700101000000"),
            (951_782_400, "20000229000000"),
            (1_700_000_000, "20231114221320"),
            (-1, "19691231235959"),
            (4_107_542_399, "21000228235959"),
        ] {
            assert_eq!(write_timestamp(seconds), text);
            assert_eq!(parse_timestamp(text.as_bytes()).unwrap(), seconds);
        }
        assert_eq!(parse_timestamp(b"20231114221320.5").unwrap(), 1_700_000_000);
        for wrong in ["20230229000000", "20231301000000", "20230100000000", "1"] {
            parse_timestamp(wrong.as_bytes()).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn times_round_trip_through_text(seconds in -62_167_219_200..=LAST_S) {
            prop_assert_eq!(parse_timestamp(write_timestamp(seconds).as_bytes()).unwrap(), seconds);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text: Vec<u8>) {
            let _ = parse_timestamp(&text);
        }
    }
}
