//! What may come to a receiver, from honest datagrams to noise.

use headwater_wire::extensions::{Extensions, FdtExtension};
use headwater_wire::fdt::{File, Headwater, Instance, OtiAttributes, Segment, Withdrawal};
use headwater_wire::{Cci, Fti, PayloadId, alc};
use libfuzzer_sys::arbitrary::{self, Arbitrary};

use super::honest::{Honest, TSI};

/// A step of a storm.
#[derive(Arbitrary, Debug)]
pub enum Step<'a> {
    /// Consecutive datagrams of the honest session.
    Honest { first: u8, count: u8 },
    /// One of them with a byte changed.
    Changed { index: u8, at: u16, by: u8 },
    /// One of them cut off.
    Cut { index: u8, bytes: u16 },
    /// One of them with something behind it.
    Longer { index: u8, tail: &'a [u8] },
    /// One of them from another host.
    Foreign { index: u8 },
    /// Bytes.
    Raw { bytes: &'a [u8] },
    /// An FDT of the session.
    Table { instance: u8, complete: bool, entries: Vec<Entry> },
    /// A symbol, or an FDT packet, of the session.
    Symbol { toi: u8, sbn: u8, esi: u16, coding: Option<Coding>, codepoint: u8, payload: &'a [u8] },
    /// The session is closed.
    Close,
    /// Time passes.
    Pass { nanos: u64 },
    /// The clock stands still, the driver looks again.
    Timeout,
    /// The store reports slowly, or at once.
    Slow(bool),
}

/// Coding of an object: hostile where the numbers are.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Coding {
    scheme: u8,
    /// Length as `mantissa << shift`.
    mantissa: u16,
    shift: u8,
    symbol_size: u16,
    blocks: u16,
}

/// An entry of an FDT.
#[derive(Arbitrary, Debug)]
pub struct Entry {
    toi: u8,
    name: Name,
    coding: Option<Coding>,
    digest: Option<u8>,
    block_digests: u8,
    digests_follow: bool,
    is_withdrawn: bool,
    segment: Option<(u8, u16, u16, u16)>,
}

#[derive(Arbitrary, Debug)]
enum Name {
    Honest(u8),
    Numbered(u8),
    Bad(String),
}

/// The datagram of a step, if it is one.
pub fn datagram(step: &Step<'_>, honest: &Honest) -> Option<Vec<u8>> {
    let pick = |index: u8| honest.datagrams[usize::from(index) % honest.datagrams.len()].clone();
    Some(match step {
        Step::Changed { index, at, by } => {
            let mut bytes = pick(*index);
            let at = usize::from(*at) % bytes.len();
            bytes[at] ^= by;
            bytes
        }
        Step::Cut { index, bytes } => {
            let mut datagram = pick(*index);
            datagram.truncate(usize::from(*bytes) % datagram.len());
            datagram
        }
        Step::Longer { index, tail } => [&pick(*index), *tail].concat(),
        Step::Foreign { index } => pick(*index),
        Step::Raw { bytes } => bytes.to_vec(),
        Step::Table { instance, complete, entries } => table(*instance, *complete, entries, honest)?,
        Step::Symbol { toi, sbn, esi, coding, codepoint, payload } => {
            let extensions = Extensions { fti: coding.and_then(fti), ..Extensions::default() };
            let id = PayloadId { sbn: (*sbn).into(), esi: (*esi).into() };
            packet(Some((*toi).into()), *codepoint, extensions, Some(id), payload)?
        }
        Step::Close => packet(None, 0, Extensions::default(), None, &[])?,
        Step::Honest { .. } | Step::Pass { .. } | Step::Timeout | Step::Slow(_) => return None,
    })
}

fn packet(
    toi: Option<u128>,
    codepoint: u8,
    extensions: Extensions,
    payload_id: Option<PayloadId>,
    payload: &[u8],
) -> Option<Vec<u8>> {
    let header = alc::Repr {
        tsi: TSI.into(),
        toi,
        close_session: toi.is_none(),
        close_object: false,
        psi: 0,
        codepoint,
        cci: Cci::ZERO,
        extensions,
        payload_id,
    };
    let mut bytes = vec![0; header.buffer_len()];
    header.emit(&mut bytes).ok()?;
    bytes.extend_from_slice(payload);
    Some(bytes)
}

fn table(instance_id: u8, complete: bool, entries: &[Entry], honest: &Honest) -> Option<Vec<u8>> {
    let files = entries.iter().map(|entry| file(entry, honest)).collect();
    let xml = Instance { expires: 1, complete, files, ..Instance::default() }.to_xml();
    let fti = Fti::NoCode { transfer_length: xml.len() as u64, symbol_size: u16::MAX, max_block: 1 };
    let fdt = Some(FdtExtension { version: 2, instance_id: instance_id.into() });
    let extensions = Extensions { fdt, fti: Some(fti), ..Extensions::default() };
    packet(Some(0), 0, extensions, Some(PayloadId { sbn: 0, esi: 0 }), xml.as_bytes())
}

fn file(entry: &Entry, honest: &Honest) -> File {
    let name = match &entry.name {
        Name::Honest(index) => format!("f{}", index % 4),
        Name::Numbered(number) => format!("n{number}"),
        Name::Bad(text) => text.clone(),
    };
    let honest_file = |index: u8| &honest.files[usize::from(index) % honest.files.len()];
    let fti = entry.coding.and_then(fti);
    let segment = entry.segment.map(|(index, count, offset, file_length)| Segment {
        index: index.into(),
        count: count.into(),
        offset: offset.into(),
        file: name.clone(),
        file_length: file_length.into(),
    });
    File {
        toi: u128::from(entry.toi).max(1),
        content_location: name,
        transfer_length: fti.map(|fti| fti.transfer_length()),
        oti: fti.as_ref().map(OtiAttributes::from).unwrap_or_default(),
        headwater: Headwater {
            digest: entry.digest.map(|index| honest_file(index).0),
            block_digests: vec![[0; 16]; entry.block_digests.into()],
            digests_follow: entry.digests_follow,
            withdrawn: entry.is_withdrawn.then_some(Withdrawal::Changed),
            segment,
            ..Headwater::default()
        },
        ..File::default()
    }
}

/// Parameters as they can be on the wire; `None` where not even that.
fn fti(coding: Coding) -> Option<Fti> {
    let transfer_length = u64::from(coding.mantissa) << (coding.shift % 32);
    let symbol_size = coding.symbol_size;
    let [low, high] = coding.blocks.to_le_bytes();
    let fti = match coding.scheme % 3 {
        0 => Fti::NoCode { transfer_length, symbol_size, max_block: coding.blocks.into() },
        1 => Fti::ReedSolomon { transfer_length, symbol_size, max_block: low, max_symbols: high },
        _ => Fti::RaptorQ { transfer_length, symbol_size, blocks: low, sub_blocks: 1, alignment: 1 },
    };
    fti.validate().is_ok().then_some(fti)
}
