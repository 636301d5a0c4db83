//! Times as logs write them, in microseconds since 1970.

/// Seconds as whole microseconds, rounded; `None` for what is no number or beyond 3,000 years.
///
/// ```
/// # use goodput::logs::micros_of_seconds;
/// assert_eq!(micros_of_seconds(1.5), Some(1_500_000));
/// assert_eq!(micros_of_seconds(f64::NAN), None);
/// ```
pub fn micros_of_seconds(seconds: f64) -> Option<i64> {
    let micros = (seconds * 1e6).round();
    (micros.abs() < 1e17).then_some(micros as i64)
}

/// A time at the beginning of a text, such as `2026-03-10 12:34:56,789` or `2026-03-10T12:34:56.789Z`, and
/// the bytes that it takes. Without a zone it is taken for UTC.
pub(super) fn date_time(text: &str) -> Option<(i64, usize)> {
    let bytes = text.as_bytes();
    let number = |from: usize, digits: usize| -> Option<i64> {
        let part = bytes.get(from..from + digits)?;
        part.iter()
            .all(u8::is_ascii_digit)
            .then(|| part.iter().fold(0, |sum, d| sum * 10 + i64::from(d - b'0')))
    };
    let is = |at: usize, allowed: &[u8]| bytes.get(at).is_some_and(|b| allowed.contains(b));
    let punctuated = is(4, b"-/") && is(7, b"-/") && is(10, b" T") && is(13, b":") && is(16, b":");
    if !punctuated {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    // A leap second is written as 60.
    if !(1..=12).contains(&month)
        || !(1..=days_in(year, month)).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    let mut end = 19;
    let mut micros = 0;
    if is(end, b".,") && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        end += 1;
        let mut unit = 100_000;
        while let Some(digit) = bytes.get(end).filter(|b| b.is_ascii_digit()) {
            micros += i64::from(digit - b'0') * unit;
            unit /= 10;
            end += 1;
        }
    }
    let mut offset_minutes = 0;
    if is(end, b"Z") {
        end += 1;
    } else if is(end, b"+-") {
        let colon = usize::from(is(end + 3, b":"));
        if let (Some(hours), Some(minutes)) = (number(end + 1, 2), number(end + 3 + colon, 2)) {
            let sign = if bytes[end] == b'-' { -1 } else { 1 };
            offset_minutes = sign * (hours * 60 + minutes);
            end += 5 + colon;
        }
    }
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second
        - offset_minutes * 60;
    Some((seconds * 1_000_000 + micros, end))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1 January 1970 in the proleptic Gregorian calendar.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Leap days of all years before this one; 477 of them are before 1970.
    let before = year - 1;
    let leap_days = before / 4 - before / 100 + before / 400 - 477;
    let months: i64 = (1..month).map(|month| days_in(year, month)).sum();
    (year - 1970) * 365 + leap_days + months + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<f64> {
        date_time(text).map(|(micros, _)| micros as f64 / 1e6)
    }

    #[test]
    fn times_are_seconds_since_1970() {
        for (text, expected) in [
            ("1970-01-01 00:00:00", 0.0),
            ("2000-02-29 12:00:00", 951_825_600.0),
            ("2024-03-01T00:00:00Z", 1_709_251_200.0),
            ("2026-11-30 22:20:27.5", 1_796_077_227.5),
            ("2026-11-30 22:20:27,500", 1_796_077_227.5),
            ("2024-03-01T02:00:00+02:00", 1_709_251_200.0),
            ("2024-02-29T19:30:00-0430", 1_709_251_200.0),
        ] {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "2024",
            "2024-13-01 00:00:00",
            "2023-02-29 00:00:00",
            "2024-01-01 24:00:00",
            "2024-01-01 00:0x:00",
            "step: 10  loss: 2.5",
            "ä024-01-01 00:00:00",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn the_bytes_of_a_time_are_told() {
        assert_eq!(
            date_time("2024-01-01 00:00:00,123 - root").map(|t| t.1),
            Some(23)
        );
        assert_eq!(date_time("2024-01-01 00:00:00] it").map(|t| t.1), Some(19));
        assert_eq!(
            date_time("2024-01-01 00:00:00+01:00 x").map(|t| t.1),
            Some(25)
        );
    }
}
