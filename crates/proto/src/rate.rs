//! Rates in bit/s and sizes in bytes, and their text form: `10M`, `2.5Gbit/s`, `64MiB`.

use core::fmt;
use core::str::FromStr;

use crate::time::Duration;

/// A sending rate in bit/s of UDP payload. Never zero: silence is the absence of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(core::num::NonZeroU64);

impl Rate {
    /// `bits` bit/s; `None` for zero.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        match core::num::NonZeroU64::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// `kilobits` kbit/s (1000 bit/s each), at least 1 bit/s.
    pub const fn from_kilobits(kilobits: u64) -> Self {
        match core::num::NonZeroU64::new(kilobits.saturating_mul(1_000)) {
            Some(bits) => Self(bits),
            None => Self(core::num::NonZeroU64::MIN),
        }
    }

    /// bit/s.
    pub const fn as_bits(self) -> u64 {
        self.0.get()
    }

    /// Rate of so many packets of `packet_bytes` each in a second. `None` below 1 bit/s.
    pub(crate) fn of_packets(per_second: f64, packet_bytes: u16) -> Option<Self> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let bits = (per_second * 8.0 * f64::from(packet_bytes)) as u64;
        Self::from_bits(bits)
    }

    /// Packets of `bytes` each, per second: for equations.
    #[expect(clippy::cast_precision_loss, reason = "a rate inside an equation")]
    pub fn packets_per_second(self, bytes: f64) -> f64 {
        self.as_bits() as f64 / (8.0 * bytes)
    }

    /// Returns the time that `bytes` take at this rate, rounded down to a nanosecond; see
    /// [`crate::pacing::Pacer`] for pacing without lost fractions.
    pub fn time_of(self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(self.as_bits());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the bytes that fit in `time` at this rate, rounded down.
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.as_bits()) * u128::from(time.as_nanos()) / 8_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Reason why a rate or a size could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// The number before the unit is missing or malformed.
    #[error("'{0}' does not start with a decimal number; write for example {1}")]
    Number(String, &'static str),
    /// The unit is unknown.
    #[error("'{0}' is not a unit; use one of {1}")]
    Unit(String, &'static str),
    /// Zero, or more than 64 bits hold.
    #[error("'{0}' is out of range; it must be above 0 and below 2^64")]
    Range(String),
}

const RATE_UNITS: &str = "bit/s, k, M, G or kbit/s, Mbit/s, Gbit/s (powers of 1000)";
const SIZE_UNITS: &str = "B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024)";

impl FromStr for Rate {
    type Err = ParseQuantityError;

    /// Reads `1500000`, `10M`, `2.5G`, `10Mbit/s`, `64 kbit/s`. SI prefixes are powers of 1000.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, unit) = split(text, "10M or 2.5Gbit/s")?;
        let unit = unit.strip_suffix("bit/s").or_else(|| unit.strip_suffix("bps")).unwrap_or(unit);
        let factor = match unit {
            "" => 1,
            "k" | "K" => 1_000,
            "M" => 1_000_000,
            "G" => 1_000_000_000,
            _ => return Err(ParseQuantityError::Unit(unit.into(), RATE_UNITS)),
        };
        scaled(number, factor).and_then(Self::from_bits).ok_or_else(|| ParseQuantityError::Range(text.into()))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.as_bits();
        let (factor, prefix) = match bits {
            1_000_000_000.. => (1_000_000_000, "G"),
            1_000_000.. => (1_000_000, "M"),
            1_000.. => (1_000, "k"),
            _ => (1, ""),
        };
        write_scaled(f, bits, factor)?;
        write!(f, " {prefix}bit/s")
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = ParseQuantityError;

    /// Reads `4096`, `100MB`, `64MiB`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, unit) = split(text, "100MB or 64MiB")?;
        let factor = match unit {
            "" | "B" => 1,
            "k" | "kB" | "K" => 1_000,
            "M" | "MB" => 1_000_000,
            "G" | "GB" => 1_000_000_000,
            "T" | "TB" => 1_000_000_000_000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "TiB" => 1 << 40,
            _ => return Err(ParseQuantityError::Unit(unit.into(), SIZE_UNITS)),
        };
        scaled(number, factor).map(Self).ok_or_else(|| ParseQuantityError::Range(text.into()))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (factor, unit) = match self.0 {
            1_000_000_000_000.. => (1_000_000_000_000, "TB"),
            1_000_000_000.. => (1_000_000_000, "GB"),
            1_000_000.. => (1_000_000, "MB"),
            1_000.. => (1_000, "kB"),
            _ => (1, "B"),
        };
        write_scaled(f, self.0, factor)?;
        write!(f, " {unit}")
    }
}

/// Splits `2.5 GiB` into the number and the unit.
fn split<'a>(text: &'a str, example: &'static str) -> Result<(&'a str, &'a str), ParseQuantityError> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let dots = number.bytes().filter(|byte| *byte == b'.').count();
    if !number.starts_with(|c: char| c.is_ascii_digit()) || dots > 1 || number.ends_with('.') {
        return Err(ParseQuantityError::Number(text.into(), example));
    }
    Ok((number, unit.trim_start()))
}

/// `number * factor` in integers, so that `0.1G` is exactly 100 000 000.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut value = u128::from(whole.parse::<u64>().ok()?) * u128::from(factor);
    let mut place = u128::from(factor);
    for digit in fraction.bytes() {
        place /= 10;
        value += u128::from(digit - b'0') * place;
    }
    u64::try_from(value).ok()
}

/// Three significant digits, without trailing zeros.
fn write_scaled(f: &mut fmt::Formatter<'_>, value: u64, factor: u64) -> fmt::Result {
    let whole = value / factor;
    let hundredths = value % factor * 100 / factor;
    match (whole, hundredths) {
        (100.., _) | (_, 0) => write!(f, "{whole}"),
        (10.., _) if hundredths < 10 => write!(f, "{whole}"),
        (10.., _) => write!(f, "{whole}.{}", hundredths / 10),
        _ if hundredths.is_multiple_of(10) => write!(f, "{whole}.{}", hundredths / 10),
        _ => write!(f, "{whole}.{hundredths:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_in_si() {
        for (text, bits) in [
            ("1500000", 1_500_000),
            ("10M", 10_000_000),
            ("10Mbit/s", 10_000_000),
            ("64 kbit/s", 64_000),
            ("2.5G", 2_500_000_000),
            ("0.1G", 100_000_000),
            ("1bit/s", 1),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().as_bits(), bits, "{text}");
        }
    }

    #[test]
    fn bad_rates_say_what_is_wrong() {
        let error = |text: &str| text.parse::<Rate>().unwrap_err().to_string();
        assert!(error("10MB").contains("'MB' is not a unit"));
        assert!(error("fast").contains("10M"));
        assert!(error("1.2.3M").contains("decimal number"));
        assert!(error("0").contains("out of range"));
        assert!(error("99999999999999999999").contains("out of range"));
        assert!(error("18446744073709551615G").contains("out of range"));
        assert!(error("-5M").contains("decimal number"));
    }

    #[test]
    fn sizes_know_both_prefixes() {
        assert_eq!("64MiB".parse::<Size>().unwrap().0, 64 << 20);
        assert_eq!("1.5kB".parse::<Size>().unwrap().0, 1_500);
        assert_eq!("0".parse::<Size>().unwrap().0, 0);
        assert!("5 parsecs".parse::<Size>().unwrap_err().to_string().contains("MiB"));
    }

    #[test]
    fn display_is_short() {
        assert_eq!(Rate::from_kilobits(10_000).to_string(), "10 Mbit/s");
        assert_eq!(Rate::from_kilobits(2_540).to_string(), "2.54 Mbit/s");
        assert_eq!(Rate::from_kilobits(25_450).to_string(), "25.4 Mbit/s");
        assert_eq!(Size(1_048_576).to_string(), "1.04 MB");
        assert_eq!(Size(12).to_string(), "12 B");
    }

    #[test]
    fn time_and_bytes_are_inverse() {
        let rate = Rate::from_kilobits(8_000);
        assert_eq!(rate.time_of(1_000), Duration::from_millis(1));
        assert_eq!(rate.bytes_in(Duration::from_millis(1)), 1_000);
    }
}
