//! What is described is followed, at once and whatever it says.

use core::str::FromStr;

use headwater_wire::sim::Data;
use headwater_wire::{Cci, fdt};
use proptest::prelude::*;

use super::{DescribedReceiver, DescribedReceiverConfig, Description, DescriptionError};
use crate::control::{Arrival, Membership, ReceiverControl, SenderControl};
use crate::controls::{FIXED, FLID_DL, LE_SBCC, RAINBOW, SIM, WEBRC};
use crate::layering::path::SENDER;
use crate::layering::{DynamicConfig, Shape};
use crate::machine::{ChannelId, Destination, Ecn};
use crate::rate::Rate;
use crate::sim;
use crate::time::{Duration, Instant};

const BYTES: usize = 1_000;

fn layers() -> DynamicConfig {
    DynamicConfig::new(1_000, Rate::from_kilobits(4_000))
        .with_base_rate(Rate::from_kilobits(96))
        .with_quiescent_slots(5)
}

/// A path without delay, loss or limit: what a sender sends arrives on the channels held.
struct Bed {
    sender: Box<dyn SenderControl>,
    receiver: DescribedReceiver,
    held: Vec<ChannelId>,
    now: Instant,
}

impl Bed {
    fn new(description: Description, receiver: DescribedReceiverConfig) -> Self {
        let sender = description.sender(Instant::ZERO).expect("sound numbers");
        let mut bed =
            Self { sender, receiver: DescribedReceiver::new(receiver), held: Vec::new(), now: Instant::ZERO };
        bed.receiver.start(Instant::ZERO);
        bed.apply();
        bed
    }

    fn apply(&mut self) {
        while let Some(membership) = self.receiver.poll_membership() {
            match membership {
                Membership::Join(channel) => {
                    assert!(!self.held.contains(&channel), "joins what is not held");
                    self.held.push(channel);
                }
                Membership::Leave(channel) => {
                    assert!(self.held.contains(&channel), "leaves what is held");
                    self.held.retain(|held| *held != channel);
                }
            }
        }
    }

    fn until(&mut self, end: Instant) {
        while let Some(now) = self.sender.next_departure().filter(|at| *at < end) {
            self.now = now;
            let departure = self.sender.departure(now).unwrap();
            self.sender.departed(now, BYTES);
            self.receiver.timeout(now);
            self.apply();
            if self.held.contains(&departure.channel) {
                let ecn = Ecn::NotCapable;
                let arrival = Arrival {
                    source: SENDER.into(),
                    channel: departure.channel,
                    cci: &departure.cci,
                    ecn,
                    bytes: BYTES,
                    lateness: Duration::ZERO,
                };
                self.receiver.arrived(now, &arrival);
                self.apply();
            }
        }
    }

    fn describe(&mut self) {
        let control = self.sender.description();
        self.receiver.describe(self.now, control.as_ref()).unwrap();
        self.apply();
    }
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

#[test]
fn every_description_survives_the_table() {
    for config in [
        layers(),
        layers().with_ratio(0.8).with_slot(Duration::from_secs(8)).with_channels_per_slot(2),
        layers().with_constant_rate(true).with_stagger(false),
    ] {
        let description = Description::from(&config);
        let text = description.to_fdt().unwrap().to_string();
        let control = fdt::ControlAttributes::from_str(&text).unwrap();
        assert_eq!(Description::from_fdt(Some(&control)), Ok(description), "{text}");
    }
    let flid = "flid-dl packet-bytes=1000 base-rate=96000 max-rate=4000000 ratio-ppm=1400000 slot-ns=500000000 leave-ns=8000000000 deaf-slots=3";
    let control: fdt::ControlAttributes = flid.parse().unwrap();
    assert_eq!(Description::from_fdt(Some(&control)).unwrap().to_fdt(), Some(control));
    let facts =
        sim::Facts { session: 0x0012_3456, groups: 5, packet_bytes: 1_000, decrease: 0.75, selection: 12 };
    let sim = Description::from(&facts);
    assert_eq!((Description::from_fdt(sim.to_fdt().as_ref()), sim.control()), (Ok(sim), &SIM));
    let webrc = Description::from(&layers().with_shape(Shape::Webrc));
    assert_eq!((Description::from_fdt(webrc.to_fdt().as_ref()), webrc.control()), (Ok(webrc), &WEBRC));
    for control in [&LE_SBCC, &RAINBOW] {
        let bare = Description::new(control);
        assert_eq!(Description::from_fdt(bare.to_fdt().as_ref()), Ok(bare));
    }
    assert_eq!(Description::new(&FIXED).to_fdt(), None);
    assert_eq!(Description::from_fdt(None), Ok(Description::new(&FIXED)));
}

#[test]
fn what_cannot_be_followed_is_refused_by_name() {
    let control = fdt::ControlAttributes::new("tomorrow").unwrap();
    let refused = Description::from_fdt(Some(&control)).unwrap_err();
    assert_eq!(refused, DescriptionError::Unknown("tomorrow".into()));
    let text = Description::from(&layers()).to_fdt().unwrap().to_string();
    for (good, bad, name) in [
        ("ratio-ppm=750000", "ratio-ppm=0", "ratio-ppm"),
        ("packet-bytes=1000", "packet-bytes=0", "packet-bytes"),
        ("packet-bytes=1000", "packet-bytes=9001", "packet-bytes"),
        ("base-rate=96000", "base-rate=0", "base-rate"),
        ("constant=0", "constant=2", "constant"),
        (" max-rate=4000000", "", "max-rate"),
        ("channels-per-slot=1", "channels-per-slot=65536", "channels-per-slot"),
    ] {
        let control = text.replace(good, bad).parse().unwrap();
        assert_eq!(Description::from_fdt(Some(&control)), Err(DescriptionError::Parameter(name)), "{bad}");
    }
    let control = text.replace("slot-ns=10000000000", "slot-ns=5").parse().unwrap();
    assert!(matches!(Description::from_fdt(Some(&control)), Err(DescriptionError::Channels(_))));
}

#[test]
fn only_the_base_is_held_until_the_session_is_described() {
    let (base, max) = (Rate::from_kilobits(96), Rate::from_kilobits(4_000));
    for description in [
        Description::from(&layers()),
        Description::from(&layers().with_shape(Shape::Webrc)),
        Description::new(&FLID_DL).with_rates(1_000, base, max),
    ] {
        let mut bed = Bed::new(description, DescribedReceiverConfig::new());
        bed.until(at(3_000));
        assert_eq!(bed.held, [ChannelId::BASE]);
        let before = bed.receiver.reception();
        assert!(before.packets > 20);
        let name = bed.receiver.status(bed.now).name;
        assert_eq!(name, "unknown");
        bed.describe();
        assert_eq!(bed.receiver.reception(), before, "what came counts once");
        bed.until(at(20_000));
        assert!(bed.held.len() > 6, "{:?} {} channels", description.name(), bed.held.len());
        assert_eq!(bed.receiver.reception().lost, 0);
        let status = bed.receiver.status(bed.now);
        assert_eq!(status.name, description.name());
        assert_eq!(usize::from(status.channels), bed.held.len());
        assert!(status.fair_rate.is_some() && status.join_latency <= status.join_latency_max);
        bed.receiver.stop(bed.now);
        bed.apply();
        assert!(bed.held.is_empty());
    }
}

/// Without the last packet before the FDT, the next one of the base channel would have to be waited for.
#[test]
fn a_control_begins_with_what_has_come() {
    let mut bed = Bed::new(Description::from(&layers()), DescribedReceiverConfig::new());
    bed.until(at(1_001));
    bed.describe();
    // Base packets are 83 ms apart; the join needs 100 ms from the first one.
    bed.until(at(1_210));
    assert!(bed.held.len() > 1, "{:?}", bed.held);
}

#[test]
fn a_fixed_session_stays_as_it_is() {
    let mut receiver = DescribedReceiver::new(DescribedReceiverConfig::new());
    receiver.start(at(0));
    assert_eq!(receiver.poll_membership(), Some(Membership::Join(ChannelId::BASE)));
    receiver.describe(at(1), None).unwrap();
    assert_eq!(receiver.status(at(1)).name, "fixed");
    // The first description counts.
    receiver.describe(at(2), Description::from(&layers()).to_fdt().as_ref()).unwrap();
    assert_eq!(receiver.status(at(2)).name, "fixed");
    assert_eq!(receiver.poll_membership(), None);
}

#[test]
fn a_cap_is_kept() {
    let cap = Rate::from_kilobits(500);
    let mut bed =
        Bed::new(Description::from(&layers()), DescribedReceiverConfig::new().with_max_rate(Some(cap)));
    bed.until(at(500));
    bed.describe();
    bed.until(at(40_000));
    let before = bed.receiver.reception().packets;
    bed.until(at(140_000));
    let packets = bed.receiver.reception().packets - before;
    assert!((3_500..=6_250).contains(&packets), "{packets} packets of 8 kbit in 100 s");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever an FDT says and whatever then comes, nothing panics, and the channels held are of the
    /// session.
    #[test]
    fn any_description_and_any_packets_are_survived(
        name in 0..3_usize,
        (packet_bytes, ratio, slot) in (1..10_000_u64, 1..1_000_000_u64, any::<u64>()),
        (base, max) in (0..64_u32, 0..64_u32),
        (per_slot, quiescent, flags) in (0..4_u64, 0..300_u64, 0..4_u64),
        is_plausible in any::<bool>(),
        packets in prop::collection::vec((any::<[u8; 4]>(), 0..3_000_000_000_u64, any::<bool>()), 0..60),
    ) {
        let (slot, ratio) = match (is_plausible, name) {
            (true, 2) => (50_000_000 * (1 + slot % 60), 1_050_000 + ratio),
            (true, _) => (1_000_000_000 * (1 + slot % 60), 100_000 + ratio % 890_000),
            (false, _) => (slot, ratio),
        };
        let text = format!(
            "{} packet-bytes={packet_bytes} base-rate={} max-rate={} ratio-ppm={ratio} slot-ns={slot} \
             channels-per-slot={per_slot} quiescent-slots={quiescent} constant={} staggered={} \
             leave-ns={} deaf-slots={quiescent}",
            ["m2c", "webrc", "flid-dl"][name],
            1_u64 << base, 1_u64 << max, flags & 1, flags >> 1, 1 + quiescent * 100_000_000,
        );
        let control: fdt::ControlAttributes = text.parse().unwrap();
        let mut receiver = DescribedReceiver::new(DescribedReceiverConfig::new());
        receiver.start(Instant::ZERO);
        let mut held = std::collections::BTreeSet::new();
        let mut now = Instant::ZERO;
        for (index, (cci, wait, is_base)) in packets.into_iter().enumerate() {
            if index == 2 && receiver.describe(now, Some(&control)).is_err() {
                return Ok(());
            }
            now += Duration::from_nanos(wait);
            receiver.timeout(now);
            let cci = Cci::new(&cci).unwrap();
            let channel = ChannelId(u16::from(!is_base));
            let (source, ecn) = (SENDER.into(), Ecn::NotCapable);
            receiver.arrived(now, &Arrival { source, channel, cci: &cci, ecn, bytes: BYTES, lateness: Duration::ZERO });
            while let Some(membership) = receiver.poll_membership() {
                match membership {
                    Membership::Join(channel) => prop_assert!(held.insert(channel) && channel.0 < 256),
                    Membership::Leave(channel) => prop_assert!(held.remove(&channel)),
                }
            }
            let _status = receiver.status(now);
            prop_assert!(receiver.poll_timeout().is_none_or(|at| at + Duration::from_secs(1) > now));
        }
    }

    /// The same of SIM: what is written goes to who was heard, and to nobody else.
    #[test]
    fn any_session_of_sim_is_survived(
        (groups, packet_bytes, selection) in (0..70_u64, 0..9_500_u64, 0..20_u64),
        (decrease, session) in (400_000..1_100_000_u64, 0..0x0180_0000_u64),
        packets in prop::collection::vec((0..4_u8, 0..40_u16, any::<u32>(), 0..900_000_000_u64, any::<bool>()), 0..150),
    ) {
        let text = format!(
            "sim packet-bytes={packet_bytes} groups={groups} session={session} decrease-ppm={decrease} selection={selection}"
        );
        let is_sound = (1..=64).contains(&groups) && (1..=8_972).contains(&packet_bytes) && selection >= 2
            && session < 1 << 24 && (500_000..=990_000).contains(&decrease);
        let control: fdt::ControlAttributes = text.parse().unwrap();
        let mut receiver = DescribedReceiver::new(DescribedReceiverConfig::new());
        receiver.start(Instant::ZERO);
        prop_assert_eq!(receiver.describe(Instant::ZERO, Some(&control)).is_ok(), is_sound);
        let (mut now, mut held, mut buffer) = (Instant::ZERO, std::collections::BTreeSet::new(), [0; 9_000]);
        for (rank, request, stamp, wait, is_marked) in packets {
            now += Duration::from_nanos(wait);
            receiver.timeout(now);
            let cci = Data { rank, request: request.wrapping_sub(20), timestamp: stamp, sequence: stamp >> 9 }.to_cci();
            let ecn = if is_marked { Ecn::CongestionExperienced } else { Ecn::Capable0 };
            let (source, channel) = (SENDER.into(), ChannelId(rank.into()));
            receiver.arrived(now, &Arrival { source, channel, cci: &cci, ecn, bytes: BYTES, lateness: Duration::ZERO });
            while let Some(membership) = receiver.poll_membership() {
                match membership {
                    Membership::Join(channel) => prop_assert!(held.insert(channel) && u64::from(channel.0) < groups.max(1)),
                    Membership::Leave(channel) => prop_assert!(held.remove(&channel)),
                }
            }
            while let Some(transmit) = receiver.poll_transmit(now, &mut buffer) {
                prop_assert_eq!(transmit.destination, Destination::Unicast(SENDER.into()));
            }
            prop_assert!(!is_sound || receiver.poll_timeout().is_none_or(|due| due > now));
        }
        receiver.stop(now);
        let last = receiver.poll_transmit(now, &mut buffer);
        prop_assert!(last.is_none_or(|transmit| transmit.bytes == 8 && buffer[1] == 0), "it tells that it leaves");
    }
}
