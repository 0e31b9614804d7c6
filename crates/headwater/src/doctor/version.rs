//! Check of the version of IGMP or MLD that is spoken here, and of what follows from an old one: IGMPv2 and
//! MLDv1 name no sources in joins (RFC 2236, RFC 2710).

use super::check::Check;

const NAME: &str = "version";

/// Facts for the check of the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VersionFacts<'a> {
    pub interface: &'a str,
    pub is_ipv4: bool,
    /// `force_igmp_version` or `force_mld_version`; 0 if unset.
    pub forced: u64,
    /// Version by which the kernel reported before listening, and reports now; `None` if unknown.
    pub before: Option<u8>,
    pub now: Option<u8>,
    /// Version of a received query.
    pub querier: Option<u8>,
}

impl VersionFacts<'_> {
    /// Returns the newest version, and the setting that forces another one.
    fn newest(&self) -> (u8, String) {
        let interface = self.interface;
        if self.is_ipv4 {
            (3, format!("net.ipv4.conf.{interface}.force_igmp_version"))
        } else {
            (2, format!("net.ipv6.conf.{interface}.force_mld_version"))
        }
    }
}

/// Checks the version, and names the consequences of an old version.
pub(super) fn judge(facts: &VersionFacts<'_>) -> Check {
    let VersionFacts { is_ipv4, forced, before, now, querier, .. } = *facts;
    let protocol = if is_ipv4 { "IGMP" } else { "MLD" };
    let (newest, setting) = facts.newest();
    let forced = u8::try_from(forced).ok().filter(|version| *version != 0);
    // Unless forced, the kernel reports by the lowest version of recent queries.
    let Some(spoken) = forced.or(now.into_iter().chain(querier).min()) else {
        return Check::unknown(
            NAME,
            format!("the kernel does not tell which version of {protocol} it speaks"),
            "listen to the querier: run this as root",
        );
    };
    if let Some(asked) = querier.filter(|asked| *asked < spoken) {
        return Check::warning(
            NAME,
            format!(
                "{protocol}v{spoken}, but the network asks by {protocol}v{asked} and may ignore reports of a newer version"
            ),
            format!("report by the version of the network: sysctl -w {setting}={asked}"),
        );
    }
    if spoken >= newest {
        return Check::ok(NAME, format!("{protocol}v{spoken}, whose joins name sources"));
    }
    let reason = match (forced, querier) {
        (Some(_), Some(asked)) if asked > spoken => {
            format!("forced here, while the network asks by v{asked}")
        }
        (Some(_), _) => "forced here".to_owned(),
        (None, _) => "as the network asks".to_owned(),
    };
    let unforced = match (forced, querier) {
        (Some(_), Some(asked)) if asked > spoken => format!("unset {setting}; otherwise "),
        _ => String::new(),
    };
    let forcing = if forced.is_none() && before.is_some_and(|before| before > spoken) {
        format!(
            "; the joins before the first query are reported by v{newest}, which the network may ignore: sysctl -w {setting}={spoken}"
        )
    } else {
        String::new()
    };
    Check::warning(
        NAME,
        format!(
            "{protocol}v{spoken} ({reason}): joins name no source, so that packets of any sender to the group come here, also with \
             --source, and a leave takes 2 s or more"
        ),
        format!(
            "{unforced}give each session a group of its own, and name its key (--trust); clouds limit the number of groups (Google Cloud: \
             500 in a domain): send --groups 32{forcing}"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Verdict;

    fn facts() -> VersionFacts<'static> {
        VersionFacts {
            interface: "eth0",
            is_ipv4: true,
            forced: 0,
            before: Some(3),
            now: Some(3),
            querier: None,
        }
    }

    #[test]
    fn an_old_version_is_named_with_its_consequences() {
        let check = judge(&facts());
        assert_eq!((check.verdict, check.seen.as_str()), (Verdict::Ok, "IGMPv3, whose joins name sources"));
        let heard = judge(&VersionFacts { before: Some(2), now: Some(2), querier: Some(2), ..facts() });
        assert_eq!(heard.verdict, Verdict::Warning);
        assert!(
            heard.seen.starts_with("IGMPv2 (as the network asks): joins name no source"),
            "{}",
            heard.seen
        );
        let advice = heard.advice.unwrap();
        assert!(advice.contains("--trust") && advice.contains("--groups 32"), "{advice}");
        assert!(!advice.contains("sysctl"), "{advice}");
        let mld = VersionFacts { is_ipv4: false, before: Some(1), now: Some(1), ..facts() };
        assert!(judge(&mld).seen.starts_with("MLDv1 (as the network asks)"));
        assert_eq!(judge(&VersionFacts { now: Some(2), ..mld }).verdict, Verdict::Ok);
    }

    #[test]
    fn joins_before_the_first_query_need_a_forced_version() {
        let advice = judge(&VersionFacts { now: Some(2), querier: Some(2), ..facts() }).advice.unwrap();
        assert!(advice.contains("sysctl -w net.ipv4.conf.eth0.force_igmp_version=2"), "{advice}");
        let mismatch = judge(&VersionFacts { forced: 3, querier: Some(2), ..facts() });
        assert_eq!(mismatch.verdict, Verdict::Warning);
        assert!(mismatch.advice.unwrap().contains("force_igmp_version=2"));
    }

    #[test]
    fn a_forced_version_in_a_newer_network_is_told() {
        let check = judge(&VersionFacts { forced: 2, now: Some(2), querier: Some(3), ..facts() });
        assert!(check.seen.contains("forced here, while the network asks by v3"), "{}", check.seen);
        assert!(check.advice.unwrap().starts_with("unset net.ipv4.conf.eth0.force_igmp_version"));
        let unknown = VersionFacts { is_ipv4: false, before: None, now: None, ..facts() };
        assert_eq!(judge(&unknown).verdict, Verdict::Unknown);
        assert!(judge(&VersionFacts { querier: Some(1), ..unknown }).seen.starts_with("MLDv1"));
    }
}
