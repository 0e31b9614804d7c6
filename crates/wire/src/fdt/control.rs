//! How a session's channels are sent, as its FDT tells receivers: a name and a few numbers.
//!
//! The attribute `hw:Congestion-Control` of the root, for example
//! `m2c packet-bytes=1424 base-rate=120000 max-rate=100000000 ratio-ppm=866000 slot-ns=5000000000`. What the
//! numbers of a control mean is the control's affair.

use core::fmt;
use core::str::FromStr;

/// Most parameters of a control.
pub const CONTROL_PARAMETERS_MAX: usize = 16;
/// Longest name of a control or of a parameter, in bytes.
pub const CONTROL_WORD_LEN_MAX: usize = 32;

/// A congestion control and what its receivers must know. Words are of `a-z`, `0-9` and `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    name: String,
    /// In the order of writing; no name comes twice.
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

impl Control {
    /// A control without parameters.
    ///
    /// # Errors
    /// [`ControlError::Word`].
    pub fn new(name: &str) -> Result<Self, ControlError> {
        Ok(Self { name: word(name)?, parameters: Vec::new() })
    }

    /// Its name.
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

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.parameters.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

impl FromStr for Control {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = "m2c base-rate=120000 ratio-ppm=750000 zero=0 most=18446744073709551615";
        let control: Control = text.parse().unwrap();
        assert_eq!(control.name(), "m2c");
        assert_eq!((control.get("base-rate"), control.get("slot-ns")), (Some(120_000), None));
        assert_eq!(control.to_string(), text);
        assert_eq!(control.to_string().parse(), Ok(control));
    }

    #[test]
    fn what_is_none_is_refused() {
        let parse = str::parse::<Control>;
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
