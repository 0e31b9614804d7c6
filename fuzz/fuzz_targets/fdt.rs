//! A file delivery table that parses can be written again, and means the same.
#![no_main]
use headwater_wire::fdt::Instance;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|document: &[u8]| {
    let Ok(instance) = Instance::parse(document) else { return };
    for file in &instance.files {
        if let Ok(fti) = instance.fti(file) {
            assert_eq!(fti.validate(), Ok(()));
        }
    }
    assert_eq!(Instance::parse(instance.to_xml().as_bytes()), Ok(instance));
});
