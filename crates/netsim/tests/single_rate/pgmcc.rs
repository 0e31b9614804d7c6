use crate::bed::{Bed, Kind, PgmccSender, Place, at, rate_to, rates, share_beside_tcp};

#[test]
fn beside_one_tcp_it_takes_about_half() {
    for kbps in [1_000, 4_000] {
        let share = share_beside_tcp(Kind::Pgmcc, kbps, 2);
        assert!((0.3..=0.7).contains(&share), "{share} of {kbps} kbit/s");
    }
}

/// One receiver's acknowledgements make the window, so the losses of others do not add up.
#[test]
fn many_receivers_with_loss_do_not_lower_the_rate_to_nothing() {
    let [one, ten, hundred] = [1, 10, 100].map(|receivers| rate_to(Kind::Pgmcc, receivers, 0.01, 1).0);
    assert!(ten > 0.6 * one, "{ten} with ten receivers, {one} with one");
    assert!(hundred > 0.4 * one, "{hundred} with a hundred receivers, {one} with one");
}

#[test]
fn a_slow_receiver_that_joins_becomes_the_acker() {
    let mut bed = Bed::new(1, 2_000);
    let sent = bed.group("group", Kind::Pgmcc, &[Place::wide(); 5]);
    bed.receiver("slow", sent, Place { kbps: 300, ..Place::wide() }, at(30));
    let mut run = bed.run();
    let before = rates(&mut run, &[sent.flow], 15, 30)[0];
    let after = rates(&mut run, &[sent.flow], 50, 90)[0];
    println!("{before:.0} bit/s, then {after:.0} through 300 kbit/s");
    assert!(before > 1_500_000.0 && (200_000.0..330_000.0).contains(&after), "{before}, {after}");
    let counters = run.agent::<PgmccSender>(sent.sender).unwrap().machine().counters();
    println!("{counters:?}");
    assert!(counters.elections > 1);
}
