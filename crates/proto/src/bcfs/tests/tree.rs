//! Levels in trees without loss.

use proptest::prelude::*;

use super::bed::{Arrival, Bed, Place, address};
use crate::bcfs::{BcfsSource, Client, Label, Level, ReplyTo, ReturnPath};
use crate::machine::{Datagram, Ecn};
use crate::time::Duration;

const LABEL: Label = Label(7);

fn datagram(arrival: &Arrival) -> Datagram<'_> {
    Datagram { source: arrival.from, channel: None, ecn: Ecn::NotCapable, payload: &arrival.payload }
}

/// Clients ask for so many replies each, all at once; the source then sends as many as the most want, with
/// the levels 1, 2, ... How many each gets.
fn replies(above: &[usize], clients: &[(usize, u16)]) -> Vec<u16> {
    let routers: Vec<_> = clients.iter().map(|(router, _)| *router).collect();
    let (mut bed, mut lost, mut buffer) = (Bed::new(above, &routers), |_| false, [0; 1_500]);
    let mut ends = Vec::new();
    for (number, (router, level)) in clients.iter().enumerate() {
        let mut client = Client::new(address(Place::Source), address(Place::Router(*router)));
        client.bind(LABEL, u32::MAX).expect("one");
        let transmit = client.request(LABEL, Level(*level), Some(b""), &mut buffer);
        bed.send(Place::Client(number), transmit, &buffer, &mut lost);
        ends.push(client);
    }
    let mut source = BcfsSource::new(None, ReplyTo::Peer);
    source.bind(LABEL, u32::MAX).expect("one");
    let (mut wanted, mut end) = (0, bed.now + Duration::from_secs(1));
    while let Some(arrival) = bed.next(end, &mut lost) {
        let asked = source.receive(bed.now, &datagram(&arrival)).expect("a request");
        assert!(asked.level.0 > wanted, "only higher levels go on");
        wanted = asked.level.0;
    }
    let path = ReturnPath { peer: address(Place::Router(0)), source: address(Place::Source) };
    for level in 1..=wanted {
        let transmit = source.reply(bed.now, &path, LABEL, Level(level), 0, &mut buffer);
        bed.send(Place::Source, transmit, &buffer, &mut lost);
    }
    end += Duration::from_secs(1);
    let mut got = vec![0; clients.len()];
    while let Some(arrival) = bed.next(end, &mut lost) {
        let Place::Client(number) = arrival.at else { panic!("{arrival:?}") };
        assert!(ends[number].receive(&datagram(&arrival)).is_some());
        got[number] += 1;
    }
    (0..above.len()).for_each(|router| assert_eq!(bed.router(router).entries(), 0, "all is taken away"));
    got
}

#[test]
fn receivers_get_as_many_replies_as_they_ask_for() {
    // Figure 3: one router above two, with receivers that ask for different numbers.
    assert_eq!(replies(&[0, 0, 0], &[(1, 1), (1, 3), (2, 2), (2, 5)]), [1, 3, 2, 5]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn so_they_do_in_any_tree(
        above in prop::collection::vec(0..100_usize, 1..8), clients in prop::collection::vec((0..100_usize, 1..9_u16), 1..12),
    ) {
        let above: Vec<_> = above.iter().enumerate().map(|(router, above)| above % router.max(1)).collect();
        let clients: Vec<_> = clients.into_iter().map(|(router, level)| (router % above.len(), level)).collect();
        let wanted: Vec<_> = clients.iter().map(|(_, level)| *level).collect();
        prop_assert_eq!(replies(&above, &clients), wanted);
    }
}
