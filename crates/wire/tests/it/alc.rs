//! ALC packets as values, against packets written by hand and by the `flute` crate.
use crate::hex::hex;
use headwater_wire::alc::{self, AlcError, Repr};
use headwater_wire::crypt::Crypt;
use headwater_wire::extensions::{
    ContentEncoding, DemandEcho, ExtensionError, Extensions, FdtExtension, Levels, Seq, Time,
};
use headwater_wire::rtt::LossClass;
use headwater_wire::{Cci, EncodingId, Fti, PayloadId};

fn emit(repr: &Repr) -> Result<Vec<u8>, AlcError> {
    let mut buffer = vec![0xAA; repr.buffer_len()];
    let len = repr.emit(&mut buffer)?;
    assert_eq!(len, buffer.len());
    Ok(buffer)
}

fn plain() -> Repr {
    Repr {
        tsi: 1,
        toi: Some(1),
        close_session: false,
        close_object: false,
        psi: 0,
        codepoint: 0,
        cci: Cci::ZERO,
        extensions: Extensions::default(),
        payload_id: None,
    }
}

/// V=1 C=0 PSI=0; S=0 O=0 H=1 A=0 B=0; HDR_LEN=5; RaptorQ. CCI: slot 0x2A, channel 3, PSN 0x0102. TSI, TOI.
/// EXT_SEQ, two words: buffer 9, offset 0x5800. FEC Payload ID: SBN 1, ESI 0x203.
const M2C: &str = "10 10 05 06  2A 03 0102  1234 0007  60 02 0009 00005800  01 000203";

fn m2c() -> Repr {
    Repr {
        tsi: 0x1234,
        toi: Some(7),
        codepoint: 6,
        cci: Cci::new(&[0x2A, 3, 0x01, 0x02]).expect("four bytes"),
        extensions: Extensions { seq: Some(Seq { buffer: 9, offset: 0x5800 }), ..Extensions::default() },
        payload_id: Some(PayloadId { sbn: 1, esi: 0x203 }),
        ..plain()
    }
}

#[test]
fn m2c_packet_is_24_bytes_exactly() {
    assert_eq!(emit(&m2c()).unwrap(), hex(M2C));
    assert_eq!(m2c().buffer_len(), 24);
}

#[test]
fn m2c_packet_parses_to_its_value_and_symbols() {
    let mut datagram = hex(M2C);
    datagram.extend(b"symbol");
    assert_eq!(alc::parse(&datagram).unwrap(), (m2c(), &b"symbol"[..]));
}

/// The packet of above with EXT_LEVELS, ceiling 9, in place of EXT_SEQ. Other implementations skip the word,
/// whose type is in the range of one.
const LEVELS: &str = "10 10 04 06  2A 03 0102  1234 0007  E0 00 09 00  01 000203";
/// The same in round 13 of reports, open, with level 7 reported, and 10 to 20 % lost there.
const DEMAND: &str = "10 10 04 06  2A 03 0102  1234 0007  E0 DB 09 07  01 000203";

#[test]
fn ceiling_both_ways() {
    let demand = DemandEcho { round: 13, is_open: true, level: 7, loss: LossClass::of(0.1) };
    for (demand, digits) in [(None, LEVELS), (Some(demand), DEMAND)] {
        let levels = Some(Levels { ceiling: 9, demand });
        let repr = Repr { extensions: Extensions { levels, ..Extensions::default() }, ..m2c() };
        assert_eq!(emit(&repr).unwrap(), hex(digits));
        assert_eq!(alc::parse(&hex(digits)).unwrap(), (repr, &[][..]));
    }
    // In round 0 there is no echo; reserved bits are not read.
    let levels = Some(Levels { ceiling: 9, demand: None });
    let repr = Repr { extensions: Extensions { levels, ..Extensions::default() }, ..m2c() };
    let reserved = hex("10 10 04 06  2A 03 0102  1234 0007  E0 0F 09 FF  01 000203");
    assert_eq!(alc::parse(&reserved).unwrap(), (repr, &[][..]));
}

/// TSI 1, TOI 0 in half words; HDR_LEN=9. EXT_FDT version 2, instance 0x00005; EXT_CENC gzip; EXT_FTI of 4
/// words: L=300, E=1408, B=64. FEC Payload ID 0, 0.
const FDT: &str = "10 10 09 00  00000000  0001 0000
    C0 200005  C1 03 0000  40 04 00000000012C 0000 0580 00000040
    0000 0000";

fn fdt() -> Repr {
    Repr {
        toi: Some(0),
        extensions: Extensions {
            fdt: Some(FdtExtension { version: 2, instance_id: 5 }),
            content_encoding: Some(ContentEncoding::Gzip),
            fti: Some(Fti::NoCode { transfer_length: 300, symbol_size: 1408, max_block: 64 }),
            ..Extensions::default()
        },
        payload_id: Some(PayloadId { sbn: 0, esi: 0 }),
        ..plain()
    }
}

#[test]
fn fdt_packet_both_ways() {
    assert_eq!(emit(&fdt()).unwrap(), hex(FDT));
    assert_eq!(alc::parse(&hex(FDT)).unwrap(), (fdt(), &[][..]));
}

#[test]
fn close_session_without_payload_has_neither_toi_nor_payload_id() {
    // S=1, A=1; HDR_LEN=3.
    let bytes = hex("10 82 03 00  00000000  00000001");
    let repr = Repr { toi: None, close_session: true, ..plain() };
    assert_eq!(emit(&repr).unwrap(), bytes);
    assert_eq!(alc::parse(&bytes).unwrap(), (repr, &[][..]));
}

#[test]
fn unknown_scheme_without_payload_is_fine() {
    let (repr, payload) =
        alc::parse(&hex("10 82 03 81  00000000  00000001")).map(|(r, p)| (r, p.len())).unwrap();
    assert_eq!((repr.codepoint, payload), (0x81, 0));
}

#[test]
fn identifiers_take_the_smallest_form() {
    // (TSI, TOI) -> bytes 1 and 2 of the header: S O H, and its length in words. A tie goes to whole words.
    for (tsi, toi, byte1, words) in [
        (0, 0, 0x10, 3),
        (0xFFFF, 0xFFFF, 0x10, 3),
        (0x1_0000, 1, 0xA0, 4),
        (1, 0x1_0000, 0xA0, 4),
        (1, 0x1_0000_0000, 0x30, 4),
        (1, 1 << 48, 0xC0, 5),
        (0xFFFF_FFFF_FFFF, 1, 0x90, 4),
        (0xFFFF_FFFF_FFFF, (1 << 112) - 1, 0xF0, 7),
        (1, (1 << 96) - 1, 0xE0, 6),
        (1, 1 << 96, 0x70, 6),
    ] {
        let repr = Repr { tsi, toi: Some(toi), ..plain() };
        let bytes = emit(&repr).unwrap();
        assert_eq!((bytes[1], bytes[2]), (byte1, words), "{tsi:#x} {toi:#x}");
        assert_eq!(alc::parse(&bytes).unwrap().0, repr);
    }
}

#[test]
fn time_extension_both_ways() {
    // EXT_TIME of 4 words: SCT-High, ERT, SLC = flags 0xB0, PI-specific 7.
    let bytes = hex("10 10 07 00  00000000  0001 0001  02 04 B0 07 E0000000 0000003C E0000001");
    let time = Time {
        sct_high: Some(0xE000_0000),
        sct_low: None,
        expected_residual_time: Some(60),
        session_last_changed: Some(0xE000_0001),
        pi_specific: 7,
    };
    let repr = Repr { extensions: Extensions { time: Some(time), ..Extensions::default() }, ..plain() };
    assert_eq!(alc::parse(&bytes).unwrap().0, repr);
    assert_eq!(emit(&repr).unwrap(), bytes);
}

#[test]
fn unknown_and_repeated_extensions_are_passed_over() {
    // EXT_NOP, EXT_AUTH, type 200, EXT_SEQ twice.
    let bytes = hex("10 10 0A 00  00000000  0001 0001
        00 01 0000  01 01 ABCD  C8 123456  60 02 0001 00000002  60 02 0003 00000004");
    let extensions = alc::parse(&bytes).unwrap().0.extensions;
    assert_eq!(
        extensions,
        Extensions { auth: true, seq: Some(Seq { buffer: 1, offset: 2 }), ..Extensions::default() }
    );
}

#[test]
fn psi_is_kept() {
    let repr = Repr { psi: 2, ..m2c() };
    let bytes = emit(&repr).unwrap();
    assert_eq!(bytes[0], 0x12);
    assert_eq!(alc::parse(&bytes).unwrap().0, repr);
}

#[test]
fn every_cut_of_a_packet_is_refused() {
    for packet in [M2C, FDT] {
        let bytes = hex(packet);
        let header_len = bytes.len() - 4;
        for len in (0..bytes.len()).filter(|&len| len != header_len) {
            assert!(alc::parse(&bytes[..len]).is_err(), "{len} bytes of {packet}");
        }
        // Cut right behind the LCT header it is a packet without payload.
        assert_eq!(alc::parse(&bytes[..header_len]).unwrap().0.payload_id, None);
    }
}

#[test]
fn malformed_packets_are_refused() {
    let parse = |digits| alc::parse(&hex(digits)).map(|_| ()).unwrap_err();
    assert_eq!(parse("10 00 02 00 00000000"), AlcError::NoTsi);
    assert_eq!(parse("10 10 03 81 00000000 0001 0001 00000000"), AlcError::UnknownScheme(0x81));
    assert_eq!(parse("10 10 03 00 00000000 0001 0001 0000"), AlcError::PayloadTruncated(2));
    let error = parse("10 10 04 00 00000000 0001 0001 60 01 0000");
    assert_eq!(error, ExtensionError::Length { het: 0x60, need: 6, have: 2 }.into());
    // EXT_TIME announces one word that it does not have; SCT-Low without SCT-High.
    let error = parse("10 10 04 00 00000000 0001 0001 02 01 80 00");
    assert_eq!(error, ExtensionError::Length { het: 2, need: 6, have: 2 }.into());
    assert_eq!(
        parse("10 10 05 00 00000000 0001 0001 02 02 40 00 00000000"),
        ExtensionError::TimeFraction.into()
    );
}

#[test]
fn values_that_no_header_holds_are_refused() {
    let refused = |repr: Repr| matches!(emit(&repr), Err(AlcError::Unrepresentable { .. }));
    assert!(refused(Repr { tsi: 1 << 48, ..plain() }));
    assert!(refused(Repr { toi: Some(1 << 112), ..plain() }));
    assert!(refused(Repr { toi: None, tsi: 1 << 32, ..plain() }));
    assert!(refused(Repr { psi: 4, ..plain() }));
    let payload_id = Some(PayloadId { sbn: 256, esi: 0 });
    assert!(matches!(emit(&Repr { payload_id, ..m2c() }), Err(AlcError::PayloadId(_))));
    assert_eq!(emit(&Repr { codepoint: 99, ..m2c() }), Err(AlcError::UnknownScheme(99)));
}

#[test]
fn extensions_that_cannot_be_written_are_refused() {
    let emit_with = |extensions| emit(&Repr { extensions, ..plain() }).unwrap_err();
    let auth = Extensions { auth: true, ..Extensions::default() };
    assert_eq!(emit_with(auth), ExtensionError::Inserted.into());
    let crypt = Some(Crypt { epoch: 1, salt: 2, number: 3 });
    assert_eq!(emit_with(Extensions { crypt, ..Extensions::default() }), ExtensionError::Inserted.into());
    let fdt = Some(FdtExtension { version: 2, instance_id: 1 << 20 });
    let error = ExtensionError::Fdt { version: 2, instance_id: 1 << 20 };
    assert_eq!(emit_with(Extensions { fdt, ..Extensions::default() }), error.into());
    let fti = Some(Fti::ReedSolomon { transfer_length: 9, symbol_size: 4, max_block: 2, max_symbols: 3 });
    let error = ExtensionError::FtiScheme { fti: EncodingId::ReedSolomon, codepoint: 0 };
    assert_eq!(emit_with(Extensions { fti, ..Extensions::default() }), error.into());
    let time = Some(Time { sct_low: Some(1), ..Time::default() });
    assert_eq!(emit_with(Extensions { time, ..Extensions::default() }), ExtensionError::TimeFraction.into());
}

#[test]
fn short_buffer_is_refused() {
    assert_eq!(m2c().emit(&mut [0; 23]), Err(AlcError::Buffer { need: 24, have: 23 }));
}

/// Headers that the `flute` crate 1.11.7 sent, and what they say. TSI is 7 in all of them; CCI is zero.
#[test]
fn packets_of_the_flute_crate() {
    let time = Time { sct_high: Some(1_700_000_000 + 2_208_988_800), sct_low: Some(0), ..Time::default() };
    let null = Some(ContentEncoding::Null);
    let object = |fti| Extensions { fti: Some(fti), content_encoding: null, ..Extensions::default() };
    let table = Extensions {
        time: Some(time),
        fdt: Some(FdtExtension { version: 2, instance_id: 1 }),
        ..object(Fti::NoCode { transfer_length: 2107, symbol_size: 1400, max_block: 64 })
    };
    let raptorq =
        Fti::RaptorQ { transfer_length: 100, symbol_size: 64, blocks: 1, sub_blocks: 1, alignment: 4 };
    let reed_solomon =
        Fti::ReedSolomon { transfer_length: 100, symbol_size: 64, max_block: 60, max_symbols: 64 };
    for (digits, toi, close_object, codepoint, extensions, esi) in [
        (
            "10100c00 00000000 00070000 c0200001 c1000000 0203c000e8fe6f8000000000
             400400000000083b0000057800000040 00000001",
            0,
            false,
            0,
            table,
            1,
        ),
        (
            "10110806 00000000 00070001 c1000000 40040000000064000040010001040000 00000003",
            1,
            true,
            6,
            object(raptorq),
            3,
        ),
        (
            "10100705 00000000 00070002 c1000000 400300000000006400403c40 00000004",
            2,
            false,
            5,
            object(reed_solomon),
            4,
        ),
    ] {
        let repr = Repr {
            tsi: 7,
            toi: Some(toi),
            close_object,
            codepoint,
            extensions,
            payload_id: Some(PayloadId { sbn: 0, esi }),
            ..plain()
        };
        assert_eq!(alc::parse(&hex(digits)).unwrap().0, repr);
        // It orders extensions as we do, so its bytes are ours.
        assert_eq!(emit(&repr).unwrap(), hex(digits));
    }
}
