//! Conditions on an outcome, such as `p99>20ms`, under which a run in CI fails.

use crate::outcome::{Latency, Outcome, Verdict};

/// A condition.
#[derive(Clone, Debug)]
pub struct FailIf {
    text: String,
    figure: String,
    comparison: Comparison,
    bound: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
    Is,
    IsNot,
}

#[derive(Clone, Debug)]
enum Bound {
    Number(f64),
    /// 1 for 100 %.
    Share(f64),
    Word(String),
}

/// Figures that are times. Percentiles are named as usual.
const TIMES: [&str; 12] =
    ["min", "mean", "p50", "p75", "p90", "p95", "p99", "p99.9", "p999", "p99.99", "p9999", "max"];
/// Other figures.
const FIGURES: [&str; 12] = [
    "errors",
    "failed_requests",
    "failed_connections",
    "sent_again",
    "unfinished",
    "requests",
    "requests_per_second",
    "bytes_per_second",
    "rate_held",
    "cpu_us_per_request",
    "warmup_errors",
    "verdict",
];
/// Figures that can be shares, with a bound in percent.
const SHARES: [&str; 3] = ["errors", "failed_requests", "rate_held"];
/// Prefixes of times, as in `connect.p99`.
const PARTS: [&str; 6] = ["latency", "service", "connect", "tls", "first_byte", "lag"];

impl FailIf {
    /// Parses `FIGURE OPERATOR BOUND`.
    ///
    /// # Errors
    /// The condition is malformed. The message has the nearest known name if a name is unknown.
    pub fn parse(text: &str) -> Result<Self, String> {
        let operators = [
            (">=", Comparison::AtLeast),
            ("<=", Comparison::AtMost),
            ("!=", Comparison::IsNot),
            ("=", Comparison::Is),
            (">", Comparison::Above),
            ("<", Comparison::Below),
        ];
        let found = operators.iter().find_map(|(sign, comparison)| {
            let (figure, bound) = text.split_once(sign)?;
            Some((figure.trim(), *comparison, bound.trim_start_matches('=').trim()))
        });
        let (figure, comparison, bound) =
            found.ok_or_else(|| format!("{text} is not a condition such as p99>20ms"))?;
        let name = match figure.split_once('.') {
            // A percentile may have a point itself.
            Some((part, name)) if !TIMES.contains(&figure) => {
                known(part, &PARTS)?;
                known(name, &TIMES)?;
                name
            }
            _ => figure,
        };
        known(name, &[&TIMES[..], &FIGURES[..]].concat())?;
        let word = name == "verdict";
        let is_equality = matches!(comparison, Comparison::Is | Comparison::IsNot);
        let bound = if word && is_equality {
            let word = bound.to_ascii_uppercase();
            known(&word, &Verdict::ALL.map(Verdict::as_str))?;
            Bound::Word(word)
        } else if word {
            return Err(format!("{text}: a verdict is compared by = or !="));
        } else {
            match bound.strip_suffix('%') {
                Some(percent) if SHARES.contains(&name) => {
                    Bound::Share(number(text, name, percent.trim())? / 100.0)
                }
                _ => Bound::Number(number(text, name, bound)?),
            }
        };
        Ok(Self { text: text.to_owned(), figure: figure.to_owned(), comparison, bound })
    }

    /// Returns a message if the condition holds of `outcome`, or its figure was not measured.
    #[must_use]
    pub fn check(&self, outcome: &Outcome) -> Option<String> {
        if let Bound::Word(word) = &self.bound {
            let verdict = outcome.verdict.to_string();
            let same = verdict == *word;
            let holds = if self.comparison == Comparison::Is { same } else { !same };
            return holds.then(|| format!("{}: the verdict is {verdict}", self.text));
        }
        let (bound, found) = match self.bound {
            Bound::Share(bound) => (bound, share(outcome, &self.figure)),
            Bound::Number(bound) => (bound, figure(outcome, &self.figure)),
            Bound::Word(_) => return None,
        };
        let Some(value) = found else {
            return Some(format!("{}: was not measured", self.text));
        };
        let holds = match self.comparison {
            Comparison::Above => value > bound,
            Comparison::AtLeast => value >= bound,
            Comparison::Below => value < bound,
            Comparison::AtMost => value <= bound,
            Comparison::Is => value == bound,
            Comparison::IsNot => value != bound,
        };
        let is_time = TIMES.iter().any(|time| self.figure.ends_with(time));
        holds.then(|| match self.bound {
            Bound::Share(_) => format!("{}: it is {:.3} %", self.text, value * 100.0),
            _ if is_time => format!("{}: it is {value:.3} ms", self.text),
            _ => format!("{}: it is {value:.3}", self.text),
        })
    }
}

fn known(name: &str, names: &[&str]) -> Result<(), String> {
    if names.contains(&name) {
        return Ok(());
    }
    let nearest = names
        .iter()
        .map(|known| (strsim::jaro_winkler(known, name), *known))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or("", |(_, known)| known);
    Err(format!("{name} is not known; the nearest is {nearest}"))
}

/// Returns a bound in the unit of the figure: milliseconds for times.
fn number(text: &str, name: &str, bound: &str) -> Result<f64, String> {
    let split = bound.find(|c: char| c.is_ascii_alphabetic() || c == 'µ').unwrap_or(bound.len());
    let (digits, unit) = bound.split_at(split);
    let is_time = TIMES.contains(&name);
    let scale = match unit {
        "" => 1.0,
        "ns" if is_time => 1e-6,
        "us" | "µs" if is_time => 1e-3,
        "ms" if is_time => 1.0,
        "s" if is_time => 1e3,
        "k" | "K" | "KB" | "kB" => 1e3,
        "M" | "MB" => 1e6,
        "G" | "GB" => 1e9,
        _ => return Err(format!("{text}: {unit} is not a unit of {name}")),
    };
    if is_time && unit.is_empty() {
        return Err(format!("{text}: a time has a unit (ns, us, ms, s)"));
    }
    match digits.trim().parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number * scale),
        _ => Err(format!("{text}: {bound} is not a number")),
    }
}

/// Returns a figure as a share: of the requests, or of the rate.
fn share(o: &Outcome, name: &str) -> Option<f64> {
    let count = match name {
        "errors" => o.failures(),
        "failed_requests" => o.failed_requests,
        _ => return figure(o, name),
    };
    let all = count + o.requests;
    (all > 0).then(|| count as f64 / all as f64)
}

fn figure(o: &Outcome, name: &str) -> Option<f64> {
    let (part, name) = match name.split_once('.') {
        Some(parts) if !TIMES.contains(&name) => parts,
        _ => ("latency", name),
    };
    match name {
        "errors" => return Some(o.errors as f64),
        "failed_requests" => return Some(o.failed_requests as f64),
        "failed_connections" => return Some(o.failed_connections as f64),
        "sent_again" => return Some((o.sent_again.lost + o.sent_again.refused) as f64),
        "warmup_errors" => return Some(o.warmup.errors as f64),
        "rate_held" => return Some(o.rate.as_ref()?.held),
        "unfinished" => return Some((o.unfinished.in_flight + o.unfinished.waiting) as f64),
        "requests" => return Some(o.requests as f64),
        "requests_per_second" => return Some(o.requests_per_second),
        "bytes_per_second" => return Some(o.bytes_per_second),
        "cpu_us_per_request" => return o.server.as_ref()?.cpu_us_per_request,
        _ => {}
    }
    let latency: &Latency = match part {
        "latency" => o.latency_ms.as_ref()?,
        "service" => o.service_ms.as_ref()?,
        "connect" => o.connect_ms.as_ref()?,
        "tls" => o.tls_ms.as_ref()?,
        "first_byte" => o.first_byte_ms.as_ref()?,
        _ => o.lag_ms.as_ref()?,
    };
    Some(match name {
        "min" => latency.min,
        "mean" => latency.mean,
        "p50" => latency.p50,
        "p90" => latency.p90,
        "p99" => latency.p99,
        "p99.9" | "p999" => latency.p999,
        "max" => latency.max,
        _ => {
            let quantile = match name {
                "p75" => 0.75,
                "p95" => 0.95,
                _ => 0.9999,
            };
            latency.to_histogram().ok()?.value_at_quantile(quantile) as f64 / 1e6
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_conditions_are_errors_with_the_nearest_name() {
        let error = |text| FailIf::parse(text).unwrap_err();
        assert!(error("p9>20ms").contains("p90") || error("p9>20ms").contains("p99"));
        assert!(error("conect.p99>1ms").contains("connect"));
        assert!(error("p99>20").contains("unit"));
        assert!(error("p99").contains("condition"));
        assert!(error("verdict>3").contains("="));
        assert!(error("errors>5ms").contains("unit"));
        assert!(error("verdict=CLIENTBOUND").contains("CLIENT-BOUND"));
        for verdict in Verdict::ALL {
            assert!(FailIf::parse(&format!("verdict={verdict}")).is_ok());
        }
        assert!(
            error("connect.errors>0").contains("known") && error("errors>nan").contains("unit")
        );
    }

    #[test]
    fn conditions_hold_or_do_not() {
        let outcome = crate::self_test::trial(crate::faulty::Fault::None, |plan| {
            plan.end = crate::plan::End::Requests(50);
        })
        .unwrap();
        let holds = |text: &str| FailIf::parse(text).unwrap().check(&outcome).is_some();
        assert!(holds("p99>0.1us") && !holds("p99 > 100s") && holds("service.max>=1ns"));
        assert!(holds("requests=50") && !holds("requests!=50") && !holds("errors>0"));
        let verdict = outcome.verdict;
        assert!(holds(&format!("verdict=={verdict}")) && !holds(&format!("verdict!={verdict}")));
        assert!(holds("requests_per_second<1G"));
        assert!(holds("p95>0.1us") && holds("p99.9>0.1us") && holds("service.p99.9>0.1us"));
        assert!(!holds("errors>=1%") && holds("errors<1%") && holds("failed_requests<=0.5 %"));
        assert!(holds("rate_held<99%"), "a closed run holds no rate");
        assert!(holds("tls.p50>1s"), "a figure that was not measured fails");
    }
}
