//! Attribute values of an FDT, from text to numbers, digests and the like.
use super::xml::is_xml_char;
use super::{ATTRIBUTE_LEN_MAX, BLOCK_DIGESTS_MAX, Control, FdtError, FileTime, MODE_MAX, Withdrawal};
use crate::lct::TOI_MAX;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use quick_xml::XmlVersion;
use quick_xml::events::attributes::Attribute;
use std::str::FromStr;

/// Base64 characters of [`BLOCK_DIGESTS_MAX`] digests.
const BLOCK_DIGESTS_LEN_MAX: usize = (BLOCK_DIGESTS_MAX * 16).div_ceil(3) * 4;
/// Characters of the document that an error quotes.
const EXCERPT_LEN_MAX: usize = 64;

/// An attribute whose value is read on demand.
pub(super) struct Value<'a> {
    pub(super) attribute: Attribute<'a>,
    /// Offset of the element's end in the document, for messages.
    pub(super) position: u64,
}

impl Value<'_> {
    /// The value as text, entities expanded.
    pub(super) fn string(&self) -> Result<String, FdtError> {
        self.text(ATTRIBUTE_LEN_MAX)
    }

    fn text(&self, len_max: usize) -> Result<String, FdtError> {
        if self.attribute.value.len() > len_max {
            return Err(FdtError::TooMany { what: "bytes in an attribute", max: len_max });
        }
        let text = self.attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| {
            FdtError::Xml { position: self.position, reason: excerpt(&error.to_string()) }
        })?;
        if text.chars().all(is_xml_char) {
            Ok(text.into_owned())
        } else {
            Err(self.invalid("forbidden character"))
        }
    }

    /// The value without white space around it, as XML Schema collapses it for all types but strings.
    fn token(&self) -> Result<String, FdtError> {
        Ok(self.string()?.trim().to_owned())
    }

    pub(super) fn number<T: FromStr>(&self) -> Result<T, FdtError> {
        self.token()?.parse().map_err(|_| self.invalid("not a decimal number within the attribute's range"))
    }

    pub(super) fn toi(&self) -> Result<u128, FdtError> {
        match self.number()? {
            toi @ 1..=TOI_MAX => Ok(toi),
            _ => Err(self.invalid("not within 1 and 2^112 - 1")),
        }
    }

    pub(super) fn boolean(&self) -> Result<bool, FdtError> {
        match self.token()?.as_str() {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(self.invalid("neither true nor false")),
        }
    }

    pub(super) fn base64(&self) -> Result<Vec<u8>, FdtError> {
        self.base64_within(ATTRIBUTE_LEN_MAX)
    }

    fn base64_within(&self, len_max: usize) -> Result<Vec<u8>, FdtError> {
        BASE64_STANDARD.decode(self.text(len_max)?.trim()).map_err(|_| self.invalid("not base64"))
    }

    pub(super) fn md5(&self) -> Result<[u8; 16], FdtError> {
        self.base64()?.try_into().map_err(|_| self.invalid("not 16 bytes long"))
    }

    pub(super) fn digest(&self) -> Result<[u8; 32], FdtError> {
        let text = self.token()?;
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
            return Err(self.invalid("odd number of digits"));
        };
        let bytes: Option<Vec<u8>> =
            pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect();
        bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| self.invalid("not 64 hexadecimal digits"))
    }

    pub(super) fn block_digests(&self) -> Result<Vec<[u8; 16]>, FdtError> {
        let bytes = self.base64_within(BLOCK_DIGESTS_LEN_MAX)?;
        let (digests, []) = bytes.as_chunks::<16>() else {
            return Err(self.invalid("not a multiple of 16 bytes"));
        };
        Ok(digests.to_vec())
    }

    pub(super) fn mode(&self) -> Result<u32, FdtError> {
        let mode = u32::from_str_radix(&self.token()?, 8).ok().filter(|&mode| mode <= MODE_MAX);
        mode.ok_or_else(|| self.invalid("not octal permission bits"))
    }

    pub(super) fn withdrawal(&self) -> Result<Withdrawal, FdtError> {
        Ok(match self.token()?.as_str() {
            "changed" => Withdrawal::Changed,
            "unreadable" => Withdrawal::Unreadable,
            _ => Withdrawal::Other,
        })
    }

    pub(super) fn time(&self) -> Result<FileTime, FdtError> {
        self.token()?.parse().map_err(|_| self.invalid("not seconds with nine decimals"))
    }

    pub(super) fn control(&self) -> Result<Control, FdtError> {
        self.token()?.parse().map_err(|_| self.invalid("not a name and a few numbers"))
    }

    fn invalid(&self, reason: &'static str) -> FdtError {
        let attribute = excerpt(self.attribute.key.into_inner());
        FdtError::Attribute { attribute, value: excerpt(&self.attribute.value), reason }
    }
}

fn digit(ascii: u8) -> Option<u8> {
    char::from(ascii).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// What an error may quote of a document that is not to be trusted.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_LEN_MAX).collect()
}
