//! Sockets on loopback, and namespaces for what needs more.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use headwater::net::{
    Channels, Interface, Poller, ReceiverOptions, ReceiverSocket, RecvBatch, Run, SenderOptions,
    SenderSocket, SocketLayer,
};
use headwater_proto::{ChannelId, Ecn};

pub const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Longest wait for datagrams that should come.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Wait for datagrams that should not come. On loopback they would be there before the sender is done.
pub const QUIET: Duration = Duration::from_millis(100);

/// What was received, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub channel: Option<u16>,
    pub ecn: Ecn,
    pub source: SocketAddr,
    pub payload: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub enum Family {
    V4,
    V6,
}

/// Groups on a port that no other test of this run uses, below those that the system hands out.
pub fn channels(family: Family, count: u16) -> Channels {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let test = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = u16::try_from(std::process::id() % 120).unwrap();
    let port = 20_000 + process * 100 + test;
    let base = match family {
        Family::V4 => format!("239.77.{process}.{}:{port}", test % 100),
        Family::V6 => format!("[ff15::77:{process:x}:{test:x}00]:{port}"),
    };
    Channels::new(base.parse().unwrap(), count).unwrap()
}

/// Whether the process has the Linux layer, which a test of batches, times or counts of the kernel needs; if
/// not, the test says so.
pub fn has_linux_layer() -> bool {
    let has = SocketLayer::current() == SocketLayer::Linux;
    if !has {
        eprintln!("skipped: the portable layer has no batches, times and counts of the kernel");
    }
    has
}

pub fn loopback() -> Interface {
    Interface::find("lo").unwrap()
}

pub fn sender_options() -> SenderOptions {
    SenderOptions { interface: Some(loopback()), ..SenderOptions::default() }
}

pub fn sender(channels: &Channels) -> SenderSocket {
    SenderSocket::open(channels, &sender_options()).unwrap()
}

pub fn receiver_from(channels: &Channels, source: Option<IpAddr>) -> ReceiverSocket {
    let options = ReceiverOptions { interface: Some(loopback()), source, ..ReceiverOptions::default() };
    ReceiverSocket::open(channels, &options).unwrap()
}

pub fn receiver(channels: &Channels) -> ReceiverSocket {
    receiver_from(channels, None)
}

pub fn send(sender: &mut SenderSocket, channel: u16, ecn: Ecn, contents: &[u8], segment_bytes: usize) {
    let destination = sender.channels().address(ChannelId(channel)).unwrap();
    sender.send(&[Run { destination, contents, segment_bytes, ecn }]).unwrap();
}

pub fn send_one(sender: &mut SenderSocket, channel: u16, payload: &[u8]) {
    send(sender, channel, Ecn::NotCapable, payload, 0);
}

/// Reads until `wanted` datagrams have come, and for as long as more than that might.
pub fn receive(receiver: &mut ReceiverSocket, wanted: usize) -> Vec<Received> {
    let mut poller = Poller::new().unwrap();
    let mut batch = RecvBatch::new();
    let mut received = Vec::new();
    let mut deadline = Instant::now() + PATIENCE;
    loop {
        while receiver.recv(&mut batch).unwrap() > 0 {
            received.extend(batch.iter().map(|datagram| Received {
                channel: datagram.channel.map(|channel| channel.0),
                ecn: datagram.ecn,
                source: datagram.source,
                payload: datagram.payload.to_vec(),
            }));
        }
        if received.len() >= wanted {
            deadline = deadline.min(Instant::now() + QUIET);
        }
        if Instant::now() >= deadline {
            return received;
        }
        poller.wait(receiver.fds(), Some(deadline)).unwrap();
    }
}

pub fn payloads(received: &[Received]) -> Vec<&[u8]> {
    received.iter().map(|datagram| datagram.payload.as_slice()).collect()
}

/// Starts the named test again in a network namespace with loopback up and IPv6 groups routed over it. True
/// within.
pub fn in_namespace(test: &str) -> bool {
    const MARK: &str = "HEADWATER_TEST_IN_NAMESPACE";
    // The route must be "local": Linux turns others over loopback into "unreachable".
    const SET_UP: &str = "ip link set dev lo up && ip -6 route add local ff00::/8 dev lo table local && \
                          ip link add dev left type veth peer name right && ip addr add 10.9.8.1/24 dev left && \
                          ip link set dev left up && ip link set dev right up";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let this = std::env::current_exe().unwrap();
    let outcome = Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c"])
        .arg(format!("{{ {SET_UP}; }} || exit 77; exec \"$0\" --exact \"$1\" --nocapture"))
        .arg(this)
        .arg(test)
        .env(MARK, "1")
        .output();
    match outcome {
        Ok(output) if output.status.success() => {
            let report = String::from_utf8_lossy(&output.stdout);
            assert!(report.contains("1 passed"), "no test is named {test}");
        }
        // `unshare` failed, or the set-up did; a failing test ends with 101.
        Ok(output) if matches!(output.status.code(), Some(1 | 77)) => {
            eprintln!("{test} skipped, no network namespace: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(output) => panic!(
            "in a network namespace:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => eprintln!("{test} skipped, no `unshare`: {error}"),
    }
    false
}
