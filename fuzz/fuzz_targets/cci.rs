//! Each shape of the congestion control field gives back the bytes that it was read from.
#![no_main]
use headwater_wire::Cci;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(cci) = Cci::new(bytes) else { return };
    assert_eq!(cci.as_bytes(), bytes);
    if let Ok(webrc) = cci.webrc() {
        assert_eq!(if bytes.len() == 4 { webrc.short() } else { Ok(webrc.long()) }, Ok(cci));
    }
    if let Ok(rlc) = cci.rlc() {
        assert_eq!(Cci::from(rlc), cci);
    }
    if let Ok(flid_sl) = cci.flid_sl() {
        assert_eq!(Cci::try_from(flid_sl), Ok(cci));
    }
});
