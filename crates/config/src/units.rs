//! Values that carry units.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A number of bytes: `512`, `"16KB"`, `"1.5 MiB"`. KB, MB, GB and TB are powers of 1000, KiB, MiB,
/// GiB and TiB of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A number of bytes that something may have at most, or `"unlimited"`, as is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeLimit(pub u64);

impl SizeLimit {
    /// No limit.
    pub const UNLIMITED: Self = Self(u64::MAX);
}

/// A duration: `"50us"`, `"500ms"`, `"30s"`, `"5m"`, `"1h"`, `"1d"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurationValue(pub Duration);

/// Bytes per second: `"400KB/s"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

/// A number of times in a period: `"10/s"`, `"100/m"`, `"1000/h"`, `"5000/d"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frequency {
    /// The number.
    pub times: u32,
    /// The period: a second, minute, hour or day.
    pub period: Duration,
}

/// Splits `"1.5 MiB"` into the number and its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim()))
}

fn parse_size(text: &str) -> Result<u64, String> {
    let hint = || format!("{text:?} is not a size; write for example \"256KB\" or \"1MiB\"");
    let (number, unit) = split(text).ok_or_else(hint)?;
    let factor: u64 = match unit {
        "" | "B" => 1,
        "KB" | "kB" => 1000,
        "MB" => 1000_u64.pow(2),
        "GB" => 1000_u64.pow(3),
        "TB" => 1000_u64.pow(4),
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "K" | "k" | "M" | "m" | "G" | "g" | "T" | "t" => {
            let unit = unit.to_ascii_uppercase();
            return Err(format!("{text:?} is not a size; did you mean \"{number}{unit}B\"?"));
        }
        _ => return Err(hint()),
    };
    let bytes = number * factor as f64;
    // Above this, floating-point numbers do not represent every integer.
    if bytes > (1_u64 << 53) as f64 {
        Err(format!("{text:?} is too large"))
    } else {
        Ok(bytes as u64)
    }
}

fn parse_limit(text: &str) -> Result<u64, String> {
    if text == "unlimited" {
        return Ok(SizeLimit::UNLIMITED.0);
    }
    let size = parse_size(text).map_err(|error| match split(text) {
        None => format!("{text:?} is not a size; write for example \"10MB\", or \"unlimited\""),
        Some(_) => error,
    })?;
    Ok(limit(size).0)
}

fn limit(size: u64) -> SizeLimit {
    if size == 0 { SizeLimit::UNLIMITED } else { SizeLimit(size) }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let hint = || format!("{text:?} is not a time; write for example \"500ms\", \"30s\" or \"5m\"");
    let (number, unit) = split(text).ok_or_else(hint)?;
    let seconds = match unit {
        "us" => number / 1e6,
        "ms" => number / 1000.0,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86_400.0,
        "" if number == 0.0 => 0.0,
        "" => return Err(format!("{text:?} has no unit; write for example \"{number}s\"")),
        _ => return Err(hint()),
    };
    if seconds > 1e9 {
        Err(format!("{text:?} is too long"))
    } else {
        Ok(Duration::from_secs_f64(seconds))
    }
}

fn parse_rate(text: &str) -> Result<u64, String> {
    let size = text.trim().strip_suffix("/s");
    size.and_then(|size| parse_size(size).ok())
        .ok_or_else(|| format!("{text:?} is not a rate; write for example \"400KB/s\""))
}

fn parse_frequency(text: &str) -> Result<Frequency, String> {
    let hint =
        || format!("{text:?} is not a number per time; write for example \"10/s\" or \"100/m\"");
    let (times, unit) = text.trim().split_once('/').ok_or_else(hint)?;
    let times = times.trim().parse().ok().filter(|&times| times > 0).ok_or_else(hint)?;
    let seconds = match unit.trim() {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(hint()),
    };
    Ok(Frequency { times, period: Duration::from_secs(seconds) })
}

impl<'de> Deserialize<'de> for Frequency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Frequency;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number per time such as \"10/s\" or \"100/m\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Frequency, E> {
                parse_frequency(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Text)
    }
}

impl JsonSchema for Frequency {
    fn schema_name() -> Cow<'static, str> {
        "Frequency".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^\d+ */ *[smhd]$",
            "description": "a number per time, such as \"10/s\" or \"100/m\""
        })
    }
}

/// `$integers` is the format of a number without unit.
macro_rules! with_unit {
    ($type:ident, $name:literal, $parse:ident, $what:literal, $number:expr, $pattern:literal, $integer:tt) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($what)
                    }

                    fn visit_str<E: Error>(self, text: &str) -> Result<$type, E> {
                        $parse(text).map($type).map_err(E::custom)
                    }

                    fn visit_i64<E: Error>(self, number: i64) -> Result<$type, E> {
                        let read: fn(u64) -> Result<$type, String> = $number;
                        u64::try_from(number)
                            .map_err(|_| format!("{number} is below zero"))
                            .and_then(read)
                            .map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(Text)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "anyOf": [{ "type": "string", "pattern": $pattern }, $integer],
                    "description": $what
                })
            }
        }
    };
}

with_unit!(
    Size,
    "Size",
    parse_size,
    "a size such as \"256KB\" or \"1MiB\"",
    |number| Ok(Size(number)),
    r"^\d+(\.\d+)? *(B|[kKMGT]B|[KMGT]iB)?$",
    { "type": "integer", "minimum": 0 }
);
with_unit!(
    SizeLimit,
    "SizeLimit",
    parse_limit,
    "a size such as \"256KB\" or \"1MiB\", or \"unlimited\"",
    |number| Ok(limit(number)),
    r"^\d+(\.\d+)? *(B|[kKMGT]B|[KMGT]iB)?$|^unlimited$",
    { "type": "integer", "minimum": 0 }
);
with_unit!(
    DurationValue,
    "Span",
    parse_duration,
    "a time such as \"500ms\", \"30s\" or \"5m\"",
    |number| match number {
        0 => Ok(DurationValue(Duration::ZERO)),
        _ => Err(format!("{number} has no unit; write for example \"{number}s\"")),
    },
    r"^\d+(\.\d+)? *(us|ms|s|m|h|d)$|^0$",
    { "const": 0 }
);
with_unit!(
    Rate,
    "Rate",
    parse_rate,
    "a rate such as \"400KB/s\"",
    |number| match number {
        0 => Ok(Rate(0)),
        _ => Err(format!("{number} has no unit; write for example \"{number}B/s\"")),
    },
    r"^\d+(\.\d+)? *(B|[kKMGT]B|[KMGT]iB)?/s$",
    { "const": 0 }
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whole_numbers_of_a_unit_are_exact(number in 0_u64..1 << 22, space in " ?") {
            for (unit, factor) in
                [("", 1), ("B", 1), ("kB", 1000), ("MB", 1_000_000), ("KiB", 1 << 10), ("GiB", 1 << 30)]
            {
                prop_assert_eq!(parse_size(&format!("{number}{space}{unit}")), Ok(number * factor));
                prop_assert_eq!(
                    parse_rate(&format!("{number}{space}{unit}/s")),
                    Ok(number * factor)
                );
            }
            for (unit, milliseconds) in [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)] {
                let time = parse_duration(&format!("{}{space}{unit}", number % 10_000));
                prop_assert_eq!(time, Ok(Duration::from_millis(number % 10_000 * milliseconds)));
            }
        }

        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,12}", number in "[0-9.]{0,20}", unit in "[a-zA-Z/]{0,4}") {
            for text in [text, format!("{number}{unit}")] {
                let _ = (parse_size(&text), parse_duration(&text), parse_rate(&text));
            }
        }
    }

    #[test]
    fn units_are_parsed() {
        assert_eq!(parse_size("256KB"), Ok(256_000));
        assert_eq!(parse_size("1.5 MiB"), Ok(1_572_864));
        assert_eq!(parse_size("12"), Ok(12));
        assert_eq!((parse_size("1TiB"), parse_size("2 TB")), (Ok(1 << 40), Ok(2_000_000_000_000)));
        for unlimited in ["unlimited", "0", "0 MB"] {
            assert_eq!(parse_limit(unlimited), Ok(u64::MAX), "{unlimited}");
        }
        assert_eq!(parse_limit("1MiB"), Ok(1 << 20));
        assert!(parse_limit("endless").is_err() && parse_size("unlimited").is_err());
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_rate("400KB/s"), Ok(400_000));
        for bad in ["", "KB", "1XB", "-1KB", "1e9KB", "1..2KB", "99999999GB"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert!(parse_duration("30").is_err() && parse_duration("1y").is_err());
        assert!(parse_rate("400KB").is_err());
        let frequency = parse_frequency("100/m").unwrap();
        assert_eq!((frequency.times, frequency.period), (100, Duration::from_secs(60)));
        for bad in ["", "10", "/s", "0/s", "-1/s", "10/x", "10/10s", "1.5/s", "99999999999/s"] {
            assert!(parse_frequency(bad).is_err(), "{bad}");
        }
    }
}
