//! `headwater doctor`. What needs interfaces of its own runs in network namespaces; such a test is skipped,
//! saying so, where the system forbids them.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use crate::command::{Run, Running, group, headwater, run};

/// What a script ends with when the network cannot be set up.
const NO_NETWORK: i32 = 77;
/// A pair of namespaces joined by a cable; the other one is entered by `$there`.
const PAIR: &str = "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; ip link set dev lo up && ip link add dev left type veth peer name right || exit 77\n\
    unshare --net sleep 30 & other=$!\n\
    while [ \"$(readlink /proc/$other/ns/net)\" = \"$(readlink /proc/$$/ns/net)\" ]; do sleep 0.05; done\n\
    there=\"nsenter --target $other --net\"\n\
    ip link set dev right netns $other || exit 77\n\
    ip addr add 10.9.8.1/24 dev left && ip -6 addr add fd98::1/64 dev left nodad && ip link set dev left up\n\
    $there sh -c 'ip link set dev lo up && ip addr add 10.9.8.2/24 dev right && \
                  ip -6 addr add fd98::2/64 dev right nodad && ip link set dev right up' || exit 77\n\
    ip -6 route replace multicast ff00::/8 dev left table local && \
    $there ip -6 route replace multicast ff00::/8 dev right table local || exit 77\n";

/// Runs a script in a fresh namespace; `$headwater` is the command.
fn in_namespace(script: &str) -> Option<Run> {
    let mut command = std::process::Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", script]);
    command.env("headwater", env!("CARGO_BIN_EXE_headwater"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = Running::start(&mut command).end();
    // `unshare` itself ends with 1, which no doctor does.
    if matches!(run.code, Some(1 | NO_NETWORK)) {
        eprintln!("skipped, no network namespace: {}", run.stderr);
        return None;
    }
    Some(run)
}

/// The check of this name.
#[track_caller]
fn check(run: &Run, name: &str) -> Value {
    let found = run.json().into_iter().find(|line| line["check"] == name);
    found.unwrap_or_else(|| panic!("no check '{name}' in {}{}", run.stdout, run.stderr))
}

#[test]
fn nothing_stands_in_the_way_on_loopback() {
    let (group, folder) = (group(), tempfile::tempdir().unwrap());
    let file = folder.path().join("x");
    fs::write(&file, vec![7; 50_000]).unwrap();
    let on_lo = ["--interface", "lo", "--group", &group];
    let mut answering = Running::start(headwater().args(["doctor", "--answer", "--json"]).args(on_lo));
    answering.wait_for("answering");
    let mut sending = headwater();
    sending.args(["send", "--tsi", "4242", "--rate", "1M", "--quiet"]).args(on_lo).arg(&file);
    let sending = Running::start(&mut sending);
    let looked = run(&[&["doctor", "--json", "--wait", "2s"], &on_lo[..]].concat());
    sending.interrupt();
    sending.end();
    answering.interrupt();
    let answered = answering.end();

    assert_eq!(looked.code, Some(0), "{}{}", looked.stdout, looked.stderr);
    for name in ["interface", "memberships", "loopback", "querier", "sessions", "peers", "ecn"] {
        assert_eq!(check(&looked, name)["verdict"], "ok", "{}", looked.stdout);
    }
    let session = &check(&looked, "sessions")["sessions"][0];
    assert_eq!(session["tsi"], 4_242);
    let rate = session["rate"].as_u64().unwrap();
    assert!((100_000..2_000_000).contains(&rate), "about 1 Mbit/s, not {rate}");
    let peer = &check(&looked, "peers")["peers"][0];
    assert_eq!((peer["here"].as_bool(), peer["answers"].as_u64()), (Some(true), Some(12)));
    // The portable layer has no TTL of a probe.
    let routers = if is_portable() { None } else { Some(0) };
    assert_eq!((peer["routers"].as_u64(), peer["ecn"].as_str()), (routers, Some("kept")));
    let layer = check(&looked, "socket-layer")["seen"].as_str().unwrap().to_owned();
    assert!(layer.starts_with(if is_portable() { "portable" } else { "linux" }), "{layer}");
    let lines = looked.json();
    let summary = &lines.last().unwrap()["summary"];
    assert_eq!(
        (summary["problems"].as_u64(), summary["checks"].as_u64()),
        (Some(0), Some(lines.len() as u64 - 1))
    );

    assert_eq!(answered.code, Some(130), "it goes on until interrupted: {}", answered.stderr);
    let asked = answered.json().into_iter().filter(|line| line["event"] == "asked").collect::<Vec<_>>();
    let classes =
        asked.iter().map(|line| line["seen"]["traffic_class"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(
        classes,
        [0, 2, 1, 3, 0, 2, 1, 3, 0, 2, 1, 3],
        "ECN as it arrived: Not-ECT, ECT(0), ECT(1), CE"
    );
}

#[test]
fn people_get_a_checklist_with_what_to_do() {
    let looked = run(&["doctor", "--interface", "lo", "--group", &group(), "--wait", "100ms"]);
    assert_eq!(looked.code, Some(0), "{}", looked.stderr);
    for part in [
        "ok  loopback",
        "?  sessions",
        "> is a sender running",
        "headwater doctor --answer",
        "Nothing here keeps",
    ] {
        assert!(looked.stdout.contains(part), "'{part}' is missing in {}", looked.stdout);
    }
    assert!(looked.stdout.lines().all(|line| line.chars().count() <= 110), "{}", looked.stdout);
    let unknown = run(&["doctor", "--interface", "nope0"]);
    assert_eq!(unknown.code, Some(3));
    assert!(
        unknown.stdout.contains("PROBLEM  interface") && unknown.stdout.contains("lo ("),
        "{}",
        unknown.stdout
    );
}

#[test]
fn a_missing_route_is_the_problem() {
    let Some(looked) = in_namespace("ip link set dev lo up; exec $headwater doctor --json") else { return };
    assert_eq!(looked.code, Some(3), "{}", looked.stderr);
    let route = check(&looked, "route");
    assert_eq!(route["verdict"], "problem");
    assert!(route["advice"].as_str().unwrap().contains("--interface"), "{route}");
    let v6 = "ip link set dev lo up; exec $headwater doctor --json --interface lo --group ff15::4857";
    let looked = in_namespace(v6).unwrap();
    assert_eq!(looked.code, Some(3));
    assert!(
        check(&looked, "route")["advice"].as_str().unwrap().contains("ip -6 route add"),
        "{}",
        looked.stdout
    );
}

#[test]
fn an_interface_that_is_down_or_bare_is_the_problem() {
    let link = "ip link add dev left type veth peer name right || exit 77\n";
    let look = "exec $headwater doctor --json --interface left";
    let Some(down) = in_namespace(&format!("{link}ip addr add 10.9.8.1/24 dev left; {look}")) else { return };
    assert_eq!(down.code, Some(3));
    let interface = check(&down, "interface");
    assert_eq!(interface["advice"], "bring it up: ip link set dev left up");
    let bare = in_namespace(&format!("{link}ip link set dev left up; {look}")).unwrap();
    assert_eq!(bare.code, Some(3));
    assert!(
        check(&bare, "interface")["advice"].as_str().unwrap().contains("ip address add"),
        "{}",
        bare.stdout
    );
}

#[test]
fn reverse_path_filters_and_forced_versions_are_told() {
    let script = "ip link add dev left type veth peer name right || exit 77\n\
        ip addr add 10.9.8.1/24 dev left; ip link set dev left up; ip link set dev right up\n\
        echo 1 >/proc/sys/net/ipv4/conf/left/rp_filter; echo 2 >/proc/sys/net/ipv4/conf/left/force_igmp_version\n\
        exec $headwater doctor --json --interface left --source 192.0.2.9 --group 232.1.2.3 --wait 100ms";
    let Some(looked) = in_namespace(script) else { return };
    assert_eq!(looked.code, Some(3), "{}{}", looked.stdout, looked.stderr);
    let filter = check(&looked, "reverse-path");
    assert_eq!(filter["verdict"], "problem");
    assert!(filter["seen"].as_str().unwrap().contains("no route back to 192.0.2.9"), "{filter}");
    let memberships = check(&looked, "memberships");
    assert!(memberships["seen"].as_str().unwrap().contains("IGMPv2 is forced"), "{memberships}");
}

#[test]
fn a_peer_tells_how_probes_arrive_ipv4() {
    a_peer_tells_how_probes_arrive("239.255.72.91:7287", "10.9.8.2");
}

#[test]
fn a_peer_tells_how_probes_arrive_ipv6() {
    a_peer_tells_how_probes_arrive("[ff15::4858]:7287", "fd98::2");
}

/// Whether the commands of the tests have the portable layer of sockets.
fn is_portable() -> bool {
    std::env::var_os("HEADWATER_PORTABLE").is_some_and(|value| value == "1")
}

fn a_peer_tells_how_probes_arrive(group: &str, peer: &str) {
    if is_portable() {
        return;
    }
    let Some(looked) = ask_across(group, "") else { return };
    let peers = &check(&looked, "peers")["peers"];
    assert_eq!(peers.as_array().unwrap().len(), 1, "{peers}");
    let found = &peers[0];
    assert_eq!((found["address"].as_str(), found["here"].as_bool()), (Some(peer), Some(false)));
    assert_eq!((found["answers"].as_u64(), found["routers"].as_u64()), (Some(12), Some(0)));
    assert_eq!(check(&looked, "ecn")["verdict"], "ok");
    let marked = r#""seen":{"traffic_class":3,"ttl":9}"#;
    assert_eq!(looked.stderr.matches(marked).count(), 3, "CE arrives as CE: {}", looked.stderr);
}

#[test]
fn a_path_that_drops_ecn_is_found_out() {
    // Classic BPF: what has an ECN bit goes into a device that is down.
    let drops = "ip link add hole type ifb && tc qdisc add dev left clsact && \
        tc filter add dev left egress protocol ip prio 1 bpf bytecode '4,48 0 0 15,69 0 1 3,6 0 0 4294967295,6 0 0 0' \
        action mirred egress redirect dev hole || exit 77\n";
    let Some(looked) = ask_across("239.255.72.91:7287", drops) else { return };
    let found = &check(&looked, "peers")["peers"][0];
    assert_eq!((found["answers"].as_u64(), found["ecn"].as_str()), (Some(3), Some("dropped")));
    assert_eq!(check(&looked, "ecn")["verdict"], "warning");
}

#[test]
fn a_transfer_tells_why_it_is_as_fast_as_it_is() {
    // A switch that forwards channels to their members only, 4 Mbit/s, and 25 packets of queue.
    let narrow = "ip addr flush dev left && \
        ip link add dev switch type bridge mcast_snooping 1 mcast_querier 1 mcast_query_response_interval 10 && \
        ip link set dev left master switch && ip link set dev left type bridge_slave fastleave on && \
        ip addr add 10.9.8.1/24 dev switch && ip link set dev switch up && \
        tc qdisc add dev left root tbf rate 4mbit burst 3000 limit 37500 || exit 77\n";
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().display();
    fs::write(folder.path().join("file"), crate::transfer::noise(1_500_000)).unwrap();
    let script = format!(
        "{PAIR}{narrow}$headwater send --quiet --interface switch --max-rate 16M {dir}/file >/dev/null 2>&1 & sending=$!
        timeout 40 $there $headwater receive --interface right --timeout 20s --events {dir}/log --out {dir}/out >&2
        kill -TERM $sending; kill $other
        exec $headwater doctor --json --interface switch --wait 100ms --events {dir}/log"
    );
    let Some(looked) = in_namespace(&script) else { return };
    let why = check(&looked, "transfer")["seen"].as_str().unwrap().to_owned();
    let log = crate::command::records(&fs::read_to_string(folder.path().join("log")).unwrap());
    let ended = log.iter().rfind(|record| record["name"] == "session:ended").unwrap();
    let path = &ended["data"]["path"];
    // On a busy machine so short a transfer shows no queue, or a wrong one; simulations judge the estimates.
    let told = path["why"].as_str().unwrap();
    assert!(
        !told.is_empty() && why.contains("bit/s: ") && why.contains(told),
        "{why}, not {told}: {}",
        looked.stderr
    );
    assert!(looked.stderr.contains(&format!("m2c: {told}")), "{told}: {}", looked.stderr);
    assert!(path["alone"].is_boolean() && path["chance_losses"].is_u64(), "{path}");
}

#[test]
fn a_receivers_own_limit_is_the_reason() {
    let (group, folder) = (group(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("file"), crate::transfer::noise(600_000)).unwrap();
    let on_lo = ["--interface", "lo", "--group", &group, "--quiet"];
    let mut sending = headwater();
    sending.args(["send", "--max-rate", "8M"]).args(on_lo).arg(path("file"));
    let sending = Running::start(&mut sending);
    let (out, log) = (path("out"), path("log"));
    let receive = ["receive", "--json", "--max-rate", "1M", "--timeout", "20s", "--out", &out];
    let received = run(&[&receive[..], &on_lo[..]].concat());
    sending.interrupt();
    sending.end();
    assert_eq!(received.code, Some(0), "{}", received.stderr);
    let why = |line: &Value| line["path"]["why"].as_str().map(str::to_owned);
    let reasons: Vec<String> = received.json().iter().filter_map(why).collect();
    let own = reasons.iter().filter(|why| why.starts_with("at the receiver's own maximum rate")).count();
    assert!(own > 0, "{reasons:?}");
    // The lines of `--json` are a log, too.
    fs::write(&log, &received.stdout).unwrap();
    let looked = run(&["doctor", "--json", "--interface", "lo", "--wait", "100ms", "--events", &log]);
    assert!(check(&looked, "transfer")["seen"].as_str().unwrap().ends_with(reasons.last().unwrap()));
}

/// The network's own sysfs tells the MTU of its interfaces.
const OWN_SYSFS: &str = "mount -t sysfs none /sys || exit 77\n";

#[test]
fn another_sender_than_the_one_named_is_told_apart_from_silence() {
    let send = "head -c 100000 /dev/zero >$folder/x; $there $headwater send --quiet --tsi 77 --interface right $folder/x & sending=$!; sleep 1\n";
    let look = |source: &str, more: &str| {
        let doctor = format!("$headwater doctor --json --interface left --source {source} --wait 2s");
        in_namespace(&format!(
            "folder=$(mktemp -d)\n{PAIR}{more}{doctor}; code=$?; kill $sending; kill $other; rm -r $folder; exit $code"
        ))
    };
    let Some(looked) = look("10.9.8.77", send) else { return };
    assert_eq!(looked.code, Some(3), "{}{}", looked.stdout, looked.stderr);
    let sessions = check(&looked, "sessions");
    assert_eq!(sessions["verdict"], "problem");
    let seen = sessions["seen"].as_str().unwrap();
    assert!(seen.contains("nothing from 10.9.8.77") && seen.contains("TSI 77 from 10.9.8.2:"), "{seen}");
    assert!(sessions["advice"].as_str().unwrap().contains("--source 10.9.8.2,"), "{sessions}");
    let right = look("10.9.8.2", send).unwrap();
    assert_eq!(check(&right, "sessions")["verdict"], "ok", "{}", right.stdout);
    let groups = check(&right, "groups");
    assert_eq!(
        (groups["verdict"].as_str(), right.code),
        (Some("unknown"), Some(0)),
        "2 s are too short: {groups}"
    );
    let silent = look("10.9.8.77", "sleep 30 & sending=$!\n").unwrap();
    assert_eq!(check(&silent, "sessions")["verdict"], "warning", "{}", silent.stdout);
}

#[test]
fn packets_longer_than_the_receivers_mtu_are_found_out_by_doctor_and_receiver() {
    let script = format!(
        "folder=$(mktemp -d)\n{PAIR}ip link set dev left mtu 1200 || exit 77\n\
         head -c 3000000 /dev/zero >$folder/x; $there $headwater send --quiet --interface right $folder/x & sending=$!\n\
         $headwater receive --json --interface left --out $folder/out --timeout 15s >$folder/log & receiving=$!\n\
         sleep 1; $headwater doctor --json --interface left --wait 2s; code=$?\n\
         for i in $(seq 200); do grep -q packets:too-long $folder/log && break; sleep 0.1; done\n\
         kill $receiving $sending; wait $receiving; grep packets:too-long $folder/log; kill $other; rm -r $folder; exit $code"
    );
    let Some(looked) =
        in_namespace(&format!("unshare --mount sh -c '{OWN_SYSFS}{}'", script.replace('\'', "'\\''")))
    else {
        return;
    };
    assert_eq!(looked.code, Some(3), "{}{}", looked.stdout, looked.stderr);
    let sessions = check(&looked, "sessions");
    assert_eq!(sessions["verdict"], "problem", "{sessions}");
    assert!(sessions["seen"].as_str().unwrap().contains("its MTU is 1200"), "{sessions}");
    assert!(sessions["advice"].as_str().unwrap().contains("ip link set dev left mtu 1500"), "{sessions}");
    let lines = looked.json();
    let told = lines.iter().find(|line| line["event"] == "packets:too-long");
    let told =
        told.unwrap_or_else(|| panic!("the receiver does not tell: {}{}", looked.stdout, looked.stderr));
    assert_eq!((told["packet_bytes"].as_u64(), told["mtu"].as_u64()), (Some(1_388), Some(1_200)));
    assert_eq!(told["interface"], "left");
    for part in ["the MTU of left is 1200", "ip link set dev left mtu 1500", "--symbol-size 1024"] {
        assert!(looked.stderr.contains(part), "'{part}' is missing in {}", looked.stderr);
    }
}

/// Looks at one end of a cable while the other one answers, onto standard error.
fn ask_across(group: &str, set_up: &str) -> Option<Run> {
    let looked = in_namespace(&format!(
        "{PAIR}{set_up}$there $headwater doctor --answer --json --interface right --group {group} >&2 & answering=$!\n\
         sleep 0.5; $headwater doctor --json --interface left --group {group} --ttl 9 --wait 100ms; code=$?\n\
         kill -INT $answering; wait $answering; kill $other; exit $code"
    ))?;
    assert_eq!(looked.code, Some(0), "{}{}", looked.stdout, looked.stderr);
    Some(looked)
}

#[test]
fn a_querier_is_made_to_speak() {
    let bridge = "$there sh -c 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; ip link add bridge type bridge mcast_snooping 1 mcast_querier 1 mcast_igmp_version 3 \
        mcast_mld_version 2 && ip link set dev bridge up && ip link set dev right master bridge' || exit 77\n";
    for (group, asks) in [("239.255.72.91:7287", "asks by IGMPv3"), ("[ff15::4858]:7287", "asks by MLDv2")] {
        let script = format!(
            "{PAIR}{bridge}$headwater doctor --json --interface left --group {group}; code=$?; kill $other; exit $code"
        );
        let Some(looked) = in_namespace(&script) else { return };
        let querier = check(&looked, "querier");
        assert_eq!(querier["verdict"], "ok", "{querier}");
        assert!(querier["seen"].as_str().unwrap().contains(asks), "{querier}");
    }
}

#[test]
fn an_old_version_of_the_network_is_named_with_what_follows() {
    let bridge = "$there sh -c 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; ip link add bridge type bridge mcast_snooping 1 mcast_querier 1 mcast_igmp_version 2 \
        mcast_mld_version 1 && ip link set dev bridge up && ip link set dev right master bridge' || exit 77\n";
    let look = |group: &str, set_up: &str| {
        let doctor = format!("$headwater doctor --json --interface left --group {group} --wait 1s");
        let looked = in_namespace(&format!("{PAIR}{set_up}{doctor}; code=$?; kill $other; exit $code"))?;
        Some((check(&looked, "version"), looked.code))
    };
    let cases = [
        ("239.255.72.91:7287", "IGMPv2", "net.ipv4.conf.left.force_igmp_version"),
        ("[ff15::4858]:7287", "MLDv1", "net.ipv6.conf.left.force_mld_version"),
    ];
    for (group, version, setting) in cases {
        let Some((found, code)) = look(group, bridge) else { return };
        assert_eq!((found["verdict"].as_str(), code), (Some("warning"), Some(0)), "{found}");
        let (seen, advice) = (found["seen"].as_str().unwrap(), found["advice"].as_str().unwrap());
        assert!(
            seen.starts_with(&format!("{version} (as the network asks): joins name no source")),
            "{seen}"
        );
        assert!(advice.contains("--trust") && advice.contains("500 in a domain"), "{advice}");
        let old = &version[version.len() - 1..];
        let path = setting.replace('.', "/");
        let (forced, _) = look(group, &format!("echo {old} >/proc/sys/{path}\n")).unwrap();
        assert!(
            forced["seen"].as_str().unwrap().starts_with(&format!("{version} (forced here)")),
            "{forced}"
        );
        let (new, _) = look(group, "").unwrap();
        assert_eq!(new["verdict"], "ok", "{new}");
    }
}

#[test]
fn a_wireless_interface_is_told_with_what_helps() {
    let radio = "mount -t tmpfs none /sys/class && mkdir -p /sys/class/net/left/phy80211 || exit 77\n";
    let script = format!(
        "{radio}{PAIR}$headwater doctor --json --interface left --wait 100ms; code=$?; kill $other; exit $code"
    );
    let Some(looked) = in_namespace(&format!("unshare --mount sh -c '{}'", script.replace('\'', "'\\''")))
    else {
        return;
    };
    let wireless = check(&looked, "wireless");
    assert_eq!((wireless["verdict"].as_str(), looked.code), (Some("warning"), Some(0)), "{wireless}");
    for part in ["mcast_to_unicast on", "iw dev left set power_save off", "headwater get", "receive --amt"] {
        assert!(wireless["advice"].as_str().unwrap().contains(part), "{wireless}");
    }
}
