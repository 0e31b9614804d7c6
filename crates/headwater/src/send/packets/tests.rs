//! Packet sizes that sessions choose.

use headwater_proto::auth::TREES_RATE;
use headwater_wire::extensions::{Extensions, Levels, Members};
use headwater_wire::{Cci, PayloadId, alc};

use super::*;

#[test]
fn symbols_fit_the_mtu() {
    for (mtu, ipv4, ipv6) in [
        (Some(1_500), 1_408, 1_408),
        (Some(1_400), 1_344, 1_280),
        (Some(1_280), 1_216, 1_152),
        (Some(9_000), 1_408, 1_408),
        (Some(65_536), 1_408, 1_408),
        (Some(68), 64, 64),
        (None, 1_408, 1_408),
    ] {
        assert_eq!((symbol_size_for(mtu, 52), symbol_size_for(mtu, 72)), (ipv4, ipv6), "{mtu:?}");
    }
}

#[test]
fn the_longest_header_of_a_file_fits_its_room() {
    let levels = Levels { ceiling: 3, demand: None };
    let members = Members { exponent: 3, is_awaiting: true, is_quick: false, count: 40 };
    let header = alc::Repr {
        tsi: u32::MAX.into(),
        toi: Some(u32::MAX.into()),
        close_session: false,
        close_object: false,
        psi: 0,
        codepoint: 6,
        cci: Cci::ZERO,
        extensions: Extensions { levels: Some(levels), members: Some(members), ..Extensions::default() },
        payload_id: Some(PayloadId { sbn: 0, esi: 0 }),
    };
    assert_eq!(header.emit(&mut [0; 64]), Ok(usize::from(Headers::FILES.longest)));
}

#[test]
fn signed_and_encrypted_packets_fit_the_mtu_under_each_control() {
    let rate = Rate::from_kilobits(50_000);
    let layers = crate::LayerOptions::new();
    let controls = [
        CongestionControl::Fixed { rate },
        CongestionControl::M2c(layers),
        CongestionControl::Webrc(layers),
        CongestionControl::FlidDl(layers),
        CongestionControl::LeSbcc(crate::pgm::LeSbccOptions::new()),
        CongestionControl::Rainbow(RainbowOptions::new()),
        CongestionControl::Sim(crate::SimOptions::new()),
        CongestionControl::Sim(crate::SimOptions::new().with_max_rate(TREES_RATE)),
        CongestionControl::Rainbow(RainbowOptions::new().with_max_rate(Some(TREES_RATE))),
    ];
    for control in &controls {
        for (headers, path_bytes, mtu, is_signed, is_encrypted) in [Headers::FILES, Headers::BUFFERS]
            .into_iter()
            .flat_map(|headers| [28, 48].map(|path_bytes| (headers, path_bytes)))
            .flat_map(|(headers, path)| [576, 1_280, 1_400, 1_500].map(|mtu| (headers, path, mtu)))
            .flat_map(|(headers, path, mtu)| {
                [(false, false), (true, false), (false, true), (true, true)]
                    .map(|(is_signed, is_encrypted)| (headers, path, mtu, is_signed, is_encrypted))
            })
        {
            let packets = PacketOptions {
                congestion_control: control,
                tsi: Some(7),
                symbol_size: None,
                is_beside_requests: false,
                is_signed,
                is_encrypted,
            };
            let Ok(planned) = PacketPlan::new(packets, headers, path_bytes, Some(mtu), "eth0") else {
                continue;
            };
            let trees = if control.has_trees() { TREE_BYTES } else { 0 };
            let signed = if is_signed { signed_bytes(control.is_on_request()) + trees } else { 0 };
            let signed = signed + if is_encrypted { ENCRYPTED_BYTES } else { 0 };
            let longest = planned.symbol_size + headers.longest + control.added_bytes();
            let longest = u32::from(longest) + path_bytes + u32::try_from(signed).unwrap();
            assert!(longest <= mtu, "{}: {longest} bytes in {mtu}", control.name());
            let is_wasteful = planned.symbol_size < 1_408 && longest + 64 <= mtu;
            assert!(!is_wasteful, "{}: {longest} bytes in {mtu}", control.name());
        }
    }
}

#[test]
fn symbols_beside_a_source_on_request_have_its_size() {
    let (request, layers) =
        (CongestionControl::Rainbow(RainbowOptions::default()), crate::LayerOptions::new());
    for control in [CongestionControl::M2c(layers), CongestionControl::Webrc(layers)] {
        for (is_signed, is_encrypted) in [(false, false), (true, false), (true, true)] {
            let size = |congestion_control, is_beside_requests, path_bytes| {
                let packets = PacketOptions {
                    congestion_control,
                    tsi: Some(7),
                    symbol_size: None,
                    is_beside_requests,
                    is_signed,
                    is_encrypted,
                };
                let planned = PacketPlan::new(packets, Headers::FILES, path_bytes, Some(1_500), "eth0");
                planned.expect("symbols that fit").symbol_size
            };
            assert_eq!(size(&control, true, 28), size(&request, false, 48), "{control:?}, {is_signed}");
        }
    }
}
