//! Problems of a plan, shown with their place in the text.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;

/// Bytes of the plan's text.
pub(crate) type Span = Range<usize>;

/// Maximum number of reported problems.
const PROBLEMS_MAX: usize = 20;

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub span: Span,
    pub message: String,
}

/// A list of mistakes that readers add to.
#[derive(Debug, Default)]
pub(crate) struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    /// Adds a problem; a duplicate from another cell or flow is ignored.
    pub fn add(&self, span: &Span, message: impl Into<String>) {
        let problem = Problem { span: span.clone(), message: message.into() };
        let mut problems = self.0.borrow_mut();
        if problems.len() < PROBLEMS_MAX && !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// `value` if nothing is wrong.
    pub fn into_result<T>(self, value: T) -> Result<T, Vec<Problem>> {
        let problems = self.0.into_inner();
        if problems.is_empty() { Ok(value) } else { Err(problems) }
    }

    /// Whether nothing is wrong so far.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

/// Error of an invalid plan: every problem with file, line, column, the line itself, and a correction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PlanError {
    rendered: String,
}

impl PlanError {
    /// Shows `problems` in `text`, which was read from `file`.
    pub(crate) fn new(file: &str, text: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| (problem.span.start, problem.span.end));
        let shown: Vec<String> = problems.iter().map(|problem| render(file, text, problem)).collect();
        Self { rendered: shown.join("\n") }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rendered)
    }
}

/// Renders `plan.toml:3:8: message`, the line, and a mark under the place of the problem.
fn render(file: &str, text: &str, problem: &Problem) -> String {
    let start = floor_boundary(text, problem.span.start);
    let before = &text[..start];
    let line_number = before.matches('\n').count() + 1;
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = text[line_start..].lines().next().unwrap_or("");
    let column = text[line_start..start].chars().count();
    let end = floor_boundary(text, problem.span.end).clamp(start, (line_start + line.len()).max(start));
    let marks = text[start..end].chars().count().max(1);
    let gutter = line_number.to_string();
    format!(
        "{file}:{line_number}:{}: {}\n {gutter} | {line}\n {} | {}{}",
        column + 1,
        problem.message,
        " ".repeat(gutter.len()),
        " ".repeat(column),
        "^".repeat(marks)
    )
}

/// The nearest character boundary at or before `at`.
fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

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

    fn shown(text: &str, span: Span) -> String {
        PlanError::new("p.toml", text, vec![Problem { span, message: "wrong".into() }]).to_string()
    }

    #[test]
    fn a_problem_shows_its_line_and_marks_it() {
        assert_eq!(shown("a = 1\nbb = 2\n", 6..8), "p.toml:2:1: wrong\n 2 | bb = 2\n   | ^^");
        assert_eq!(shown("ä = 1", 0..2), "p.toml:1:1: wrong\n 1 | ä = 1\n   | ^");
        assert_eq!(shown("", 0..0), "p.toml:1:1: wrong\n 1 | \n   | ^");
    }

    #[test]
    fn spans_outside_the_text_or_inside_a_character_do_no_harm() {
        assert!(shown("ä", 1..9).contains("p.toml:1:1"));
        assert!(shown("a\nb", 700..800).contains("p.toml:2:2"));
        assert!(shown("a = [\n1,\n2]", 4..11).ends_with("    ^"), "only the first line is marked");
    }

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
