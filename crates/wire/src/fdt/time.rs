//! Times of modification, as the FDT tells them.
use core::fmt;
use core::str::FromStr;

/// Nanoseconds of a second.
const NANOS: i128 = 1_000_000_000;
/// Digits of a nanosecond count below one second.
const DECIMALS: usize = 9;

/// A time of modification, as `stat` tells it: `seconds` since 1970-01-01 00:00 UTC, negative before, and
/// nanoseconds after that second.
///
/// As text it is a decimal number of seconds with nine decimals: half a second before 1970 is `-0.500000000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime {
    seconds: i64,
    nanoseconds: u32,
}

/// A text that is no time: not a number of seconds within 64 bits, with nine decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a number of seconds with nine decimals")]
pub struct FileTimeError;

impl FileTime {
    /// The time `nanoseconds` after a second; `None` if they are a second or more.
    pub fn new(seconds: i64, nanoseconds: u32) -> Option<Self> {
        (i128::from(nanoseconds) < NANOS).then_some(Self { seconds, nanoseconds })
    }

    /// Seconds since 1970, rounded down.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Nanoseconds after that second, below 10^9.
    pub fn nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    /// Nanoseconds since 1970.
    fn total(self) -> i128 {
        i128::from(self.seconds) * NANOS + i128::from(self.nanoseconds)
    }

    fn of_total(total: i128) -> Option<Self> {
        let seconds = i64::try_from(total.div_euclid(NANOS)).ok()?;
        let nanoseconds = u32::try_from(total.rem_euclid(NANOS)).ok()?;
        Some(Self { seconds, nanoseconds })
    }
}

impl fmt::Display for FileTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let (sign, distance) = (if total < 0 { "-" } else { "" }, total.abs());
        write!(f, "{sign}{}.{:09}", distance / NANOS, distance % NANOS)
    }
}

impl FromStr for FileTime {
    type Err = FileTimeError;

    fn from_str(text: &str) -> Result<Self, FileTimeError> {
        let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (seconds, decimals) = digits.split_once('.').ok_or(FileTimeError)?;
        if decimals.len() != DECIMALS {
            return Err(FileTimeError);
        }
        // Signs that `parse` would take are refused.
        let number = |text: &str| -> Result<i128, FileTimeError> {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| is_plain).map(i128::from).ok_or(FileTimeError)
        };
        let distance = number(seconds)? * NANOS + number(decimals)?;
        Self::of_total(if is_negative { -distance } else { distance }).ok_or(FileTimeError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_decimal_seconds() {
        for (seconds, nanoseconds, text) in [
            (0, 0, "0.000000000"),
            (1_764_000_000, 5, "1764000000.000000005"),
            (-1, 500_000_000, "-0.500000000"),
            (-2, 0, "-2.000000000"),
            (i64::MAX, 999_999_999, "9223372036854775807.999999999"),
            (i64::MIN, 0, "-9223372036854775808.000000000"),
        ] {
            let time = FileTime::new(seconds, nanoseconds).unwrap();
            assert_eq!(time.to_string(), text);
            assert_eq!(text.parse(), Ok(time));
            assert_eq!((time.seconds(), time.nanoseconds()), (seconds, nanoseconds));
        }
        assert_eq!(FileTime::new(0, 1_000_000_000), None);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "1",
            "1.",
            ".000000000",
            "1.5",
            "1.0000000000",
            "+1.000000000",
            "--1.000000000",
            "1.+00000000",
            "1e9.000000000",
            "9223372036854775808.000000000",
            "-9223372036854775808.000000001",
            "18446744073709551616.000000000",
        ] {
            assert_eq!(text.parse::<FileTime>(), Err(FileTimeError), "{text:?}");
        }
    }
}
