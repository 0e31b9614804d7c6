//! What the kernel writes into files.

use std::fs;
use std::io::Read;

/// Most bytes read of one file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file's text; nothing when there is none, or it may not be read.
pub(crate) fn text(path: &str) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// A file that holds one number.
pub(crate) fn number(path: &str) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

/// A counter of `/proc/net/netstat` or `/proc/net/snmp`: a line of names, then a line of numbers.
pub(crate) fn netstat(text: &str, table: &str, counter: &str) -> Option<u64> {
    let lines = || text.lines().filter_map(|line| line.strip_prefix(table)?.strip_prefix(':'));
    let at = lines().next()?.split_whitespace().position(|name| name == counter)?;
    lines().nth(1)?.split_whitespace().nth(at)?.parse().ok()
}

/// Packets lost on their way into this machine since it started, which no socket is told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InputLosses {
    /// Frames that an interface dropped, those too long for its MTU among them.
    pub frames: u64,
    /// Packets whose fragments did not all come.
    pub fragments: u64,
}

impl InputLosses {
    /// Reads the counters of an interface, and those of the IP version; what the kernel does not tell counts as 0.
    pub(crate) fn read(interface: &str, is_ipv4: bool) -> Self {
        let frames = text("/proc/net/dev").and_then(|text| frames_dropped(&text, interface));
        let fragments = if is_ipv4 {
            text("/proc/net/snmp").and_then(|text| netstat(&text, "Ip", "ReasmFails"))
        } else {
            text("/proc/net/snmp6").and_then(|text| counter_line(&text, "Ip6ReasmFails"))
        };
        Self { frames: frames.unwrap_or(0), fragments: fragments.unwrap_or(0) }
    }

    /// Losses since `before` was read.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            frames: self.frames.saturating_sub(before.frames),
            fragments: self.fragments.saturating_sub(before.fragments),
        }
    }
}

/// The columns `drop` and `frame` of what an interface received, in `/proc/net/dev`: those that it had no use for, and those
/// of a wrong length. Drivers count frames that are too long as the one or the other.
fn frames_dropped(text: &str, interface: &str) -> Option<u64> {
    let row = text.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    let columns: Vec<u64> = row.split_whitespace().filter_map(|column| column.parse().ok()).collect();
    Some(columns.get(3)?.saturating_add(*columns.get(5)?))
}

/// A counter of `/proc/net/snmp6`: its name and its number in a line.
fn counter_line(text: &str, counter: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next()? == counter).then(|| words.next()?.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let text = "TcpExt: SyncookiesSent IPReversePathFilter Other\nTcpExt: 1 22 333\nIpExt: InNoRoutes\nIpExt: 4\n";
        assert_eq!(netstat(text, "TcpExt", "IPReversePathFilter"), Some(22));
        assert_eq!(netstat(text, "IpExt", "InNoRoutes"), Some(4));
        assert_eq!(netstat(text, "TcpExt", "Missing"), None);
        assert_eq!(netstat("TcpExt: A", "TcpExt", "A"), None);
        assert_eq!(counter_line("Ip6InReceives 5\nIp6ReasmFails   7\n", "Ip6ReasmFails"), Some(7));
    }

    #[test]
    fn dropped_frames_are_those_without_use_and_those_of_a_wrong_length() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes\n\
            \x20  lo:       0  0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n  eth0:57026 186 0 84713 9 2 0 0 4732 42 0 0 0 0 0 0\n";
        assert_eq!(frames_dropped(text, "eth0"), Some(84_715));
        assert_eq!((frames_dropped(text, "eth"), frames_dropped("eth0: 1 2", "eth0")), (None, None));
    }
}
