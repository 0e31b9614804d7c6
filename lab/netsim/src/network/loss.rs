//! Loss on a wire, behind the queue: a lost packet has used its link time. The caller chooses the packets
//! that a model sees (data only, or all); other packets take no random number and no packet number.

use headwater_proto::queue::ParameterError;
use headwater_proto::rng::Coin;
use rand::Rng;

/// Packet loss of a link.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LossConfig {
    /// No loss.
    #[default]
    None,
    /// Independent loss of each packet with this probability.
    Bernoulli(f64),
    /// Loss by a Markov chain of two states.
    GilbertElliott(GilbertElliott),
    /// Loss of the packets with these numbers, counted from 1. In any order; memory: 8 bytes per number.
    Script(Vec<u64>),
}

/// Gilbert-Elliott chain. Each packet is lost with the loss probability of the current state; then the state
/// changes with the transition probability. The chain starts in the good state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Transition from good to bad, after each packet (p).
    pub good_to_bad: f64,
    /// Transition from bad to good, after each packet (r).
    pub bad_to_good: f64,
    /// Loss in the good state (1 - k).
    pub loss_good: f64,
    /// Loss in the bad state (1 - h).
    pub loss_bad: f64,
}

impl GilbertElliott {
    /// Returns Gilbert's simple chain: all packets are lost in the bad state, no packets in the good state.
    /// `rate` is the share of lost packets, `burst` the mean length of a run of losses, in packets.
    pub fn simple(rate: f64, burst: f64) -> Self {
        let bad_to_good = 1.0 / burst;
        Self { good_to_bad: bad_to_good * rate / (1.0 - rate), bad_to_good, loss_good: 0.0, loss_bad: 1.0 }
    }

    /// Returns the long-term share of lost packets.
    pub fn loss_rate(&self) -> f64 {
        let bad = self.good_to_bad / (self.good_to_bad + self.bad_to_good);
        bad * self.loss_bad + (1.0 - bad) * self.loss_good
    }

    fn check(&self) -> Result<(), ParameterError> {
        probability("good_to_bad", self.good_to_bad)?;
        probability("bad_to_good", self.bad_to_good)?;
        probability("loss_good", self.loss_good)?;
        probability("loss_bad", self.loss_bad)?;
        let leaves = self.good_to_bad + self.bad_to_good;
        require(leaves > 0.0, "good_to_bad + bad_to_good", leaves, "above 0, or the chain never moves")
    }
}

impl LossConfig {
    /// Creates the loss model.
    ///
    /// # Errors
    ///
    /// A probability is not in [0, 1], a chain never moves, or a script contains packet 0.
    pub fn model(&self) -> Result<Loss, ParameterError> {
        Ok(Loss(match self {
            Self::None => Model::None,
            Self::Bernoulli(loss) => {
                probability("loss", *loss)?;
                Model::Bernoulli(Coin::new(*loss))
            }
            Self::GilbertElliott(config) => {
                config.check()?;
                Model::GilbertElliott(Chain::new(config))
            }
            Self::Script(numbers) => {
                require(!numbers.contains(&0), "script", 0.0, "numbers of packets, the first one being 1")?;
                Model::Script(Script::new(numbers.clone()))
            }
        }))
    }
}

/// Returns an error for `value` unless `holds`.
pub(super) fn require(
    holds: bool,
    parameter: &'static str,
    value: f64,
    requirement: &'static str,
) -> Result<(), ParameterError> {
    if holds { Ok(()) } else { Err(ParameterError { parameter, value, requirement }) }
}

fn probability(parameter: &'static str, value: f64) -> Result<(), ParameterError> {
    require((0.0..=1.0).contains(&value), parameter, value, "a probability, in [0, 1]")
}

/// Loss model, with state.
#[derive(Clone, Debug)]
pub struct Loss(Model);

#[derive(Clone, Debug)]
enum Model {
    None,
    Bernoulli(Coin),
    GilbertElliott(Chain),
    Script(Script),
}

impl Loss {
    /// Whether the next packet is lost. Random numbers are taken from `draw`, the wire's own random stream:
    /// one per packet for Bernoulli, two for a chain, zero for the remaining models.
    pub fn takes(&mut self, draw: &mut impl Rng) -> bool {
        match &mut self.0 {
            Model::None => false,
            Model::Bernoulli(coin) => coin.toss(draw),
            Model::GilbertElliott(chain) => chain.takes(draw),
            Model::Script(script) => script.takes(),
        }
    }
}

/// Two-state chain; arrays hold the good state first, then the bad state.
#[derive(Clone, Debug)]
struct Chain {
    bad: bool,
    loss: [Coin; 2],
    change: [Coin; 2],
}

impl Chain {
    fn new(config: &GilbertElliott) -> Self {
        Self {
            bad: false,
            loss: [config.loss_good, config.loss_bad].map(Coin::new),
            change: [config.good_to_bad, config.bad_to_good].map(Coin::new),
        }
    }

    fn takes(&mut self, draw: &mut impl Rng) -> bool {
        let state = usize::from(self.bad);
        let lost = self.loss[state].toss(draw);
        self.bad ^= self.change[state].toss(draw);
        lost
    }
}

/// Sorted packet numbers, with the position of the next number and the count of packets.
#[derive(Clone, Debug)]
struct Script {
    numbers: Vec<u64>,
    next: usize,
    packets: u64,
}

impl Script {
    fn new(mut numbers: Vec<u64>) -> Self {
        numbers.sort_unstable();
        numbers.dedup();
        Self { numbers, next: 0, packets: 0 }
    }

    fn takes(&mut self) -> bool {
        self.packets += 1;
        let lost = self.numbers.get(self.next) == Some(&self.packets);
        self.next += usize::from(lost);
        lost
    }
}

#[cfg(test)]
mod tests {
    use headwater_proto::Seed;

    use super::super::statistics::assert_fits;
    use super::*;

    const PACKETS: usize = 200_000;

    fn losses(config: &LossConfig, seed: u64) -> Vec<bool> {
        let (mut loss, mut stream) = (config.model().unwrap(), Seed(seed).stream("loss", 0));
        (0..PACKETS).map(|_| loss.takes(&mut stream)).collect()
    }

    /// Asserts that runs of lost packets go on with probability `on`: their lengths are geometric.
    fn assert_runs(what: &str, losses: &[bool], on: f64) {
        let lengths: Vec<usize> =
            losses.split(|lost| !lost).map(<[bool]>::len).filter(|&length| length > 0).collect();
        let (bins, expected) = geometric(lengths.len(), on);
        let mut observed = vec![0; bins.len()];
        lengths.iter().for_each(|length| observed[bins.partition_point(|first| first <= length) - 1] += 1);
        assert_fits(what, &observed, &expected);
    }

    /// The first length of each bin, and how many of `runs` it should have: 50 or more.
    fn geometric(runs: usize, on: f64) -> (Vec<usize>, Vec<f64>) {
        let at_least = |length: usize| runs as f64 * on.powf(length as f64 - 1.0);
        let (mut bins, mut expected) = (vec![1], vec![]);
        let mut length = 2;
        while at_least(length) >= 50.0 {
            let first = bins[bins.len() - 1];
            if at_least(first) - at_least(length) >= 50.0 {
                bins.push(length);
                expected.push(at_least(first) - at_least(length));
            }
            length += 1;
        }
        expected.push(at_least(bins[bins.len() - 1]));
        (bins, expected)
    }

    #[test]
    fn bernoulli_has_its_rate_and_its_runs() {
        for seed in 0..20 {
            for loss in [0.001, 0.05, 0.3] {
                let what = format!("seed {seed}, loss {loss}");
                let losses = losses(&LossConfig::Bernoulli(loss), seed);
                let lost = losses.iter().filter(|lost| **lost).count() as u64;
                let all = PACKETS as f64;
                assert_fits(&what, &[lost, PACKETS as u64 - lost], &[loss * all, (1.0 - loss) * all]);
                if loss > 0.01 {
                    assert_runs(&what, &losses, loss);
                }
            }
        }
    }

    #[test]
    fn gilbert_has_its_rate_and_its_runs() {
        for seed in 0..20 {
            let chain = GilbertElliott::simple(0.05, 4.0);
            assert!((chain.loss_rate() - 0.05).abs() < 1e-12);
            let losses = losses(&LossConfig::GilbertElliott(chain), seed);
            assert_runs(&format!("seed {seed}"), &losses, 1.0 - chain.bad_to_good);
            let received: Vec<bool> = losses.iter().map(|lost| !lost).collect();
            assert_runs(&format!("seed {seed}, received"), &received, 1.0 - chain.good_to_bad);
            assert_rate(&losses, &chain);
        }
    }

    #[test]
    fn both_states_lose() {
        for seed in 0..20 {
            let chain =
                GilbertElliott { good_to_bad: 0.02, bad_to_good: 0.1, loss_good: 0.01, loss_bad: 0.5 };
            assert_rate(&losses(&LossConfig::GilbertElliott(chain), seed), &chain);
        }
    }

    /// The rate within 4.5 standard deviations, of which dependence makes more: by (1 + l) / (1 - l) with the
    /// chain's second eigenvalue l = 1 - p - r, at most.
    fn assert_rate(losses: &[bool], chain: &GilbertElliott) {
        let rate = losses.iter().filter(|lost| **lost).count() as f64 / PACKETS as f64;
        let expected = chain.loss_rate();
        let eigenvalue = 1.0 - chain.good_to_bad - chain.bad_to_good;
        let variance = expected * (1.0 - expected) / PACKETS as f64 * (1.0 + eigenvalue) / (1.0 - eigenvalue);
        assert!((rate - expected).abs() < 4.5 * variance.sqrt(), "{rate} lost, {expected} expected");
    }

    #[test]
    fn certainties_are_certain() {
        assert!(losses(&LossConfig::None, 1).iter().all(|lost| !lost));
        assert!(losses(&LossConfig::Bernoulli(0.0), 1).iter().all(|lost| !lost));
        assert!(losses(&LossConfig::Bernoulli(1.0), 1).iter().all(|lost| *lost));
    }

    #[test]
    fn a_script_counts_from_one() {
        let losses = losses(&LossConfig::Script(vec![7, 1, 3, 3]), 1);
        let lost: Vec<usize> =
            (1..).zip(&losses).filter(|(_, lost)| **lost).map(|(number, _)| number).collect();
        assert_eq!(lost, [1, 3, 7]);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let error = |config: LossConfig| config.model().unwrap_err().to_string();
        assert!(error(LossConfig::Bernoulli(1.1)).contains("loss is 1.1; it must be a probability"));
        assert!(error(LossConfig::Bernoulli(f64::NAN)).contains("loss is NaN"));
        assert!(error(LossConfig::Script(vec![0])).contains("the first one being 1"));
        let chain = GilbertElliott::simple(0.9, 2.0);
        assert!(error(LossConfig::GilbertElliott(chain)).contains("good_to_bad is 4.5"));
        let stuck = GilbertElliott { good_to_bad: 0.0, bad_to_good: 0.0, ..chain };
        assert!(error(LossConfig::GilbertElliott(stuck)).contains("never moves"));
    }
}
