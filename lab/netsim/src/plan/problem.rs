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
}
