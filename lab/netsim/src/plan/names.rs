//! Names in a plan: their syntax, patterns, and suggestions for misspelt names.

/// Maximum length of the name of a node, link or flow.
const NAME_BYTES_MAX: usize = 64;

/// Rule for names, for messages.
pub(crate) const NAME_RULE: &str = "a name is made of letters, digits, '-' and '_', at most 64 of them";

/// Whether `name` may name a node, a link or a flow: a name must be usable unquoted in a path of keys and in
/// a file of results.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_plain)
}

/// Whether `name` matches `pattern`, in which a single `*` stands for any text.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
        }
    }
}

/// Returns `; did you mean 'rate'?` if some name in `known` is near to `word`; otherwise `; known here: ...`,
/// or nothing if the list is long.
pub(crate) fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    const LISTED_MAX: usize = 16;
    let mut known: Vec<&str> = known.into_iter().collect();
    known.sort_unstable();
    known.dedup();
    let nearest = known.iter().map(|name| (strsim::damerau_levenshtein(word, name), *name)).min();
    match nearest {
        Some((distance, name)) if distance <= 1 + word.len() / 4 => format!("; did you mean '{name}'?"),
        Some(_) if known.len() <= LISTED_MAX => format!("; known here: {}", known.join(", ")),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_a_path() {
        assert!(is_name("tcp-1") && is_name("n0"));
        assert!(!is_name("") && !is_name("a.b") && !is_name("a b") && !is_name(&"x".repeat(65)));
    }

    #[test]
    fn a_star_stands_for_any_text() {
        assert!(matches("leaf-*", "leaf-12") && matches("*", "x") && matches("a", "a"));
        assert!(!matches("leaf-*", "lea") && !matches("ab*ba", "aba") && !matches("a", "ab"));
    }

    #[test]
    fn near_misses_are_recognised() {
        assert_eq!(hint("dealy", ["delay", "rate"]), "; did you mean 'delay'?");
        assert_eq!(hint("colour", ["delay", "rate"]), "; known here: delay, rate");
        assert_eq!(hint("x", []), "");
    }
}
