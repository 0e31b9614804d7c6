//! The combinations of switches that simulators and kernels came with, by name.

use core::fmt;
use core::str::FromStr;

use headwater_proto::Duration;

use super::{AckPolicy, Config, CutFrom, Growth, Reduction, RttSampling, SackPipe, Variant};

/// A TCP of a certain time and place. Papers rarely name theirs: run a claim under two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// ns-2 before May 2001: ticks of 100 ms, initial window 1, no SYN, packet sizes on the wire.
    Ns1999,
    /// ns-2 between: minimum timeout 1 s, Limited Transmit, 40 bytes of headers.
    Ns2002,
    /// ns-2.3x: minimum timeout 0.2 s, fractional cuts.
    Ns2005,
    /// Today's RFCs (5681, 6298, 6582, 6675, 3042, 6928): minimum timeout 1 s, initial window 10.
    Rfc,
    /// Linux with Reno: timestamps, delayed acknowledgements after immediate ones at the start, a timeout of
    /// at least SRTT + 0.2 s, growth by acknowledged segments. Link headers are not counted.
    Linux,
    /// [`Self::Linux`] with loss detection by time (RFC 8985), which Linux has used by default since 4.18.
    Linux6,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 6] =
        [Self::Ns1999, Self::Ns2002, Self::Ns2005, Self::Rfc, Self::Linux, Self::Linux6];

    /// Name in plans.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ns1999 => "ns1999",
            Self::Ns2002 => "ns2002",
            Self::Ns2005 => "ns2005",
            Self::Rfc => "rfc",
            Self::Linux => "linux",
            Self::Linux6 => "linux6",
        }
    }

    /// Switches of the profile. The variant is `NewReno` for ns-2 and `Sack` for the rest.
    pub fn config(self) -> Config {
        match self {
            Self::Ns1999 => ns1999(),
            Self::Ns2002 => ns2002(),
            Self::Ns2005 => ns2005(),
            Self::Rfc => rfc(),
            Self::Linux => linux(),
            Self::Linux6 => Config { rack: true, ..linux() },
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Self, UnknownProfile> {
        Self::ALL
            .into_iter()
            .find(|profile| profile.name() == name)
            .ok_or_else(|| UnknownProfile(name.to_owned()))
    }
}

/// No profile has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownProfile(pub String);

impl fmt::Display for UnknownProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Profile::ALL.map(Profile::name).join(", ");
        write!(f, "no TCP profile is called {:?}; there are {names}", self.0)
    }
}

impl core::error::Error for UnknownProfile {}

fn ns1999() -> Config {
    Config {
        variant: Variant::NewReno,
        segment_bytes: 512,
        header_bytes: 0,
        ack_bytes: 40,
        initial_window: 1,
        maximum_window: 20,
        syn_exchange: false,
        limited_transmit: false,
        cut_from: CutFrom::Window,
        integer_cut: true,
        growth: Growth::Reno,
        byte_counting: false,
        exit_to_flight: false,
        exit_growth: true,
        sack_pipe: SackPipe::Estimate,
        reduction: Reduction::AtOnce,
        rack: false,
        tick: Duration::from_millis(100),
        rto_initial: Duration::from_secs(6),
        rto_minimum: Duration::from_millis(200),
        rto_maximum: Duration::from_secs(64),
        rto_variance_minimum: Duration::ZERO,
        rtt_sampling: RttSampling::OneAtATime,
        ecn: false,
        overhead: Duration::ZERO,
        acks: AckPolicy::EVERY_PACKET,
    }
}

fn ns2002() -> Config {
    Config {
        segment_bytes: 1000,
        header_bytes: 40,
        initial_window: 2,
        syn_exchange: true,
        limited_transmit: true,
        tick: Duration::from_millis(10),
        rto_initial: Duration::from_secs(3),
        rto_minimum: Duration::from_secs(1),
        rto_maximum: Duration::from_secs(60),
        ..ns1999()
    }
}

fn ns2005() -> Config {
    Config { rto_minimum: Duration::from_millis(200), integer_cut: false, ..ns2002() }
}

fn rfc() -> Config {
    Config {
        variant: Variant::Sack,
        initial_window: 10,
        // A window field without scaling would hold 44 segments of 1460 bytes; RFC 7323 lifts that.
        maximum_window: 1024,
        cut_from: CutFrom::FlightSize,
        integer_cut: false,
        exit_to_flight: true,
        exit_growth: false,
        sack_pipe: SackPipe::Scoreboard,
        tick: Duration::from_millis(1),
        rto_initial: Duration::from_secs(1),
        rto_minimum: Duration::from_secs(1),
        acks: AckPolicy::DELAYED,
        ..ns2002()
    }
}

fn linux() -> Config {
    Config {
        segment_bytes: 1448,
        // IP 20, TCP 20, timestamps 12.
        header_bytes: 52,
        ack_bytes: 52,
        cut_from: CutFrom::Window,
        integer_cut: true,
        byte_counting: true,
        reduction: Reduction::Proportional,
        tick: Duration::from_micros(1),
        rto_minimum: Duration::from_millis(200),
        rto_maximum: Duration::from_secs(120),
        rto_variance_minimum: Duration::from_millis(200),
        rtt_sampling: RttSampling::EveryAck,
        acks: AckPolicy { every: 2, delay: Duration::from_millis(40), quick: 16 },
        ..rfc()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for profile in Profile::ALL {
            assert_eq!(profile.name().parse(), Ok(profile));
        }
        let error = "ns2010".parse::<Profile>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "no TCP profile is called \"ns2010\"; there are ns1999, ns2002, ns2005, rfc, linux, linux6"
        );
    }
}
