//! Check of a wireless interface, on which multicast is slow and unreliable: access points send groups at the
//! lowest basic rate, unacknowledged, and after beacons while any station sleeps (IEEE 802.11-2020, 11.2.3).

use super::check::Check;

const NAME: &str = "wireless";

/// Returns the check of a wireless interface.
pub(super) fn judge(interface: &str) -> Check {
    Check::warning(
        NAME,
        format!(
            "{interface} is wireless: most access points send multicast at their lowest rate (1 to 6 Mbit/s), without repeating lost \
             frames, and late while any station saves power"
        ),
        format!(
            "at the access point: multicast to unicast (DMS; on a Linux bridge: bridge link set dev PORT mcast_to_unicast on, with IGMP \
             snooping), and a higher lowest rate of multicast; here: iw dev {interface} set power_save off. Or receive by unicast: \
             headwater get, or receive --amt RELAY"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Verdict;

    #[test]
    fn a_wireless_interface_is_a_warning_with_remedies() {
        let check = judge("wlan0");
        assert_eq!(check.verdict, Verdict::Warning);
        let advice = check.advice.unwrap();
        assert!(advice.contains("mcast_to_unicast on") && advice.contains("dev wlan0 set power_save off"));
    }
}
