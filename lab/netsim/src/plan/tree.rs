//! The text of a plan as a tree; every key and value records its place in the text.
//!
//! Sweeps replace values in the tree before it is read, so that a swept value is checked like a written
//! value, and a problem with a swept value is shown at the sweep.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, Span};

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub span: Span,
    pub value: Value,
}

/// The types of TOML except dates, which no plan needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Array(Vec<Node>),
    Table(Table),
}

/// Entries in alphabetical order of keys; [`Table::in_order`] returns the order of the text.
pub(crate) type Entries = BTreeMap<String, Entry>;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    pub entries: Entries,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub key: Span,
    pub node: Node,
}

impl Table {
    /// Reads the text of a plan.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let root = DeTable::parse(text).map_err(|error| Problem {
            span: error.span().unwrap_or(0..0),
            message: format!("this is not TOML: {}", error.message()),
        })?;
        table(root.get_ref())
    }

    /// Entries in the order of the text.
    pub fn in_order(&self) -> Vec<(&str, &Entry)> {
        let mut entries: Vec<_> = self.entries.iter().map(|(key, entry)| (key.as_str(), entry)).collect();
        entries.sort_by_key(|(_, entry)| entry.key.start);
        entries
    }
}

impl Value {
    /// Name of the type, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number with a point",
            Self::Boolean(_) => "true or false",
            Self::Array(_) => "a list",
            Self::Table(_) => "a table",
        }
    }

    /// Returns the value as JSON, independent of its layout: the input of digests, and the form quoted in
    /// results.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Integer(integer) => (*integer).into(),
            Self::Float(float) => (*float).into(),
            Self::Boolean(boolean) => (*boolean).into(),
            Self::Array(items) => items.iter().map(|item| item.value.to_json()).collect(),
            Self::Table(table) => table.to_json(),
        }
    }
}

impl Table {
    /// As [`Value::to_json`].
    pub fn to_json(&self) -> serde_json::Value {
        let entries = self.entries.iter().map(|(key, entry)| (key.clone(), entry.node.value.to_json()));
        serde_json::Value::Object(entries.collect())
    }
}

fn table(table: &DeTable<'_>) -> Result<Table, Problem> {
    let mut entries = Entries::new();
    for (key, value) in table {
        let entry = Entry { key: key.span(), node: node(value)? };
        entries.insert(key.get_ref().clone().into_owned(), entry);
    }
    Ok(Table { entries })
}

fn node(spanned: &Spanned<DeValue<'_>>) -> Result<Node, Problem> {
    let span = spanned.span();
    let problem = |message: &str| Problem { span: span.clone(), message: message.into() };
    let value = match spanned.get_ref() {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Integer(integer) => {
            let parsed = i64::from_str_radix(integer.as_str(), integer.radix());
            Value::Integer(parsed.map_err(|_| problem("this integer does not fit 64 bits"))?)
        }
        DeValue::Float(float) => {
            let parsed: Option<f64> = float.as_str().parse().ok();
            let finite = parsed.filter(|number| number.is_finite());
            Value::Float(finite.ok_or_else(|| problem("a number must be finite"))?)
        }
        DeValue::Boolean(boolean) => Value::Boolean(*boolean),
        DeValue::Datetime(_) => {
            return Err(problem("a plan has no dates; write a time since the start, such as \"10s\""));
        }
        DeValue::Array(items) => Value::Array(items.iter().map(node).collect::<Result<_, _>>()?),
        DeValue::Table(entries) => Value::Table(table(entries)?),
    };
    Ok(Node { span, value })
}
