//! Sessions in which each receiver has a rate of its own.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use headwater::proto::control::Rules;
use headwater::{
    CongestionControl, Direction, IncompleteReason, LayerOptions, ReceiveOptions, ReceiveOutcome,
    ReceiveSession, ReceiveSummary, ReceiveUpdate, SendEnd, SendError, SendOptions, SendOrder, SendOutcome,
    SendSession, Session, SimOptions, TraceHook, prepare,
};

use crate::bed::{Change, Sending, content, group, loopback, receive, receive_ahead, receive_options, write};

/// Receives a session. Returns whether the control ever estimated the path.
fn receive_estimating(options: ReceiveOptions) -> (ReceiveSummary, bool) {
    let mut estimates = false;
    let mut observer = |update| {
        if let ReceiveUpdate::Progress(progress) = update {
            estimates |= progress.control.path.is_some();
        }
    };
    let summary = ReceiveSession::open(options).unwrap().run(&mut observer).unwrap();
    (summary, estimates)
}

/// A session in which each receiver has its own rate: no option, no number but the group at the receivers.
/// Says how many answers to questions for the round-trip time came to the slow one, too.
fn multi_rate(control: fn(LayerOptions) -> CongestionControl) -> (ReceiveSummary, ReceiveSummary, u64) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(3_000_000, 7), 0o600);
    let group = group();
    let layers = LayerOptions::new().with_max_rate("40M".parse().unwrap());
    let options = SendOptions::new(loopback(group), control(layers));
    let sending = Sending::start(&file, options);
    let (free, capped) = (folder.path().join("free"), folder.path().join("capped"));
    let answers = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&answers);
    let cap = receive_options(group, &capped)
        .with(|options| options.listen.max_rate = Some("2M".parse().unwrap()))
        .with(|options| {
            options.listen.trace = Some(TraceHook::new(move |packet| {
                let is_answer = packet.direction == Direction::Received && packet.payload.starts_with(b"HWR");
                counted.fetch_add(u64::from(is_answer), Ordering::Relaxed);
            }));
        });
    let slow = thread::spawn(move || receive_estimating(cap));
    let published = receive_options(group, &free).with(|options| options.listen.rules = Rules::Published);
    let (quick, estimates) = receive_estimating(published);
    assert!(!estimates, "the published rules estimate nothing of the path");
    let (slow, estimates) = slow.join().unwrap();
    assert_eq!(estimates, control(layers).name() == "m2c", "M2C's own rules do");
    sending.stop();
    for (summary, out) in [(&quick, &free), (&slow, &capped)] {
        assert_eq!(summary.outcome, ReceiveOutcome::Completed);
        assert_eq!(fs::read(out.join("file")).unwrap(), fs::read(&file).unwrap());
        assert_eq!(summary.progress.control.name, control(layers).name());
        assert!(summary.progress.control.join_latency.is_some());
        let (useful, packets) = (summary.progress.stats.useful, summary.progress.stats.packets);
        assert!(packets < useful + useful / 5 + 100, "{useful} of {packets} packets were needed");
    }
    // 3 MB at 2 Mbit/s take 12 s.
    assert!(slow.progress.elapsed > Duration::from_secs(9), "{:?}", slow.progress.elapsed);
    (quick, slow, answers.load(Ordering::Relaxed))
}

/// The capped receiver does not hold the other one back. WEBRC's start-up takes most of its time, on a busy
/// machine four fifths of the other's.
fn is_quicker(quick: &ReceiveSummary, slow: &ReceiveSummary) {
    let (quick, slow) = (quick.progress.elapsed, slow.progress.elapsed);
    assert!(quick < slow * 9 / 10, "{quick:?}, and {slow:?} with a cap");
}

#[test]
fn each_receiver_has_its_own_rate_by_m2c() {
    let (quick, slow, answers) = multi_rate(CongestionControl::M2c);
    is_quicker(&quick, &slow);
    // The first question is asked within 4 s of the first packet, the second 7 s after its answer or later.
    assert!((1..3).contains(&answers), "{answers} answers");
}

#[test]
fn each_receiver_has_its_own_rate_by_webrc() {
    let (quick, slow, _answers) = multi_rate(CongestionControl::Webrc);
    is_quicker(&quick, &slow);
}

#[test]
fn each_receiver_has_its_own_rate_by_flid_dl() {
    // It takes seconds to rise, and any packet that a busy machine loses takes it down a level.
    let _whole = multi_rate(CongestionControl::FlidDl);
}

/// Receivers report by unicast, and learn from the description that they are to. Without reports the sender
/// stays at its initial rate, at which this takes minutes.
#[test]
fn a_session_of_sim_goes_as_fast_as_reports_allow() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(3_000_000, 9), 0o600);
    let group = group();
    let control = CongestionControl::Sim(SimOptions::new().with_max_rate("10M".parse().unwrap()));
    let sending = Sending::start(&file, SendOptions::new(loopback(group), control));
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let reports = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reports);
    let watched = receive_options(group, &one).with(|options| {
        options.listen.trace = Some(TraceHook::new(move |packet| {
            let is_report = packet.direction == Direction::Sent && packet.payload.len() == 40;
            counted.fetch_add(u64::from(is_report), Ordering::Relaxed);
        }));
    });
    let watched = thread::spawn(move || receive(watched));
    let summaries = [receive(receive_options(group, &other)), watched.join().unwrap()];
    sending.stop();
    for (summary, out) in summaries.iter().zip([&other, &one]) {
        assert_eq!(summary.outcome, ReceiveOutcome::Completed);
        assert_eq!(fs::read(out.join("file")).unwrap(), fs::read(&file).unwrap());
        assert_eq!(summary.progress.control.name, "sim");
        assert!(summary.progress.elapsed < Duration::from_secs(100), "{:?}", summary.progress.elapsed);
    }
    assert!(reports.load(Ordering::Relaxed) > 10, "{reports:?}");
}

#[test]
fn a_session_of_many_rates_is_described_and_closed_for_those_on_the_base_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, &content(50_000_000, 8), 0o600);
    let group = group();
    let layers = LayerOptions::new().with_base_rate("1M".parse().unwrap());
    let options = SendOptions::new(loopback(group), CongestionControl::M2c(layers));
    let cap = Some("1M".parse().unwrap());
    let receiving = receive_ahead(
        receive_options(group, &folder.path().join("out")).with(|options| options.listen.max_rate = cap),
    );
    let sending =
        Sending::start(&file, options.with(|options| options.end = SendEnd::After(Duration::from_secs(2))));
    let sent = sending.thread.join().unwrap().unwrap();
    assert_eq!(sent.outcome, SendOutcome::Completed);
    let summary = receiving.join().unwrap();
    assert_eq!(summary.outcome, ReceiveOutcome::Incomplete(IncompleteReason::SessionClosed));
    // Packets of 2 s at 1 Mbit/s, and those of the end: no other channel's.
    let packets = summary.progress.stats.packets;
    assert!((40..400).contains(&packets), "{packets} packets");
}

#[test]
fn contradictions_of_a_session_of_many_rates_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, b"x", 0o600);
    let refused = |layers: LayerOptions, change: fn(SendOptions) -> SendOptions| {
        let options = change(SendOptions::new(loopback(group()), CongestionControl::M2c(layers)));
        SendSession::open(prepare([&file]).unwrap(), options).unwrap_err()
    };
    let low = LayerOptions::new().with_max_rate("500k".parse().unwrap());
    let error = refused(low, |options| options);
    assert!(matches!(error, SendError::Rates { .. }));
    assert!(error.to_string().contains("at least 600 kbit/s"), "{error}");
    // SIM's rates follow reports: they begin at the base rate, and may stay there.
    for (max, is_open) in [("120k", true), ("119k", false)] {
        let control = CongestionControl::Sim(SimOptions::new().with_max_rate(max.parse().unwrap()));
        let options = SendOptions::new(loopback(group()), control);
        assert_eq!(SendSession::open(prepare([&file]).unwrap(), options).is_ok(), is_open, "{max}");
    }
    let windows = refused(LayerOptions::new(), |options| {
        options.with(|options| options.order = Some(SendOrder::Window))
    });
    assert!(matches!(windows, SendError::NoWindows));
    let passes =
        refused(LayerOptions::new(), |options| options.with(|options| options.end = SendEnd::Passes(1)));
    assert!(matches!(passes, SendError::NoPasses));
}
