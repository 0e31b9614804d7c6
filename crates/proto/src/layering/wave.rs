//! The rate of a wave over its life, the integral of the rate, and the inverse of the integral, all in closed
//! form.
//!
//! A wave is one use of a dynamic channel, from its first packet until quiescence. The state of a wave is x,
//! the number of sub-slots left until its end: x falls by 1 in each sub-slot, also across slots, and both
//! shapes are functions of x alone. Rates are packets per second, integrals packets.

use libm::{exp, expm1, log1p};

/// Shape of the falling rates of a session's channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Geometric in the *cumulative* rate: level n at phase φ brings the total to `R0 P^-(n-φ)`. Tiles of the
    /// sequencer fit without a gap (Lucas et al. 2010).
    Geometric,
    /// WEBRC's (RFC 3738): each wave falls by P in a slot. The base channel also falls by P, and jumps back
    /// at the next slot.
    Webrc,
}

/// The rate curve shared by all waves of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Curve {
    pub(super) shape: Shape,
    /// R0 or BCR_P, packets/s.
    pub(super) base: f64,
    /// ln(1/P).
    pub(super) log: f64,
    /// Length of a sub-slot in seconds.
    pub(super) sub_slot: f64,
    /// 1/P.
    step: f64,
    /// Packets of the last sub-slot in the geometric shape, divided by `R0 tau`.
    last_sub_slot: f64,
    /// Packets above x = 1 in the geometric shape, divided by `R0 tau` and by the difference in `P^-x`: (1 -
    /// P)/ln(1/P).
    pub(super) steady: f64,
}

/// Top stretch of a wave that replaces the curve and keeps the session's total rate constant. Without such a
/// stretch, the end is the beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plateau {
    /// x at the end of the stretch, where the curve begins.
    pub(super) until: f64,
    /// x at the beginning of the stretch.
    pub(super) from: f64,
    /// Constant total rate, packets/s.
    pub(super) total: f64,
    /// Rate of all lower levels at the end of the stretch, packets/s.
    pub(super) below: f64,
}

/// Maximum steps of Newton's method. Both functions are convex or concave and converge from one side, within
/// ten steps in practice.
const STEPS_MAX: usize = 60;

impl Curve {
    /// Returns the curve of a base rate in packets/s, ln(1/P), and a sub-slot in seconds.
    pub(super) fn new(shape: Shape, base: f64, log: f64, sub_slot: f64) -> Self {
        let last_sub_slot = expm1(log) / log - 1.0;
        Self { shape, base, log, sub_slot, step: exp(log), last_sub_slot, steady: -expm1(-log) / log }
    }

    /// `P^-x`.
    pub(super) fn growth(&self, x: f64) -> f64 {
        exp(self.log * x)
    }

    /// Returns the number of packets from x to the end of the wave.
    pub(super) fn remaining(&self, x: f64) -> f64 {
        if x <= 0.0 {
            return 0.0;
        }
        let packets = match self.shape {
            Shape::Webrc => expm1(self.log * x) / self.log,
            Shape::Geometric if x <= 1.0 => expm1(self.log * x) / self.log - x,
            Shape::Geometric => self.last_sub_slot + self.steady * (self.growth(x) - self.step),
        };
        self.base * self.sub_slot * packets
    }

    /// Returns x at which `packets` packets are left: the inverse of [`Curve::remaining`].
    pub(super) fn at(&self, packets: f64) -> f64 {
        let scaled = packets / (self.base * self.sub_slot);
        match self.shape {
            Shape::Webrc => log1p(scaled * self.log) / self.log,
            Shape::Geometric if scaled > self.last_sub_slot => {
                let growth = self.step + (scaled - self.last_sub_slot) / self.steady;
                libm::log(growth) / self.log
            }
            Shape::Geometric => self.at_in_last_sub_slot(scaled),
        }
    }

    /// Solves `(P^-x - 1)/ln(1/P) - x = scaled` for x in [0, 1]. The left side is convex and at least
    /// `ln(1/P) x^2 / 2`, so Newton's method converges from above.
    fn at_in_last_sub_slot(&self, scaled: f64) -> f64 {
        let mut x = libm::sqrt(2.0 * scaled / self.log);
        for _ in 0..STEPS_MAX {
            let slope = expm1(self.log * x);
            if slope <= 0.0 {
                return 0.0;
            }
            let next = x - (slope / self.log - x - scaled) / slope;
            if next >= x {
                break;
            }
            x = next;
        }
        x.max(0.0)
    }

    /// Returns the number of packets from x, inside the fed stretch, to the end of the stretch.
    pub(super) fn fed(&self, fed: &Plateau, x: f64) -> f64 {
        let left = x - fed.until;
        self.sub_slot * (fed.total * left - fed.below * expm1(self.log * left) / self.log)
    }

    /// Returns x inside the fed stretch with `packets` packets up to the end of the stretch. The function is
    /// concave, so Newton's method converges from below: from the solution of the second-order series, whose
    /// remainder lacks packets.
    pub(super) fn fed_at(&self, fed: &Plateau, packets: f64) -> f64 {
        let scaled = packets / self.sub_slot;
        let slope = fed.total - fed.below;
        let root = libm::sqrt((slope * slope - 2.0 * fed.below * self.log * scaled).max(0.0));
        let mut left = 2.0 * scaled / (slope + root);
        for _ in 0..STEPS_MAX {
            let grown = expm1(self.log * left);
            let slope = fed.total - fed.below * (grown + 1.0);
            if slope <= 0.0 {
                return fed.from;
            }
            let next = left + (scaled - fed.total * left + fed.below * grown / self.log) / slope;
            if next <= left {
                break;
            }
            left = next;
        }
        (fed.until + left).min(fed.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(shape: Shape, ratio: f64) -> Curve {
        Curve::new(shape, 3.0, -libm::log(ratio), 10.0)
    }

    /// The wave's rate at x > 0, by its definition.
    fn rate(curve: &Curve, x: f64) -> f64 {
        match curve.shape {
            Shape::Webrc => curve.base * curve.growth(x),
            Shape::Geometric => curve.base * (curve.growth(x) - curve.growth((x - 1.0).max(0.0))),
        }
    }

    /// Simpson's rule: an independent integral of the rate.
    fn integral(rate: impl Fn(f64) -> f64, from: f64, to: f64) -> f64 {
        let steps = 2_000;
        let width = (to - from) / f64::from(steps);
        let weight = |i| if i == 0 || i == steps { 1.0 } else { f64::from(2 + 2 * (i % 2)) };
        (0..=steps).map(|i| weight(i) * rate(from + f64::from(i) * width)).sum::<f64>() * width / 3.0
    }

    #[test]
    fn packets_are_the_integral_of_the_rate() {
        for shape in [Shape::Geometric, Shape::Webrc] {
            for ratio in [0.5, 0.75, 0.9] {
                let curve = curve(shape, ratio);
                for x in [0.2, 1.0, 1.3, 7.0] {
                    // The geometric rate has a bend at 1.
                    let bend = 1.0_f64.min(x);
                    let packets = curve.sub_slot
                        * (integral(|y| rate(&curve, y), 1e-12, bend)
                            + integral(|y| rate(&curve, y), bend, x));
                    let found = curve.remaining(x);
                    assert!((packets / found - 1.0).abs() < 1e-6, "{shape:?} {ratio} {x}: {found} {packets}");
                }
            }
        }
    }

    #[test]
    fn the_inverse_is_one() {
        for shape in [Shape::Geometric, Shape::Webrc] {
            for ratio in [0.5, 0.75, 0.95] {
                let curve = curve(shape, ratio);
                for x in [0.001, 0.1, 0.5, 0.999, 1.0, 1.001, 5.0, 25.0] {
                    let back = curve.at(curve.remaining(x));
                    assert!((back - x).abs() < 1e-9, "{shape:?} {ratio}: {x} came back as {back}");
                }
            }
        }
    }

    #[test]
    fn a_fed_stretch_completes_the_total() {
        let curve = curve(Shape::Geometric, 0.75);
        let below = curve.base * curve.growth(6.0);
        for from in [7.01, 7.5, 7.99, 8.0] {
            let fed = Plateau { until: 7.0, from: 8.0, total: curve.base * curve.growth(from), below };
            for x in [7.0, 7.000_1, 7.2, 7.9, 8.0] {
                let packets = curve.fed(&fed, x);
                let rate = |y| fed.total - curve.base * 0.75 * curve.growth(y);
                assert!((packets - curve.sub_slot * integral(rate, 7.0, x)).abs() < 1e-6);
                let back = curve.fed_at(&fed, packets);
                assert!((back - x).abs() < 1e-6, "{from}: {x} came back as {back}");
            }
        }
    }
}
