//! `headwater serve`: what a new configuration changes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

use crate::command::{group, headwater};

#[test]
fn a_page_that_would_move_needs_a_new_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("serve.toml");
    let (group, out) = (group(), folder.path().join("in"));
    let write = |http: &str| {
        let service = format!("name = \"in\"\nout = \"{}\"\ngroup = \"{group}\"", out.display());
        fs::write(&path, format!("http = \"{http}\"\n[[receive]]\n{service}\ninterface = \"lo\"\n")).unwrap();
    };
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (first, second) = (free(), free());
    write(&first);
    let mut child =
        headwater().args(["serve", "--config"]).arg(&path).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let signal = |name: &str| {
        std::process::Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    };
    let mut read_to = |last: &str| -> Vec<String> {
        let mut text = vec![lines.next().unwrap()];
        while !text.last().is_some_and(|line| line.contains(last)) {
            text.push(lines.next().unwrap());
        }
        text
    };
    let warns = |text: &[String]| text.iter().any(|line| line.contains("'http' has changed"));
    // Signals are caught before.
    read_to("live page at");
    signal("-HUP");
    let same = read_to("was read again");
    write(&second);
    signal("-HUP");
    let moved = read_to("was read again");
    signal("-INT");
    assert_eq!((warns(&same), warns(&moved)), (false, true), "{same:?} {moved:?}");
    child.wait().unwrap();
}
