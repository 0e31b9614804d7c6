//! Fields of requests: names, entity tags and ranges (RFC 9110).

/// Range that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requested {
    /// The whole file: no range, several ranges, or a range that cannot be read.
    Whole,
    /// `bytes` bytes from `start` on.
    Part { start: u64, bytes: u64 },
    /// No byte of the file is in the range.
    Unsatisfiable,
}

/// Reads a `Range` field for a file of `length` bytes. A server may ignore ranges (RFC 9110, section 14.2).
pub(crate) fn range(field: Option<&str>, length: u64) -> Requested {
    let Some((first, last)) = field.and_then(single) else { return Requested::Whole };
    let (start, end) = match (number(first), number(last)) {
        (Some(start), None) if last.is_empty() => (start, length),
        (Some(start), Some(last)) if last >= start => (start, length.min(last.saturating_add(1))),
        (None, Some(suffix)) if first.is_empty() => (length.saturating_sub(suffix), length),
        _ => return Requested::Whole,
    };
    if start < end { Requested::Part { start, bytes: end - start } } else { Requested::Unsatisfiable }
}

fn single(field: &str) -> Option<(&str, &str)> {
    let (unit, ranges) = field.split_once('=')?;
    let is_single = unit.trim().eq_ignore_ascii_case("bytes") && !ranges.contains(',');
    let (first, last) = ranges.trim().split_once('-').filter(|_| is_single)?;
    Some((first.trim(), last.trim()))
}

fn number(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Whether a list of entity tags contains `etag`, or is `*`. A weak tag is no version of bytes.
pub(crate) fn has_tag(field: &str, etag: &str) -> bool {
    field.split(',').map(str::trim).any(|tag| tag == "*" || tag == etag)
}

/// Decodes the path of a request below a prefix to the name of a file. `None` for escapes of characters that
/// no client has to escape and that change the meaning of a path: `.`, `/` and NUL.
pub(crate) fn name(path: &str) -> Option<String> {
    let mut name = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            name.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let byte = u8::try_from(digit()? << 4 | digit()?).ok()?;
        if matches!(byte, b'.' | b'/' | 0) {
            return None;
        }
        name.push(byte);
    }
    String::from_utf8(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_read() {
        let part = |start, bytes| Requested::Part { start, bytes };
        for (field, expected) in [
            ("bytes=0-0", part(0, 1)),
            ("bytes=2-5", part(2, 4)),
            ("bytes=7-", part(7, 3)),
            ("bytes=7-99999999999999999999999", part(7, 3)),
            ("bytes=-4", part(6, 4)),
            ("bytes=-40", part(0, 10)),
            ("bytes=10-", Requested::Unsatisfiable),
            ("bytes=10-20", Requested::Unsatisfiable),
            ("bytes=-0", Requested::Unsatisfiable),
            ("bytes=5-2", Requested::Whole),
            ("bytes=0-1,3-4", Requested::Whole),
            ("bytes=-", Requested::Whole),
            ("bytes=+1-2", Requested::Whole),
            ("lines=1-2", Requested::Whole),
            ("", Requested::Whole),
        ] {
            assert_eq!(range(Some(field), 10), expected, "{field:?}");
        }
        assert_eq!(range(None, 10), Requested::Whole);
        assert_eq!(range(Some("bytes=0-"), 0), Requested::Unsatisfiable);
    }

    #[test]
    fn any_field_is_read_within_the_file() {
        let alphabet = b"bytes=0123456789-, %+ef*\"W/";
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 40).unwrap()
        };
        for _ in 0..100_000 {
            let length = next() % 24;
            let mut text: String =
                (0..length).map(|_| char::from(alphabet[next() % alphabet.len()])).collect();
            text.insert_str(0, if next() % 2 == 0 { "bytes=" } else { "" });
            if let Requested::Part { start, bytes } = range(Some(&text), 1_000) {
                assert!(bytes > 0 && start + bytes <= 1_000, "{text}");
            }
            let _decoded = (name(&text), has_tag(&text, "\"e\""));
        }
    }

    #[test]
    fn tags_are_compared_strongly() {
        assert!(has_tag("\"a\"", "\"a\"") && has_tag("\"b\", \"a\"", "\"a\"") && has_tag("*", "\"a\""));
        assert!(!has_tag("W/\"a\"", "\"a\"") && !has_tag("a", "\"a\"") && !has_tag("", "\"a\""));
    }

    #[test]
    fn names_are_decoded_once_and_traversals_are_no_names() {
        assert_eq!(name("a/b%20c%C3%A9.txt").as_deref(), Some("a/b cé.txt"));
        assert_eq!(name("%2541").as_deref(), Some("%41"));
        for path in ["%2e%2e/x", "a%2fb", "a%00", "%", "%4", "%zz", "%+1", "%ff"] {
            assert_eq!(name(path), None, "{path:?}");
        }
    }
}
