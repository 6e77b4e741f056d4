//! Scales of axes.

/// Ratio of the largest to the smallest value from which on a scale is logarithmic: on a linear one, the smaller values
/// could not be distinguished.
const LOGARITHMIC_FROM: f64 = 10.0;

/// The values of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    pub(super) logarithmic: bool,
}

impl Scale {
    /// Creates a scale from 0, or a logarithmic one if the values differ by more than an order of magnitude.
    pub(super) fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (min, max) = bounds(values);
        if min > 0.0 && max > min * LOGARITHMIC_FROM {
            return Self::logarithmic(min, max);
        }
        Self { from: 0.0, to: if max > 0.0 { max * 1.02 } else { 1.0 }, logarithmic: false }
    }

    /// Returns a linear scale from 0 or the smallest value.
    pub(super) fn linear(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (_, max) = bounds(values);
        Self { from: 0.0, to: if max > 0.0 { max * 1.02 } else { 1.0 }, logarithmic: false }
    }

    /// Returns a logarithmic scale, of which half a step below the smallest value is left.
    pub(super) fn logarithmic(min: f64, max: f64) -> Self {
        let (min, max) = (min.max(f64::MIN_POSITIVE), max.max(min * 1.1));
        Self { from: min / 1.6, to: max * 1.1, logarithmic: true }
    }

    /// Returns where a value is on the axis, 0 to 1.
    pub(super) fn position(&self, value: f64) -> f64 {
        let share = match self.logarithmic {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        share.clamp(0.0, 1.0)
    }

    /// Returns the values to be marked.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            let step = step(self.to - self.from);
            let count = ((self.to - self.from) / step).floor() as u32;
            return (0..=count).map(|n| self.from + f64::from(n) * step).collect();
        }
        let decades = (self.to / self.from).log10();
        let within: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = self.from.log10().floor() as i32;
        let last = self.to.log10().ceil() as i32;
        let all = (first..=last)
            .flat_map(|power| within.iter().map(move |factor| factor * 10_f64.powi(power)));
        all.filter(|tick| (self.from..=self.to).contains(tick)).collect()
    }
}

fn bounds(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let min = values.clone().fold(f64::INFINITY, f64::min);
    (min, values.fold(0.0, f64::max))
}

/// Returns a step of 1, 2 or 5 times a power of ten that divides a range into four to ten parts.
fn step(range: f64) -> f64 {
    let power = 10_f64.powf((range / 4.0).log10().floor());
    let factor = [5.0, 2.0, 1.0].into_iter().find(|factor| factor * power * 4.0 <= range);
    factor.unwrap_or(1.0) * power
}

/// Formats a value at an axis.
pub(super) fn label(value: f64) -> String {
    let short = |value: f64| format!("{}", (value * 1000.0).round() / 1000.0);
    match value.abs() {
        size if size >= 1e9 => format!("{}G", short(value / 1e9)),
        size if size >= 1e6 => format!("{}M", short(value / 1e6)),
        size if size >= 1e3 => format!("{}k", short(value / 1e3)),
        _ => short(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_one_order_of_magnitude_have_a_linear_scale() {
        let scale = Scale::of([50.0, 100.0].into_iter());
        assert!(!scale.logarithmic && scale.position(0.0) == 0.0 && scale.position(100.0) > 0.95);
        assert_eq!(scale.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(Scale::of(std::iter::empty()).ticks().len(), 6);
    }

    #[test]
    fn values_that_differ_much_have_a_logarithmic_scale() {
        let scale = Scale::of([3.0, 400.0].into_iter());
        assert!(scale.logarithmic);
        assert!(scale.position(3.0) > 0.05 && scale.position(400.0) > 0.95);
        let middle = scale.position(30.0) - scale.position(3.0);
        assert!((middle - (scale.position(300.0) - scale.position(30.0))).abs() < 1e-9);
        assert_eq!(scale.ticks(), [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]);
        assert_eq!(Scale::logarithmic(1.0, 1e5).ticks().len(), 6);
    }

    #[test]
    fn labels_are_short() {
        assert_eq!(
            [label(0.002), label(20.0), label(1500.0), label(2e6)],
            ["0.002", "20", "1.5k", "2M"]
        );
    }
}
