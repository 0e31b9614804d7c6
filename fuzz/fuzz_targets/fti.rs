//! FEC parameters that parse are valid, and survive both EXT_FTI and the attributes of the FDT.
#![no_main]
use headwater_wire::fdt::{File, Instance, OtiAttributes};
use headwater_wire::{EncodingId, Fti};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&codepoint, content)) = bytes.split_first() else { return };
    let Some(encoding_id) = EncodingId::from_codepoint(codepoint) else { return };
    let Ok(fti) = Fti::parse(encoding_id, content) else { return };
    assert_eq!(fti.validate(), Ok(()));

    let mut again = vec![0; fti.content_len()];
    fti.emit(&mut again).expect("parsed parameters can be written");
    assert_eq!(Fti::parse(encoding_id, &again), Ok(fti));

    let transfer_length = Some(fti.transfer_length());
    let file = File { oti: OtiAttributes::from(&fti), transfer_length, ..File::default() };
    assert_eq!(Instance::default().fti(&file), Ok(fti));
});
