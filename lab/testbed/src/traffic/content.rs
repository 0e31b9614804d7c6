//! Contents of transfers: made from the seed, before the clock of a run begins.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use headwater_netsim::plan::flow::{Flow, FlowKind, Receivers};
use headwater_netsim::tcp::Data;
use rand::Rng;

use super::Site;
use crate::{Error, Tried};

/// Maximum content of a session without a file. The content is the amount that the session's link carries in
/// 1.25 times the duration, up to this bound.
const ENDLESS_BYTES_MAX: u64 = 4 << 30;
/// Assumed minimum duration of a run that ends with transfers; `ENDLESS_TIMES` times the duration of the
/// transfers alone is added.
const ENDLESS_SECONDS_LEAST: f64 = 180.0;
const ENDLESS_TIMES: f64 = 4.0;
const PIECE_BYTES: usize = 1 << 20;

/// The file that a flow sends.
pub(super) fn file(site: &Site<'_>, number: usize) -> PathBuf {
    site.bed.folder.join(format!("content-{number}"))
}

/// Writes the file, if the flow sends a file.
pub(crate) fn write(site: &Site<'_>, number: usize, flow: &Flow) -> Result<(), Error> {
    let path = file(site, number);
    let what = || format!("write '{}'", path.display());
    let bytes = match &flow.kind {
        FlowKind::Transfer(transfer) if transfer.by != "tcp" => transfer.size,
        FlowKind::Session(session) => match session.file {
            Some(file) => file.size,
            None => {
                // A sparse file: the content is irrelevant, because no receiver completes the file.
                return File::create(&path).and_then(|file| file.set_len(endless(site, flow))).tried(what);
            }
        },
        _ => return Ok(()),
    };
    let mut out = File::create(&path).tried(what)?;
    let mut chance = site.scenario.seed.stream(&format!("{}/content", flow.name), 0);
    let (mut left, mut piece) = (bytes, vec![0; PIECE_BYTES]);
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        chance.fill_bytes(&mut piece);
        out.write_all(&piece[..part]).tried(what)?;
        left -= part as u64;
    }
    Ok(())
}

/// More bytes than any receiver can take during the run. A run that ends with transfers lasts a multiple of
/// the time of the transfers alone.
fn endless(site: &Site<'_>, flow: &Flow) -> u64 {
    let Receivers::Group(members) = &flow.to else { return PIECE_BYTES as u64 };
    let rate = members.iter().map(|member| site.bottleneck(flow.from, member.node)).max().unwrap_or(0);
    let whole = site.scenario.duration.as_secs_f64();
    let alone: u64 =
        site.scenario.measure.until.iter().map(|flow| bytes_of(&site.scenario.flows[*flow])).sum();
    let until = ENDLESS_SECONDS_LEAST + ENDLESS_TIMES * 8.0 * alone as f64 / rate.max(1) as f64;
    let seconds = if alone > 0 { whole.min(until) } else { whole };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of bytes, bounded below"
    )]
    let bytes = (rate as f64 * seconds / 8.0 * 1.25) as u64;
    bytes.clamp(PIECE_BYTES as u64, ENDLESS_BYTES_MAX)
}

/// Bytes that a flow transfers to all receivers, as if each receiver had its own copy.
fn bytes_of(flow: &Flow) -> u64 {
    let receivers = match &flow.to {
        Receivers::Group(members) => members.len() as u64,
        Receivers::Node(_) => 1,
    };
    let bytes = match &flow.kind {
        FlowKind::Transfer(transfer) => transfer.size,
        FlowKind::Session(session) => session.file.map_or(0, |file| file.size),
        FlowKind::Tcp(tcp) => match tcp.data {
            Data::Bytes(bytes) => bytes,
            Data::Segments(count) => u64::from(count) * u64::from(tcp.config.segment_bytes),
            Data::Greedy => 0,
        },
        _ => 0,
    };
    bytes * receivers
}
