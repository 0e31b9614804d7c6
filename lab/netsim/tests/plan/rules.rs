//! Rules of sessions: the published rules give the results of the versions that had no other rules.

use crate::{outcome, parse, spoilt};

/// Two receivers beside a TCP, with losses by chance, and a capacity that falls.
const PLAN: &str = r#"
name = "rules"
seed = 7
duration = "90s"

[network]
graft-delay = "1ms"
leave-latency = "100ms"

[topology]
kind = "dumbbell"
pairs = 3
access = { rate = "1G", delay = "500us", queue = { packets = 10000 } }
bottleneck = { rate = "4M", delay = "4ms", queue = { packets = 25 }, loss = { kind = "bernoulli", p = 0.01 } }

[tcp]
profile = "linux"

[flow.session]
kind = "session"
control = "m2c"
rules = "published"
from = "source-1"
receivers = ["sink-1", "sink-2"]
max-rate = "16M"
base-rate = "120k"
join = { uniform = ["0s", "5s"] }

[flow.tcp]
kind = "tcp"
from = "source-3"
to = "sink-3"
start = "20s"

[[at]]
time = "60s"
link = "bottleneck"
rate = "1M"
"#;

/// Digests of all events of the run, by version 0.1 without the key `rules`.
const DIGESTS: [(&str, &str); 3] = [
    ("m2c", "b726e27506046ae96c935f896ed287819071b7a5d6c541ff58c5c68cb7a7bb45"),
    ("webrc", "4c2fd7e3f4d3c81ad2038498879a112772146cb58b4c8fafb5a44233d9a8d7d6"),
    ("flid-dl", "2d5651f317d731862a0b3ec7a0a53e4d0d082b3e1360e325245a0f91d282e075"),
];

#[test]
fn published_rules_repeat_earlier_results_to_the_bit() {
    for (control, digest) in DIGESTS {
        let text = PLAN.replace("\"m2c\"", &format!("\"{control}\""));
        assert_eq!(outcome(&text).trace, digest, "{control}");
        let default = outcome(&text.replace("\"published\"", "\"revised\"")).trace;
        assert_eq!(outcome(&text.replace("rules = \"published\"\n", "")).trace, default, "{control}");
        assert_eq!(
            default == digest,
            control == "flid-dl",
            "{control}: FLID-DL has the published rules only"
        );
    }
}

#[test]
fn rules_have_two_names() {
    let error = parse(&spoilt(PLAN, "\"published\"", "\"publshed\"")).err().unwrap().to_string();
    assert!(error.contains("write \"revised\" or \"published\""), "{error}");
    let error = parse(&spoilt(PLAN, "\"m2c\"", "\"rlc\"")).err().unwrap().to_string();
    assert!(error.contains("'rules' means nothing to rlc"), "{error}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the plans are files of the repository")]
fn plans_of_the_papers_have_the_published_rules() {
    let folder = format!("{}/../experiments/m2c", env!("CARGO_MANIFEST_DIR"));
    let mut sessions = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path().join("plan.toml");
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let of_m2c = text.matches("control = \"m2c\"").count();
        assert_eq!(text.matches("rules = \"published\"").count(), of_m2c, "{}", path.display());
        sessions += of_m2c;
    }
    assert!(sessions > 20, "{sessions} sessions");
}
