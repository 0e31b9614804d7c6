//! What the kernel writes into files of memberships.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) use crate::kernel_files::{netstat, number, text};

/// What `/proc/net/igmp` or `/proc/net/igmp6` says of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memberships {
    /// IGMP version that the kernel speaks there, 1 to 3: the lowest heard from a querier lately. `None` for
    /// MLD.
    pub igmp_version: Option<u8>,
    /// Groups joined.
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
            // `4 eth0 : 1 V3`; a long name swallows the blank before the colon.
            is_ours = words.get(1).is_some_and(|name| name.trim_end_matches(':') == interface);
            if is_ours {
                let version = words.last().and_then(|word| word.strip_prefix('V'));
                memberships.igmp_version = version.and_then(|version| version.parse().ok());
            }
        }
    }
    memberships
}

/// Reads `/proc/net/igmp6`: `4 eth0 ff0200...01 1 0000000C 0`.
pub(super) fn igmp6(text: &str, interface: &str) -> Memberships {
    let groups = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next()? == interface).then_some(())?;
        let group = u128::from_str_radix(words.next()?, 16).ok()?;
        Some(IpAddr::from(Ipv6Addr::from(group)))
    });
    Memberships { igmp_version: None, groups: groups.collect() }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(eth0.igmp_version, Some(2));
        assert_eq!(eth0.groups, ["239.255.72.87".parse::<IpAddr>().unwrap()]);
        assert_eq!(igmp(&text, "longest-name-ever").igmp_version, Some(3));
        assert_eq!(igmp(&text, "eth1"), Memberships::default());
        let text = "1 lo ff020000000000000000000000000001 1 0000000C 0\n4 eth0 ff150000000000000000000000004857 1 4 0\n";
        assert_eq!(igmp6(text, "eth0").groups, ["ff15::4857".parse::<IpAddr>().unwrap()]);
    }
}
