//! Sizes and durations as people write them: `64M`, `1GiB`, `30s`, `500ms`.
//!
//! Strict, since a misread size could use up the machine's memory: a text in no documented form is refused, and
//! the message lists the forms.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use weir_engine::Config;

/// A number of bytes, written as digits and at most one unit of the powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Why a text is not a size or a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Nothing before the unit, or nothing at all.
    #[error("'{0}' has no number: write digits and a unit, such as {1}")]
    NoNumber(String, &'static str),
    /// The unit is unknown.
    #[error("'{text}' has the unknown unit '{unit}': use {known}")]
    UnknownUnit {
        /// As given.
        text: String,
        /// The part that is not a unit.
        unit: String,
        /// The known units.
        known: &'static str,
    },
    /// A duration needs a unit: `30` could be seconds or milliseconds.
    #[error("'{0}' has no unit: use ms, s, m or h, such as 30s")]
    NoUnit(String),
    /// It does not fit 64 bits.
    #[error("'{0}' is too large")]
    TooLarge(String),
    /// A duration outside the option's range.
    #[error("'{text}' is out of range: from {least} to {most}")]
    OutOfRange {
        /// As given.
        text: String,
        /// Smallest allowed.
        least: &'static str,
        /// Largest allowed.
        most: &'static str,
    },
}

const SIZE_UNITS: &str =
    "K, M, G or T (also KiB, MiB, GiB, TiB; powers of 1024), or none for bytes";
const TIME_UNITS: &str = "ms, s, m or h";

impl FromStr for Size {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Size, QuantityError> {
        let (number, unit) = split(text, "64M or 1GiB")?;
        let shift = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kib" => 10,
            "m" | "mib" => 20,
            "g" | "gib" => 30,
            "t" | "tib" => 40,
            _ => {
                return Err(QuantityError::UnknownUnit {
                    text: text.to_owned(),
                    unit: unit.to_owned(),
                    known: SIZE_UNITS,
                });
            }
        };
        number
            .checked_mul(1 << shift)
            .map(Size)
            .ok_or_else(|| QuantityError::TooLarge(text.to_owned()))
    }
}

impl fmt::Display for Size {
    /// Exact when the size is whole in some unit, else with one decimal.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        for (name, shift) in UNITS {
            let unit = 1u64 << shift;
            if self.0 >= unit {
                return if self.0.is_multiple_of(unit) {
                    write!(out, "{} {name}", self.0 / unit)
                } else {
                    // Precision to one decimal survives the conversion for any size.
                    write!(out, "{:.1} {name}", self.0 as f64 / unit as f64)
                };
            }
        }
        write!(out, "{} B", self.0)
    }
}

/// Reads a duration: digits and one of `ms`, `s`, `m`, `h`.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    let (number, unit) = split(text, "30s or 500ms")?;
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "" => return Err(QuantityError::NoUnit(text.to_owned())),
        _ => {
            return Err(QuantityError::UnknownUnit {
                text: text.to_owned(),
                unit: unit.to_owned(),
                known: TIME_UNITS,
            });
        }
    };
    number
        .checked_mul(unit_ms)
        .map(Duration::from_millis)
        .ok_or_else(|| QuantityError::TooLarge(text.to_owned()))
}

/// Reads the age at which dirty data is written home: 100 ms to 24 h.
pub fn parse_dirty_expire(text: &str) -> Result<Duration, QuantityError> {
    let age = parse_duration(text)?;
    if age < Duration::from_millis(100) || age > Duration::from_secs(24 * 3600) {
        return Err(QuantityError::OutOfRange {
            text: text.to_owned(),
            least: "100ms",
            most: "24h",
        });
    }
    Ok(age)
}

/// Reads the time between two samples of `weir top`: 100 ms to an hour.
pub fn parse_top_interval(text: &str) -> Result<Duration, QuantityError> {
    let interval = parse_duration(text)?;
    if interval < Duration::from_millis(100) || interval > Duration::from_secs(3600) {
        let (least, most) = ("100ms", "1h");
        return Err(QuantityError::OutOfRange { text: text.to_owned(), least, most });
    }
    Ok(interval)
}

/// Reads the age at which what is not logged is committed: 100 ms to 5 minutes.
pub fn parse_commit(text: &str) -> Result<Duration, QuantityError> {
    let age = parse_duration(text)?;
    if age < Duration::from_millis(100) || age > Duration::from_secs(300) {
        return Err(QuantityError::OutOfRange {
            text: text.to_owned(),
            least: "100ms",
            most: "5m",
        });
    }
    Ok(age)
}

/// Reads the sampling interval of write-back: 10 ms to a minute.
pub fn parse_write_back_interval(text: &str) -> Result<Duration, QuantityError> {
    let interval = parse_duration(text)?;
    if (Config::WRITE_BACK_INTERVAL_MIN..=Config::WRITE_BACK_INTERVAL_MAX).contains(&interval) {
        return Ok(interval);
    }
    Err(QuantityError::OutOfRange { text: text.to_owned(), least: "10ms", most: "60s" })
}

/// Reads the largest dirty share of memory, in percent: 1 to 50, with or without `%`.
pub fn parse_dirty_max(text: &str) -> Result<u8, QuantityError> {
    parse_percent(text, "40%", (Config::DIRTY_MAX_PERCENT_MOST, "50"))
}

/// Reads the dirty share of memory at which static write-back begins, percent: 1 to 49, likewise.
pub fn parse_dirty_background(text: &str) -> Result<u8, QuantityError> {
    parse_percent(text, "20%", (49, "49"))
}

fn parse_percent(
    text: &str,
    example: &'static str,
    (most, most_shown): (u8, &'static str),
) -> Result<u8, QuantityError> {
    let (number, unit) = split(text, example)?;
    if !matches!(unit, "" | "%") {
        return Err(QuantityError::UnknownUnit {
            text: text.to_owned(),
            unit: unit.to_owned(),
            known: "%, or none",
        });
    }
    u8::try_from(number)
        .ok()
        .filter(|percent| (1..=most).contains(percent))
        .ok_or(QuantityError::OutOfRange { text: text.to_owned(), least: "1", most: most_shown })
}

/// Reads a FUSE cache timeout of at most a day: seconds with an optional fraction (`1.5`), as in FUSE's own
/// options, or a duration with its unit.
pub fn parse_timeout(text: &str) -> Result<Duration, QuantityError> {
    let range =
        |text: &str| QuantityError::OutOfRange { text: text.to_owned(), least: "0", most: "24h" };
    let plain = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && text.bytes().any(|byte| byte.is_ascii_digit());
    let timeout = if plain {
        let seconds: f64 = text.parse().map_err(|_| range(text))?;
        Duration::try_from_secs_f64(seconds).map_err(|_| range(text))?
    } else {
        parse_duration(text)?
    };
    if timeout > Duration::from_secs(24 * 3600) { Err(range(text)) } else { Ok(timeout) }
}

/// Splits a number from its unit.
fn split<'a>(text: &'a str, example: &'static str) -> Result<(u64, &'a str), QuantityError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Err(QuantityError::NoNumber(text.to_owned(), example));
    }
    let number = text[..digits].parse().map_err(|_| QuantityError::TooLarge(text.to_owned()))?;
    Ok((number, &text[digits..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_the_documented_forms() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("64K", 64 << 10),
            ("64k", 64 << 10),
            ("64M", 64 << 20),
            ("64MiB", 64 << 20),
            ("1GiB", 1 << 30),
            ("1g", 1 << 30),
            ("2T", 2 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn sizes_refuse_everything_else() {
        for text in
            ["", "M", "-1", "+1", " 1", "1 ", "1 M", "1.5G", "64MB", "0x10", "1e3", "64Mi", "1K1"]
        {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        assert_eq!(
            "99999999999999999999".parse::<Size>().unwrap_err().to_string(),
            "'99999999999999999999' is too large"
        );
        assert!(matches!("18014398509481984K".parse::<Size>(), Err(QuantityError::TooLarge(_))));
        assert!("64MB".parse::<Size>().unwrap_err().to_string().contains("unknown unit 'MB'"));
    }

    #[test]
    fn sizes_print_as_people_read_them() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (64 << 20, "64 MiB"),
            (5 << 30, "5 GiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(parse_duration("30"), Err(QuantityError::NoUnit("30".into())));
        for text in ["", "s", "-1s", "1.5s", "1 s", "1d", "1us", "99999999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn dirty_age_and_timeouts_are_bounded() {
        assert!(parse_dirty_expire("100ms").is_ok());
        assert!(parse_dirty_expire("99ms").is_err());
        assert!(parse_dirty_expire("25h").is_err());
        assert_eq!(parse_commit("5s"), Ok(Duration::from_secs(5)));
        assert!(parse_commit("99ms").is_err() && parse_commit("1h").is_err());
        assert_eq!(parse_timeout("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_timeout("0"), Ok(Duration::ZERO));
        assert_eq!(parse_timeout("250ms"), Ok(Duration::from_millis(250)));
        for text in ["", ".", "1.2.3", "-1", "nan", "inf", "1e9", "999999999999999999999", "86401"]
        {
            assert!(parse_timeout(text).is_err(), "{text}");
        }
    }

    #[test]
    fn write_backs_quantities_are_bounded() {
        assert_eq!(parse_write_back_interval("250ms"), Ok(Duration::from_millis(250)));
        for text in ["", "1", "9ms", "0s", "61s", "1h"] {
            assert!(parse_write_back_interval(text).is_err(), "{text}");
        }
        assert_eq!((parse_dirty_max("1"), parse_dirty_max("50%")), (Ok(1), Ok(50)));
        for text in ["", "%", "0", "51", "256", "40 %", "40%%", "0.4", "-1", "4M"] {
            assert!(parse_dirty_max(text).is_err(), "{text}");
        }
        let error = parse_dirty_max("51").unwrap_err().to_string();
        assert_eq!(error, "'51' is out of range: from 1 to 50");
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(text in "[0-9a-zA-Z. %+é-]{0,24}") {
            let _ = (text.parse::<Size>(), parse_timeout(&text), parse_dirty_expire(&text));
            let _ = (parse_write_back_interval(&text), parse_dirty_max(&text));
        }

        #[test]
        fn whole_units_are_read_back(number in 1u64..1024, shift in 0usize..5) {
            let unit = ["", "K", "MiB", "g", "T"][shift];
            let size: Size = format!("{number}{unit}").parse().unwrap();
            proptest::prop_assert_eq!(size.0, number << (10 * shift));
        }
    }
}
