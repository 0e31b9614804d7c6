use crate::bed::{Kind, PgmccSender, a_slow_receiver_joins, rate_to, takes_about_half_beside_tcp};

#[test]
fn beside_one_tcp_it_takes_about_half() {
    takes_about_half_beside_tcp(Kind::Pgmcc, 0.42..=0.6);
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
    let (run, sent) = a_slow_receiver_joins(Kind::Pgmcc);
    let counters = run.agent::<PgmccSender>(sent.sender).unwrap().machine().counters();
    println!("{counters:?}");
    assert!(counters.elections > 1);
}
