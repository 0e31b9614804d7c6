//! File names on the wire: maps a Content-Location to a relative path that stays inside the receiver's
//! folder.

use core::fmt;

/// Longest path in bytes, as Linux's PATH_MAX less room for the receiver's folder.
pub const PATH_BYTES_MAX: usize = 2_048;
/// Longest component in bytes (NAME_MAX of common file systems).
pub const COMPONENT_BYTES_MAX: usize = 255;
/// Prefix of the receiver's own working files.
pub const RESERVED_PREFIX: &str = ".headwater-";

/// Names that some systems treat as devices, with any extension.
const DEVICES: [&str; 34] = [
    "con", "prn", "aux", "nul", "conin$", "conout$", "com0", "com1", "com2", "com3", "com4", "com5", "com6",
    "com7", "com8", "com9", "com¹", "com²", "com³", "lpt0", "lpt1", "lpt2", "lpt3", "lpt4", "lpt5", "lpt6",
    "lpt7", "lpt8", "lpt9", "lpt¹", "lpt²", "lpt³", "clock$", "config$",
];

/// Relative path with `/` between components, safe to create below a folder on any system: no `..`, no
/// absolute or device name, no control character, no reserved character.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelativePath(String);

/// Reason why a name is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty.
    #[error("the name is empty")]
    Empty,
    /// Longer than [`PATH_BYTES_MAX`], or a component longer than [`COMPONENT_BYTES_MAX`].
    #[error("the name is too long ({0} bytes)")]
    TooLong(usize),
    /// The name begins at a root or a drive.
    #[error("the name is absolute")]
    Absolute,
    /// The name has an empty component, `.` or `..`.
    #[error("the name has a component '{0}'")]
    Traversal(String),
    /// A character that is a separator, a wildcard or a control on some system.
    #[error("the name has the character {0:?}")]
    Character(char),
    /// A component is a device name on some system.
    #[error("'{0}' is a device on some systems")]
    Device(String),
    /// A component is reserved for the receiver, or ends in a dot or a space.
    #[error("'{0}' is a reserved name")]
    Reserved(String),
    /// A percent sign without an escape, or escapes that are not UTF-8.
    #[error("the name is not well-formed as a URI")]
    Malformed,
}

impl RelativePath {
    /// Checks a path with `/` between components.
    ///
    /// # Errors
    /// [`NameError`] when the path is not safe below any folder on any system.
    pub fn new(path: &str) -> Result<Self, NameError> {
        if path.is_empty() {
            return Err(NameError::Empty);
        }
        if path.len() > PATH_BYTES_MAX {
            return Err(NameError::TooLong(path.len()));
        }
        if path.starts_with('/') {
            return Err(NameError::Absolute);
        }
        path.split('/').try_for_each(check_component)?;
        Ok(Self(path.to_owned()))
    }

    /// Parses a Content-Location (RFC 3986 reference). A relative reference is the percent-encoded path. If
    /// the reference has a scheme (`file:///a/b`, `http://host/a/b`), only the path is used, below the
    /// receiver's folder.
    ///
    /// # Errors
    /// [`NameError`] as in [`RelativePath::new`], after decoding.
    pub fn from_content_location(location: &str) -> Result<Self, NameError> {
        let path = match location.split_once("://") {
            Some((scheme, rest)) if is_scheme(scheme) => {
                rest.split_once('/').map_or("", |(_authority, path)| path)
            }
            _ => location,
        };
        let path = path.split(['?', '#']).next().unwrap_or_default();
        Self::new(&percent_decode(path)?)
    }

    /// Returns the Content-Location of this path, percent-encoded, so that any receiver reads a relative
    /// reference.
    pub fn to_content_location(&self) -> String {
        percent_encode(&self.0)
    }

    /// Returns the path, with `/` between components.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Writes every byte other than unreserved characters and slashes as an escape (RFC 3986, section 2.1).
pub(super) fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            _ => {
                encoded.push('%');
                encoded.push(char::from(HEX[usize::from(byte >> 4)]));
                encoded.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
    }
    encoded
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

fn check_component(component: &str) -> Result<(), NameError> {
    if matches!(component, "" | "." | "..") {
        return Err(NameError::Traversal(component.into()));
    }
    if component.len() > COMPONENT_BYTES_MAX {
        return Err(NameError::TooLong(component.len()));
    }
    let separates = |c: char| matches!(c, '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|');
    // Marks that change the direction of text make a name look like a different name.
    let turns =
        |c: char| matches!(c, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    let refused = |c: char| c.is_control() || separates(c) || turns(c);
    if let Some(c) = component.chars().find(|c| refused(*c)) {
        return Err(NameError::Character(c));
    }
    let stem = component.split('.').next().unwrap_or_default().trim_end().to_ascii_lowercase();
    if component.ends_with(['.', ' ']) || has_reserved_prefix(component) || is_short_reserved(&stem) {
        return Err(NameError::Reserved(component.into()));
    }
    if DEVICES.contains(&stem.as_str()) {
        return Err(NameError::Device(component.into()));
    }
    Ok(())
}

/// Whether a file system takes the name for one that begins with [`RESERVED_PREFIX`]: APFS and NTFS ignore
/// case, HFS+ also characters without a shape.
fn has_reserved_prefix(component: &str) -> bool {
    let has_shape = |c: &char| !matches!(c, '\u{200C}'..='\u{200F}' | '\u{206A}'..='\u{206F}' | '\u{FEFF}');
    let shown = component.chars().filter(has_shape).map(|c| c.to_ascii_lowercase());
    shown.take(RESERVED_PREFIX.len()).eq(RESERVED_PREFIX.chars())
}

/// Whether NTFS may give this short name to a name with [`RESERVED_PREFIX`]: eight characters, of which the
/// last are a tilde and a number. Before these stands the beginning of the name or, after four such names of
/// a folder, two letters and a checksum of four hexadecimal digits.
fn is_short_reserved(stem: &str) -> bool {
    let Some((base, number)) = stem.split_once('~') else { return false };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_checksum = |text: &str| text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_base = RESERVED_PREFIX[1..].starts_with(base) || base.strip_prefix("he").is_some_and(is_checksum);
    stem.len() == 8 && is_number && is_base
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

pub(super) fn percent_decode(text: &str) -> Result<String, NameError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let [high, low, tail @ ..] = tail else { return Err(NameError::Malformed) };
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (Some(high), Some(low)) = (digit(*high), digit(*low)) else { return Err(NameError::Malformed) };
        bytes.push(high << 4 | low);
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| NameError::Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn location(text: &str) -> Result<String, NameError> {
        RelativePath::from_content_location(text).map(|path| path.0)
    }

    #[test]
    fn good_names_pass() {
        for (text, path) in [
            ("a.txt", "a.txt"),
            ("dir/sub/file%20name", "dir/sub/file name"),
            ("file:///data/x.bin", "data/x.bin"),
            ("http://example.org/x/y?z#f", "x/y"),
            ("caf%C3%A9", "café"),
            (".hidden/...x", ".hidden/...x"),
            ("console/common.h", "console/common.h"),
            ("HEAD~1/helper~1", "HEAD~1/helper~1"),
            ("headwater-work/.head", "headwater-work/.head"),
        ] {
            assert_eq!(location(text).as_deref(), Ok(path), "{text}");
        }
    }

    #[test]
    fn names_that_leave_the_folder_are_refused() {
        for text in [
            "../x",
            "a/../x",
            "a/./x",
            "a//x",
            "a/",
            "/etc/passwd",
            "%2Fetc/passwd",
            "a/%2e%2e/x",
            "..",
            "file:///../x",
            "file:////etc/passwd",
            "http://host",
            "",
            "C:/x",
            "c:x",
            "a\\..\\x",
            "%5C%5Chost%5Cx",
            "a%00b",
            "a%0Ab",
            "NUL",
            "nul.txt",
            "a/Com1.log",
            "con ",
            "aux.",
            "CONIN$",
            ".headwater-x",
            "a/.headwater-",
            ".Headwater-work/x",
            ".head%E2%80%8Cwater-work",
            "HEADWA~1/x",
            "headw~12.x",
            "a/he1a2B~1",
            "com%C2%B9.log",
            "LPT%C2%B3",
            "x.",
            "x ",
            "a%E2%80%AEtxt.exe",
            "%zz",
            "%4",
            "%FF",
        ] {
            assert!(location(text).is_err(), "{text} must be refused");
        }
        assert!(RelativePath::new(&"x".repeat(256)).is_err());
        assert!(RelativePath::new(&"x/".repeat(2_000)).is_err());
    }

    proptest! {
        #[test]
        fn whatever_passes_stays_inside(text in ".{0,40}") {
            if let Ok(path) = RelativePath::from_content_location(&text) {
                prop_assert!(!path.as_str().starts_with('/'));
                prop_assert!(path.as_str().split('/').all(|c| !matches!(c, "" | "." | "..")));
                prop_assert!(!path.as_str().contains(['\\', '\0', ':']));
            }
        }

        #[test]
        fn locations_round_trip(text in "[a-zA-Z0-9 é%&+~_-]{1,20}(/[a-zA-Z0-9é%#;=@]{1,9}){0,3}") {
            if let Ok(path) = RelativePath::new(&text) {
                prop_assert_eq!(RelativePath::from_content_location(&path.to_content_location()), Ok(path));
            }
        }
    }
}
