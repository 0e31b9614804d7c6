//! Namespaces, cables between namespaces, token buckets, counters.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use headwater_netsim::plan::Scenario;
use headwater_netsim::plan::flow::FlowKind;
use serde_json::Value;

use crate::program::{must, path};
use crate::routing::GroupProtocol;
use crate::shape::{Bucket, Role, Shape};
use crate::sys;
use crate::wire;
use crate::{Error, Tried};

/// The name of a host's only interface.
pub(crate) const HOST_PORT: &str = "eth0";
/// Directory in which `ip` keeps namespaces.
pub(crate) const NAMESPACES: &str = "/run/netns";
/// The namespace of the wire; no node can be called so.
pub(crate) const WIRE: &str = "wire.";
/// Offloads that would put several frames into a single packet of a queue.
const OFFLOADS: [&str; 4] = ["gro", "gso", "tso", "tx-udp-segmentation"];
/// Capacity of a token bucket: a whole frame, or `1 / BURST_PER_SECOND` of the rate if larger.
const BURST_BYTES: u64 = 1_540;
const BURST_PER_SECOND: u64 = 2_000;

/// The namespaces of a bed.
#[derive(Debug)]
pub(crate) struct Network {
    pub id: String,
    nodes: Vec<String>,
}

/// Counters of a port's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueCounters {
    pub packets: u64,
    pub bytes: u64,
    pub drops: u64,
}

impl QueueCounters {
    pub fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
            drops: self.drops.saturating_sub(before.drops),
        }
    }
}

impl Network {
    pub fn new(id: String, nodes: &[String]) -> Self {
        Self { id, nodes: nodes.to_vec() }
    }

    pub fn namespace(&self, node: usize) -> String {
        format!("{}-{}", self.id, self.nodes[node])
    }

    /// The file of a node's namespace.
    pub fn file(&self, node: usize) -> PathBuf {
        Path::new(NAMESPACES).join(self.namespace(node))
    }

    /// The file of the wire's namespace.
    pub fn wire(&self) -> PathBuf {
        Path::new(NAMESPACES).join(self.wire_name())
    }

    fn wire_name(&self) -> String {
        format!("{}-{WIRE}", self.id)
    }

    /// The name of a node's port on a link.
    pub fn port(shape: &Shape, node: usize, link: usize) -> String {
        match shape.roles[node] {
            Role::Host => HOST_PORT.into(),
            Role::Router => format!("p{link}"),
        }
    }

    /// Creates the namespaces and the cables between the nodes.
    pub fn make(&self, shape: &Shape, scenario: &Scenario, protocol: GroupProtocol) -> Result<(), Error> {
        let mut names: Vec<String> = (0..self.nodes.len()).map(|node| self.namespace(node)).collect();
        let mut files: Vec<PathBuf> = (0..self.nodes.len()).map(|node| self.file(node)).collect();
        if shape.cables.iter().any(|cable| cable.is_wired) {
            names.push(self.wire_name());
            files.push(self.wire());
        }
        let adds: Vec<String> = names.iter().map(|name| format!("netns add {name}")).collect();
        batch(None, &adds).map_err(|error| without(error, "network namespaces (CONFIG_NET_NS)"))?;
        let settings = settings(scenario, protocol);
        for file in &files {
            sys::inside(file, || set(&settings)).and_then(|set| set).tried(|| "set up a namespace".into())?;
        }
        let mut links = Vec::new();
        for (link, cable) in shape.cables.iter().enumerate() {
            let ends = cable.ends.map(|node| (self.namespace(node), Self::port(shape, node, link)));
            let pair = |(one, port): &(String, String), (other, peer): &(String, String)| {
                format!("link add name {port} netns {one} type veth peer name {peer} netns {other}")
            };
            if cable.is_wired {
                for (end, port) in ends.iter().zip(wire::ports(link)) {
                    links.push(pair(end, &(self.wire_name(), port)));
                }
            } else {
                links.push(pair(&ends[0], &ends[1]));
            }
        }
        batch(None, &links).map_err(|error| without(error, "veth pairs (CONFIG_VETH)"))?;
        for name in &names {
            self.bring_up(name)?;
        }
        Ok(())
    }

    /// Brings all ports of a namespace up, and turns offloads off so that a packet is a frame.
    fn bring_up(&self, namespace: &str) -> Result<(), Error> {
        let brief = must(Command::new("ip").args(["-n", namespace, "-brief", "link"]))?;
        let ports =
            brief.lines().filter_map(|line| line.split(['@', ' ']).next()).filter(|port| *port != "lo");
        let mut ups = vec!["link set dev lo up".to_owned()];
        for port in ports {
            ups.push(format!("link set dev {port} up"));
            let words = OFFLOADS.iter().flat_map(|offload| [*offload, "off"]);
            must(Command::new("ip").args(["netns", "exec", namespace, "ethtool", "-K", port]).args(words))?;
        }
        batch(Some(namespace), &ups)
    }

    /// Commands of `ip` in a node's namespace.
    pub fn ip(&self, node: usize, commands: &[String]) -> Result<(), Error> {
        batch(Some(&self.namespace(node)), commands)
    }

    /// An address, and the ways of a host: groups and, where there is a gateway, all else.
    pub fn address(
        &self,
        node: usize,
        address: Ipv4Addr,
        bits: u8,
        gateway: Option<Ipv4Addr>,
    ) -> Result<(), Error> {
        let mut commands = vec![
            format!("address add {address}/{bits} dev {HOST_PORT}"),
            format!("route add 224.0.0.0/4 dev {HOST_PORT}"),
        ];
        commands.extend(gateway.map(|gateway| format!("route add default via {gateway}")));
        self.ip(node, &commands)
    }

    /// An IPv6 address of a host.
    pub fn address6(&self, node: usize, address: Ipv6Addr) -> Result<(), Error> {
        self.ip(node, &[format!("address add {address}/64 dev {HOST_PORT} nodad")])
    }

    /// Enables forwarding at a node.
    pub fn forward(&self, node: usize) -> Result<(), Error> {
        let settings = [("ipv4/ip_forward", "1".to_owned())];
        sys::inside(&self.file(node), || set(&settings))
            .and_then(|set| set)
            .tried(|| "let a router forward".into())
    }

    /// Token buckets, with queues of packets behind.
    pub fn limit(&self, shape: &Shape) -> Result<(), Error> {
        for (link, cable) in shape.cables.iter().enumerate() {
            for (node, bucket) in cable.ends.into_iter().zip(&cable.buckets) {
                let Some(Bucket { rate, packets }) = bucket else { continue };
                let port = Self::port(shape, node, link);
                let burst = BURST_BYTES.max(rate / 8 / BURST_PER_SECOND);
                let words = format!(
                    "qdisc add dev {port} root handle 1: tbf rate {rate}bit burst {burst} limit 1000000\n\
                     qdisc add dev {port} parent 1:1 handle 10: pfifo limit {packets}\n"
                );
                let mut tc = Command::new("tc");
                tc.args(["-n", &self.namespace(node), "-batch", "-"]);
                fed(&mut tc, &words).map_err(|error| {
                    without(error, "token buckets (CONFIG_NET_SCH_TBF, CONFIG_NET_SCH_FIFO)")
                })?;
            }
        }
        Ok(())
    }

    /// Counters of the queue of a port.
    pub fn queue(&self, shape: &Shape, node: usize, link: usize) -> Result<QueueCounters, Error> {
        let (namespace, port) = (self.namespace(node), Self::port(shape, node, link));
        let text =
            must(Command::new("tc").args(["-n", &namespace, "-s", "-j", "qdisc", "show", "dev", &port]))?;
        let queues: Vec<Value> = serde_json::from_str(&text).tried(|| "read what tc says".into())?;
        let root = queues.iter().find(|queue| queue.get("root").is_some()).cloned().unwrap_or_default();
        let of = |key: &str| root.get(key).and_then(Value::as_u64).unwrap_or(0);
        Ok(QueueCounters { packets: of("packets"), bytes: of("bytes"), drops: of("drops") })
    }

    /// Bytes of frames that a host has received.
    pub fn received_bytes(&self, node: usize) -> u64 {
        // /proc/net is the namespace of the process, not of the thread.
        let table = sys::inside(&self.file(node), || fs::read_to_string("/proc/thread-self/net/dev"));
        let table = table.and_then(|table| table).unwrap_or_default();
        let row = table.lines().find_map(|line| line.trim().strip_prefix("eth0:")).unwrap_or_default();
        row.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
    }
}

/// Settings of each namespace, made before the namespace has an interface, so that new interfaces inherit the
/// settings.
fn settings(scenario: &Scenario, protocol: GroupProtocol) -> Vec<(&'static str, String)> {
    let growth = scenario.flows.iter().find_map(|flow| match &flow.kind {
        FlowKind::Tcp(tcp) => Some(&tcp.config),
        FlowKind::ShortTcp(short) => Some(&short.config),
        _ => None,
    });
    // A segment of 1460 bytes has no room for timestamps.
    let timestamps = growth.is_none_or(|config| config.segment_bytes <= 1_448);
    let word = |is: bool| u8::from(is).to_string();
    let plain = [
        ("ipv4/tcp_sack", "1"),
        ("ipv4/tcp_no_metrics_save", "1"),
        ("ipv4/tcp_slow_start_after_idle", "0"),
        ("ipv4/tcp_congestion_control", "reno"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv6/conf/default/dad_transmits", "0"),
        ("ipv6/conf/default/router_solicitations", "0"),
    ];
    let plain = plain.into_iter().map(|(key, value)| (key, value.to_owned()));
    let (igmp, mld) = protocol.versions();
    let versions = [
        ("ipv4/conf/all/force_igmp_version", igmp.to_string()),
        ("ipv4/conf/default/force_igmp_version", igmp.to_string()),
        ("ipv6/conf/all/force_mld_version", mld.to_string()),
        ("ipv6/conf/default/force_mld_version", mld.to_string()),
        ("ipv6/conf/all/disable_ipv6", word(!protocol.is_ipv6())),
        ("ipv6/conf/default/disable_ipv6", word(!protocol.is_ipv6())),
    ];
    plain.chain(versions).chain([("ipv4/tcp_timestamps", word(timestamps))]).collect()
}

/// Writes settings of the calling thread's namespace. Settings that this kernel lacks are skipped.
fn set(settings: &[(&str, String)]) -> std::io::Result<()> {
    for (key, value) in settings {
        match fs::write(Path::new("/proc/sys/net").join(key), value) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Runs commands of `ip` at once, in a namespace or from the outside.
fn batch(namespace: Option<&str>, commands: &[String]) -> Result<(), Error> {
    if commands.is_empty() {
        return Ok(());
    }
    let mut ip = Command::new("ip");
    ip.args(namespace.into_iter().flat_map(|name| ["-n", name])).args(["-batch", "-"]);
    let mut text = commands.join("\n");
    text.push('\n');
    fed(&mut ip, &text)
}

/// Runs a program with `text` as its standard input.
fn fed(command: &mut Command, text: &str) -> Result<(), Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let command = command.env("PATH", path()).stdin(Stdio::piped());
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = child.tried(|| format!("run '{name}'"))?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(text.as_bytes()).tried(|| format!("write to '{name}'"))?;
    }
    let ended = child.wait_with_output().tried(|| format!("wait for '{name}'"))?;
    if ended.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&ended.stderr);
    Err(Error::failed(format!("'{name}' failed: {}", complaint.trim().replace('\n', "; "))))
}

/// Turns the error of a failed step into a hint at the kernel feature that may be missing.
pub(crate) fn without(error: Error, part: &str) -> Error {
    match error.kind {
        crate::Kind::Failed => Error::missing(format!(
            "{}; perhaps this kernel has no {part}, which the testbed needs",
            error.message
        )),
        _ => error,
    }
}
