//! The shapes of the congestion control field.
use headwater_wire::Cci;
use headwater_wire::cci::{CciError, FlidSlCci, RlcCci, WebrcCci};

#[test]
fn webrc_short_is_8_8_16_bits() {
    let webrc = WebrcCci { slot: 0xFE, channel: 0x07, sequence: 0x1234 };
    let cci = webrc.short().unwrap();
    assert_eq!(cci.as_bytes(), [0xFE, 0x07, 0x12, 0x34]);
    assert_eq!(cci.webrc(), Ok(webrc));
}

#[test]
fn webrc_long_is_16_16_32_bits() {
    let webrc = WebrcCci { slot: 0x0102, channel: 0x0304, sequence: 0x0506_0708 };
    assert_eq!(webrc.long().as_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(webrc.long().webrc(), Ok(webrc));
}

#[test]
fn webrc_short_refuses_wide_numbers() {
    let fits = WebrcCci { slot: 255, channel: 255, sequence: 65535 };
    assert!(fits.short().is_ok());
    for wide in [
        WebrcCci { slot: 256, ..fits },
        WebrcCci { channel: 256, ..fits },
        WebrcCci { sequence: 65536, ..fits },
    ] {
        assert!(matches!(wide.short(), Err(CciError::Range { .. })), "{wide:?}");
    }
}

#[test]
fn rlc_has_its_marker() {
    let rlc = RlcCci { synchronization_point: true, layer: 4, sequence: 0xBEEF };
    let cci = Cci::from(rlc);
    // 1 | 1010101
    assert_eq!(cci.as_bytes(), [0b1101_0101, 4, 0xBE, 0xEF]);
    assert_eq!(cci.rlc(), Ok(rlc));
    assert_eq!(
        Cci::new(&[0b0101_0101, 0, 0, 0]).unwrap().rlc().map(|rlc| rlc.synchronization_point),
        Ok(false)
    );
    assert_eq!(Cci::new(&[0b1101_0111, 0, 0, 0]).unwrap().rlc(), Err(CciError::RlcMarker(0b101_0111)));
}

#[test]
fn flid_sl_trigger_is_above_the_slot() {
    let flid = FlidSlCci { increase_trigger: true, slot: 0x7F, group: 2, sequence: 3 };
    let cci = Cci::try_from(flid).unwrap();
    assert_eq!(cci.as_bytes(), [0xFF, 2, 0, 3]);
    assert_eq!(cci.flid_sl(), Ok(flid));
    assert!(matches!(
        Cci::try_from(FlidSlCci { slot: 0x80, ..flid }),
        Err(CciError::Range { max: 0x7F, .. })
    ));
}

#[test]
fn lengths_are_whole_words_up_to_four() {
    for len in 0..20 {
        let allowed = [4, 8, 12, 16].contains(&len);
        assert_eq!(Cci::new(&[7; 20][..len]).map(|cci| cci.as_bytes().len()).ok(), allowed.then_some(len));
    }
    assert_eq!(Cci::new(&[0; 12]).unwrap().webrc(), Err(CciError::Length(12)));
    assert_eq!(Cci::new(&[0; 8]).unwrap().rlc(), Err(CciError::Length(8)));
    assert_eq!(Cci::new(&[0; 8]).unwrap().flid_sl(), Err(CciError::Length(8)));
}
