//! Rules of the packet filter about UDP and IGMP, if readable.

use std::process::{Command, Stdio};

use super::check::Check;

const NAME: &str = "firewall";
/// Maximum number of rules to quote.
const RULES_MAX: usize = 3;

/// Rules of the packet filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    /// Output of `nft list ruleset`.
    Nft(String),
    /// Output of `iptables-save` or `ip6tables-save`.
    Iptables(String),
    /// The program that lists rules failed, mostly for lack of rights.
    Forbidden(&'static str),
    /// No program lists rules.
    NoProgram,
}

/// Reads the rules of a family.
pub(super) fn read(is_ipv4: bool) -> Rules {
    let iptables = if is_ipv4 { "iptables-save" } else { "ip6tables-save" };
    let mut forbidden = None;
    for (program, arguments) in [("nft", &["list", "ruleset"][..]), (iptables, &[])] {
        match listing(program, arguments) {
            Some(Ok(text)) if program == "nft" => return Rules::Nft(text),
            Some(Ok(text)) => return Rules::Iptables(text),
            Some(Err(())) => forbidden = forbidden.or(Some(program)),
            None => {}
        }
    }
    forbidden.map_or(Rules::NoProgram, Rules::Forbidden)
}

/// Runs a program, also from `/usr/sbin`, which is not in every path. `None`: no such program.
fn listing(program: &str, arguments: &[&str]) -> Option<Result<String, ()>> {
    for folder in ["", "/usr/sbin/", "/sbin/"] {
        let run = Command::new(format!("{folder}{program}")).args(arguments).stdin(Stdio::null()).output();
        if let Ok(output) = run {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            return Some(if output.status.success() { Ok(text) } else { Err(()) });
        }
    }
    None
}

/// Checks for rules that may drop datagrams of the session or membership messages.
pub(super) fn judge(rules: &Rules, port: u16, is_ipv4: bool) -> Check {
    let (text, program, dropping, advice) = match rules {
        Rules::Nft(text) => {
            let drops = nft_drops(text);
            let advice = allow_by_nft(port, is_ipv4, &drops);
            (text, "nft", drops.into_iter().map(|drop| drop.what).collect(), advice)
        }
        Rules::Iptables(text) => (text, "iptables", iptables_drops(text), allow_by_iptables(port, is_ipv4)),
        Rules::Forbidden(program) => {
            let look = if *program == "nft" { "nft list ruleset" } else { program };
            let advice = format!(
                "run this as root, or look yourself: sudo {look}; let in UDP port {port} and {}",
                queries(is_ipv4)
            );
            return Check::unknown(
                NAME,
                format!("{program} would not list the rules, which takes root"),
                advice,
            );
        }
        Rules::NoProgram => {
            let advice = format!(
                "where there is a firewall, also on the way, let in UDP port {port} and {}",
                queries(is_ipv4)
            );
            return Check::unknown(NAME, "no nft and no iptables here to list rules", advice);
        }
    };
    if dropping.is_empty() {
        let what = if text.trim().is_empty() { "no rules" } else { "no rule that drops UDP or IGMP" };
        return Check::ok(NAME, format!("{program}: {what}"));
    }
    let more = dropping.len().saturating_sub(RULES_MAX);
    let mut quoted = dropping[..dropping.len().min(RULES_MAX)].join("; ");
    if more > 0 {
        quoted.push_str(&format!("; and {more} more"));
    }
    Check::warning(NAME, format!("{program} drops: {quoted}"), advice)
}

fn queries(is_ipv4: bool) -> &'static str {
    if is_ipv4 { "IGMP" } else { "MLD (ICMPv6 types 130 to 132 and 143)" }
}

/// Returns rules that accept a session, for the start of each chain that drops packets.
fn allow_by_nft(port: u16, is_ipv4: bool, drops: &[NftDrop]) -> String {
    let protocol = if is_ipv4 { "igmp" } else { "ipv6-icmp" };
    let mut chains: Vec<&str> = drops.iter().map(|drop| drop.chain.as_str()).collect();
    chains.dedup();
    let rules = chains.iter().take(RULES_MAX).flat_map(|chain| {
        [format!("udp dport {port}"), format!("meta l4proto {protocol}")]
            .map(|what| format!("nft insert rule {chain} {what} accept"))
    });
    format!("unless earlier rules accept them, add: {}", rules.collect::<Vec<_>>().join("; "))
}

fn allow_by_iptables(port: u16, is_ipv4: bool) -> String {
    let (protocol, iptables) = if is_ipv4 { ("igmp", "iptables") } else { ("ipv6-icmp", "ip6tables") };
    format!(
        "unless earlier rules accept them, add: {iptables} -I INPUT -p udp --dport {port} -j ACCEPT; \
         {iptables} -I INPUT -p {protocol} -j ACCEPT"
    )
}

/// Rule or policy that may drop packets of a session.
struct NftDrop {
    /// Family, table and chain in the syntax of `nft`: `inet filter input`.
    chain: String,
    /// Description for people.
    what: String,
}

/// Returns rules and policies of input and output chains that may drop packets of a session.
fn nft_drops(text: &str) -> Vec<NftDrop> {
    let mut drops = Vec::new();
    let (mut table, mut chain) = ("", "");
    let mut is_hooked = false;
    for line in text.lines().map(str::trim) {
        let drop = |what: String| NftDrop { chain: format!("{table} {chain}"), what };
        if let Some(name) = line.strip_prefix("table ") {
            table = name.trim_end_matches('{').trim();
        } else if let Some(name) = line.strip_prefix("chain ") {
            chain = name.trim_end_matches('{').trim();
            is_hooked = false;
        } else if line.contains("hook ") {
            is_hooked = ["hook input", "hook output", "hook prerouting", "hook ingress"]
                .iter()
                .any(|hook| line.contains(hook));
            if is_hooked && line.contains("policy drop") {
                drops.push(drop(format!("chain {chain}, by its policy")));
            }
        } else if is_hooked && words(line).any(|word| ["drop", "reject"].contains(&word)) && concerns_us(line)
        {
            drops.push(drop(format!("chain {chain}, `{line}`")));
        }
    }
    drops
}

fn iptables_drops(text: &str) -> Vec<String> {
    let in_filter = text.lines().scan("", |table, line| {
        if let Some(name) = line.strip_prefix('*') {
            *table = name;
        }
        Some((*table, line))
    });
    let mut drops = Vec::new();
    for (_, line) in in_filter.filter(|(table, _)| *table == "filter") {
        for chain in ["INPUT", "OUTPUT"] {
            if line.starts_with(&format!(":{chain} DROP")) {
                drops.push(format!("chain {chain}, by its policy"));
            }
            let is_drop = line.contains("-j DROP") || line.contains("-j REJECT");
            if line.starts_with(&format!("-A {chain} ")) && is_drop && concerns_us(line) {
                drops.push(format!("`{line}`"));
            }
        }
    }
    drops
}

/// Whether a dropping rule may match UDP, IGMP or MLD.
fn concerns_us(rule: &str) -> bool {
    let other = ["tcp", "icmp", "invalid", "INVALID", "sctp", "esp"];
    !words(rule).any(|word| other.contains(&word))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| c.is_whitespace() || ",{}".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Verdict;

    const NFT: &str = "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy drop;\n\
        \t\tct state invalid drop\n\t\ttcp dport 22 accept\n\t\ttcp dport 23 drop\n\t\tip daddr 224.0.0.0/4 drop\n\t}\n\
        \tchain forward {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n";
    const IPTABLES: &str = "*nat\n:INPUT DROP [0:0]\nCOMMIT\n*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n\
        -A INPUT -p tcp -m tcp --dport 23 -j DROP\n-A INPUT -p udp -j DROP\n-A INPUT -j REJECT --reject-with icmp-port-unreachable\n\
        COMMIT\n";

    #[test]
    fn nft_policies_and_rules_on_our_way_are_told() {
        let drops: Vec<_> = nft_drops(NFT).into_iter().map(|drop| drop.what).collect();
        assert_eq!(drops, ["chain input, by its policy", "chain input, `ip daddr 224.0.0.0/4 drop`"]);
        let check = judge(&Rules::Nft(NFT.to_owned()), 7287, true);
        assert_eq!(check.verdict, Verdict::Warning);
        let advice = check.advice.unwrap();
        for rule in ["udp dport 7287 accept", "meta l4proto igmp accept"] {
            assert_eq!(
                advice.matches(&format!("nft insert rule inet filter input {rule}")).count(),
                1,
                "{advice}"
            );
        }
        assert_eq!(judge(&Rules::Nft(String::new()), 7287, true).verdict, Verdict::Ok);
    }

    #[test]
    fn iptables_rules_of_the_filter_table_are_told() {
        let drops = iptables_drops(IPTABLES);
        assert_eq!(drops.len(), 2, "{drops:?}");
        assert_eq!(drops[0], "`-A INPUT -p udp -j DROP`");
        let check = judge(&Rules::Iptables(IPTABLES.to_owned()), 7287, false);
        assert!(check.advice.unwrap().contains("ip6tables -I INPUT -p udp --dport 7287"));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        assert_eq!(judge(&Rules::NoProgram, 7287, true).verdict, Verdict::Unknown);
        let check = judge(&Rules::Forbidden("nft"), 7287, false);
        assert!(check.advice.unwrap().contains("root"));
    }
}
