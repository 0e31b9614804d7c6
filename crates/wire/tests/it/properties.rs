//! What is written is what is read, for any value; and no bytes make the parsers panic.
use headwater_wire::alc::{self, Repr};
use headwater_wire::extensions::{
    ContentEncoding, DemandEcho, Extensions, FdtExtension, Lateness, Levels, Members, Seq, Time,
};
use headwater_wire::fdt::{
    ControlAttributes, Entry, File, FileEncoding, FileTime, Headwater, Instance, OtiAttributes, Segment,
    StreamPart, Withdrawal,
};
use headwater_wire::fti::Ldpc;
use headwater_wire::rtt::LossClass;
use headwater_wire::{Cci, EncodingId, Fti, PayloadId, lct};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..ProptestConfig::with_cases(512)
    }
}

prop_compose! {
    fn ldpc()(
        (transfer_length, symbol_size) in (0..1u64 << 24, 1..=u16::MAX),
        (n1_minus3, g, seed) in (0..8u8, 1..32u8, 1..=0x7FFF_FFFEu32),
        (max_block, spare) in (1u32 << 14..1 << 19, 0u32..1 << 19),
    ) -> Ldpc {
        Ldpc { transfer_length, symbol_size, n1_minus3, g, max_block, max_symbols: max_block + spare, seed }
    }
}

/// Valid parameters of any scheme.
fn fti() -> impl Strategy<Value = Fti> {
    prop_oneof![
        (0..1u64 << 31, 1..=u16::MAX, 1u32 << 15..1 << 16).prop_map(
            |(transfer_length, symbol_size, max_block)| Fti::NoCode {
                transfer_length,
                symbol_size,
                max_block
            }
        ),
        (0..1u64 << 24, 1..=u16::MAX, 1..=255u8, 1..=127u16, 128..=255u16).prop_map(
            |(transfer_length, symbol_size, g, max_block, max_symbols)| Fti::ReedSolomonM {
                transfer_length,
                symbol_size,
                m: 8,
                g,
                max_block,
                max_symbols
            }
        ),
        ldpc().prop_map(Fti::LdpcStaircase),
        ldpc().prop_map(Fti::LdpcTriangle),
        (0..1u64 << 24, 1..=u16::MAX, 1..=127u8, 128..=255u8).prop_map(
            |(transfer_length, symbol_size, max_block, max_symbols)| Fti::ReedSolomon {
                transfer_length,
                symbol_size,
                max_block,
                max_symbols
            }
        ),
        (1..10_000u64, 1..=255u8, 1..=255u16).prop_map(|(symbols, alignment, units)| {
            let symbol_size = u16::from(alignment) * units;
            let transfer_length = symbols * u64::from(symbol_size);
            let blocks = u8::try_from(symbols.min(255)).expect("at most 255");
            Fti::RaptorQ { transfer_length, symbol_size, blocks, sub_blocks: units, alignment }
        }),
    ]
}

fn time() -> impl Strategy<Value = Time> {
    let word = of(any::<u32>());
    (of((any::<u32>(), word.clone())), word.clone(), word, any::<u8>()).prop_map(
        |(sct, expected_residual_time, session_last_changed, pi_specific)| Time {
            sct_high: sct.map(|(high, _)| high),
            sct_low: sct.and_then(|(_, low)| low),
            expected_residual_time,
            session_last_changed,
            pi_specific,
        },
    )
}

prop_compose! {
    fn extensions()(
        (time, fti) in (of(time()), of(fti())),
        fdt in of((0..16u8, 0..1u32 << 20)),
        content_encoding in of(any::<u8>()),
        seq in of(any::<(u16, u32)>()),
        levels in of((any::<u8>(), of((1..=DemandEcho::ROUND_MAX, any::<bool>(), any::<u8>(), any::<u8>())))),
        members in of((0..=Members::NO_PROGRESS, any::<bool>(), any::<bool>(), any::<u64>())),
        lateness in of(0..Lateness::CYCLE),
    ) -> Extensions {
        Extensions {
            auth: false,
            crypt: None,
            time,
            fti,
            fdt: fdt.map(|(version, instance_id)| FdtExtension { version, instance_id }),
            content_encoding: content_encoding.map(ContentEncoding::from),
            seq: seq.map(|(buffer, offset)| Seq { buffer, offset }),
            levels: levels.map(|(ceiling, echo)| Levels {
                ceiling,
                demand: echo.map(|(round, is_open, level, code)| {
                    let loss = LossClass::from_code(code);
                    DemandEcho { round, is_open, level, loss }
                }),
            }),
            lateness: lateness.map(|micros| Lateness { micros }),
            members: members.map(|(exponent, is_awaiting, is_quick, count)| Members {
                exponent,
                is_awaiting,
                is_quick,
                count: Members::rounded(count),
            }),
        }
    }
}

prop_compose! {
    /// A packet of any scheme, with identifiers of any width.
    fn repr()(
        extensions in extensions(),
        (tsi, tsi_shift) in (0..1u64 << 48, 0..48),
        (toi, toi_shift) in (of(0..1u128 << 112), 0..112),
        (close_session, close_object, psi, codepoint) in (any::<bool>(), any::<bool>(), 0..4u8, 2..7u8),
        cci in prop_oneof![vec(any::<u8>(), 4), vec(any::<u8>(), 8), vec(any::<u8>(), 12), vec(any::<u8>(), 16)],
        payload_id in of(any::<[u8; 4]>()),
    ) -> Repr {
        let codepoint = extensions.fti.map_or(codepoint, |fti| fti.encoding_id().codepoint());
        let scheme = EncodingId::from_codepoint(codepoint).expect("a known scheme");
        let toi = toi.map(|toi| toi >> toi_shift);
        Repr {
            tsi: if toi.is_none() { tsi >> 16 } else { tsi >> tsi_shift },
            toi,
            close_session,
            close_object,
            psi,
            codepoint,
            cci: Cci::new(&cci).expect("one of the four lengths"),
            extensions,
            payload_id: payload_id.map(|bytes| PayloadId::parse(scheme, bytes)),
        }
    }
}

/// Any text that XML can hold.
fn text() -> impl Strategy<Value = String> {
    "[ -~\t\n\r\u{85}\u{2028}äß中😀\u{FFFD}]{0,12}"
}

prop_compose! {
    fn oti()(
        (encoding_id, instance_id) in (of(any::<u8>()), of(any::<u64>())),
        (max_block, symbol_size, max_symbols) in (of(any::<u64>()), of(any::<u64>()), of(any::<u64>())),
        scheme_specific in of(vec(any::<u8>(), 0..8)),
    ) -> OtiAttributes {
        OtiAttributes { encoding_id, instance_id, max_block, symbol_size, max_symbols, scheme_specific }
    }
}

prop_compose! {
    fn segment()(
        (index, after) in (0..u32::MAX / 2, 1..u32::MAX / 2),
        (offset, tail) in (0..1u64 << 62, 1u64 << 61..1 << 62),
        file in text(),
    ) -> Segment {
        Segment { index, count: index + after, offset, file, file_length: offset + tail }
    }
}

prop_compose! {
    fn stream()(name in text(), offset in 0..1u64 << 62, end in of(any::<[u8; 32]>())) -> StreamPart {
        StreamPart { name, offset, end }
    }
}

fn withdrawal() -> impl Strategy<Value = Withdrawal> {
    prop_oneof![Just(Withdrawal::Changed), Just(Withdrawal::Unreadable), Just(Withdrawal::Other)]
}

/// URLs hold no white space.
fn urls() -> impl Strategy<Value = Vec<String>> {
    vec("[!-~é]{1,20}", 0..4)
}

prop_compose! {
    fn file()(
        toi in 1..1u128 << 112,
        content_location in text(),
        (content_length, transfer_length) in (of(0..1u64 << 60), of(any::<u64>())),
        (content_type, content_encoding) in (of(text()), of(text())),
        content_md5 in of(any::<[u8; 16]>()),
        oti in oti(),
        (digest, block_digests) in (of(any::<[u8; 32]>()), vec(any::<[u8; 16]>(), 0..4)),
        (segment, stream, mode) in (of(segment()), of(stream()), of(0..=0o7777u32)),
        (is_bundle, is_sparse, content_digest) in any::<(bool, bool, Option<[u8; 32]>)>(),
        (modified, file_encoding) in (
            of((any::<i64>(), 0..1_000_000_000u32)),
            of((text(), any::<u64>())),
        ),
        (digests_follow, withdrawn) in (any::<bool>(), of(withdrawal())),
        (alternate_locations, etag) in (urls(), of(text())),
    ) -> File {
        let modified = modified.and_then(|(seconds, nanoseconds)| FileTime::new(seconds, nanoseconds));
        let file_encoding = file_encoding.map(|(name, content_length)| FileEncoding { name, content_length });
        let headwater = Headwater {
            content_digest,
            file_encoding,
            digest,
            block_digests,
            digests_follow,
            withdrawn,
            segment,
            stream,
            mode,
            modified,
            is_bundle,
            is_sparse,
        };
        File {
            toi,
            content_location,
            content_length,
            transfer_length,
            content_type,
            content_encoding,
            content_md5,
            oti,
            alternate_locations,
            etag,
            headwater,
        }
    }
}

fn control() -> impl Strategy<Value = ControlAttributes> {
    ("[a-z0-9-]{1,32}", vec(("[a-z0-9-]{1,32}", any::<u64>()), 0..8)).prop_map(|(name, parameters)| {
        let mut control = ControlAttributes::new(&name).expect("a word");
        for (name, value) in parameters {
            // One that comes twice is left out.
            let _twice = control.put(&name, value);
        }
        control
    })
}

prop_compose! {
    fn entry()(
        (content_location, kind) in (text(), text()),
        (target, mode, modified) in (of(text()), of(text()), of(text())),
        (owner, xattrs) in (of(text()), of(text())),
    ) -> Entry {
        Entry { content_location, kind, target, mode, modified, owner, xattrs }
    }
}

prop_compose! {
    fn instance()(
        (expires, complete) in any::<(u32, bool)>(),
        (content_type, content_encoding) in (of(text()), of(text())),
        (oti, control, next_key) in (oti(), of(control()), of(any::<[u8; 32]>())),
        mut files in vec(file(), 0..5),
        folders in vec(text(), 0..3),
        (base_urls, peer_urls) in (urls(), urls()),
        (repair_offset, repair_random) in (of(any::<u32>()), of(any::<u32>())),
        (preserve, owner, entries) in (of(text()), of(text()), vec(entry(), 0..3)),
    ) -> Instance {
        for (number, file) in (1..).zip(&mut files) {
            // Distinct, and of any size.
            file.toi = file.toi >> 8 << 8 | number;
        }
        Instance {
            expires,
            complete,
            content_type,
            content_encoding,
            oti,
            control,
            next_key,
            base_urls,
            peer_urls,
            repair_offset,
            repair_random,
            files,
            folders,
            preserve,
            owner,
            entries,
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn packets_round_trip(repr in repr(), symbols in vec(any::<u8>(), 1..20)) {
        let mut datagram = vec![0; repr.buffer_len()];
        let len = repr.emit(&mut datagram).unwrap();
        prop_assert_eq!(len, datagram.len());
        if repr.payload_id.is_some() {
            datagram.extend(&symbols);
        }
        let (parsed, payload) = alc::parse(&datagram).unwrap();
        prop_assert_eq!(parsed, repr);
        prop_assert_eq!(payload, &datagram[len..]);
    }

    #[test]
    fn cut_packets_never_panic_and_never_look_whole(repr in repr()) {
        let mut datagram = vec![0; repr.buffer_len()];
        let len = repr.emit(&mut datagram).unwrap();
        let header_len = lct::Packet::new_checked(&datagram).unwrap().header_len();
        for cut in (0..len).filter(|&cut| cut != header_len) {
            prop_assert!(alc::parse(&datagram[..cut]).is_err(), "{} of {}", cut, len);
        }
    }

    #[test]
    fn any_bytes_behind_a_plausible_start_are_survived(
        flags in any::<u8>(), hdr_len in 0..40u8, codepoint in 0..8u8, rest in vec(any::<u8>(), 0..160),
    ) {
        let mut datagram = vec![0x10 | flags & 0xF, flags, hdr_len, codepoint];
        datagram.extend(rest);
        if let Ok((mut repr, _)) = alc::parse(&datagram) {
            (repr.extensions.auth, repr.extensions.crypt) = (false, None);
            let mut buffer = vec![0; repr.buffer_len()];
            repr.emit(&mut buffer).unwrap();
            prop_assert_eq!(alc::parse(&buffer).unwrap().0, repr);
        }
    }

    #[test]
    fn fti_round_trips_through_the_extension_and_the_table(fti in fti()) {
        let mut content = vec![0; fti.content_len()];
        fti.emit(&mut content).unwrap();
        prop_assert_eq!(Fti::parse(fti.encoding_id(), &content), Ok(fti));

        let file = File {
            oti: OtiAttributes::from(&fti),
            transfer_length: Some(fti.transfer_length()),
            ..File::default()
        };
        prop_assert_eq!(Instance::default().fti(&file), Ok(fti));
    }

    #[test]
    fn tables_round_trip(instance in instance()) {
        let xml = instance.to_xml();
        prop_assert_eq!(Instance::parse(xml.as_bytes()), Ok(instance), "{}", xml);
    }
}
