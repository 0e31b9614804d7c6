//! Place in a cycle at which a receiver on request wants the content to continue.
//!
//! A code of a finite number of symbols is sent in a cycle. A source that was started again knows no
//! receiver's place in the cycle. A receiver that resumes holds most of the symbols before the place, and few
//! of the symbols behind.

use core::num::NonZeroU32;

use super::DeliveryReceiver;
use super::block::Block;
use crate::control::ReceiverControl;
use crate::delivery::plan::Orders;
use crate::delivery::store::Store;

/// Number of parts into which a cycle is divided.
const PARTS: usize = 128;
/// Least number of parts in a row that the receiver lacks.
const GAP_MIN: usize = 3;
/// Maximum number of counted blocks: in the order of sending all blocks are at the same
/// place.
const BLOCKS_MAX: u32 = 64;
/// Maximum number of symbols counted, beyond the first block.
const SYMBOLS_MAX: u64 = 1 << 19;

/// Symbols of a part of the cycle: held by the receiver, and in total.
type Part = (u32, u32);

impl<C: ReceiverControl, S: Store> DeliveryReceiver<C, S> {
    /// Tells a control that requests packets where in the cycle the content should continue.
    pub(super) fn request_place(&mut self) {
        if self.front.control.requester().is_none() {
            return;
        }
        let place = self.place();
        if let (Some(requester), Some(place)) = (self.front.control.requester(), place) {
            requester.continue_at(place);
        }
    }

    /// Returns the begin of the longest gap of a cycle, as a part of 2^32.
    fn place(&self) -> Option<NonZeroU32> {
        let mut parts = [(0, 0); PARTS];
        let objects = self.catalogue.objects.iter();
        let blocks = objects.filter(|of| !of.codec.is_rateless()).flat_map(|object| {
            let open = object.blocks.iter().filter_map(|block| match block {
                Block::Open(state) if !state.is_finishing() => Some(&**state),
                _ => None,
            });
            open.map(|state| (state, &*object.codec))
        });
        let (mut orders, mut symbols, mut has_repair) = (Orders::default(), 0, true);
        for (number, (state, codec)) in (0..BLOCKS_MAX).zip(blocks) {
            let n = codec.encoding_symbols(state.symbols());
            has_repair &= n > state.symbols();
            symbols += u64::from(n);
            if number > 0 && symbols > SYMBOLS_MAX {
                break;
            }
            orders.push(codec, n, true);
            count(&mut parts, n, |position| state.holds(orders.esi(number, position)));
        }
        begin_of_gap(&parts, has_repair)
    }
}

/// Counts the symbols of a block at the positions below n.
fn count(parts: &mut [Part; PARTS], n: u32, holds: impl Fn(u32) -> bool) {
    let end = |part: u64| u32::try_from(part * u64::from(n) / PARTS as u64).expect("at most n, a u32");
    for (number, part) in (0..).zip(parts) {
        for position in end(number)..end(number + 1) {
            part.0 += u32::from(holds(position));
            part.1 += 1;
        }
    }
}

/// Returns the begin of the longest run of parts that are held by less than half, as a part of 2^32. Without
/// repair symbols, the gap begins with the first symbol that a block lacks.
fn begin_of_gap(parts: &[Part; PARTS], has_repair: bool) -> Option<NonZeroU32> {
    let held = |part: usize| {
        let (held, all) = parts[part % PARTS];
        (all > 0).then(|| f64::from(held) / f64::from(all))
    };
    let lacks = |part: usize| held(part).is_none_or(|held| held < 0.5);
    let begins = (0..PARTS).filter(|part| lacks(*part) && !lacks(part + PARTS - 1));
    let length = |begin: usize| (begin..begin + PARTS).take_while(|part| lacks(*part)).count();
    // A cycle that is held by less than half everywhere has no begin.
    let begin = begins.max_by_key(|begin| length(*begin)).filter(|begin| length(*begin) >= GAP_MIN)?;
    // The receiver holds the first symbols of the two parts.
    let lacked_before = 1.0 - held(begin + PARTS - 1).unwrap_or(1.0);
    let is_before = !has_repair && lacked_before > 0.0;
    let within = if is_before { 0.0 } else { held(begin).unwrap_or(0.0) } - lacked_before;
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let place = (begin as f64 + within) / PARTS as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a cycle")]
    let place = (place.rem_euclid(1.0) * f64::from(u32::MAX)) as u32;
    NonZeroU32::new(place.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place_of(held: impl Fn(usize) -> u32) -> Option<f64> {
        place_with(true, held)
    }

    fn place_with(has_repair: bool, held: impl Fn(usize) -> u32) -> Option<f64> {
        let parts: [Part; PARTS] = core::array::from_fn(|part| (held(part), 10));
        begin_of_gap(&parts, has_repair).map(|place| f64::from(place.get()) / f64::from(u32::MAX) * 128.0)
    }

    #[test]
    fn the_longest_gap_begins_where_the_last_symbols_were() {
        let is = |place: Option<f64>, expected: f64| (place.unwrap() - expected).abs() < 1e-3;
        assert!(is(place_of(|part| if part < 40 { 10 } else { 0 }), 40.0));
        assert!(is(place_of(|part| if part < 40 { 10 } else { 4 * u32::from(part == 40) }), 40.4));
        assert!(is(place_of(|part| if part == 39 { 7 } else { 10 * u32::from(part < 39) }), 39.7));
        let across = |part: usize| [10, 9, 3, 0][part.saturating_sub(38).min(3)];
        assert!(is(place_with(true, across), 40.2) && is(place_with(false, across), 39.9));
        let around = |part| if (20..=120).contains(&part) { 10 } else { 0 };
        assert!(is(place_of(around), 121.0));
    }

    #[test]
    fn without_a_gap_there_is_no_place() {
        assert_eq!(place_of(|_| 0), None);
        assert_eq!(place_of(|_| 10), None);
        assert_eq!(place_of(|part| if part % 50 == 3 { 0 } else { 9 }), None);
    }
}
