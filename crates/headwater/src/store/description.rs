//! The FDT in the working folder, so that a receiver that is started again knows the session from its first
//! packet on.
//!
//! It is not made safe on disk: what a loss of power leaves of it does not match its checksum, and the FDT
//! comes again.
//!
//! ```text
//! "HWFDT\0" version:u16 source:16 tsi:u64 instance:u32 length:u32 FDT checksum:32
//! ```

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::FileExt;

use headwater_proto::delivery::{Description, FDT_BYTES_MAX, StoreError};

use super::folder::Folder;

/// Its name in the working folder.
pub(super) const NAME: &str = "fdt";
/// The same while it is written.
const NAME_NEW: &str = "fdt.new";
const MAGIC: &[u8; 6] = b"HWFDT\0";
/// Counts up with every change of the format; those of other versions are not read.
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 6 + 2 + 16 + 8 + 4 + 4;
const CHECKSUM_BYTES: usize = 32;

/// Writes it in the place of the last one.
pub(super) fn write(folder: &Folder, description: &Description) -> Result<(), StoreError> {
    folder.discard(NAME_NEW)?;
    let file = folder.open_work(NAME_NEW, Some(0))?;
    let written = file.write_all_at(&encode(description), 0);
    written.map_err(|error| folder.failed("keep the FDT", error))?;
    folder.rename_unsafe(NAME_NEW, NAME)
}

/// Reads it, if it is there and undamaged.
pub(super) fn read(folder: &Folder) -> Option<Description> {
    read_file(&folder.find_work(NAME)?)
}

fn read_file(file: &File) -> Option<Description> {
    let mut bytes = Vec::new();
    let bytes_max = (HEADER_BYTES + FDT_BYTES_MAX + CHECKSUM_BYTES) as u64;
    file.take(bytes_max).read_to_end(&mut bytes).ok()?;
    decode(&bytes)
}

fn encode(description: &Description) -> Vec<u8> {
    let source = match description.source {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let length = u32::try_from(description.xml.len()).expect("at most FDT_BYTES_MAX");
    let mut bytes = [
        MAGIC.as_slice(),
        &VERSION.to_le_bytes(),
        &source.octets(),
        &description.tsi.to_le_bytes(),
        &description.instance_id.to_le_bytes(),
        &length.to_le_bytes(),
        &description.xml,
    ]
    .concat();
    bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Description> {
    let (content, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
    if blake3::hash(content).as_bytes() != checksum {
        return None;
    }
    let mut rest = content.strip_prefix(MAGIC)?.strip_prefix(&VERSION.to_le_bytes())?;
    let source = Ipv6Addr::from_octets(take(&mut rest)?).to_canonical();
    let tsi = u64::from_le_bytes(take(&mut rest)?);
    let instance_id = u32::from_le_bytes(take(&mut rest)?);
    let length = u32::from_le_bytes(take(&mut rest)?);
    (rest.len() == length as usize).then(|| Description { source, tsi, instance_id, xml: rest.to_vec() })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (field, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_or_not_at_all() {
        for source in ["192.0.2.1", "2001:db8::1"] {
            let kept = Description {
                source: source.parse().unwrap(),
                tsi: 77,
                instance_id: 0xF_FFFF,
                xml: b"<FDT-Instance/>".to_vec(),
            };
            let bytes = encode(&kept);
            assert_eq!(decode(&bytes), Some(kept));
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x10;
                assert_eq!(decode(&damaged), None, "byte {at}");
                assert_eq!(decode(&bytes[..at]), None, "cut at {at}");
            }
        }
    }
}
