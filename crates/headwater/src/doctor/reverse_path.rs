//! Reverse path filtering: the kernel drops, without a word, packets whose source it would not reach by the
//! same way.

use std::net::IpAddr;

use super::check::Check;
use super::host::Route;
use super::system;
use crate::net::Interface;

const NAME: &str = "reverse path";

/// `net.ipv4.conf.*.rp_filter` (ip-sysctl.rst): the higher of `all` and the interface's counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    /// 0: nothing is dropped.
    Off,
    /// 1: the route back must lead through the same interface.
    Strict,
    /// 2: there must be a route back.
    Loose,
}

/// What decides about a source.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// `None`: IPv6, which has no such filter, or the system does not tell.
    pub filter: Option<Filter>,
    /// Packets dropped by the filter since the machine started.
    pub dropped: Option<u64>,
    /// The source asked about, and the way back to it.
    pub source: Option<(IpAddr, Route)>,
    /// Interfaces other than loopback that are up and have an address of the family.
    pub interfaces: usize,
}

/// Reads the filter of an interface.
pub(super) fn filter_of(interface: &Interface) -> Option<Filter> {
    let value = |of: &str| system::number(&format!("/proc/sys/net/ipv4/conf/{of}/rp_filter"));
    Some(match value("all").into_iter().chain(value(&interface.name)).max()? {
        0 => Filter::Off,
        1 => Filter::Strict,
        _ => Filter::Loose,
    })
}

/// Packets that the filter has dropped since the machine started.
pub(super) fn dropped() -> Option<u64> {
    system::netstat(&system::text("/proc/net/netstat")?, "TcpExt", "IPReversePathFilter")
}

/// Whether the filter stands in the way.
pub(super) fn judge(interface: &Interface, facts: &Facts) -> Option<Check> {
    let filter = facts.filter?;
    let name = &interface.name;
    let loosen = format!("sysctl -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.{name}.rp_filter=2");
    let so_far = match facts.dropped {
        Some(dropped) if dropped > 0 => format!("; {dropped} packets dropped by it since the start"),
        _ => String::new(),
    };
    let kind = match filter {
        Filter::Off => return Some(Check::ok(NAME, "not filtered")),
        Filter::Strict => "strict (rp_filter 1)",
        Filter::Loose => "loose (rp_filter 2)",
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
        Some((source, Route::Through(other))) if other != name && filter == Filter::Strict => Check::problem(
            NAME,
            format!(
                "{kind}, but the way back to {source} is {other}: its packets on {name} are dropped{so_far}"
            ),
            format!("receive on {other}, or loosen the filter: {loosen}"),
        ),
        Some((source, _)) => Check::ok(NAME, format!("{kind}, and the way back to {source} agrees")),
        None if filter == Filter::Strict && facts.interfaces > 1 => Check::warning(
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

    fn verdict(filter: Filter, source: Option<Route>, interfaces: usize) -> Verdict {
        let eth0 = Interface::named("eth0");
        let source = source.map(|route| ("192.0.2.7".parse().unwrap(), route));
        let facts = Facts { filter: Some(filter), dropped: Some(3), source, interfaces };
        judge(&eth0, &facts).unwrap().verdict
    }

    #[test]
    fn only_a_filter_that_disagrees_is_a_problem() {
        let through = |name: &str| Some(Route::Through(name.to_owned()));
        assert_eq!(verdict(Filter::Strict, through("eth0"), 2), Verdict::Ok);
        assert_eq!(verdict(Filter::Strict, through("eth1"), 2), Verdict::Problem);
        assert_eq!(verdict(Filter::Loose, through("eth1"), 2), Verdict::Ok);
        assert_eq!(verdict(Filter::Loose, Some(Route::None), 2), Verdict::Problem);
        assert_eq!(verdict(Filter::Off, Some(Route::None), 2), Verdict::Ok);
        assert_eq!(verdict(Filter::Strict, None, 1), Verdict::Ok);
        assert_eq!(verdict(Filter::Strict, None, 2), Verdict::Warning);
    }
}
