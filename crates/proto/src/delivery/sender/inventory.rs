//! Content of a session: progress of hashing, withdrawn files, and the order of sending.

use core::num::NonZeroU32;
use core::ops::Range;
use std::collections::BTreeSet;

use headwater_fec::Order;

use crate::control::{Departure, Request};
use crate::delivery::carousel::{Carousel, CarouselBlock, Hierarchy, Place, Start, Visit};
use crate::delivery::object::{Digest, file_digest};
use crate::delivery::plan::SessionPlan;
use crate::delivery::store::Source;
use crate::layering::Layering;
use crate::machine::Destination;
use crate::rng::Stream;

/// Maximum number of receivers with an order of their own.
const ORDERS_MAX: usize = 64;
/// Packets of an order before the place is fixed. A receiver knows the place only once the FDT is whole, and
/// gets content in answer to requests for more of the FDT.
const PLACED_WITHIN: u32 = 256;

/// Known digests, in the order of each object's blocks, and withdrawn files.
///
/// Memory: 32 bytes for each block of the files with missing digests, some 80 for each object and file.
#[derive(Debug)]
pub(super) struct Inventory {
    objects: Vec<ObjectDigests>,
    files: Vec<FileDigests>,
    /// Number of files that are not withdrawn.
    live: usize,
    /// Whether parts of a stream follow.
    is_open: bool,
}

#[derive(Debug)]
struct ObjectDigests {
    file: usize,
    blocks: usize,
    known: Vec<Digest>,
}

#[derive(Debug)]
struct FileDigests {
    objects: Range<usize>,
    is_withdrawn: bool,
    /// Number of blocks without a known digest.
    missing: usize,
    /// Digest of the file, once all digests of blocks are known.
    digest: Option<Digest>,
}

impl Inventory {
    /// Creates the inventory. `digests` holds, for each object, the digests of the first blocks.
    pub(super) fn new(plan: &SessionPlan, digests: &[Vec<Digest>]) -> Self {
        let object = |(object, known): (&crate::delivery::PlannedObject, &Vec<Digest>)| ObjectDigests {
            file: object.file,
            blocks: object.partition.blocks() as usize,
            known: known.clone(),
        };
        let objects: Vec<_> = plan.objects().iter().zip(digests).map(object).collect();
        let file = |range: Range<usize>| FileDigests {
            missing: objects[range.clone()].iter().map(|object| object.blocks - object.known.len()).sum(),
            objects: range,
            is_withdrawn: false,
            digest: None,
        };
        let files: Vec<_> = plan.file_objects().into_iter().map(file).collect();
        let mut inventory = Self { live: files.len(), objects, files, is_open: plan.is_open() };
        for file in 0..inventory.files.len() {
            inventory.forget_if_whole(file);
        }
        inventory
    }

    /// Adds the files of the plan from object `first` on, with the digests of all blocks.
    pub(super) fn extend(&mut self, plan: &SessionPlan, first: usize, digests: &[Vec<Digest>]) {
        for (object, known) in plan.objects()[first..].iter().zip(digests) {
            if object.file == self.files.len() {
                let objects = self.objects.len()..self.objects.len();
                self.files.push(FileDigests { objects, is_withdrawn: false, missing: 0, digest: None });
                self.live += 1;
            }
            let blocks = object.partition.blocks() as usize;
            self.objects.push(ObjectDigests { file: object.file, blocks, known: known.clone() });
            self.files[object.file].objects.end += 1;
        }
        let first_file = plan.objects().get(first).map_or(self.files.len(), |object| object.file);
        (first_file..self.files.len()).for_each(|file| self.forget_if_whole(file));
        self.is_open = plan.is_open();
    }

    /// Returns the objects of a file.
    pub(super) fn objects(&self, file: usize) -> Range<usize> {
        self.files[file].objects.clone()
    }

    /// Returns the objects of the file to which an object belongs.
    pub(super) fn objects_beside(&self, object: usize) -> Range<usize> {
        self.objects(self.objects[object].file)
    }

    /// Whether the file of an object is withdrawn.
    pub(super) fn is_withdrawn(&self, object: usize) -> bool {
        self.files[self.objects[object].file].is_withdrawn
    }

    /// Adds the digests of an object's next blocks. Returns the digest of the file once all digests are
    /// known.
    ///
    /// # Panics
    /// When the object has fewer blocks.
    pub(super) fn add(&mut self, object: usize, digests: &[Digest]) -> Option<Digest> {
        let ObjectDigests { file, blocks, known } = &mut self.objects[object];
        known.extend_from_slice(digests);
        assert!(known.len() <= *blocks, "no more digests than blocks");
        let file = *file;
        self.files[file].missing -= digests.len();
        self.forget_if_whole(file);
        self.files[file].digest
    }

    /// Returns the digest of a file, once known.
    pub(super) fn digest(&self, file: usize) -> Option<Digest> {
        self.files[file].digest
    }

    /// Whether a file is withdrawn.
    pub(super) fn is_file_withdrawn(&self, file: usize) -> bool {
        self.files[file].is_withdrawn
    }

    /// Withdraws a file. Returns false if the file was withdrawn before.
    pub(super) fn withdraw(&mut self, file: usize) -> bool {
        let state = &mut self.files[file];
        let is_news = !core::mem::replace(&mut state.is_withdrawn, true);
        self.live -= usize::from(is_news);
        is_news
    }

    /// Whether no file is left.
    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Whether the description of every file is final.
    pub(super) fn is_complete(&self) -> bool {
        !self.is_open && self.files.iter().all(|file| file.is_withdrawn || file.missing == 0)
    }

    /// Releases the digests of a file once all are known: the FDT holds the digests then.
    fn forget_if_whole(&mut self, file: usize) {
        if self.files[file].missing == 0 && self.files[file].digest.is_none() {
            let range = self.objects(file);
            let known = self.objects[range.clone()].iter().flat_map(|object| &object.known);
            self.files[file].digest = Some(file_digest(known));
            self.objects[range].iter_mut().for_each(|object| object.known = Vec::new());
        }
    }
}

/// Returns the numbers of the blocks, given by object and block number, that are holes and are not sent.
pub(super) fn holes(source: &impl Source, blocks: &[(u32, u32)]) -> BTreeSet<u32> {
    let is_hole = |(_, (object, sbn)): &(u32, &(u32, u32))| source.is_hole(*object as usize, *sbn);
    let mut holes: BTreeSet<u32> = (0..).zip(blocks).filter(is_hole).map(|(number, _)| number).collect();
    if holes.len() == blocks.len() {
        // The FDT takes its share of the packets of content, so some content is sent.
        holes.pop_first();
    }
    holes
}

/// Order of sending.
#[derive(Debug)]
pub(super) enum Content {
    /// For receivers that request packets.
    Requested(Requested),
    /// For receivers that receive every packet.
    Flat(Carousel),
    /// For receivers of any rate.
    Layered(Box<Hierarchy>),
}

/// Random order of sending on request.
///
/// Of one order, each of several receivers gets a part by chance. A rateless code makes up for that. Other
/// codes send a cycle of symbols, and the last [`ORDERS_MAX`] receivers have an order each, so that each
/// receiver gets the whole cycle.
#[derive(Debug)]
pub(super) struct Requested {
    /// Order of all packets together. A new receiver's order begins there, or where the last receiver of its
    /// host is, so that a receiver that resumes from another port continues where its packets ended.
    common: Carousel,
    is_rateless: bool,
    own: Vec<OwnOrder>,
    /// Packets sent.
    packets: u64,
}

#[derive(Debug)]
struct OwnOrder {
    receiver: Destination,
    carousel: Carousel,
    /// Number of the receiver's last packet among all packets.
    last: u64,
    /// Number of packets in which a request may still say where the order begins.
    open: u32,
    /// Whether a request has chosen the place of the order.
    is_placed: bool,
}

impl OwnOrder {
    /// Returns the next symbol, or that of a name. A new order begins at `place`. A relay's receivers share
    /// an order, so later requests do not move the order.
    fn next(&mut self, place: Option<NonZeroU32>, name: Name) -> Option<Visit> {
        if let Some(place) = place.filter(|_| self.open > 0) {
            self.carousel.go_to(place.get());
            (self.open, self.is_placed) = (0, true);
        }
        self.open = self.open.saturating_sub(1);
        next_of(&mut self.carousel, name)
    }
}

/// Number of a named block among all blocks, and the named symbol if the block has source symbols only.
pub(super) type Name = Option<(u32, Option<u32>)>;

/// Returns the named symbol, or the next symbol if that block is not sent.
fn next_of(carousel: &mut Carousel, name: Name) -> Option<Visit> {
    name.and_then(|(block, esi)| carousel.visit_of(block, esi)).or_else(|| carousel.next_visit())
}

/// Whether two receivers are on one host.
fn is_of_host(one: Destination, other: Destination) -> bool {
    match (one, other) {
        (Destination::Unicast(one), Destination::Unicast(other)) => one.ip() == other.ip(),
        _ => false,
    }
}

impl Requested {
    fn next(&mut self, request: &Request, name: Name) -> Option<Visit> {
        if self.is_rateless {
            return next_of(&mut self.common, name);
        }
        // Names of one receiver do not move the order of all.
        let (receiver, visit) = (request.destination, self.common.next_visit());
        self.packets += 1;
        if let Some(own) = self.own.iter_mut().find(|own| own.receiver == receiver) {
            own.last = self.packets;
            return own.next(request.place, name);
        }
        let of_host = self.own.iter().filter(|own| is_of_host(own.receiver, receiver));
        let before = of_host.max_by_key(|own| own.last).map(|own| own.carousel.clone());
        let oldest = (0..self.own.len()).min_by_key(|index| self.own[*index].last);
        if let Some(oldest) = oldest.filter(|_| self.own.len() == ORDERS_MAX) {
            self.own.swap_remove(oldest);
        }
        // The common order has had this turn.
        let has_had_turn = before.is_none() && request.place.is_none() && name.is_none();
        let carousel = before.unwrap_or_else(|| self.common.clone());
        let mut own =
            OwnOrder { receiver, carousel, last: self.packets, open: PLACED_WITHIN, is_placed: false };
        let visit = if has_had_turn { visit } else { own.next(request.place, name) };
        self.own.push(own);
        visit
    }

    fn carousels(&mut self) -> impl Iterator<Item = &mut Carousel> {
        self.own.iter_mut().map(|own| &mut own.carousel)
    }
}

impl Content {
    /// Creates the order of content sent on request.
    pub(super) fn requested(blocks: Vec<CarouselBlock>, draw: Stream, start: Start) -> Self {
        let is_rateless = blocks.iter().all(|block| block.rateless);
        let common = Carousel::mixed(blocks, draw, start);
        Self::Requested(Requested { common, is_rateless, own: Vec::new(), packets: 0 })
    }

    pub(super) fn new(blocks: Vec<CarouselBlock>, is_layered: bool, order: Order, start: Start) -> Self {
        if is_layered {
            Self::Layered(Box::new(Hierarchy::starting(blocks, start)))
        } else {
            Self::Flat(Carousel::starting(blocks, order, start))
        }
    }

    /// Continues at a place that an earlier session of the same content is unlikely to have sent:
    /// [`Carousel::skip`]. Orders at a chosen place stay there.
    pub(super) fn skip(&mut self) {
        if let Self::Requested(requested) = self {
            requested.common.skip();
            requested.own.iter_mut().filter(|own| !own.is_placed).for_each(|own| own.carousel.skip());
        }
    }

    /// Adds blocks, which are sent once [`Self::select`] selects them.
    pub(super) fn extend(&mut self, blocks: &[CarouselBlock]) {
        match self {
            Self::Flat(carousel) => carousel.extend(blocks),
            Self::Layered(hierarchy) => hierarchy.extend(blocks),
            Self::Requested(requested) => {
                requested.is_rateless &= blocks.iter().all(|block| block.rateless);
                requested.carousels().for_each(|carousel| carousel.extend(blocks));
                requested.common.extend(blocks);
            }
        }
    }

    /// Sends the blocks that `selects` accepts, and no others.
    pub(super) fn select(&mut self, selects: impl Fn(u32) -> bool) {
        match self {
            Self::Flat(carousel) => carousel.select(selects),
            Self::Layered(hierarchy) => hierarchy.select(selects),
            Self::Requested(requested) => {
                requested.carousels().for_each(|carousel| carousel.select(&selects));
                requested.common.select(selects);
            }
        }
    }

    /// Stops sending the blocks that `keeps` rejects. Returns the number of symbols of rejected blocks that
    /// counted towards passes.
    pub(super) fn retain(&mut self, keeps: impl Fn(u32) -> bool) -> u64 {
        match self {
            Self::Flat(carousel) => carousel.retain(keeps),
            Self::Requested(requested) => {
                for carousel in requested.carousels() {
                    carousel.retain(&keeps);
                }
                requested.common.retain(keeps)
            }
            Self::Layered(hierarchy) => {
                hierarchy.retain(keeps);
                // Passes are counted only if receivers receive every packet.
                0
            }
        }
    }

    /// Number of visits in a pass.
    pub(super) fn pass_symbols(&self) -> u64 {
        match self {
            Self::Flat(carousel) => carousel.pass_symbols(),
            Self::Requested(requested) => requested.common.pass_symbols(),
            Self::Layered(hierarchy) => hierarchy.pass_symbols(),
        }
    }

    pub(super) fn block(&self, block: u32) -> CarouselBlock {
        match self {
            Self::Flat(carousel) => carousel.block(block),
            Self::Requested(requested) => requested.common.block(block),
            Self::Layered(hierarchy) => hierarchy.block(block),
        }
    }

    /// Returns the place of a departure in the buffer, also for a departure without content: the schedule
    /// counts every packet.
    pub(super) fn turn(&mut self, layering: Option<&dyn Layering>, departure: &Departure) -> Option<Place> {
        match (self, layering) {
            (Self::Layered(hierarchy), Some(layering)) => {
                Some(hierarchy.place(layering, departure.level, departure.at))
            }
            _ => None,
        }
    }

    /// Whether the content of a departure may be omitted: its block has received more than its share.
    pub(super) fn can_spare(&mut self, turn: Option<Place>) -> bool {
        match (self, turn) {
            (Self::Layered(hierarchy), Some(place)) => hierarchy.can_spare(place),
            _ => true,
        }
    }

    /// Returns the content of the answer to a request; `None` if there is no content.
    pub(super) fn answer(&mut self, request: &Request, name: Name) -> Option<Visit> {
        match self {
            Self::Requested(requested) => requested.next(request, name),
            Self::Flat(_) | Self::Layered(_) => self.next(None),
        }
    }

    /// Returns the content of a departure; `None` if there is no content.
    pub(super) fn next(&mut self, turn: Option<Place>) -> Option<Visit> {
        match (self, turn) {
            (Self::Flat(carousel), _) => carousel.next_visit(),
            (Self::Layered(hierarchy), Some(place)) => hierarchy.visit(place),
            (Self::Requested(_), _) | (Self::Layered(_), None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;
    use std::collections::BTreeSet;

    use super::*;
    use crate::rng::Seed;

    const SYMBOLS: usize = 300;

    fn requested(encoding_symbols: u32) -> Content {
        let block = CarouselBlock { symbols: 100, encoding_symbols, rateless: encoding_symbols > 1_000 };
        Content::requested(vec![block; 3], Seed(1).stream("turns", 0), Start::First)
    }

    fn receiver(port: u16) -> Destination {
        Destination::Unicast(SocketAddr::from(([192, 0, 2, 1], port)))
    }

    fn request(destination: Destination) -> Request {
        Request { destination, description: None, follows_another: false, place: None, block: None }
    }

    fn symbol(content: &mut Content, port: u16) -> (u32, u32) {
        let visit = content.answer(&request(receiver(port)), None).unwrap();
        (visit.block, visit.esi)
    }

    #[test]
    fn each_receiver_gets_every_symbol_of_a_cycle_once() {
        let block = CarouselBlock { symbols: 300, encoding_symbols: 600, rateless: false };
        let mut content = Content::requested(vec![block], Seed(1).stream("turns", 0), Start::First);
        let mut received = [const { BTreeSet::new() }; 3];
        for turn in 0..1_200 {
            // The receivers ask at different rates.
            let port = [0, 0, 1, 0, 1, 2][turn % 6];
            let of_receiver = &mut received[usize::from(port)];
            assert!(of_receiver.insert(symbol(&mut content, port)), "a symbol twice for {port}");
        }
        assert_eq!(received.iter().map(BTreeSet::len).collect::<Vec<_>>(), [600, 400, 200]);
    }

    #[test]
    fn a_receiver_that_resumes_from_another_address_continues() {
        let mut content = requested(100);
        let mut received: BTreeSet<_> = (0..120).map(|_| symbol(&mut content, 0)).collect();
        received.extend((120..SYMBOLS).map(|_| symbol(&mut content, 1)));
        assert_eq!(received.len(), SYMBOLS);
    }

    /// A receiver that was killed resumes from another port, while receivers of other hosts went on.
    #[test]
    fn a_receiver_that_resumes_from_another_port_continues() {
        let mut content = requested(100);
        let mut received: BTreeSet<_> = (0..120).map(|_| symbol(&mut content, 0)).collect();
        let other = Destination::Unicast(SocketAddr::from(([192, 0, 2, 2], 0)));
        for _ in 0..77 {
            content.answer(&request(other), None).unwrap();
        }
        received.extend((120..SYMBOLS).map(|_| symbol(&mut content, 1)));
        assert_eq!(received.len(), SYMBOLS);
    }

    #[test]
    fn an_order_that_begins_at_a_place_stays_there_when_a_receiver_of_another_session_comes() {
        let mut content = requested(200);
        let place = NonZeroU32::new(1 << 30);
        let next = |content: &mut Content, place| {
            content.answer(&Request { place, ..request(receiver(0)) }, None).unwrap().esi
        };
        let first = next(&mut content, place);
        content.skip();
        assert!((49..=51).contains(&first), "a quarter of 200: {first}");
        let rest: Vec<_> = (0..6).map(|_| next(&mut content, None)).collect();
        assert!(rest.iter().all(|esi| (49..=53).contains(esi)), "{rest:?}");
    }

    #[test]
    fn receivers_beyond_the_bound_share_an_order() {
        let mut content = requested(100);
        // Each receiver is forgotten before its next request.
        let received: BTreeSet<_> =
            (0..SYMBOLS).map(|turn| symbol(&mut content, u16::try_from(turn % 65).unwrap())).collect();
        assert_eq!(received.len(), SYMBOLS);
        let Content::Requested(requested) = &content else { panic!("sent on request") };
        assert_eq!(requested.own.len(), ORDERS_MAX);
    }

    #[test]
    fn a_rateless_code_has_one_order() {
        let mut content = requested(1 << 24);
        let received: BTreeSet<_> = (0..900).map(|turn| symbol(&mut content, turn % 3)).collect();
        assert_eq!(received.len(), 900);
    }

    #[test]
    fn withdrawn_blocks_leave_every_order() {
        let mut content = requested(100);
        for turn in 0..60 {
            symbol(&mut content, turn % 3);
        }
        content.retain(|block| block != 1);
        assert!((0..900).all(|turn| symbol(&mut content, turn % 3).0 != 1));
    }

    #[test]
    fn a_name_brings_a_symbol_of_its_block_also_after_a_withdrawal() {
        let block = |symbols| CarouselBlock { symbols, encoding_symbols: 2 * symbols, rateless: false };
        let mut content = Content::requested(
            [7, 90, 7, 30, 90].map(block).to_vec(),
            Seed(1).stream("turns", 0),
            Start::First,
        );
        let named = |content: &mut Content, block, esi| {
            content.answer(&request(receiver(0)), Some((block, esi))).unwrap()
        };
        content.retain(|block| block != 1);
        for block in [0, 2, 3, 4] {
            let esis: BTreeSet<_> = (0..5)
                .map(|_| named(&mut content, block, None))
                .map(|visit| {
                    assert_eq!(visit.block, block);
                    visit.esi
                })
                .collect();
            assert_eq!(esis.len(), 5, "each symbol once");
        }
        assert_ne!(named(&mut content, 1, None).block, 1, "withdrawn: the next symbol of another");
        assert_ne!(
            named(&mut content, 4, Some(3)).esi,
            3,
            "a block with repair symbols has no named symbols"
        );
    }

    /// The first requests of a receiver say where its order begins; later ones change nothing.
    #[test]
    fn a_new_order_begins_where_the_receiver_asks() {
        let mut content = requested(100);
        let at = |content: &mut Content, host: u8, port, place: u32| {
            let destination = Destination::Unicast(SocketAddr::from(([192, 0, 2, host], port)));
            let place = NonZeroU32::new(place);
            content.answer(&Request { place, ..request(destination) }, None).unwrap().esi
        };
        let half = 1 << 31;
        assert_eq!(at(&mut content, 1, 1, 0), 0, "the common place");
        assert!((49..=50).contains(&at(&mut content, 1, 1, half)));
        assert!((49..=53).contains(&at(&mut content, 1, 1, half / 2)), "placed once");
        assert!((49..=53).contains(&at(&mut content, 1, 2, half)), "goes on from another port");
        assert!((25..=28).contains(&at(&mut content, 1, 3, half / 2)), "another folder of the host");
        for _ in 0..=PLACED_WITHIN {
            at(&mut content, 2, 1, 0);
        }
        assert!((80..=95).contains(&at(&mut content, 2, 1, half)), "late");
    }

    fn place(part: f64) -> Option<NonZeroU32> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a cycle")]
        NonZeroU32::new((part * f64::from(u32::MAX)) as u32 + 1)
    }

    /// A receiver that is killed goes on with the very next symbols of each block, though the blocks are not
    /// at the same place. Without repair symbols it gets those again that it missed.
    #[test]
    fn an_order_near_the_place_goes_on_as_it_is() {
        for (encoding_symbols, missed) in [(200, 0), (100, 6)] {
            let mut content = requested(encoding_symbols);
            let mut received: BTreeSet<_> = (0..120 - missed).map(|_| symbol(&mut content, 0)).collect();
            (0..missed).for_each(|_| _ = symbol(&mut content, 0));
            let place = place(f64::from(120 - missed) / 3.0 / f64::from(encoding_symbols));
            for _ in 120 - missed..300 {
                let visit = content.answer(&Request { place, ..request(receiver(1)) }, None).unwrap();
                received.insert((visit.block, visit.esi));
            }
            assert_eq!(received.len(), SYMBOLS);
        }
    }
}
