//! One rate for all: one that is kept, and one that receivers make.

use std::fs;
use std::time::Duration;

use headwater::pgm::{LeSbccModule, LeSbccOptions};
use headwater::proto::Rate;
use headwater::proto::control::Value;
use headwater::{
    CongestionControl, Loss, ReceiveOutcome, Scheme, SendEnd, SendOptions, SendSession, Session, prepare,
};

use crate::bed::{
    Change, Sending, content, group, loopback, receive, receive_ahead, receive_options, send_options, write,
};

#[test]
fn rates_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(400_000, 5), 0o644);
    let options = send_options(group(), "8M").with(|options| options.end = SendEnd::Passes(2));
    let rate = Rate::from_kilobits(8_000);
    let mut session = SendSession::open(prepare([&file]).unwrap(), options).unwrap();
    let summary = session.run(&mut |_| {}).unwrap();
    // Never sooner: a busy machine may be later.
    let least = Duration::from(rate.time_of(summary.progress.bytes - 3_000)) - Duration::from_millis(11);
    assert!(summary.progress.elapsed >= least, "{:?} < {least:?}", summary.progress.elapsed);
    assert_eq!(summary.progress.unsent, 0);
}

#[test]
fn at_high_rates_a_call_sends_many_datagrams() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, content(3_000_000, 5)).unwrap();
    let options = send_options(group(), "1G").with(|options| options.scheme = Scheme::NoCode);
    let options = options.with(|options| options.end = SendEnd::After(Duration::from_millis(200)));
    let mut session = SendSession::open(prepare([&file]).unwrap(), options).unwrap();
    let segmentation = session.started().segmentation;
    let sent = session.run(&mut |_| {}).unwrap();
    // 18 in 200 us; a turn that comes late sends more. A kernel that does not segment takes them one by one.
    let least = if segmentation { 8 } else { 1 };
    assert!(sent.progress.packets >= least * sent.calls, "{sent:?}");
}

/// One rate that the sender finds: receivers tell what they lose by NAKs, other symbols repair, and who comes
/// late gets all of it.
#[test]
fn files_over_pgm_at_a_rate_by_le_sbcc_reach_all_receivers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(1_500_000, 9), 0o600);
    let group = group();
    for module in [LeSbccModule::Aimd, LeSbccModule::Tfrc] {
        let le_sbcc = LeSbccOptions::new()
            .with_module(module)
            .with_min_rate(Some("3M".parse().unwrap()))
            .with_max_rate("8M".parse().unwrap());
        let control = CongestionControl::LeSbcc(le_sbcc);
        let options = SendOptions::new(loopback(group), control);
        let out = |name: &str| folder.path().join(format!("{name}-{}", control.name()));
        let (early, lossy, late) = (out("early"), out("lossy"), out("late"));
        let receiving = receive_ahead(receive_options(group, &early));
        let loss = Some(Loss { probability: 0.05, seed: 4 });
        let losing = receive_ahead(receive_options(group, &lossy).with(|options| options.listen.loss = loss));
        let sending = Sending::start(&file, options);
        let (first, second) = (receiving.join().unwrap(), losing.join().unwrap());
        let third = receive(receive_options(group, &late));
        let sent = sending.stop();
        for (summary, out) in [(&first, &early), (&second, &lossy), (&third, &late)] {
            assert_eq!(summary.outcome, ReceiveOutcome::Completed);
            assert_eq!(fs::read(out.join("file")).unwrap(), fs::read(&file).unwrap());
            assert_eq!(summary.progress.control.name, "le-sbcc");
            assert_eq!(summary.progress.stats.duplicates, 0, "no symbol is sent twice");
        }
        assert!(second.progress.reception.lost > 10 && second.progress.control.naks > Some(5));
        let counters = &sent.progress.counters;
        let count = |name| counters.count(name);
        assert_eq!((count("repairs"), count("malformed")), (0, 0));
        assert!(count("loss_indications") > 10 && count("reductions") > 0, "{counters:?}");
        let stages = ["loss_indications", "loss_events", "passed"].map(count);
        assert!(stages.is_sorted_by(|before, after| before >= after), "{counters:?}");
        assert!(counters.get("worst").is_some(), "{counters:?}");
        let Some(Value::Rate(allowed)) = counters.get("allowed_rate") else { panic!("{counters:?}") };
        assert!((3_000_000..=8_000_000).contains(&allowed.as_bits()), "{counters:?}");
    }
}
