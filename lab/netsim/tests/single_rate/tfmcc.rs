use headwater_baselines::tfmcc::TfmccSenderCounters;
use headwater_netsim::engine::Run;

use crate::bed::{
    Bed, Kind, PACKET, Place, Sent, TfmccSender, a_slow_receiver_joins, at, rate_to,
    takes_about_half_beside_tcp,
};

fn counters(run: &Run, sent: Sent) -> TfmccSenderCounters {
    *run.agent::<TfmccSender>(sent.sender).unwrap().machine().counters()
}

#[test]
fn beside_one_tcp_it_takes_about_half() {
    takes_about_half_beside_tcp(Kind::Tfmcc, 0.3..=0.7);
}

/// Independent loss at many: the worst of many estimates sets the rate, so it falls with their number, but
/// not to nothing (Widmer and Handley 2001, section 5.1).
#[test]
fn many_receivers_with_loss_lower_the_rate_but_not_to_nothing() {
    let [one, ten, hundred] = [1, 10, 100].map(|receivers| rate_to(Kind::Tfmcc, receivers, 0.01, 1).0);
    assert!(ten < one && ten > 0.3 * one, "{ten} with ten receivers, {one} with one");
    assert!(
        hundred < 1.1 * ten && hundred > 0.15 * one,
        "{hundred} with a hundred receivers, {one} with one"
    );
}

#[test]
fn a_slow_receiver_that_joins_becomes_the_clr() {
    let (run, sent) = a_slow_receiver_joins(Kind::Tfmcc);
    let switches = counters(&run, sent).switches;
    assert!(switches > 0);
}

#[test]
fn a_thousand_receivers_send_a_bounded_number_of_reports_each_round() {
    let mut bed = Bed::new(1, 500);
    let places = vec![Place { loss: 0.01, ..Place::wide() }; 1_000];
    let sent = bed.group("group", Kind::Tfmcc, &places);
    let mut run = bed.run();
    run.run_until(at(10));
    let before = counters(&run, sent);
    run.run_until(at(30));
    let after = counters(&run, sent);
    let rounds = after.rounds - before.rounds;
    let mean = (after.others - before.others) as f64 / rounds as f64;
    let rate = run.agent::<TfmccSender>(sent.sender).unwrap().machine().rate();
    println!("{mean:.1} reports of others in each of {rounds} rounds, {rate}, {} switches", after.switches);
    assert!(rounds > 10 && mean < 40.0, "{mean} in each of {rounds}");
    assert!(rate.as_bits() > 8 * u64::from(PACKET), "{rate}");
}
