//! `headwater relay`.

use std::net::UdpSocket;
use std::time::Duration;

use headwater_wire::bcfs::{Header, Kind, Label, Level};
use serde_json::Value;

use crate::command::{Running, group, headwater, run};

/// A relay on a free port of loopback, and the address that it listens at.
fn start(arguments: &[&str]) -> (Running, String) {
    let mut relay =
        Running::start(headwater().args(["relay", "--json", "--listen", "127.0.0.1:0"]).args(arguments));
    let started: Value = serde_json::from_str(relay.wait_for("relay:started")).unwrap();
    let address = started["listen"][0].as_str().unwrap().to_string();
    (relay, address)
}

#[test]
fn it_passes_a_request_up_and_the_reply_down_and_counts_them() {
    let (relay, address) = start(&[]);
    let [source, receiver] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    for socket in [&source, &receiver] {
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    }
    let of = |kind| Header::new(kind, source.local_addr().unwrap(), Label(7), Level::ONE);
    let (mut bytes, mut heard) = ([0; 36], [0; 100]);
    of(Kind::Request).emit(&mut bytes).unwrap();
    receiver.send_to(&bytes, &address).unwrap();
    let len = receiver.recv(&mut heard).unwrap();
    let (challenge, word) = Header::parse(&heard[..len]).unwrap();
    assert_eq!((challenge.kind, challenge.label), (Kind::Challenge, Label(7)));
    bytes[20..28].copy_from_slice(word);
    receiver.send_to(&bytes, &address).unwrap();
    let (len, from) = source.recv_from(&mut heard).unwrap();
    let (request, body) = Header::parse(&heard[..len]).unwrap();
    assert_eq!((request.kind, request.hops, body.len()), (Kind::Request, 31, 16));
    assert_eq!(from.to_string(), address);
    of(Kind::Reply).emit(&mut bytes).unwrap();
    source.send_to(&bytes, from).unwrap();
    let (len, from) = receiver.recv_from(&mut heard).unwrap();
    assert_eq!((&heard[..len], from.to_string()), (&bytes[..], address));

    relay.interrupt();
    let run = relay.end();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let events = run.json();
    let last = events.last().unwrap();
    let count = |path: &[&str]| path.iter().fold(last, |value, name| &value[*name]).as_u64();
    assert_eq!(last["event"], Value::from("relay:ended"));
    assert_eq!(count(&["router", "requests"]), Some(1));
    assert_eq!(count(&["router", "forwarded"]), Some(1));
    assert_eq!(count(&["egress", "sent"]), Some(2));
    assert_eq!(count(&["challenges", "challenged"]), Some(1));
    assert_eq!(count(&["neighbours"]), Some(2));
    assert!(run.stderr.contains("relayed 1 replies to 1"), "{}", run.stderr);
}

#[test]
fn what_is_wrong_is_said_before_it_starts() {
    let refused = |arguments: &[&str], code, hint: &str| {
        let run = run(&[&["relay"], arguments].concat());
        assert_eq!(run.code, Some(code), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(hint), "{arguments:?}: {}", run.stderr);
    };
    refused(&["--listen", "here"], 2, "192.0.2.1:7289");
    refused(&["--upstream", "198.51.100.7=192.0.2.1"], 2, "7290");
    refused(&["--multicast", "239.1.2.3"], 2, "--network");
    refused(&["--queue", "red"], 2, "--egress-rate");
    refused(&["--entries", "2000000"], 2, "1000000");
    refused(&["--egress-rate", "1M", "--ecn"], 2, "--queue red");
    refused(&["--listen", "127.0.0.1:0", "--listen", "127.0.0.2:0"], 2, "one IP version");
    let network = [
        "--multicast",
        "239.1.2.3",
        "--interface",
        "lo",
        "--network",
        "fd00::/64",
        "--listen",
        "127.0.0.1:0",
    ];
    refused(&network, 2, "one IP version");
    let sim = |arguments: &[&str], hint: &str| {
        refused(&[&["--sim", "239.1.2.0", "--sim-port", "7999"], arguments].concat(), 2, hint);
    };
    sim(&["--sim-to", "lo=4M", "--interface", "lo"], "--interface");
    sim(&["--sim-to", "lo=4M", "--network", "10.0.0.0/8"], "--network");
    sim(&["--sim-to", "lo=4M", "--keep", "9"], "--keep");
    sim(&["--sim-to", "lo", "--sim-marking", "threshold"], "--sim-to IF=RATE");
    refused(&["--queue-packets", "100"], 2, "--egress-rate");
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _holder = UdpSocket::bind(taken).unwrap();
    refused(&["--listen", "192.0.2.77"], 3, "no address of this host");
    refused(&["--source", "here now"], 2, "neither an address nor a host name");
    refused(&["--listen", &taken.to_string()], 3, "another program may hold the port");
    let group =
        ["--multicast", "ff15::1", "--interface", "lo", "--network", "fd00::/64", "--listen", "127.0.0.1:0"];
    refused(&group, 2, "another IP version");
}

#[test]
fn a_relay_of_amt_on_loopback_serves_a_receiver_that_names_its_source() {
    let (group, folder) = (group(), tempfile::tempdir().unwrap());
    let (file, out) = (folder.path().join("file"), folder.path().join("out"));
    std::fs::write(&file, crate::transfer::noise(200_000)).unwrap();
    let port = group.rsplit_once(':').unwrap().1;
    let (relay, address) = start(&["--amt", "--amt-port", port, "--interface", "lo"]);
    let mut sending = headwater();
    sending.args(["send", "--quiet", "--interface", "lo", "--rate", "4M", "--group", &group]).arg(&file);
    let sending = Running::start(&mut sending);
    let out = out.display().to_string();
    let path = ["--amt", &address, "--source", "127.0.0.1", "--group", &group];
    let received = run(&[&["receive", "--quiet", "--timeout", "20s", "--out", &out], &path[..]].concat());
    for program in [sending, relay] {
        program.interrupt();
        program.end();
    }
    assert_eq!(received.code, Some(0), "{}", received.stderr);
}
