use super::*;
use crate::rng::SplitMix64;
use crate::testing;

fn part(name: &str, outcome: Outcome) -> Part {
    Part { name: name.to_owned(), result: Ok(outcome), segment: None, start: None }
}

/// Segment `index` of `of`, which started `start` milliseconds late.
fn segment(index: u32, of: u32, start: f64, outcome: Outcome) -> Part {
    let segment = Some(Segment { index, of });
    let plan = Plan { segment, ..outcome.plan.clone() };
    let start = Some(Start { at_ms: start, uncertainty_ms: Some(0.1) });
    Part { start, ..part(&format!("host{index}"), Outcome { plan, ..outcome }) }
}

#[test]
fn overlapping_time_counts_once() {
    let at = |from: u64, length: u64| {
        (SystemTime::UNIX_EPOCH + Duration::from_secs(from), Duration::from_secs(length))
    };
    assert_eq!(union(&[at(10, 5), at(30, 5)]).1, 10.0);
    assert_eq!(union(&[at(12, 5), at(10, 5)]), (at(10, 0).0, 7.0));
    assert_eq!(union(&[at(10, 20), at(12, 2)]).1, 20.0);
}

#[test]
fn percentiles_of_the_whole_are_those_of_the_pooled_samples() {
    let mut random = SplitMix64::stream(5, 0);
    let mut pooled = Vec::new();
    let mut parts = Vec::new();
    // One generator is far from the server: the percentiles of the whole are no mean of those of the parts.
    for (index, distance) in [0_u64, 200_000, 40_000_000].into_iter().enumerate() {
        let mut samples = testing::histogram();
        for _ in 0..20_000 {
            let time = distance + (-(1.0 - random.next_f64()).ln() * 3e6) as u64 + 50_000;
            samples.saturating_record(time);
            pooled.push(time);
        }
        let outcome = Outcome {
            latency_ms: Some(Latency::from_histogram(&samples)),
            ..testing::outcome(20_000, 2.0)
        };
        parts.push(segment(index as u32, 3, 0.0, outcome));
    }
    let merged = merge(&parts, false).unwrap();
    pooled.sort_unstable();
    let latency = merged.latency_ms.unwrap();
    for (share, merged) in [(0.5, latency.p50), (0.9, latency.p90), (0.99, latency.p99)] {
        let rank = (share * pooled.len() as f64).ceil() as usize - 1;
        let exact = pooled[rank] as f64 / 1e6;
        assert!((merged / exact - 1.0).abs() < 1e-3, "{share}: {merged} {exact}");
    }
    assert_eq!((latency.count, merged.requests), (60_000, 60_000));
    assert!((merged.requests_per_second - 30_000.0).abs() < 1.0);
}

#[test]
fn seconds_of_concurrent_generators_add_up() {
    let second = |at, requests, p99_ms| Second {
        at,
        length: 1.0,
        requests,
        bytes: 10,
        p99_ms,
        ..Second::default()
    };
    let of = |requests, p99| {
        let series = (0..6).map(|n| second(f64::from(n), requests, p99)).collect();
        Outcome { series, ..testing::outcome(requests * 6, 6.0) }
    };
    let parts = [segment(0, 2, 0.0, of(100, 5.0)), segment(1, 2, 0.4, of(50, 9.0))];
    let merged = merge(&parts, false).unwrap();
    assert_eq!(merged.series.len(), 6);
    assert!(merged.series.iter().all(|s| (s.requests, s.bytes, s.p99_ms) == (150, 20, 9.0)));
    assert_eq!(merged.reply_rate.unwrap().mean, 150.0);
    assert_eq!(merged.generators.unwrap().skew_ms, 0.4);
}

#[test]
fn noise_is_judged_by_the_sum() {
    // Each alternates between two rates, and their sum is constant.
    let of = |odd: bool| {
        let requests = |n: u32| if n.is_multiple_of(2) == odd { 2000 } else { 1000 };
        let second = |n| Second {
            at: f64::from(n),
            length: 1.0,
            requests: requests(n),
            ..Second::default()
        };
        Outcome {
            series: (0..8).map(second).collect(),
            verdict: Verdict::Noisy,
            reasons: vec!["requests/s scatter by 50 %".to_owned()],
            ..testing::outcome(12_000, 8.0)
        }
    };
    let merged = merge(&[segment(0, 2, 0.0, of(true)), segment(1, 2, 0.0, of(false))], false);
    assert_eq!(merged.unwrap().verdict, Verdict::Valid);
    let merged =
        merge(&[segment(0, 2, 0.0, of(true)), segment(1, 2, 0.0, of(true))], false).unwrap();
    assert_eq!((merged.verdict, merged.reasons.len()), (Verdict::Noisy, 1));
}

#[test]
fn the_gravest_verdict_holds_and_reasons_name_their_generator() {
    let late = Outcome {
        verdict: Verdict::ClientBound,
        reasons: vec!["the generator itself was late".to_owned()],
        ..testing::outcome(10, 1.0)
    };
    let parts = [segment(0, 2, 0.0, testing::outcome(10, 1.0)), segment(1, 2, 0.0, late)];
    let merged = merge(&parts, false).unwrap();
    assert_eq!(merged.verdict, Verdict::ClientBound);
    assert_eq!(merged.reasons, ["host1: the generator itself was late"]);
}

#[test]
fn missing_segments_make_the_result_incomplete() {
    let of = |index| segment(index, 3, 0.0, testing::outcome(10, 1.0));
    let merged = merge(&[of(0), of(2)], false).unwrap();
    assert_eq!(merged.verdict, Verdict::Incomplete);
    assert_eq!(merged.reasons, ["the results of segment 1/3 are missing"]);
    assert_eq!(merge(&[of(0), of(1), of(2)], false).unwrap().verdict, Verdict::Valid);
}

#[test]
fn generators_that_end_early_or_start_late_make_the_result_incomplete() {
    let whole = || testing::outcome(10, 10.0);
    let short = Outcome { duration_seconds: 7.0, ..whole() };
    let parts = [segment(0, 2, 0.0, whole()), segment(1, 2, 0.0, short)];
    assert_eq!(merge(&parts, true).unwrap().verdict, Verdict::Valid);
    let merged = merge(&parts, false).unwrap();
    assert_eq!(merged.verdict, Verdict::Incomplete);
    assert_eq!(merged.reasons, ["host1 ended after 7.00 s of 10 s"]);
    let merged = merge(&[segment(0, 2, 0.0, whole()), segment(1, 2, 99.0, whole())], false);
    assert_eq!(merged.unwrap().verdict, Verdict::Valid);
    let merged = merge(&[segment(0, 2, 0.0, whole()), segment(1, 2, 150.0, whole())], false);
    assert_eq!(merged.unwrap().verdict, Verdict::ClientBound);
    let merged = merge(&[segment(0, 2, 0.0, whole()), segment(1, 2, 1100.0, whole())], false);
    assert_eq!(merged.unwrap().verdict, Verdict::Incomplete);
}

#[test]
fn only_segments_of_one_run_and_runs_of_one_plan_merge() {
    let one = |plan: Plan| part("a", Outcome { plan, ..testing::outcome(1, 1.0) });
    let with = |segment| one(Plan { segment, ..testing::plan(1.0) });
    let of = |index, of| with(Some(Segment { index, of }));
    assert!(merge(&[of(0, 2), of(1, 3)], false).is_err_and(|e| e.contains("--segment")));
    assert!(merge(&[of(0, 2), with(None)], false).is_err_and(|e| e.contains("--segment")));
    let seed = Plan { seed: 2, ..testing::plan(1.0) };
    assert!(merge(&[with(None), one(seed.clone())], false).is_ok());
    let segment = Some(Segment { index: 1, of: 2 });
    let other = one(Plan { segment, ..seed });
    assert!(merge(&[of(0, 2), other], false).is_err_and(|e| e.contains("`seed`")));
    assert!(merge(&[], false).is_err_and(|e| e.contains("nothing to merge")));
    let lost = Part { result: Err("gone".to_owned()), ..of(0, 1) };
    assert!(merge(&[lost], false).is_err_and(|e| e == "a: gone"));
}
