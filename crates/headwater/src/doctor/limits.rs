//! Limits of the kernel on memberships and socket buffers; current memberships.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::check::Check;
use crate::net::{BufferSize, SocketLayer};

pub(super) use crate::system::{netstat, read_number, text};

/// Bytes of `net.core.optmem_max` that a source-specific membership takes (measured on Linux 6.18).
const OPTMEM_PER_MEMBERSHIP: u64 = 112;
/// Minimum receive buffer for datagrams that arrive while a busy machine runs another program.
const RECEIVE_BUFFER_SMALL: usize = 256 << 10;
/// Bytes of receive buffer for a full datagram, with overhead.
const DATAGRAM_BYTES: usize = 2_304;

/// Facts for the check of memberships.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Whether the group is an IPv4 group.
    pub is_ipv4: bool,
    /// Whether receivers of the group name a source.
    pub is_source_specific: bool,
    /// `net.ipv4.igmp_max_memberships`, per socket.
    pub memberships_max: Option<u64>,
    /// `net.ipv4.igmp_max_msf` or `net.ipv6.mld_max_msf`: sources per membership.
    pub sources_max: Option<u64>,
    /// `net.core.optmem_max`, bytes per socket.
    pub optmem_max: Option<u64>,
    /// `force_igmp_version` or `force_mld_version`, the higher value of `all` and the interface; 0 if unset.
    pub forced_version: u64,
    /// Groups joined on the interface.
    pub joined: Memberships,
    /// Number of groups from this group up, and number of channels of a session of many rates with default
    /// options.
    pub channels: (u16, u16),
}

/// Checks that groups can be joined, in the version that the group needs.
pub(super) fn memberships(interface: &str, facts: &Facts) -> Check {
    const NAME: &str = "memberships";
    let (protocol, family) = if facts.is_ipv4 { ("IGMP", "ipv4") } else { ("MLD", "ipv6") };
    let (version_needed, setting) =
        if facts.is_ipv4 { (3, "force_igmp_version") } else { (2, "force_mld_version") };
    let forced = facts.forced_version;
    if facts.is_source_specific && forced != 0 && forced < version_needed {
        return Check::problem(
            NAME,
            format!("{protocol}v{forced} is forced, which cannot name a source"),
            format!(
                "routers serve this group only to receivers that name the source: sysctl -w net.{family}.conf.all.{setting}=0 \
                 net.{family}.conf.{interface}.{setting}=0"
            ),
        );
    }
    if facts.sources_max == Some(0) || facts.memberships_max == Some(0) {
        let advice =
            "sysctl -w net.ipv4.igmp_max_memberships=1024 net.ipv4.igmp_max_msf=64 net.ipv6.mld_max_msf=64";
        return Check::problem(NAME, "the kernel's limit is 0: nothing can be joined", advice);
    }
    let old_querier =
        facts.joined.version.filter(|version| u64::from(*version) < version_needed && forced == 0);
    if let (true, Some(version)) = (facts.is_source_specific, old_querier) {
        return Check::warning(
            NAME,
            format!(
                "an {protocol}v{version} querier makes this machine speak {protocol}v{version}, which cannot name a source"
            ),
            format!("set the router or switch that queries to {protocol}v{version_needed}"),
        );
    }
    let (room, needed) = facts.channels;
    if room < needed {
        return Check::warning(
            NAME,
            format!(
                "{}; but only {room} groups from this one up are of its kind",
                described(protocol, facts)
            ),
            format!(
                "choose a lower group for a session of many rates, which takes {needed}, or send with `--rate`"
            ),
        );
    }
    Check::ok(NAME, described(protocol, facts))
}

fn described(protocol: &str, facts: &Facts) -> String {
    let version = match (facts.joined.version, facts.forced_version) {
        (Some(version), _) => format!("v{version}"),
        (None, forced @ 1..) => format!("v{forced}"),
        (None, 0) => String::new(),
    };
    let per_socket =
        match (facts.memberships_max, facts.optmem_max.map(|bytes| bytes / OPTMEM_PER_MEMBERSHIP)) {
            (Some(count), Some(room)) => format!(", up to {} per socket", count.min(room)),
            (Some(count), None) => format!(", up to {count} per socket"),
            (None, Some(room)) => format!(", room for about {room} per socket"),
            (None, None) => String::new(),
        };
    let count = facts.joined.groups.len();
    format!(
        "{protocol}{version}, {count} {} joined here{per_socket}",
        if count == 1 { "group" } else { "groups" }
    )
}

/// Checks that the requested buffers were granted.
pub(super) fn buffers(receive: BufferSize, send: BufferSize) -> Check {
    const NAME: &str = "buffers";
    let seen = format!(
        "receive {} of {} KiB, send {} of {} KiB",
        kib(receive.granted_bytes),
        kib(receive.asked_bytes),
        kib(send.granted_bytes),
        kib(send.asked_bytes)
    );
    let short = |size: BufferSize| size.granted_bytes < size.asked_bytes;
    let settings = [("rmem_max", receive), ("wmem_max", send)]
        .into_iter()
        .filter(|(_, size)| short(*size))
        .map(|(name, size)| format!("net.core.{name}={}", size.asked_bytes))
        .collect::<Vec<_>>();
    if settings.is_empty() {
        return Check::ok(NAME, seen);
    }
    let advice = format!("sysctl -w {} (and into /etc/sysctl.d to keep it)", settings.join(" "));
    let packets = receive.granted_bytes / DATAGRAM_BYTES;
    let consequence = if receive.granted_bytes < RECEIVE_BUFFER_SMALL {
        format!("; {packets} datagrams fill it: bursts will be lost")
    } else if short(receive) {
        format!("; {packets} datagrams fill it")
    } else {
        String::new()
    };
    Check::warning(NAME, format!("{seen}{consequence}"), advice)
}

/// Tells the calls by which datagrams reach the kernel.
pub(super) fn layer(layer: SocketLayer) -> Check {
    let seen = match layer {
        SocketLayer::Linux => "linux: batches of datagrams, times and drops by the kernel",
        SocketLayer::Portable => "portable: a datagram per call, no count of the kernel's drops",
    };
    Check::ok("socket layer", seen)
}

const fn kib(bytes: usize) -> usize {
    bytes >> 10
}

/// Entry of an interface in `/proc/net/igmp` or `/proc/net/igmp6`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memberships {
    /// Version of the kernel on the interface, IGMP 1 to 3 or MLD 1 to 2: forced, or the lowest version of
    /// recent queries. `None` if unknown.
    pub version: Option<u8>,
    /// Number of joined groups.
    pub groups: Vec<IpAddr>,
}

/// Reads `/proc/net/igmp`. Groups are hexadecimal, in network order read as a number of this machine.
pub(super) fn igmp(text: &str, interface: &str) -> Memberships {
    let mut memberships = Memberships::default();
    let mut is_ours = false;
    for line in text.lines().skip(1) {
        let words = line.split_whitespace().collect::<Vec<_>>();
        if line.starts_with(char::is_whitespace) {
            let group = words.first().and_then(|word| u32::from_str_radix(word, 16).ok());
            if let (true, Some(group)) = (is_ours, group) {
                memberships.groups.push(Ipv4Addr::from(group.to_ne_bytes()).into());
            }
        } else {
            // `4 eth0 : 1 V3`; no blank precedes the colon after a long name.
            is_ours = words.get(1).is_some_and(|name| name.trim_end_matches(':') == interface);
            if is_ours {
                let version = words.last().and_then(|word| word.strip_prefix('V'));
                memberships.version = version.and_then(|version| version.parse().ok());
            }
        }
    }
    memberships
}

/// Reads `/proc/net/igmp6`: `4 eth0 ff0200...01 1 0000000C 0`. The version follows from the flags of `group`
/// if one socket has joined the group: in MLDv1 the kernel marks a group that is reported
/// (`MAF_LAST_REPORTER` of the kernel's `if_inet6.h`).
pub(super) fn igmp6(text: &str, interface: &str, group: IpAddr) -> Memberships {
    const LAST_REPORTER: u32 = 2;
    let mut memberships = Memberships::default();
    for line in text.lines() {
        let words = line.split_whitespace().collect::<Vec<_>>();
        let [_, name, address, users, flags, ..] = words[..] else { continue };
        let Some(address) = u128::from_str_radix(address, 16).ok().filter(|_| name == interface) else {
            continue;
        };
        let address = IpAddr::from(Ipv6Addr::from(address));
        memberships.groups.push(address);
        if address == group && users == "1" {
            let flags = u32::from_str_radix(flags, 16).ok();
            memberships.version = flags.map(|flags| if flags & LAST_REPORTER == 0 { 2 } else { 1 });
        }
    }
    memberships
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Verdict;

    fn facts() -> Facts {
        Facts {
            is_ipv4: true,
            is_source_specific: true,
            memberships_max: Some(20),
            sources_max: Some(10),
            optmem_max: Some(131_072),
            forced_version: 0,
            joined: Memberships { version: Some(3), groups: Vec::new() },
            channels: (256, 55),
        }
    }

    #[test]
    fn a_session_of_many_rates_needs_groups_above_its_own() {
        assert_eq!(memberships("eth0", &Facts { channels: (55, 55), ..facts() }).verdict, Verdict::Ok);
        let check = memberships("eth0", &Facts { channels: (6, 55), ..facts() });
        assert_eq!(check.verdict, Verdict::Warning);
        assert!(check.seen.contains("only 6 groups") && check.advice.unwrap().contains("takes 55"));
    }

    #[test]
    fn source_specific_groups_need_igmp_3() {
        let check = memberships("eth0", &facts());
        assert_eq!(
            (check.verdict, check.seen.as_str()),
            (Verdict::Ok, "IGMPv3, 0 groups joined here, up to 20 per socket")
        );
        let forced = memberships("eth0", &Facts { forced_version: 2, ..facts() });
        assert_eq!(forced.verdict, Verdict::Problem);
        let advice = forced.advice.unwrap();
        assert!(advice.contains("net.ipv4.conf.eth0.force_igmp_version=0"), "{advice}");
        let joined = Memberships { version: Some(2), groups: Vec::new() };
        let old = Facts { joined, ..facts() };
        assert_eq!(memberships("eth0", &old).verdict, Verdict::Warning);
        assert_eq!(memberships("eth0", &Facts { is_source_specific: false, ..old }).verdict, Verdict::Ok);
        assert_eq!(
            memberships("eth0", &Facts { memberships_max: Some(0), ..facts() }).verdict,
            Verdict::Problem
        );
    }

    #[test]
    fn mld_2_names_sources_too() {
        let ipv6 = Facts { is_ipv4: false, ..facts() };
        assert_eq!(memberships("eth0", &Facts { forced_version: 2, ..ipv6.clone() }).verdict, Verdict::Ok);
        assert_eq!(memberships("eth0", &Facts { forced_version: 1, ..ipv6 }).verdict, Verdict::Problem);
    }

    #[test]
    fn short_buffers_name_the_setting() {
        let full = BufferSize { asked_bytes: 4 << 20, granted_bytes: 4 << 20 };
        let tiny = BufferSize { granted_bytes: 106_496, ..full };
        assert_eq!(buffers(full, full).verdict, Verdict::Ok);
        let check = buffers(tiny, full);
        assert_eq!(check.verdict, Verdict::Warning);
        assert!(check.seen.contains("46 datagrams fill it: bursts will be lost"), "{}", check.seen);
        let advice = check.advice.unwrap();
        assert!(advice.contains("net.core.rmem_max=4194304") && !advice.contains("wmem_max"), "{advice}");
        assert!(buffers(full, tiny).advice.unwrap().contains("wmem_max"));
    }
}

#[cfg(test)]
mod system_tests {
    use super::*;

    #[test]
    fn memberships_of_an_interface_are_read() {
        let group = u32::from_ne_bytes([239, 255, 72, 87]);
        let text = format!(
            "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n1\tlo        :     1      V3\n\
             \t\t\t\t010000E0     1 0:00000000\t\t0\n4\teth0      :     2      V2\n\
             \t\t\t\t{group:08X}     1 0:00000000\t\t0\nbroken\n5\tlongest-name-ever:     1      V3\n"
        );
        let eth0 = igmp(&text, "eth0");
        assert_eq!(eth0.version, Some(2));
        assert_eq!(eth0.groups, ["239.255.72.87".parse::<IpAddr>().unwrap()]);
        assert_eq!(igmp(&text, "longest-name-ever").version, Some(3));
        assert_eq!(igmp(&text, "eth1"), Memberships::default());
        let text = "1 lo ff020000000000000000000000000001 1 0000000C 0\n4 eth0 ff150000000000000000000000004857 1 4 0\n";
        let group = "ff15::4857".parse::<IpAddr>().unwrap();
        let eth0 = igmp6(text, "eth0", group);
        assert_eq!((eth0.groups, eth0.version), (vec![group], Some(2)));
        assert_eq!(igmp6(&text.replace(" 4 0", " 00000007 220"), "eth0", group).version, Some(1));
        assert_eq!(igmp6(&text.replace(" 1 4 0", " 2 00000007 220"), "eth0", group).version, None);
    }
}
