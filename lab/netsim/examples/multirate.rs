//! Studies of M2C beside TCP and itself, as lines of CSV:
//! `multirate STUDY SEEDS SECONDS [KBPS [RTT_MS [JOIN_MS [QUEUE]]]]`. Of `start`, `start-pages` and
//! `start-tcp`, SECONDS is what the file would take if it had the link for itself.
#[path = "../tests/multirate/bed.rs"]
#[expect(dead_code, reason = "shared with the tests")]
mod bed;

use bed::*;
use headwater_netsim::engine::Run;
use headwater_netsim::measure::jain;
use headwater_netsim::network::{AgentId, FlowId};
use headwater_netsim::tcp::{Data, Growth, Variant};
use headwater_proto::rtt::ProberConfig;
use headwater_proto::{Duration, Seed, m2c};

#[expect(clippy::disallowed_methods, reason = "a command has arguments")]
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| {
        arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let study = arguments.first().map_or("tcp", String::as_str);
    let (seeds, seconds) = (number(1, 4), number(2, 300));
    let mut place = Place::new(number(3, 1_000));
    place.round_trip = ms(number(4, 8));
    place.join = ms(number(5, 5));
    place.queue = u32::try_from(number(6, 25)).expect("packets");
    let mut sums = Vec::new();
    for seed in 0..seeds {
        let values = match study {
            "pair" => pair(seed, place, seconds),
            "rivals" => rivals(seed, place, seconds),
            "alone" => alone(seed, place, seconds),
            _ if study.starts_with("scale") => scale(study, seed, place, seconds),
            "start" | "start-pages" | "start-tcp" => start(study, seed, seeds, place, seconds),
            _ => beside(study, seed, place, seconds),
        };
        let text: Vec<String> = values.iter().map(|value| format!("{value:.3}")).collect();
        println!("{study},{seed},{},{:?},{:?},{}", place.kbps, place.round_trip, place.join, text.join(","));
        sums.push(values);
    }
    let columns = sums.first().map_or(0, Vec::len);
    let mean = |column: usize| sums.iter().map(|row| row[column]).sum::<f64>() / seeds as f64;
    let least = |column: usize| sums.iter().map(|row| row[column]).fold(f64::INFINITY, f64::min);
    let most = |column: usize| sums.iter().map(|row| row[column]).fold(f64::NEG_INFINITY, f64::max);
    let summary: Vec<String> =
        (0..columns).map(|c| format!("{:.3} ({:.3}..{:.3})", mean(c), least(c), most(c))).collect();
    println!("{study} {place:?}: {}", summary.join(", "));
}

/// Rates of flows over the last four fifths of the run, as parts of the link, and the part lost by a
/// receiver.
fn shares(run: &mut Run, flows: &[FlowId], agent: AgentId, place: Place, seconds: u64) -> (Vec<f64>, f64) {
    run.run_until(at(seconds / 5));
    let before = reception(run, agent);
    let rates = rates(run, flows, seconds / 5, seconds);
    let after = reception(run, agent);
    let (packets, lost) = ((after.0 - before.0) as f64, (after.1 - before.1) as f64);
    (rates.iter().map(|rate| rate / (place.kbps * 1_000) as f64).collect(), lost / (packets + lost))
}

/// A TCP with SACK beside one without: its part of both, their ratio, use of the link.
fn rivals(seed: u64, place: Place, seconds: u64) -> Vec<f64> {
    let mut bed = Bed::new(seed, place);
    let (one, other) = (bed.moment("one"), bed.moment("other"));
    let one = bed.tcp("one", one);
    let other = bed.tcp_as("other", other, Data::Greedy, |config| config.variant = Variant::Reno);
    let mut run = bed.network.build(Seed(seed), 0).expect("sound");
    let rates = rates(&mut run, &[one, other], seconds / 5, seconds);
    let total = rates[0] + rates[1];
    vec![rates[0] / total, rates[0] / rates[1], total / (place.kbps * 1_000) as f64]
}

/// Use of the link, loss.
fn alone(seed: u64, place: Place, seconds: u64) -> Vec<f64> {
    let mut bed = Bed::new(seed, place);
    let (flow, agent) = bed.m2c("m2c", 4 * place.kbps, m2c::ReceiverConfig::new());
    let mut run = bed.network.build(Seed(seed), 0).expect("sound");
    let (shares, loss) = shares(&mut run, &[flow], agent, place, seconds);
    vec![shares[0], loss]
}

/// Jain's index, the first one's part of both, use of the link, loss.
fn pair(seed: u64, place: Place, seconds: u64) -> Vec<f64> {
    let mut bed = Bed::new(seed, place);
    let (one, agent) = bed.m2c("one", 4 * place.kbps, m2c::ReceiverConfig::new());
    let (other, _) = bed.m2c("other", 4 * place.kbps, m2c::ReceiverConfig::new());
    let mut run = bed.network.build(Seed(seed), 0).expect("sound");
    let (shares, loss) = shares(&mut run, &[one, other], agent, place, seconds);
    let total = shares[0] + shares[1];
    vec![jain(&shares).expect("sound"), shares[0] / total, total, loss]
}

/// 1, 2, 5 and 20 receivers that come within 100 ms, or within what `scale-MS` says, take what the link would
/// carry in SECONDS: one's time over that, then mean and slowest time over one's.
fn scale(study: &str, seed: u64, place: Place, seconds: u64) -> Vec<f64> {
    let spread = study.strip_prefix("scale-").and_then(|ms| ms.parse().ok()).unwrap_or(100_u64);
    let times = |receivers: u64| -> (f64, f64) {
        let mut bed = Bed::new(seed, place);
        let phase = bed.moment("session");
        let sent = bed.m2c_session("session", 4 * place.kbps, phase);
        let starts: Vec<Duration> = (0..receivers)
            .map(|i| {
                let share = bed.moment(&format!("receiver-{i}")).as_nanos() * spread / 10_000;
                ms(20_000) + Duration::from_nanos(share)
            })
            .collect();
        let agents: Vec<AgentId> = starts
            .iter()
            .enumerate()
            .map(|(i, start)| {
                let control = receiver(4 * place.kbps, m2c::ReceiverConfig::new());
                bed.receiver(&format!("at-{i}"), sent, None, *start, control)
            })
            .collect();
        let mut run = bed.network.build(Seed(seed), 0).expect("sound");
        let wanted = seconds as f64 * place.kbps as f64 * 125.0 / f64::from(PAYLOAD + 42);
        let mut times = vec![None; agents.len()];
        for step in 400.. {
            let now = at(0) + ms(50 * step);
            run.run_until(now);
            for ((agent, time), start) in agents.iter().zip(&mut times).zip(&starts) {
                if time.is_none() && reception(&run, *agent).0 as f64 >= wanted {
                    *time = Some(now.since(at(0)).as_secs_f64() - start.as_secs_f64());
                }
            }
            if times.iter().all(Option::is_some) || step > 20_000 {
                break;
            }
        }
        let times: Vec<f64> = times.into_iter().map(|time| time.unwrap_or(f64::INFINITY)).collect();
        (times.iter().sum::<f64>() / times.len() as f64, times.iter().copied().fold(0.0, f64::max))
    };
    let one = times(1).0;
    let mut values = vec![one / seconds as f64];
    for receivers in [2, 5, 20] {
        let (mean, slowest) = times(receivers);
        values.extend([mean / one, slowest / one]);
    }
    values
}

/// Time of a download over what the link alone would take, loss by then; part of the link used and loss in
/// the first two seconds. Receivers of different seeds come at phases of a slot that are spread evenly.
fn start(study: &str, seed: u64, seeds: u64, place: Place, seconds: u64) -> Vec<f64> {
    let mut bed = Bed::new(seed, place);
    let start = ms(20_000 + 10_000 * seed / seeds);
    let sent = bed.m2c_session("m2c", 4 * place.kbps, ms(0));
    let control = receiver(4 * place.kbps, m2c::ReceiverConfig::new());
    let agent = bed.receiver("m2c", sent, None, start, control);
    match study {
        "start-pages" => drop(bed.short_tcps("pages", ms(6_000))),
        "start-tcp" => drop(bed.tcp("tcp", ms(0))),
        _ => (),
    }
    let mut run = bed.network.build(Seed(seed), 0).expect("sound");
    let bits = f64::from(PAYLOAD + 42) * 8.0;
    let wanted = seconds as f64 * place.kbps as f64 * 1_000.0 / bits;
    let mut early = (0.0, 0.0);
    for step in 1..50_000_u64 {
        run.run_until(at(0) + start + ms(20 * step));
        let (packets, lost) = reception(&run, agent);
        let (packets, lost) = (packets as f64, lost as f64);
        let loss = lost / (packets + lost).max(1.0);
        if step == 100 {
            early = (packets * bits / (2_000.0 * place.kbps as f64), loss);
        }
        if packets >= wanted {
            return vec![step as f64 / 50.0 / seconds as f64, loss, early.0, early.1];
        }
    }
    vec![f64::INFINITY; 4]
}

/// M2C's part of both, ratio of M2C to the TCP, use of the link, M2C's loss.
fn beside(study: &str, seed: u64, place: Place, seconds: u64) -> Vec<f64> {
    let mut bed = Bed::new(seed, place);
    let config = match study {
        "hint" => m2c::ReceiverConfig::new().with_rtt_hint(place.round_trip),
        "probe" => m2c::ReceiverConfig::new().with_prober(ProberConfig::new(Seed(seed))),
        _ => m2c::ReceiverConfig::new(),
    };
    let (flow, agent) = bed.m2c("m2c", 4 * place.kbps, config);
    let growth = if study == "cubic" { Growth::Cubic } else { Growth::Reno };
    let variant = match study {
        "reno" => Variant::Reno,
        "newreno" => Variant::NewReno,
        _ => Variant::Sack,
    };
    let start = bed.moment("tcp");
    let tcp = match study {
        "short" => bed.short_tcps("tcp", ms(6_000)),
        _ => bed.tcp_as("tcp", start, Data::Greedy, |config| {
            config.variant = variant;
            config.growth = growth;
        }),
    };
    let mut run = bed.network.build(Seed(seed), 0).expect("sound");
    let (shares, loss) = shares(&mut run, &[flow, tcp], agent, place, seconds);
    let total = shares[0] + shares[1];
    vec![shares[0] / total, shares[0] / shares[1], total, loss]
}
