//! The interface, the routes, the MTU and the scope of the group.
//!
//! Reverse path filtering: the kernel silently drops packets from a source whose route leads through another
//! interface.

use std::net::IpAddr;

use super::check::Check;
use super::limits;
use crate::net::{Interface, InterfaceError};
use crate::send::symbol_size_within;

/// Minimum MTU for symbols of the default size with all headers: the MTU of Ethernet.
const MTU_DEFAULT: u32 = 1_500;
/// Minimum MTU of IPv6 (RFC 8200 section 5), which suffices for symbols of 1024 bytes.
const MTU_SMALL: u32 = 1_280;

/// Result of a look-up in the kernel's routing table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Through this interface.
    Through(String),
    /// To this machine.
    Loopback,
    /// No route.
    None,
}

/// Looks up the route to a destination.
pub(super) fn route_to(destination: IpAddr) -> Route {
    match Interface::default_for(destination) {
        Ok(interface) => Route::Through(interface.name),
        Err(InterfaceError::OnlyLoopback { .. }) => Route::Loopback,
        Err(_) => Route::None,
    }
}

/// Checks that the interface can carry the group. `carrier`: the state of the link, if known.
pub(super) fn interface(interface: &Interface, is_ipv4: bool, carrier: Option<bool>) -> Check {
    const NAME: &str = "interface";
    let name = &interface.name;
    let seen = interface.to_string();
    let family = if is_ipv4 { "IPv4" } else { "IPv6" };
    let has_address = interface.addresses.iter().any(|address| address.is_ipv4() == is_ipv4);
    if !interface.up {
        return Check::problem(NAME, seen, format!("bring it up: ip link set dev {name} up"));
    }
    if !has_address {
        let example = if is_ipv4 { "192.0.2.10/24" } else { "fd00::10/64" };
        let advice = format!("give it an {family} address: ip address add {example} dev {name}");
        return Check::problem(NAME, format!("{seen}: no {family} address"), advice);
    }
    if !interface.multicast && !interface.loopback {
        let advice = format!("ip link set dev {name} multicast on; a tunnel may need another type");
        return Check::problem(NAME, format!("{seen}: does not carry multicast"), advice);
    }
    if carrier == Some(false) {
        let advice = "plug in the cable, join the wireless network, or bring up the other end of the link";
        return Check::problem(NAME, format!("{seen}: no link"), advice);
    }
    let check = Check::ok(NAME, seen);
    if interface.loopback {
        check.with_advice("only programs on this machine hear each other here")
    } else {
        check
    }
}

/// Returns the check of a missing interface.
pub(super) fn no_interface(error: &InterfaceError) -> Check {
    let others = || match Interface::list() {
        Ok(interfaces) if !interfaces.is_empty() => {
            let list = interfaces.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            format!("name one with --interface: {list}")
        }
        _ => "name one with --interface".to_owned(),
    };
    match error {
        InterfaceError::Unknown { wanted, .. } => {
            Check::problem("interface", format!("nothing has the name or address '{wanted}'"), others())
        }
        InterfaceError::Down { name } => Check::problem(
            "interface",
            format!("{name} is down"),
            format!("bring it up: ip link set dev {name} up"),
        ),
        InterfaceError::OnlyLoopback { group, name, .. } => Check::problem(
            "route",
            format!("the route to {group} leads to {name}, which reaches this machine only"),
            others(),
        ),
        InterfaceError::NoRoute { group, .. } => Check::problem(
            "route",
            format!("the routing table has no route to {group}"),
            match able_to_multicast() {
                Some(name) => format!("{}; or add a route: {}", others(), route_command(*group, &name)),
                None => others(),
            },
        ),
        other => Check::problem("interface", other.to_string(), others()),
    }
}

/// Returns the first interface that is up, carries multicast and is not loopback.
fn able_to_multicast() -> Option<String> {
    let able = |interface: &Interface| interface.up && interface.multicast && !interface.loopback;
    Interface::list().ok()?.into_iter().find(able).map(|interface| interface.name)
}

/// Checks the route to the group. `is_named`: the user chose the interface.
pub(super) fn route(group: IpAddr, chosen: &Interface, is_named: bool, found: &Route) -> Check {
    const NAME: &str = "route";
    let name = &chosen.name;
    match found {
        Route::Through(through) if through == name => Check::ok(NAME, format!("{group} leads to {name}")),
        Route::Loopback if chosen.loopback => Check::ok(NAME, format!("{group} leads to {name}")),
        Route::None if group.is_ipv6() => Check::problem(
            NAME,
            format!("no route to {group}: nothing can be sent to it"),
            format!("add one: {}", route_command(group, name)),
        ),
        _ if !is_named => Check::ok(NAME, format!("{group} leads to {name}")),
        Route::Through(through) => {
            Check::ok(NAME, format!("{group} leads to {through}, overruled by --interface {name}"))
                .with_advice(format!(
                    "give --interface {name} to every command here, or route the group: {}",
                    route_command(group, name)
                ))
        }
        Route::Loopback | Route::None => {
            Check::ok(NAME, format!("no route to {group}, but --interface {name} does without")).with_advice(
                format!(
                    "give --interface {name} to every command here, or add a route: {}",
                    route_command(group, name)
                ),
            )
        }
    }
}

/// Checks that the longest datagrams of a sender with default settings fit the MTU.
pub(super) fn mtu(interface: &Interface, mtu: Option<u32>, is_ipv4: bool) -> Check {
    const NAME: &str = "MTU";
    let name = &interface.name;
    let symbol_size = symbol_size_within(mtu, is_ipv4);
    match mtu {
        None => {
            Check::unknown(NAME, "the system does not tell", format!("look at it: ip link show dev {name}"))
        }
        Some(mtu) if mtu >= MTU_DEFAULT => Check::ok(NAME, format!("{mtu} bytes: symbols of 1344 bytes, signed, fit")),
        Some(mtu) if mtu >= MTU_SMALL => Check::ok(
            NAME,
            format!("{mtu} bytes: a sender here uses smaller symbols by itself"),
        )
        .with_advice(format!(
            "a sender elsewhere whose MTU is larger needs --symbol-size {symbol_size}, for longer packets are lost on their way in"
        )),
        Some(mtu) => Check::warning(
            NAME,
            format!("{mtu} bytes, less than any modern network has"),
            format!(
                "packets of senders with the usual 1500 are lost on their way in: ip link set dev {name} mtu 1500; or have senders \
                 send with --symbol-size {symbol_size}"
            ),
        ),
    }
}

/// Checks the scope of the group and the TTL.
pub(super) fn reach(group: IpAddr, ttl: u8) -> Check {
    const NAME: &str = "reach";
    let beyond = match ttl {
        1 => "TTL 1 (the default): packets stay on this network".to_owned(),
        ttl => format!("TTL {ttl}: packets may pass {} routers", ttl - 1),
    };
    match scope(group) {
        Scope::Host => Check::problem(
            NAME,
            format!("{group} never leaves a machine (RFC 4291 section 2.7)"),
            "choose a group that does, such as ff15::4857",
        ),
        Scope::Link => Check::warning(
            NAME,
            format!("{group} is for protocols of one link: no router passes it on, and switches flood it"),
            "choose another group, such as 239.255.72.87 or ff15::4857",
        ),
        Scope::Wider if ttl == 1 => Check::ok(NAME, beyond).with_advice(
            "receivers behind a router need a sender with --ttl 32, and multicast routing (PIM) on the way",
        ),
        Scope::Wider => {
            Check::ok(NAME, beyond).with_advice("every router on the way must route multicast (PIM)")
        }
    }
}

enum Scope {
    Host,
    Link,
    Wider,
}

/// Scope of a group (RFC 5771 section 4; RFC 4291 section 2.7).
fn scope(group: IpAddr) -> Scope {
    match group {
        IpAddr::V4(group) if group.octets()[..3] == [224, 0, 0] => Scope::Link,
        IpAddr::V4(_) => Scope::Wider,
        IpAddr::V6(group) => match group.octets()[1] & 0x0F {
            0 | 1 => Scope::Host,
            2 => Scope::Link,
            _ => Scope::Wider,
        },
    }
}

fn route_command(group: IpAddr, interface: &str) -> String {
    match group {
        IpAddr::V4(_) => format!("ip route add 224.0.0.0/4 dev {interface}"),
        IpAddr::V6(_) if interface == "lo" => "ip -6 route add local ff00::/8 dev lo table local".to_owned(),
        IpAddr::V6(_) => format!("ip -6 route add multicast ff00::/8 dev {interface} table local"),
    }
}

const NAME: &str = "reverse path";

/// Value of `net.ipv4.conf.*.rp_filter` (ip-sysctl.rst): the higher value of `all` and the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReversePathFilter {
    /// 0: no filter.
    Off,
    /// 1: the route to the source must lead through the same interface.
    Strict,
    /// 2: a route to the source must exist.
    Loose,
}

/// Facts for the check of the reverse path filter.
#[derive(Clone, Debug)]
pub(super) struct ReversePathFacts {
    /// Filter; `None` for IPv6, which has no such filter, or if unknown.
    pub filter: Option<ReversePathFilter>,
    /// Packets dropped by the filter since the start of the machine.
    pub dropped: Option<u64>,
    /// Expected source, and the route to the source.
    pub source: Option<(IpAddr, Route)>,
    /// Number of interfaces other than loopback that are up and have an address of the family.
    pub interfaces: usize,
}

/// Reads the filter of an interface.
pub(super) fn reverse_path_filter(interface: &Interface) -> Option<ReversePathFilter> {
    let value = |of: &str| limits::read_number(&format!("/proc/sys/net/ipv4/conf/{of}/rp_filter"));
    Some(match value("all").into_iter().chain(value(&interface.name)).max()? {
        0 => ReversePathFilter::Off,
        1 => ReversePathFilter::Strict,
        _ => ReversePathFilter::Loose,
    })
}

/// Returns the packets that the filter has dropped since the start of the machine.
pub(super) fn reverse_path_drops() -> Option<u64> {
    limits::netstat(&limits::text("/proc/net/netstat")?, "TcpExt", "IPReversePathFilter")
}

/// Checks the reverse path filter.
pub(super) fn judge_reverse_path(interface: &Interface, facts: &ReversePathFacts) -> Option<Check> {
    let filter = facts.filter?;
    let name = &interface.name;
    let loosen = format!("sysctl -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.{name}.rp_filter=2");
    let so_far = match facts.dropped {
        Some(dropped) if dropped > 0 => {
            format!("; {dropped} packets dropped by it since the start")
        }
        _ => String::new(),
    };
    let kind = match filter {
        ReversePathFilter::Off => return Some(Check::ok(NAME, "not filtered")),
        ReversePathFilter::Strict => "strict (rp_filter 1)",
        ReversePathFilter::Loose => "loose (rp_filter 2)",
    };
    if interface.loopback {
        return Some(Check::ok(NAME, format!("{kind}, does not matter on loopback")));
    }
    Some(match &facts.source {
        Some((source, Route::None)) => Check::problem(
            NAME,
            format!("{kind}, and there is no route back to {source}: its packets are dropped{so_far}"),
            format!(
                "add a route to {source} through {name}, or turn the filter off: sysctl -w \
                 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.{name}.rp_filter=0"
            ),
        ),
        Some((source, Route::Through(other))) if other != name && filter == ReversePathFilter::Strict => {
            Check::problem(
                NAME,
                format!(
                    "{kind}, but the way back to {source} is {other}: its packets on {name} are dropped{so_far}"
                ),
                format!("receive on {other}, or loosen the filter: {loosen}"),
            )
        }
        Some((source, _)) => Check::ok(NAME, format!("{kind}, and the way back to {source} agrees")),
        None if filter == ReversePathFilter::Strict && facts.interfaces > 1 => Check::warning(
            NAME,
            format!(
                "{kind} with {} networks: a sender that is routed elsewhere is dropped{so_far}",
                facts.interfaces
            ),
            format!("check with --source ADDR, or loosen the filter: {loosen}"),
        ),
        None => Check::ok(NAME, format!("{kind}, with one network{so_far}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Verdict;

    fn eth0() -> Interface {
        let address = [192, 0, 2, 1];
        Interface { ipv4: Some(address.into()), addresses: vec![address.into()], ..Interface::named("eth0") }
    }

    fn advice(check: Check) -> String {
        check.advice.unwrap_or_default()
    }

    #[test]
    fn an_interface_must_be_up_addressed_and_connected() {
        assert_eq!(interface(&eth0(), true, Some(true)).verdict, Verdict::Ok);
        assert_eq!(interface(&eth0(), true, None).verdict, Verdict::Ok);
        let down = interface(&Interface { up: false, ..eth0() }, true, None);
        assert_eq!(down.verdict, Verdict::Problem);
        assert!(advice(down).contains("ip link set dev eth0 up"));
        assert!(advice(interface(&eth0(), false, None)).contains("ip address add"));
        assert!(
            advice(interface(&Interface { multicast: false, ..eth0() }, true, None)).contains("multicast on")
        );
        assert!(interface(&eth0(), true, Some(false)).seen.contains("no link"));
    }

    #[test]
    fn a_route_is_needed_for_ipv6_and_where_no_interface_is_named() {
        let (v4, v6) = ("239.1.1.1".parse().unwrap(), "ff15::1".parse().unwrap());
        let through = |name: &str| Route::Through(name.to_owned());
        assert_eq!(route(v4, &eth0(), false, &through("eth0")).advice, None);
        assert!(advice(route(v4, &eth0(), true, &through("eth1"))).contains("--interface eth0"));
        assert_eq!(route(v4, &eth0(), true, &Route::None).verdict, Verdict::Ok);
        let none = route(v6, &eth0(), true, &Route::None);
        assert_eq!(none.verdict, Verdict::Problem);
        assert!(advice(none).contains("ip -6 route add multicast ff00::/8 dev eth0 table local"));
        let error = InterfaceError::NoRoute {
            group: v4,
            candidates: Vec::new(),
            source: std::io::ErrorKind::NetworkUnreachable.into(),
        };
        let unnamed = no_interface(&error);
        assert_eq!((unnamed.name, unnamed.verdict), ("route", Verdict::Problem));
        assert!(advice(unnamed).contains("--interface"));
    }

    #[test]
    fn small_mtus_are_told() {
        assert_eq!(mtu(&eth0(), Some(1_500), true).advice, None);
        assert!(advice(mtu(&eth0(), Some(1_400), true)).contains("--symbol-size 1216"));
        assert_eq!(mtu(&eth0(), Some(576), true).verdict, Verdict::Warning);
        assert_eq!(mtu(&eth0(), None, true).verdict, Verdict::Unknown);
    }

    #[test]
    fn groups_and_ttl_set_the_reach() {
        let verdict = |group: &str, ttl| reach(group.parse().unwrap(), ttl).verdict;
        assert_eq!(verdict("ff01::1", 1), Verdict::Problem);
        assert_eq!(verdict("224.0.0.9", 1), Verdict::Warning);
        assert_eq!(verdict("ff12::9", 1), Verdict::Warning);
        assert_eq!(verdict("239.255.72.87", 1), Verdict::Ok);
        assert!(reach("232.1.1.1".parse().unwrap(), 4).seen.contains("3 routers"));
        assert!(advice(reach("ff15::1".parse().unwrap(), 1)).contains("--ttl"));
    }
}

#[cfg(test)]
mod reverse_path_tests {
    use super::*;
    use crate::doctor::check::Verdict;

    fn verdict(filter: ReversePathFilter, source: Option<Route>, interfaces: usize) -> Verdict {
        let eth0 = Interface::named("eth0");
        let source = source.map(|route| ("192.0.2.7".parse().unwrap(), route));
        let facts = ReversePathFacts { filter: Some(filter), dropped: Some(3), source, interfaces };
        judge_reverse_path(&eth0, &facts).unwrap().verdict
    }

    #[test]
    fn only_a_filter_that_disagrees_is_a_problem() {
        let through = |name: &str| Some(Route::Through(name.to_owned()));
        assert_eq!(verdict(ReversePathFilter::Strict, through("eth0"), 2), Verdict::Ok);
        assert_eq!(verdict(ReversePathFilter::Strict, through("eth1"), 2), Verdict::Problem);
        assert_eq!(verdict(ReversePathFilter::Loose, through("eth1"), 2), Verdict::Ok);
        assert_eq!(verdict(ReversePathFilter::Loose, Some(Route::None), 2), Verdict::Problem);
        assert_eq!(verdict(ReversePathFilter::Off, Some(Route::None), 2), Verdict::Ok);
        assert_eq!(verdict(ReversePathFilter::Strict, None, 1), Verdict::Ok);
        assert_eq!(verdict(ReversePathFilter::Strict, None, 2), Verdict::Warning);
    }
}
