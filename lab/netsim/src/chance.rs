//! Random draws computed from plain `u64`s, the same on every machine: libraries change their algorithms
//! between releases.
//!
//! Every stream comes from [`Seed::stream`](headwater_proto::Seed::stream) by the name of its element, its
//! purpose (`link/a-b/loss`) and the number of the run, so that a new element shifts no other element's
//! numbers.

use headwater_proto::Duration;
use headwater_proto::rng::unit_above_zero;
use rand::Rng;

/// Exponential with this mean, in the mean's unit, with a single draw.
pub fn exponential(draw: &mut impl Rng, mean: f64) -> f64 {
    -mean * libm::log(unit_above_zero(draw))
}

/// Pareto with this mean and `shape` above 1, in the mean's unit, with a single draw. The least value is
/// `mean * (shape - 1) / shape`.
pub fn pareto(draw: &mut impl Rng, mean: f64, shape: f64) -> f64 {
    let least = mean * (shape - 1.0) / shape;
    least / libm::pow(unit_above_zero(draw), 1.0 / shape)
}

/// Uniform on 0..=`most`, with a single draw, biased by less than `most` / 2^64.
pub fn uniform_duration(draw: &mut impl Rng, most: Duration) -> Duration {
    let wide = u128::from(draw.next_u64()) * (u128::from(most.as_nanos()) + 1);
    Duration::from_nanos((wide >> 64) as u64)
}

/// A duration of `seconds`, to the nearest nanosecond; zero for a negative value or NaN.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates when cast")]
pub fn seconds(seconds: f64) -> Duration {
    Duration::from_nanos(libm::round(seconds * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use headwater_proto::Seed;
    use headwater_proto::rng::Coin;

    use super::*;

    /// Pinned: a change here changes every run.
    #[test]
    fn draws_are_the_same_everywhere() {
        let mut draw = Seed(1).stream("chance", 0);
        let drawn = [
            unit_above_zero(&mut draw),
            exponential(&mut draw, 2.0),
            pareto(&mut draw, 3.0, 1.5),
            uniform_duration(&mut draw, Duration::from_secs(1)).as_secs_f64(),
        ];
        insta::assert_snapshot!(format!("{drawn:?}"));
    }

    #[test]
    fn means_are_right() {
        let mut draw = Seed(2).stream("chance", 0);
        let mut mean = |sample: &mut dyn FnMut(&mut headwater_proto::rng::Stream) -> f64| {
            (0..100_000).map(|_| sample(&mut draw)).sum::<f64>() / 100_000.0
        };
        // Six standard errors, but for Pareto: at shape 3 the variance is 3/4 of the squared mean.
        assert!((mean(&mut |draw| unit_above_zero(draw)) - 0.5).abs() < 0.006);
        assert!((mean(&mut |draw| exponential(draw, 2.0)) - 2.0).abs() < 0.04);
        assert!((mean(&mut |draw| pareto(draw, 3.0, 3.0)) - 3.0).abs() < 0.05);
        let most = Duration::from_nanos(1_000);
        let uniform = mean(&mut |draw| uniform_duration(draw, most).as_secs_f64() * 1e9);
        assert!((uniform - 500.0).abs() < 6.0);
        let heads = mean(&mut |draw| f64::from(u8::from(Coin::new(0.3).toss(draw))));
        assert!((heads - 0.3).abs() < 0.009);
    }

    #[test]
    fn ends_are_where_they_are_said_to_be() {
        let mut draw = Seed(3).stream("chance", 0);
        for _ in 0..1_000 {
            assert!(!Coin::new(0.0).toss(&mut draw) && Coin::new(1.0).toss(&mut draw));
            assert!(pareto(&mut draw, 3.0, 1.5) >= 1.0);
            assert!(uniform_duration(&mut draw, Duration::from_nanos(1)).as_nanos() <= 1);
        }
        assert_eq!(seconds(1.5e-9).as_nanos(), 2);
        assert_eq!((seconds(-1.0), seconds(f64::NAN)), (Duration::ZERO, Duration::ZERO));
    }
}
