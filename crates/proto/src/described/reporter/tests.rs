//! Tests of reports.

use headwater_wire::extensions::DemandEcho;

use headwater_wire::rtt::Demand as Report;
use rand::RngExt as _;

use super::*;
use crate::layering::demand::Demand as SenderDemand;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn levels(ceiling: u8, is_open: bool, level: u8) -> Option<Levels> {
    Some(Levels {
        ceiling,
        demand: Some(DemandEcho { round: 1, is_open, level, loss: LossClass::default() }),
    })
}

fn holding(level: u16) -> LevelNeed {
    LevelNeed { level, next: level + 1, is_starting: false }
}

const STARTING: LevelNeed = LevelNeed { level: 0, next: u16::MAX, is_starting: true };

fn sender() -> SocketAddr {
    ([192, 0, 2, 1], 4_242).into()
}

fn reporter(seed: u64) -> Reporter {
    Reporter::new(Seed(seed))
}

/// Reports of a receiver that hears the same packet of the base channel ten times a second.
fn reports(reporter: &mut Reporter, seconds: u64, levels: Option<Levels>, need: LevelNeed) -> Vec<u64> {
    let mut sent = Vec::new();
    for ms in 0..1_000 * seconds {
        if ms % 100 == 0 {
            reporter.heard(at(ms), sender(), levels, need, Reception::default());
        }
        if reporter.poll_timeout().is_some_and(|due| due <= at(ms))
            && reporter.poll_transmit(at(ms), &mut [0; 64]).is_some()
        {
            sent.push(ms);
        }
    }
    sent
}

#[test]
fn only_a_sender_that_asks_for_reports_hears_of_levels_above_the_echo() {
    let none = [
        (None, holding(9)),
        (Some(Levels { ceiling: 3, demand: None }), holding(9)),
        (levels(10, false, 9), holding(9)),
        (levels(30, false, 20), holding(9)),
        // The sender knows the level, and sends no more.
        (levels(9, false, 9), holding(9)),
    ];
    for (levels, need) in none {
        assert_eq!(reports(&mut reporter(1), 30, levels, need), Vec::<u64>::new(), "{levels:?}");
    }
    for (levels, need, within) in [
        (levels(11, false, 8), holding(9), 6_001),
        (levels(9, false, 8), holding(9), 251),
        (levels(30, true, 8), holding(9), 6_001),
        (levels(8, false, 0), STARTING, 251),
    ] {
        let sent = reports(&mut reporter(1), 7, levels, need);
        assert!(sent.first().is_some_and(|ms| *ms <= within), "{sent:?} {levels:?}");
    }
}

/// A sender that never echoed a report may be out of the reach of all receivers.
#[test]
fn a_sender_that_does_not_react_is_told_again_and_then_named() {
    for (echo, tries) in [(0, 3), (3, 8)] {
        let mut reporter = reporter(3);
        let sent = reports(&mut reporter, 300, levels(8, false, echo), holding(9));
        let soon = sent.iter().take_while(|ms| **ms < 12_000).count();
        assert_eq!(soon, tries, "{sent:?}");
        assert!((25..=29).contains(&(sent.len() - soon)), "each 10 s: {sent:?}");
        assert!(sent[1] - sent[0] >= 1_250 && sent[tries - 1] < 10_000, "{sent:?}");
        assert_eq!(reporter.unheard(), Some(sender()));
        reporter.heard(at(300_000), sender(), levels(11, false, 9), holding(9), Reception::default());
        assert_eq!(reporter.unheard(), None);
    }
}

/// Time in milliseconds until the sender echoes the level of a receiver that joins a level as soon as the
/// sender sends the level, from level 9 to level 29.
fn climb(told_by_another: bool) -> u64 {
    let (mut reporter, mut echo, mut level) = (reporter(5), 9_u8, 9_u8);
    for ms in 0..60_000 {
        if ms % 100 == 0 {
            let ceiling = echo + 2;
            level = level.max(ceiling);
            let heard = levels(ceiling, false, echo);
            reporter.heard(at(ms), sender(), heard, holding(level.into()), Reception::default());
        }
        if reporter.poll_timeout().is_some_and(|due| due <= at(ms))
            && reporter.poll_transmit(at(ms), &mut [0; 64]).is_some()
        {
            // Of two reports of a level, the sender knows one.
            echo = level + u8::from(told_by_another);
        }
        if echo >= 29 {
            return ms;
        }
    }
    60_000
}

#[test]
fn a_receiver_whose_report_is_the_highest_does_not_wait() {
    let (own, of_others) = (climb(false), climb(true));
    assert!(own <= 1_300, "{own} ms");
    assert!(of_others > own + 300, "{of_others} ms, alone {own}");
}

#[test]
fn a_sender_that_makes_room_hears() {
    let mut reporter = reporter(3);
    for ms in 0..20_000_u32 {
        // A level more each two seconds.
        let ceiling = u8::try_from(ms / 2_000).unwrap();
        if ms % 100 == 0 {
            let levels = levels(ceiling, false, 0);
            reporter.heard(at(ms.into()), sender(), levels, STARTING, Reception::default());
        }
        reporter.poll_transmit(at(ms.into()), &mut [0; 64]);
        assert_eq!(reporter.unheard(), None, "{ms} ms");
    }
}

#[test]
fn each_step_of_a_start_is_told_at_once() {
    let mut reporter = reporter(3);
    let mut hear = |ms: u64, level: u16| {
        let need = LevelNeed { level, next: level + 20, is_starting: true };
        reporter.heard(at(ms), sender(), levels(30, false, 0), need, Reception::default());
        let report = reporter.poll_transmit(at(ms), &mut [0; 64]);
        assert_eq!(reporter.unheard(), None, "{ms} ms");
        report.is_some()
    };
    let first = (0..300).find(|ms| hear(*ms, 12)).expect("the start's first report");
    for step in 1..8 {
        let (ms, level) = (first + 25 * step, 12 + 2 * u16::try_from(step).unwrap());
        assert!(hear(ms, level) && !hear(ms + 1, level), "step {step}");
    }
}

#[test]
fn however_often_levels_move_reports_are_20_ms_apart() {
    let (mut reporter, mut sent) = (reporter(3), Vec::new());
    for ms in 0..2_000 {
        let round = u8::try_from(1 + ms % 15).unwrap();
        let demand = DemandEcho { round, is_open: false, level: 0, loss: LossClass::default() };
        let need = LevelNeed { level: u16::try_from(ms % 7).unwrap(), ..STARTING };
        let levels = Some(Levels { ceiling: 3, demand: Some(demand) });
        reporter.heard(at(ms), sender(), levels, need, Reception::default());
        sent.extend(reporter.poll_transmit(at(ms), &mut [0; 64]).map(|_| ms));
    }
    assert!(sent.len() > 2 && sent.windows(2).all(|pair| pair[1] - pair[0] >= 20), "{sent:?}");
}

#[test]
fn another_sender_knows_nothing() {
    let mut reporter = reporter(3);
    assert_eq!(reports(&mut reporter, 30, levels(12, false, 11), holding(9)), Vec::<u64>::new());
    let other = ([192, 0, 2, 2], 4_242).into();
    reporter.heard(at(30_000), other, levels(12, false, 0), holding(9), Reception::default());
    assert!(reporter.poll_timeout().is_some());
}

/// Level of a receiver of the simulations, and packets per second.
const TOP: u16 = 60;

fn rate(level: u16) -> f64 {
    10.0 * libm::pow(1.155, f64::from(level))
}

/// Time between two packets of the base channel.
const BASE_MS: u64 = 96;

/// Sender that follows the reports of many reporters, each of which is 5 to 100 ms away.
struct Crowd {
    demand: SenderDemand,
    reporters: Vec<Reporter>,
    /// Reports on their way: arrival in milliseconds, and the datagram.
    reports: Vec<(u64, Vec<u8>)>,
    /// Part of the reports that is lost, and the draws.
    lost: (f64, Stream),
    packets: u64,
    /// Reports in each second.
    seconds: Vec<u64>,
}

impl Crowd {
    fn new(receivers: u64) -> Self {
        Self {
            demand: SenderDemand::new(TOP, 14, rate(46)),
            reporters: (0..receivers).map(reporter).collect(),
            reports: Vec::new(),
            lost: (0.0, Seed(1).stream("loss", 0)),
            packets: 0,
            seconds: Vec::new(),
        }
    }

    fn delay_ms(index: usize) -> u64 {
        5 + index as u64 * 7_919 % 95
    }

    /// Sends a packet of the base channel, and delivers reports until the next. `state` returns the need of a
    /// receiver and the packets that it received, at the announced levels.
    fn step(&mut self, state: &mut dyn FnMut(usize, Levels) -> (LevelNeed, Reception)) -> u16 {
        let (now, packet) = (BASE_MS * self.packets, self.packets);
        self.packets += 1;
        self.reports.sort();
        let arrived = self.reports.iter().take_while(|(ms, _)| *ms <= now).count();
        for (ms, datagram) in self.reports.drain(..arrived) {
            let Ok(Message::Report(report)) = Message::parse(&datagram) else { panic!("a report") };
            self.demand.report(at(ms), report, rate);
        }
        let ceiling = self.demand.level(at(now), rate);
        let echo = self.demand.echo(packet);
        let levels = Levels { ceiling: u8::try_from(ceiling).unwrap(), demand: Some(echo) };
        for (index, reporter) in self.reporters.iter_mut().enumerate() {
            let delay = Self::delay_ms(index);
            let heard = at(now + delay);
            let (need, reception) = state(index, levels);
            reporter.heard(heard, sender(), Some(levels), need, reception);
            let next = heard + Duration::from_millis(BASE_MS);
            while let Some(due) = reporter.poll_timeout().filter(|due| *due < next) {
                let mut buffer = [0; 64];
                let Some(transmit) = reporter.poll_transmit(due, &mut buffer) else { break };
                let ms = due.as_nanos() / 1_000_000;
                if self.lost.0 == 0.0 || self.lost.1.random::<f64>() >= self.lost.0 {
                    self.reports.push((ms + delay, buffer[..transmit.bytes].to_vec()));
                }
                let second = usize::try_from(ms / 1_000).unwrap();
                self.seconds.resize(self.seconds.len().max(second + 1), 0);
                self.seconds[second] += 1;
            }
        }
        ceiling
    }
}

/// Level of a receiver that starts with the first packet of the base channel: the description, then the steps
/// of a start up to level 38.
fn start_need(packet: u64, levels: Levels) -> LevelNeed {
    let need = |level: u16| LevelNeed { level, next: (level + 12).min(TOP), is_starting: true };
    match packet {
        0..6 if levels.demand.is_some_and(|echo| echo.is_open) => LevelNeed { next: 0, ..STARTING },
        0..6 => STARTING,
        6 => need(0),
        step @ 7..12 => need(6 * u16::try_from(step - 6).unwrap() + 8),
        _ => holding(38),
    }
}

#[test]
fn reports_stay_few_however_many_receivers_start() {
    // A million takes a minute: for `./ci.sh long`.
    let million = option_env!("HEADWATER_LONG").map(|_| 1_000_000);
    for receivers in [1, 3, 30, 1_000, 100_000].into_iter().chain(million) {
        let mut crowd = Crowd::new(receivers);
        let mut ceilings = Vec::new();
        for packet in 0..350 {
            let ceiling = crowd.step(&mut |_, levels| (start_need(packet, levels), Reception::default()));
            ceilings.push(ceiling);
        }
        let seconds = &crowd.seconds;
        println!("{receivers}: {seconds:?} {:?}", &ceilings[..40]);
        // The waits are for 10^5 receivers at most: of ten times as many, ten times as many are first.
        let more = receivers.div_ceil(100_000);
        assert!((1..=500 * more).contains(&seconds[0]), "{receivers}: {seconds:?}");
        assert!(seconds[1..].iter().all(|reports| *reports <= 30 * more), "{receivers}: {seconds:?}");
        let later: u64 = seconds[1..].iter().sum();
        assert!(later <= 3 * more * seconds.len() as u64, "{receivers}: {seconds:?}");
        assert!(ceilings[4..].iter().all(|ceiling| *ceiling >= 20), "{receivers}: {ceilings:?}");
        assert!(ceilings[20..].iter().all(|ceiling| *ceiling >= 39), "{receivers}: {ceilings:?}");
    }
}

#[test]
fn a_level_held_is_sent_though_reports_are_lost() {
    for receivers in [1, 2, 5, 40] {
        for seed in 0..4 {
            let mut crowd = Crowd::new(receivers);
            crowd.lost = (0.3, Seed(seed).stream("loss", receivers));
            crowd.reporters = (0..receivers).map(|number| reporter(100 * seed + number)).collect();
            for packet in 0..2 * 3_600_000 / BASE_MS {
                let ceiling = crowd.step(&mut |_, levels| (start_need(packet, levels), Reception::default()));
                let minutes = packet * BASE_MS / 60_000;
                assert!(
                    packet < 300 || ceiling >= 38,
                    "{receivers}, seed {seed}: {ceiling} after {minutes} min"
                );
            }
            let reports: u64 = crowd.seconds.iter().sum();
            println!("{receivers}, seed {seed}: {:.2} reports a second", reports as f64 / 7_200.0);
        }
    }
}

/// Path of a receiver.
#[derive(Clone)]
struct Path {
    packets_per_second: f64,
    /// Whether the receiver obeys the overload rule.
    is_obedient: bool,
    /// Highest level that the path carries, and that half of what the sender's link carries leaves.
    fitting: [u16; 2],
}

/// Receivers behind a sender's link, some of which hold all levels whatever they lose.
struct Paths {
    /// Packets per second that the sender's own link carries.
    uplink: f64,
    of: Vec<Path>,
    packets: Vec<f64>,
    lost: Vec<f64>,
}

impl Paths {
    /// Paths of so many packets per second, each with whether its receiver obeys.
    fn new(uplink: f64, of: &[(f64, bool)]) -> Self {
        let highest = |bound| (0..=TOP).take_while(|level| rate(*level) <= bound).last().unwrap_or(0);
        let path = |(packets_per_second, is_obedient): &(f64, bool)| {
            let fitting = [*packets_per_second, packets_per_second.min(uplink) / 2.0].map(highest);
            Path { packets_per_second: *packets_per_second, is_obedient: *is_obedient, fitting }
        };
        let none = vec![0.0; of.len()];
        let of = of.iter().map(path).collect();
        Self { uplink, of, packets: none.clone(), lost: none }
    }

    #[expect(clippy::cast_possible_truncation, reason = "whole packets")]
    fn state(&mut self, index: usize, ceiling: u16) -> (LevelNeed, Reception) {
        let Path { packets_per_second: path, is_obedient, fitting } = self.of[index];
        let uplink = (self.uplink / rate(ceiling)).min(1.0);
        let fitting = fitting[usize::from(uplink < 0.9)];
        let level = if is_obedient { fitting.min(ceiling) } else { TOP };
        let sent = rate(level.min(ceiling));
        let arrives = (uplink * sent).min(path);
        self.packets[index] += arrives * BASE_MS as f64 / 1e3;
        self.lost[index] += (sent - arrives) * BASE_MS as f64 / 1e3;
        let next = if is_obedient { fitting.min(level + 1) } else { TOP };
        let need = LevelNeed { level, next, is_starting: false };
        let (packets, lost) = (self.packets[index] as u64, self.lost[index] as u64);
        (need, Reception { packets, lost, marked: 0 })
    }

    /// Fewest packets that a receiver of a kind has, as a part of what `rate` brings in so many seconds.
    fn least(&self, is_obedient: bool, rate: f64, seconds: u64) -> Option<f64> {
        let kind = self.of.iter().zip(&self.packets).filter(|(path, _)| path.is_obedient == is_obedient);
        kind.map(|(_, packets)| packets / (rate * seconds as f64)).min_by(f64::total_cmp)
    }
}

/// Ceilings in each second.
fn ceilings(crowd: &mut Crowd, paths: &mut Paths, seconds: u64) -> Vec<u16> {
    let packet = |_| crowd.step(&mut |index, levels| paths.state(index, levels.ceiling.into()));
    let packets: Vec<u16> = (0..1_000 * seconds / BASE_MS).map(packet).collect();
    packets.into_iter().step_by(10).collect()
}

const RECEIVERS: u64 = 1_000;
/// Receivers of a hundred that do not obey the overload rule.
const DISOBEDIENT: [u64; 6] = [0, 1, 10, 50, 99, 100];

/// Paths of [`RECEIVERS`], of which so many of a hundred do not obey.
fn receivers(disobedient: u64, obeys: f64, does_not: f64) -> Vec<(f64, bool)> {
    let of = |index| if index % 100 >= disobedient { (obeys, true) } else { (does_not, false) };
    (0..RECEIVERS).map(of).collect()
}

fn mean_rate(ceilings: &[u16]) -> f64 {
    ceilings.iter().map(|ceiling| rate(*ceiling)).sum::<f64>() / ceilings.len() as f64
}

#[test]
fn receivers_behind_good_paths_lose_nothing_by_others_that_hold_all() {
    const SECONDS: u64 = 240;
    let mut alone = None;
    for disobedient in DISOBEDIENT {
        let mut crowd = Crowd::new(RECEIVERS);
        let mut paths = Paths::new(f64::INFINITY, &receivers(disobedient, rate(45), rate(25)));
        let seconds = ceilings(&mut crowd, &mut paths, SECONDS);
        let least = paths.least(true, rate(45), SECONDS);
        let mean = mean_rate(&seconds[120..]);
        let reports: u64 = crowd.seconds[10..].iter().sum();
        println!(
            "{disobedient} %: obedient receivers have {least:.3?} of their path, {:.2} of the others' path is \
             sent, {reports} reports after 10 s, {seconds:?}",
            mean / rate(25)
        );
        assert!(reports <= 3 * SECONDS, "{disobedient} %: {reports} reports");
        match least {
            Some(least) => {
                // Receivers report at other times beside others: a second of packets.
                let alone = *alone.get_or_insert(least);
                assert!(least >= alone - 1.0 / SECONDS as f64, "{disobedient} %: {least} of {alone}");
                assert!(seconds[20..].iter().all(|ceiling| *ceiling >= 45), "{disobedient} %: {seconds:?}");
                assert!(seconds[120..].iter().all(|ceiling| *ceiling <= 50), "{disobedient} %: {seconds:?}");
            }
            None => assert!(mean <= 2.5 * rate(25), "{disobedient} %: {seconds:?}"),
        }
    }
}

#[test]
fn a_sender_does_not_overload_a_link_for_receivers_that_hold_all() {
    for disobedient in DISOBEDIENT {
        let mut crowd = Crowd::new(RECEIVERS);
        let mut paths = Paths::new(rate(35), &receivers(disobedient, rate(60), rate(60)));
        let seconds = ceilings(&mut crowd, &mut paths, 300);
        let mean = mean_rate(&seconds[120..]) / rate(35);
        println!("{disobedient} %: {mean:.2} of the link, {seconds:?} {:?}", crowd.seconds);
        assert!(mean <= 2.5, "{disobedient} %: {mean:.2} of the link: {seconds:?}");
        assert!(mean >= 0.7, "{disobedient} %: {mean:.2} of the link: {seconds:?}");
    }
}

#[test]
fn forged_losses_take_nothing_from_honest_receivers() {
    let mut crowd = Crowd::new(100);
    let mut paths = Paths::new(f64::INFINITY, &[(rate(45), true); 100]);
    for second in 0..200_u64 {
        for level in [255, 45] {
            let report = Report { level, is_starting: false, loss: LossClass::of(1.0) };
            crowd.demand.report(at(1_000 * second), report, rate);
        }
        let seconds = ceilings(&mut crowd, &mut paths, 1);
        assert!(second < 20 || seconds.iter().all(|ceiling| *ceiling >= 45), "{second}: {seconds:?}");
    }
}
