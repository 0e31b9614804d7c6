//! Reading a table of a plan key by key: unknown and missing keys, ranges, words, lists.

use std::ops::RangeInclusive;

use headwater_proto::Seed;

use super::problem;
use super::problem::{Problems, Span};
use super::tree::{Node, Table, Value};
use super::value::FromNode;

/// Shared state of readers: the list of problems, and the seed and run for randomly drawn values.
#[derive(Debug)]
pub(crate) struct Context {
    pub problems: Problems,
    pub seed: Seed,
    pub run: u64,
}

/// A table and its path, such as `link.bottleneck`.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    pub context: &'a Context,
    pub table: &'a Table,
    /// Place of the table's own key, for messages about missing keys.
    pub span: Span,
    pub path: String,
    keys: Vec<&'static str>,
}

impl<'a> Section<'a> {
    /// Creates a section that accepts only `keys`.
    pub fn new(
        context: &'a Context,
        table: &'a Table,
        span: Span,
        path: impl Into<String>,
        keys: &[&'static str],
    ) -> Self {
        let section = Self { context, table, span, path: path.into(), keys: keys.to_vec() };
        for (key, entry) in table.in_order() {
            if !keys.contains(&key) {
                let hint = problem::hint(key, keys.iter().copied());
                context.problems.add(&entry.key, format!("unknown key '{key}'{hint}"));
            }
        }
        section
    }

    /// Returns the same table under another path, so that random values are drawn anew.
    pub fn under(&self, path: &str) -> Self {
        let keys = self.keys.clone();
        Self { context: self.context, table: self.table, span: self.span.clone(), path: path.into(), keys }
    }

    /// Returns the section of `node`, which must be a table.
    pub fn of_node(
        context: &'a Context,
        node: &'a Node,
        span: &Span,
        path: impl Into<String>,
        keys: &[&'static str],
    ) -> Option<Self> {
        match &node.value {
            Value::Table(table) => Some(Self::new(context, table, span.clone(), path, keys)),
            other => {
                context.problems.add(&node.span, format!("this must be a table, not {}", other.kind()));
                None
            }
        }
    }

    /// The table under `key`.
    pub fn section(&self, key: &'static str, keys: &[&'static str]) -> Option<Self> {
        let entry = self.table.entries.get(key)?;
        self.expect_known(key);
        Self::of_node(self.context, &entry.node, &entry.key, self.path_of(key), keys)
    }

    /// Whether the table may have `key`.
    pub fn knows(&self, key: &'static str) -> bool {
        self.keys.contains(&key)
    }

    /// The value under `key`, unread.
    pub fn node(&self, key: &'static str) -> Option<&'a Node> {
        self.expect_known(key);
        self.table.entries.get(key).map(|entry| &entry.node)
    }

    /// Returns the value under `key`; `None` if the key is absent or its value is invalid. An invalid value
    /// is reported.
    pub fn get<T: FromNode>(&self, key: &'static str) -> Option<T> {
        T::read(self.context, self.node(key)?, &self.path_of(key))
    }

    /// The value under `key`, or `default`.
    pub fn or<T: FromNode>(&self, key: &'static str, default: T) -> T {
        self.get(key).unwrap_or(default)
    }

    /// The value under `key`, which must be there.
    pub fn need<T: FromNode>(&self, key: &'static str) -> Option<T> {
        if self.node(key).is_none() {
            let example = T::EXAMPLE;
            self.problem(&self.span, format!("'{key}' is missing; write for example {key} = {example}"));
        }
        self.get(key)
    }

    /// The integer under `key`, within `range`.
    pub fn within(&self, key: &'static str, range: &RangeInclusive<u64>) -> Option<u64> {
        let number: u64 = self.get(key)?;
        if range.contains(&number) {
            return Some(number);
        }
        let (min, max) = (range.start(), range.end());
        self.problem_at(key, format!("'{key}' is {number}; it must be from {min} to {max}"));
        None
    }

    /// Returns the integer under `key`, within `range`; `default` if absent.
    pub fn within_or(&self, key: &'static str, range: &RangeInclusive<u64>, default: u64) -> Option<u64> {
        match self.node(key) {
            None => Some(default),
            Some(_) => self.within(key, range),
        }
    }

    /// Returns the word under `key`, which must be in `words`; the first of `words` if absent.
    pub fn word_or(&self, key: &'static str, words: &[&'static str]) -> Option<&'static str> {
        match self.node(key) {
            None => words.first().copied(),
            Some(_) => self.word(key, words),
        }
    }

    /// Returns the word under `key`, which must be in `words`.
    pub fn word(&self, key: &'static str, words: &[&'static str]) -> Option<&'static str> {
        let text: String = self.get(key)?;
        let found = words.iter().find(|word| **word == text);
        if found.is_none() {
            let hint = problem::hint(&text, words.iter().copied());
            self.problem_at(key, format!("'{text}' is no {key}{hint}"));
        }
        found.copied()
    }

    /// Returns the strings of the list under `key`, or the single string, each with its place.
    pub fn texts(&self, key: &'static str) -> Vec<(&'a str, Span)> {
        let Some(node) = self.node(key) else { return Vec::new() };
        let items = match &node.value {
            Value::Array(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        let text = |item: &'a Node| match &item.value {
            Value::Text(text) => Some((text.as_str(), item.span.clone())),
            other => {
                let message =
                    format!("'{key}' holds {}; it must be a string or a list of strings", other.kind());
                self.problem(&item.span, message);
                None
            }
        };
        items.iter().filter_map(text).collect()
    }

    /// Reports a problem.
    pub fn problem(&self, span: &Span, message: impl Into<String>) {
        self.context.problems.add(span, message);
    }

    /// Reports a problem with the value under `key`, or with the table if the key is absent.
    pub fn problem_at(&self, key: &'static str, message: impl Into<String>) {
        let span = self.node(key).map_or(&self.span, |node| &node.span);
        self.problem(span, message);
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) }
    }

    fn expect_known(&self, key: &str) {
        debug_assert!(self.keys.contains(&key), "'{key}' is read but not a key of '{}'", self.path);
    }
}
