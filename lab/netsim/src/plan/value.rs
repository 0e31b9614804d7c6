//! Types of values in a plan: times, rates, sizes, numbers, and values drawn anew in each run.

use headwater_proto::control::Rules;
use headwater_proto::{Duration, Rate, Size};
use rand::Rng;

use super::problem::Span;
use super::section::{Context, Section};
use super::tree::{Node, Value};

/// Maximum time in a plan. A run of this length with round-trip times as long stays far from the end of the
/// clock.
const TIME_MAX: Duration = Duration::from_secs(1_000 * 24 * 60 * 60);

/// A value that a plan can hold.
pub(crate) trait FromNode: Sized {
    /// Example of a value, as written in a plan.
    const EXAMPLE: &'static str;

    /// Reads the value, or reports a problem. `path` names the random stream of a drawn value.
    fn read(context: &Context, node: &Node, path: &str) -> Option<Self>;
}

/// A value that may be drawn anew in each run: `{ uniform = [low, high] }`.
trait Drawn: Sized {
    const EXAMPLE: &'static str;

    fn exact(node: &Node) -> Result<Self, String>;

    /// Returns a value between `low` and `high`; `None` if `low` is above `high`.
    fn between(low: Self, high: Self, draw: u64) -> Option<Self>;
}

impl<T: Drawn> FromNode for T {
    const EXAMPLE: &'static str = <T as Drawn>::EXAMPLE;

    fn read(context: &Context, node: &Node, path: &str) -> Option<Self> {
        let Value::Table(table) = &node.value else { return told(context, &node.span, T::exact(node)) };
        let section = Section::new(context, table, node.span.clone(), path, &["uniform"]);
        let pair = match section.node("uniform").map(|node| &node.value) {
            Some(Value::Array(items)) => <&[Node; 2]>::try_from(items.as_slice()).ok(),
            _ => None,
        };
        let Some([low, high]) = pair else {
            let example = <T as Drawn>::EXAMPLE;
            let message =
                format!("a drawn value is {{ uniform = [low, high] }}, with values such as {example}");
            context.problems.add(&node.span, message);
            return None;
        };
        let low = told(context, &low.span, T::exact(low));
        let high = told(context, &high.span, T::exact(high));
        let draw = context.seed.stream(&format!("plan/{path}"), context.run).next_u64();
        let drawn = T::between(low?, high?, draw);
        if drawn.is_none() {
            context.problems.add(&node.span, "the lower bound of 'uniform' is above the upper one");
        }
        drawn
    }
}

impl Drawn for Duration {
    const EXAMPLE: &'static str = "\"25ms\"";

    fn exact(node: &Node) -> Result<Self, String> {
        match &node.value {
            Value::Text(text) => match humantime::parse_duration(text) {
                Ok(duration) if Self::from(duration) <= TIME_MAX => Ok(duration.into()),
                Ok(_) => Err(format!("'{text}' is too long; a time of a plan is at most 1000 days")),
                Err(error) => {
                    Err(format!("'{text}' is not a time: {error}; write for example \"25ms\" or \"10s\""))
                }
            },
            Value::Integer(_) | Value::Float(_) => {
                Err("a time needs a unit; write for example \"25ms\" or \"10s\"".into())
            }
            other => Err(format!("{} is not a time; write for example \"25ms\"", other.kind())),
        }
    }

    fn between(low: Self, high: Self, draw: u64) -> Option<Self> {
        uniform(low.as_nanos(), high.as_nanos(), draw).map(Self::from_nanos)
    }
}

impl Drawn for Rate {
    const EXAMPLE: &'static str = "\"10M\"";

    fn exact(node: &Node) -> Result<Self, String> {
        match &node.value {
            Value::Text(text) => text.parse().map_err(|error| format!("not a rate: {error}")),
            Value::Integer(bits) => u64::try_from(*bits)
                .ok()
                .and_then(Self::from_bits)
                .ok_or_else(|| format!("a rate is above 0 bit/s, not {bits}; write for example \"10M\"")),
            other => Err(format!("{} is not a rate; write for example \"10M\"", other.kind())),
        }
    }

    fn between(low: Self, high: Self, draw: u64) -> Option<Self> {
        uniform(low.as_bits(), high.as_bits(), draw).and_then(Self::from_bits)
    }
}

impl Drawn for Size {
    const EXAMPLE: &'static str = "\"64kB\"";

    fn exact(node: &Node) -> Result<Self, String> {
        match &node.value {
            Value::Text(text) => text.parse().map_err(|error| format!("not a size: {error}")),
            Value::Integer(bytes) => u64::try_from(*bytes)
                .map(Self)
                .map_err(|_| format!("a size is not negative, as {bytes} is; write for example \"64kB\"")),
            other => Err(format!("{} is not a size; write for example \"64kB\"", other.kind())),
        }
    }

    fn between(low: Self, high: Self, draw: u64) -> Option<Self> {
        uniform(low.0, high.0, draw).map(Self)
    }
}

impl Drawn for u64 {
    const EXAMPLE: &'static str = "10";

    fn exact(node: &Node) -> Result<Self, String> {
        match &node.value {
            Value::Integer(number) => {
                Self::try_from(*number).map_err(|_| format!("{number} is negative; it must be 0 or more"))
            }
            other => Err(format!("{} is no whole number", other.kind())),
        }
    }

    fn between(low: Self, high: Self, draw: u64) -> Option<Self> {
        uniform(low, high, draw)
    }
}

impl Drawn for f64 {
    const EXAMPLE: &'static str = "0.5";

    fn exact(node: &Node) -> Result<Self, String> {
        match &node.value {
            Value::Float(number) => Ok(*number),
            Value::Integer(number) => {
                i32::try_from(*number).map(Self::from).map_err(|_| format!("{number} is out of range"))
            }
            other => Err(format!("{} is no number", other.kind())),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "53 bits are taken, which a float holds exactly")]
    fn between(low: Self, high: Self, draw: u64) -> Option<Self> {
        let unit = (draw >> 11) as Self / (1_u64 << 53) as Self;
        (low <= high).then_some(low + (high - low) * unit)
    }
}

/// A probability, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Probability(pub f64);

impl Drawn for Probability {
    const EXAMPLE: &'static str = "0.01";

    fn exact(node: &Node) -> Result<Self, String> {
        match f64::exact(node) {
            Ok(number) if (0.0..=1.0).contains(&number) => Ok(Self(number)),
            Ok(number) => Err(format!("{number} is no probability; it must be from 0 to 1")),
            Err(message) => Err(format!("{message}; a probability is from 0 to 1")),
        }
    }

    fn between(low: Self, high: Self, draw: u64) -> Option<Self> {
        f64::between(low.0, high.0, draw).map(Self)
    }
}

impl FromNode for bool {
    const EXAMPLE: &'static str = "true";

    fn read(context: &Context, node: &Node, _path: &str) -> Option<Self> {
        match &node.value {
            Value::Boolean(boolean) => Some(*boolean),
            other => {
                let kind = other.kind();
                context.problems.add(&node.span, format!("this is {kind}; it must be true or false"));
                None
            }
        }
    }
}

impl FromNode for String {
    const EXAMPLE: &'static str = "\"...\"";

    fn read(context: &Context, node: &Node, _path: &str) -> Option<Self> {
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            other => {
                let kind = other.kind();
                context.problems.add(&node.span, format!("this is {kind}; it must be a string"));
                None
            }
        }
    }
}

impl FromNode for Rules {
    const EXAMPLE: &'static str = "\"published\"";

    fn read(context: &Context, node: &Node, _path: &str) -> Option<Self> {
        let word = match &node.value {
            Value::Text(text) => text.as_str(),
            _ => "",
        };
        let found = Self::of(word);
        told(context, &node.span, found.ok_or_else(|| "write \"revised\" or \"published\"".to_owned()))
    }
}

/// A whole number from `low` to `high`, both included, from 64 random bits; `None` if `low` is above `high`.
fn uniform(low: u64, high: u64, draw: u64) -> Option<u64> {
    let width = u128::from(high.checked_sub(low)?) + 1;
    let offset = u64::try_from((u128::from(draw) * width) >> 64).ok()?;
    Some(low + offset)
}

fn told<T>(context: &Context, span: &Span, result: Result<T, String>) -> Option<T> {
    result.map_err(|message| context.problems.add(span, message)).ok()
}

#[cfg(test)]
mod tests {
    use super::super::problem::Problems;
    use super::super::tree::Table;
    use super::*;
    use headwater_proto::Seed;

    #[test]
    fn uniform_covers_both_ends_and_nothing_else() {
        assert_eq!((uniform(3, 5, 0), uniform(3, 5, u64::MAX)), (Some(3), Some(5)));
        assert_eq!((uniform(0, u64::MAX, u64::MAX), uniform(7, 7, 12)), (Some(u64::MAX), Some(7)));
        assert_eq!(uniform(5, 3, 0), None);
    }

    #[test]
    fn draws_depend_on_path_seed_and_run_only() {
        let node = |text: &str| Table::parse(text).unwrap().entries["x"].node.clone();
        let read = |seed: u64, run: u64, path: &str| {
            let context = Context { problems: Problems::default(), seed: Seed(seed), run };
            Duration::read(&context, &node("x = { uniform = [\"0s\", \"5s\"] }"), path).unwrap()
        };
        assert_eq!(read(1, 1, "a"), read(1, 1, "a"));
        assert!(read(1, 1, "a") != read(1, 2, "a") && read(1, 1, "a") != read(2, 1, "a"));
        assert!(read(1, 1, "a") != read(1, 1, "b") && read(1, 1, "a") <= Duration::from_secs(5));
    }
}
