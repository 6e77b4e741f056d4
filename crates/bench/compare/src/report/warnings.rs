//! Warnings about conditions that make the figures of a comparison less certain.

use super::table::{Entry, entries};
use crate::results::{Machine, Results};

/// Load per processor from which on a machine is busy.
const BUSY_LOAD: f64 = 0.5;
/// Share of all processors that other programs used, from which on they disturb the figures.
const BUSY_SHARE: f64 = 0.1;
/// Half of a 95 % interval, as a share of the median, from which on a figure is uncertain.
const WIDE: f64 = 0.2;

/// Returns the warnings, a sentence each.
pub(super) fn warnings(results: &Results) -> Vec<String> {
    busy(&results.machine).into_iter().chain(wide(results)).collect()
}

/// Other programs used much of the machine before or during the comparison.
pub(crate) fn busy(machine: &Machine) -> Option<String> {
    let processors = f64::from(machine.processors);
    let load = machine.load_before.filter(|load| *load > processors * BUSY_LOAD);
    let others = machine.others_share.filter(|share| *share > BUSY_SHARE);
    let before = load.map(|load| {
        format!("the load was {load:.2} on {} CPUs before the comparison", machine.processors)
    });
    let during = others
        .map(|share| format!("other programs used {:.0} % of the CPUs during it", share * 100.0));
    let causes: Vec<String> = before.into_iter().chain(during).collect();
    (!causes.is_empty())
        .then(|| format!("the machine was busy ({}): repeat on an idle one", causes.join(", ")))
}

/// Some figures have wide intervals.
fn wide(results: &Results) -> Option<String> {
    let (mut wide, mut all) = (0, 0);
    for scenario in &results.scenarios {
        let Some(metric) = scenario.metrics.first() else { continue };
        for row in &scenario.rows {
            for entry in entries(results, row, metric) {
                let Entry::Figure { estimate, doubts, .. } = entry else { continue };
                if doubts.is_empty() {
                    all += 1;
                    wide += u32::from(estimate.spread().is_some_and(|spread| spread > WIDE));
                }
            }
        }
    }
    (wide > 0).then(|| {
        format!(
            "{wide} of {all} figures have an interval of more than ± {:.0} %: use more --rounds or a longer --duration, on an idle machine",
            WIDE * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_reported() {
        let machine = |load, share| {
            let mut machine = crate::machine::describe(0, 0);
            (machine.processors, machine.load_before, machine.others_share) =
                (2, Some(load), Some(share));
            machine
        };
        let before = busy(&machine(1.43, 0.01)).unwrap_or_default();
        assert!(before.contains("1.43 on 2 CPUs") && !before.contains("during"), "{before}");
        let during = busy(&machine(0.12, 0.31)).unwrap_or_default();
        assert!(during.contains("31 %") && !during.contains("before"), "{during}");
        assert_eq!(busy(&machine(0.12, 0.01)), None);
    }
}
