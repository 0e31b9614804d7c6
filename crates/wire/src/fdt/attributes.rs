//! Attributes of the FDT with values of several parts.
//!
//! FEC object transmission information as attributes of the FDT, `FEC-OTI-*` (RFC 6726 section 5).
//!
//! Sending parameters of a session's channels, announced in the FDT: a name and a few numbers.
//!
//! The attribute `hw:Congestion-Control` of the root, for example `m2c packet-bytes=1424 base-rate=120000
//! max-rate=100000000 ratio-ppm=866000 slot-ns=5000000000`. Each control defines the meaning of its numbers.
//!
//! Modification times in the FDT.

use core::fmt;
use core::str::FromStr;

use super::FdtError;
use crate::fti::{EncodingId, Fti, Ldpc};

/// The `FEC-OTI-*` attributes of an element, as written in the document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OtiAttributes {
    /// `FEC-OTI-FEC-Encoding-ID`.
    pub encoding_id: Option<u8>,
    /// `FEC-OTI-FEC-Instance-ID`, for under-specified schemes.
    pub instance_id: Option<u64>,
    /// `FEC-OTI-Maximum-Source-Block-Length`, in symbols.
    pub max_block: Option<u64>,
    /// `FEC-OTI-Encoding-Symbol-Length`, in bytes.
    pub symbol_size: Option<u64>,
    /// `FEC-OTI-Max-Number-of-Encoding-Symbols`, per block.
    pub max_symbols: Option<u64>,
    /// `FEC-OTI-Scheme-Specific-Info`, decoded from base64.
    pub scheme_specific: Option<Vec<u8>>,
}

pub(super) const ENCODING_ID: &str = "FEC-OTI-FEC-Encoding-ID";
pub(super) const INSTANCE_ID: &str = "FEC-OTI-FEC-Instance-ID";
pub(super) const MAX_BLOCK: &str = "FEC-OTI-Maximum-Source-Block-Length";
pub(super) const SYMBOL_SIZE: &str = "FEC-OTI-Encoding-Symbol-Length";
pub(super) const MAX_SYMBOLS: &str = "FEC-OTI-Max-Number-of-Encoding-Symbols";
pub(super) const SCHEME_SPECIFIC: &str = "FEC-OTI-Scheme-Specific-Info";

impl OtiAttributes {
    /// Returns these attributes, with missing attributes taken from `defaults`.
    pub(super) fn or(&self, defaults: &OtiAttributes) -> OtiAttributes {
        OtiAttributes {
            encoding_id: self.encoding_id.or(defaults.encoding_id),
            instance_id: self.instance_id.or(defaults.instance_id),
            max_block: self.max_block.or(defaults.max_block),
            symbol_size: self.symbol_size.or(defaults.symbol_size),
            max_symbols: self.max_symbols.or(defaults.max_symbols),
            scheme_specific: self.scheme_specific.as_ref().or(defaults.scheme_specific.as_ref()).cloned(),
        }
    }

    /// The scheme's parameters for an object of `transfer_length` bytes.
    pub(super) fn fti(&self, transfer_length: u64) -> Result<Fti, FdtError> {
        let codepoint = self.encoding_id.ok_or(FdtError::Missing(ENCODING_ID))?;
        let encoding_id = EncodingId::from_codepoint(codepoint).ok_or(FdtError::UnknownScheme(codepoint))?;
        let symbol_size = required(SYMBOL_SIZE, self.symbol_size)?;
        let fti = match encoding_id {
            EncodingId::NoCode => {
                Fti::NoCode { transfer_length, symbol_size, max_block: required(MAX_BLOCK, self.max_block)? }
            }
            EncodingId::ReedSolomonM => self.reed_solomon_m(transfer_length, symbol_size)?,
            EncodingId::LdpcStaircase => Fti::LdpcStaircase(self.ldpc(transfer_length, symbol_size)?),
            EncodingId::LdpcTriangle => Fti::LdpcTriangle(self.ldpc(transfer_length, symbol_size)?),
            EncodingId::ReedSolomon => Fti::ReedSolomon {
                transfer_length,
                symbol_size,
                max_block: required(MAX_BLOCK, self.max_block)?,
                max_symbols: required(MAX_SYMBOLS, self.max_symbols)?,
            },
            EncodingId::RaptorQ => self.raptorq(transfer_length, symbol_size)?,
        };
        fti.validate()?;
        Ok(fti)
    }

    fn reed_solomon_m(&self, transfer_length: u64, symbol_size: u16) -> Result<Fti, FdtError> {
        // RFC 5510 section 4.2.4.2: the defaults apply without scheme-specific information, and for zeros.
        let [m, g] = self.scheme_specific.as_ref().map_or(Ok([0, 0]), |_| self.specific())?;
        Ok(Fti::ReedSolomonM {
            transfer_length,
            symbol_size,
            m: if m == 0 { 8 } else { m },
            g: g.max(1),
            max_block: required(MAX_BLOCK, self.max_block)?,
            max_symbols: required(MAX_SYMBOLS, self.max_symbols)?,
        })
    }

    fn ldpc(&self, transfer_length: u64, symbol_size: u16) -> Result<Ldpc, FdtError> {
        let [s0, s1, s2, s3, n1_g] = self.specific()?;
        Ok(Ldpc {
            transfer_length,
            symbol_size,
            n1_minus3: n1_g >> 5,
            g: n1_g & 0x1F,
            max_block: required(MAX_BLOCK, self.max_block)?,
            max_symbols: required(MAX_SYMBOLS, self.max_symbols)?,
            seed: u32::from_be_bytes([s0, s1, s2, s3]),
        })
    }

    fn raptorq(&self, transfer_length: u64, symbol_size: u16) -> Result<Fti, FdtError> {
        let [blocks, n0, n1, alignment] = self.specific()?;
        let sub_blocks = u16::from_be_bytes([n0, n1]);
        Ok(Fti::RaptorQ { transfer_length, symbol_size, blocks, sub_blocks, alignment })
    }

    /// The scheme-specific information, of the length that the scheme defines.
    fn specific<const N: usize>(&self) -> Result<[u8; N], FdtError> {
        let info = self.scheme_specific.as_ref().ok_or(FdtError::Missing(SCHEME_SPECIFIC))?;
        info.as_slice().try_into().map_err(|_| FdtError::Attribute {
            attribute: SCHEME_SPECIFIC.into(),
            value: format!("{} bytes", info.len()),
            reason: "wrong length for the FEC scheme",
        })
    }
}

fn required<T: TryFrom<u64>>(attribute: &'static str, value: Option<u64>) -> Result<T, FdtError> {
    let value = value.ok_or(FdtError::Missing(attribute))?;
    T::try_from(value).map_err(|_| FdtError::Attribute {
        attribute: attribute.into(),
        value: value.to_string(),
        reason: "too large for the FEC scheme",
    })
}

impl From<&Fti> for OtiAttributes {
    /// Returns the attributes that a sender writes for an object; a separate attribute carries the transfer
    /// length.
    fn from(fti: &Fti) -> OtiAttributes {
        let common = OtiAttributes {
            encoding_id: Some(fti.encoding_id().codepoint()),
            symbol_size: Some(fti.symbol_size().into()),
            ..OtiAttributes::default()
        };
        match *fti {
            Fti::NoCode { max_block, .. } => OtiAttributes { max_block: Some(max_block.into()), ..common },
            Fti::ReedSolomonM { m, g, max_block, max_symbols, .. } => OtiAttributes {
                max_block: Some(max_block.into()),
                max_symbols: Some(max_symbols.into()),
                scheme_specific: Some(vec![m, g]),
                ..common
            },
            Fti::LdpcStaircase(ldpc) | Fti::LdpcTriangle(ldpc) => OtiAttributes {
                max_block: Some(ldpc.max_block.into()),
                max_symbols: Some(ldpc.max_symbols.into()),
                scheme_specific: Some(ldpc_specific(&ldpc)),
                ..common
            },
            Fti::ReedSolomon { max_block, max_symbols, .. } => OtiAttributes {
                max_block: Some(max_block.into()),
                max_symbols: Some(max_symbols.into()),
                ..common
            },
            Fti::RaptorQ { blocks, sub_blocks, alignment, .. } => {
                let [n0, n1] = sub_blocks.to_be_bytes();
                OtiAttributes { scheme_specific: Some(vec![blocks, n0, n1, alignment]), ..common }
            }
        }
    }
}

/// Seed (32), N1m3 (3), G (5).
fn ldpc_specific(ldpc: &Ldpc) -> Vec<u8> {
    let mut info = ldpc.seed.to_be_bytes().to_vec();
    info.push(ldpc.n1_minus3 << 5 | ldpc.g & 0x1F);
    info
}

/// Most parameters of a control.
pub const CONTROL_PARAMETERS_MAX: usize = 16;
/// Longest name of a control or of a parameter, in bytes.
pub const CONTROL_WORD_LEN_MAX: usize = 32;

/// A congestion control and its parameters for receivers. Words are of `a-z`, `0-9` and `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlAttributes {
    name: String,
    /// In the order of writing; names are unique.
    parameters: Vec<(String, u64)>,
}

/// Why a text tells no control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// A name is empty, longer than [`CONTROL_WORD_LEN_MAX`], or not of lower-case letters, digits and
    /// hyphens.
    #[error("a name is not of 1 to 32 lower-case letters, digits and hyphens")]
    Word,
    /// A parameter is not `name=number`, with a decimal number below 2^64 without sign or leading zeros.
    #[error("a parameter is not name=number")]
    Number,
    /// More than [`CONTROL_PARAMETERS_MAX`] parameters.
    #[error("more than 16 parameters")]
    TooMany,
    /// A parameter comes twice.
    #[error("a parameter comes twice")]
    Twice,
}

impl ControlAttributes {
    /// A control without parameters.
    ///
    /// # Errors
    /// [`ControlError::Word`].
    pub fn new(name: &str) -> Result<Self, ControlError> {
        Ok(Self { name: word(name)?, parameters: Vec::new() })
    }

    /// Name of the control.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A parameter's value.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Adds a parameter.
    ///
    /// # Errors
    /// [`ControlError`], and the control is as before.
    pub fn put(&mut self, name: &str, value: u64) -> Result<(), ControlError> {
        if self.get(name).is_some() {
            return Err(ControlError::Twice);
        }
        if self.parameters.len() == CONTROL_PARAMETERS_MAX {
            return Err(ControlError::TooMany);
        }
        self.parameters.push((word(name)?, value));
        Ok(())
    }
}

impl fmt::Display for ControlAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.parameters.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

impl FromStr for ControlAttributes {
    type Err = ControlError;

    fn from_str(text: &str) -> Result<Self, ControlError> {
        let mut words = text.split_ascii_whitespace();
        let mut control = Self::new(words.next().unwrap_or(""))?;
        for parameter in words {
            let (name, value) = parameter.split_once('=').ok_or(ControlError::Number)?;
            control.put(name, number(value)?)?;
        }
        Ok(control)
    }
}

fn word(text: &str) -> Result<String, ControlError> {
    let is_sound = (1..=CONTROL_WORD_LEN_MAX).contains(&text.len())
        && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    if is_sound { Ok(text.to_owned()) } else { Err(ControlError::Word) }
}

fn number(text: &str) -> Result<u64, ControlError> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain).ok_or(ControlError::Number)
}

/// Nanoseconds of a second.
const NANOS: i128 = 1_000_000_000;
/// Digits of a nanosecond count below one second.
const DECIMALS: usize = 9;

/// Modification time, as `stat` returns it: `seconds` since 1970-01-01 00:00 UTC, negative before, and
/// nanoseconds after that second.
///
/// The text form is a decimal number of seconds with nine decimals: half a second before 1970 is
/// `-0.500000000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime {
    seconds: i64,
    nanoseconds: u32,
}

/// A text that is no time: not a number of seconds within 64 bits, with nine decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a number of seconds with nine decimals")]
pub struct FileTimeError;

/// First second of the year 1 and last second of the year 9999.
const CALENDAR: core::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

impl FileTime {
    /// Returns the time `nanoseconds` after a second; `None` if `nanoseconds` is a second or more.
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

    /// Whether the time is within the years 1 to 9999, which file systems and tools agree on.
    pub fn is_within_calendar(self) -> bool {
        CALENDAR.contains(&self.seconds)
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
mod control_tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = "m2c base-rate=120000 ratio-ppm=750000 zero=0 most=18446744073709551615";
        let control: ControlAttributes = text.parse().unwrap();
        assert_eq!(control.name(), "m2c");
        assert_eq!((control.get("base-rate"), control.get("slot-ns")), (Some(120_000), None));
        assert_eq!(control.to_string(), text);
        assert_eq!(control.to_string().parse(), Ok(control));
    }

    #[test]
    fn what_is_none_is_refused() {
        let parse = str::parse::<ControlAttributes>;
        for text in ["", "M2C", "m2c_", &"x".repeat(33)] {
            assert_eq!(parse(text), Err(ControlError::Word), "{text:?}");
        }
        for text in ["a b", "a b=", "a b=-1", "a b=+1", "a b=01", "a b=1.5", "a b=18446744073709551616"] {
            assert_eq!(parse(text), Err(ControlError::Number), "{text:?}");
        }
        assert_eq!(parse("a =1"), Err(ControlError::Word));
        assert_eq!(parse("a b=1 b=2"), Err(ControlError::Twice));
        let many = |count: usize| (0..count).map(|i| format!(" p{i}=1")).collect::<String>();
        assert!(parse(&format!("a{}", many(16))).is_ok());
        assert_eq!(parse(&format!("a{}", many(17))), Err(ControlError::TooMany));
    }
}

#[cfg(test)]
mod time_tests {
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
