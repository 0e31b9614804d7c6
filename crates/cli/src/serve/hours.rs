//! Times of the day at which a service runs.

use std::str::FromStr;

const MINUTES_OF_DAY: u16 = 24 * 60;

/// Times of the day from a minute to before another minute, perhaps over midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    from: u16,
    to: u16,
}

impl Hours {
    /// Whether a minute of the day is among the hours.
    pub const fn contains(self, minute: u16) -> bool {
        if self.from <= self.to {
            self.from <= minute && minute < self.to
        } else {
            self.from <= minute || minute < self.to
        }
    }
}

/// Returns the present minute of the day in local time.
pub fn minute_now() -> u16 {
    let now = jiff::Zoned::now();
    u16::from(now.hour().unsigned_abs()) * 60 + u16::from(now.minute().unsigned_abs())
}

impl FromStr for Hours {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no span of the day; write for example 22:00-06:00");
        let minute = |text: &str| {
            let (hour, minute) = text.trim().split_once(':')?;
            let number = |text: &str| {
                let is_digits =
                    !text.is_empty() && text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
                is_digits.then(|| text.parse::<u16>().ok()).flatten()
            };
            let (hour, minute) = (number(hour)?, number(minute)?);
            let minutes = hour * 60 + minute;
            (minute < 60 && minutes <= MINUTES_OF_DAY).then_some(minutes)
        };
        let (from, to) = text.split_once('-').ok_or_else(wrong)?;
        let (from, to) = (minute(from).ok_or_else(wrong)?, minute(to).ok_or_else(wrong)?);
        if from == to || from == MINUTES_OF_DAY {
            return Err(wrong());
        }
        Ok(Self { from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_may_pass_midnight() {
        let night: Hours = "22:00-06:00".parse().unwrap();
        let open = |hours: Hours| (0..24).filter(|hour| hours.contains(hour * 60)).collect::<Vec<_>>();
        assert_eq!(open(night), [0, 1, 2, 3, 4, 5, 22, 23]);
        assert_eq!(open("6:30-9:00".parse().unwrap()), [7, 8]);
        assert_eq!(open("18:00-24:00".parse().unwrap()), [18, 19, 20, 21, 22, 23]);
        assert!(!night.contains(6 * 60) && night.contains(6 * 60 - 1));
    }

    #[test]
    fn what_is_no_span_is_refused() {
        for text in
            ["", "22-06", "22:00", "25:00-26:00", "10:60-11:00", "10:00-10:00", "-1:00-2:00", "24:00-1:00"]
        {
            assert!(text.parse::<Hours>().is_err(), "{text}");
        }
    }
}
