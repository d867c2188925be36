//! The letters of a pattern that write and read a year, as Java has them: four and more are a width
//! beyond which a year has its sign.

/// Appends a year by `count` letters.
pub(super) fn write(year: i64, count: usize, out: &mut String) {
    let digits = year.unsigned_abs();
    if count == 2 {
        return out.push_str(&format!("{:02}", digits % 100));
    }
    let digits = format!("{digits:0count$}");
    if year < 0 {
        out.push('-');
    } else if count >= 4 && digits.len() > count {
        out.push('+');
    }
    out.push_str(&digits);
}

/// The most digits that are read as one number.
const DIGITS_MAX: usize = 19;
/// The last year that Java knows.
const YEAR_MAX: i64 = 999_999_999;

/// Reads a year by `count` letters; `behind` are the digits of the numbers that follow it with
/// nothing between them.
pub(super) fn read(count: usize, behind: usize, text: &str) -> Option<(i64, &str)> {
    let sign = text.chars().next().filter(|char| matches!(char, '+' | '-'));
    let unsigned = if sign.is_some() { &text[1..] } else { text };
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    if count == 2 {
        let is_read = sign.is_none() && digits >= 2;
        let year = is_read.then(|| unsigned[..2].parse::<i64>().ok()).flatten()?;
        return Some((2000 + year, &unsigned[2..]));
    }
    let digits = digits.min(DIGITS_MAX + behind);
    let width = if behind > 0 { digits.saturating_sub(behind).max(count) } else { digits };
    if digits < width || width < count {
        return None;
    }
    let year: i64 = unsigned[..width].parse().ok().filter(|year| *year <= YEAR_MAX)?;
    let is_wide = count >= 4 && width > count;
    let year = match sign {
        Some('-') => (year != 0).then(|| -year)?,
        // A sign is there where it has to be.
        Some(_) => is_wide.then_some(year)?,
        None => (count < 4 || !is_wide).then_some(year)?,
    };
    Some((year, &unsigned[width..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(year: i64, count: usize) -> String {
        let mut out = String::new();
        write(year, count, &mut out);
        out
    }

    #[test]
    fn a_year_wider_than_its_letters_has_a_sign() {
        let of = |year: i64| [1, 2, 3, 4, 5, 6].map(|count| written(year, count));
        assert_eq!(of(10_000), ["10000", "00", "10000", "+10000", "10000", "010000"]);
        assert_eq!(of(2026), ["2026", "26", "2026", "2026", "02026", "002026"]);
        assert_eq!(of(99), ["99", "99", "099", "0099", "00099", "000099"]);
        assert_eq!(of(-99), ["-99", "99", "-099", "-0099", "-00099", "-000099"]);
        assert_eq!(written(123_456, 5), "+123456");
        assert_eq!(written(0, 4), "0000");
    }

    #[test]
    fn a_year_is_read_as_it_is_written() {
        for (count, text, year) in [
            (4, "+10000", Some(10_000)),
            (4, "10000", None),
            (4, "+2026", None),
            (4, "26", None),
            (4, "-0099", Some(-99)),
            (1, "10000", Some(10_000)),
            (1, "+10000", None),
            (3, "26", None),
            (5, "10000", Some(10_000)),
            (5, "2026", None),
            (6, "010000", Some(10_000)),
            (2, "26", Some(2026)),
            (2, "+26", None),
            (4, "+1000000000", None),
            (1, "99999999999999999999", None),
        ] {
            assert_eq!(read(count, 0, text).map(|(year, _)| year), year, "{text} by {count}");
        }
        assert_eq!(read(4, 4, "20260101"), Some((2026, "0101")));
        assert_eq!(read(1, 4, "20260101"), Some((2026, "0101")));
        assert_eq!(read(4, 4, "100000101"), None);
        assert_eq!(read(4, 4, "+100000101"), Some((10_000, "0101")));
        assert_eq!(read(4, 10, "20260101"), Some((2026, "0101")));
        assert_eq!(read(4, 0, "2026-01"), Some((2026, "-01")));
    }
}
