//! Whatever the text, reading it ends, and without a panic.

use proptest::prelude::*;

use crate::sessions::SESSION;
use crate::{DUMBBELL, STAR, parse};

const WORDS: &[&str] = &[
    "kind",
    "=",
    "\"10M\"",
    "-1",
    "1e308",
    "nan",
    "9223372036854775807",
    "[",
    "]",
    "{",
    "}",
    "\n",
    "[[sweep]]",
    "[flow.x]",
    "\"flow.tcp.count\" = [1]",
    "{ uniform = [1, 2] }",
    "'''",
    "\"*\"",
    "[link.bottleneck]",
    "back = {}",
    "é",
    "\u{0}",
    "[[at]]",
    "time = \"1s\"",
    "member",
    ".",
    "{ from = 1, to = 9, steps = 9 }",
    "\"tree\"",
    "\"webrc\"",
    "cap = ",
    "max-rate = ",
    "until = [\"file\"]",
    "depth = 32",
    "arity = 1000",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spoilt_plans_are_refused_or_run(
        base in prop::sample::select(&[STAR, DUMBBELL, SESSION][..]),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..12, prop::sample::select(WORDS)), 1..6),
    ) {
        let mut text: Vec<char> = base.chars().collect();
        for (at, removed, word) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + removed).min(text.len());
            text.splice(at..end, word.chars());
        }
        let text: String = text.into_iter().collect();
        match parse(&text) {
            Ok(plan) => {
                let cell = plan.cell(plan.cells() - 1);
                prop_assert!(plan.scenario(&cell, plan.runs()).is_ok(), "checked plans can be read in every run");
            }
            Err(error) => prop_assert!(error.to_string().starts_with("p.toml:"), "{error}"),
        }
    }

    #[test]
    fn any_text_is_read(text in "\\PC{0,200}") {
        let _result = parse(&text);
    }
}

#[test]
fn deep_nesting_is_refused() {
    let deep = format!("name = {}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(parse(&deep).is_err());
    let tables = format!("[{}a]\n", "a.".repeat(50_000));
    assert!(parse(&tables).is_err());
}
