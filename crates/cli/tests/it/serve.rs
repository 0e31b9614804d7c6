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

#[test]
fn a_carousel_goes_on_beside_names_that_receivers_refuse() {
    let folder = tempfile::tempdir().unwrap();
    let (files, out, group) = (folder.path().join("files"), folder.path().join("out"), group());
    fs::create_dir(&files).unwrap();
    let write = |name: &str| fs::write(files.join(name), "content").unwrap();
    ["file", "note 12:30.txt"].iter().for_each(|name| write(name));
    let config = folder.path().join("serve.toml");
    let network = format!("interface = \"lo\"\ngroup = \"{group}\"");
    let carousel = format!("[[carousel]]\nname = \"sender\"\npath = {files:?}\nsettle = \"1s\"\n{network}\n");
    let receive = format!("[[receive]]\nname = \"receiver\"\nout = {out:?}\n{network}\n");
    fs::write(&config, carousel + &receive).unwrap();
    let mut child =
        headwater().args(["serve", "--config"]).arg(&config).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut text = String::new();
    let mut read_to = |last: &str| {
        while !text.lines().last().is_some_and(|line| line.contains(last)) {
            text += &(lines.next().unwrap() + "\n");
        }
        text.clone()
    };
    read_to("files/file: 7 B");
    write("CON");
    read_to("sender: 2 paths are not sent: ");
    write("new");
    let said = read_to("files/new: 7 B");
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    child.wait().unwrap();
    assert!(said.contains("note 12:30.txt' has a name that receivers refuse"), "{said}");
    assert!(!said.contains("nothing is sent"), "{said}");
}
