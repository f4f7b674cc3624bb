//! Keeps the measured times of steps by their number of rows.

use std::time::Duration;

use super::MAX_ROWS;

/// The least weight of a new measurement.
const WEIGHT: f64 = 0.2;
/// The largest ratio of a measurement to the average: more is an interruption by the system.
pub(super) const MAX_RATIO: f64 = 1.5;
/// The slope between measured numbers of rows that is assumed for others, as a share of the real
/// one.
const UNMEASURED: f64 = 0.25;
/// The largest time of a further row in the first step of a number of rows, as a share of a step of
/// one row. A device may prepare itself in that step, and rows that then seemed too slow would not
/// be tried again.
const MOST_OF_FIRST: f64 = 0.4;

/// The averages of the times of steps, by number of rows.
#[derive(Clone, Debug, Default)]
pub(in crate::generate) struct StepTimes([StepTime; MAX_ROWS]);

/// The times of steps with the same number of rows.
#[derive(Clone, Copy, Debug, Default)]
struct StepTime {
    /// Number of steps.
    count: usize,
    /// The average in seconds, without the first step, which is slower on some devices. After that
    /// step alone, its time, with a bound.
    average: Option<f64>,
}

impl StepTimes {
    /// Adds a measurement of a step of `rows` rows. Returns it, or for the first such step an
    /// estimate of the time of later ones.
    pub fn record(&mut self, rows: usize, time: Duration) -> Duration {
        let estimate = self.of(rows).map_or(time, Duration::from_secs_f64);
        let single = self.0[0].average.filter(|_| rows > 1);
        let Some(known) = rows.checked_sub(1).and_then(|index| self.0.get_mut(index)) else { return time };
        known.count += 1;
        if known.count == 1 {
            let most = 1.0 + MOST_OF_FIRST * (rows as f64 - 1.0);
            known.average = single.map(|single| time.as_secs_f64().min(most * single));
            return estimate.min(time);
        }
        // The first ones have equal weights, because rare lengths have no others for long.
        let weight = WEIGHT.max(1.0 / (known.count - 1) as f64);
        let seconds = time.as_secs_f64();
        let old = known.average.filter(|_| known.count > 2).unwrap_or(seconds);
        known.average = Some(old + weight * (seconds.min(MAX_RATIO * old) - old));
        time
    }

    /// Returns the time of a step of `rows` rows. If it was not measured, it grows from the nearest
    /// smaller number of rows that was a quarter as fast as the line to the next larger one, or as
    /// the line through the two largest. Rows that take longer are found out by a try, while rows
    /// that take less than assumed would never be tried.
    pub fn of(&self, rows: usize) -> Option<f64> {
        let [below, above] = self.around(rows);
        let other = match (below, above) {
            (Some((less, _)), None) => self.below(less - 1),
            _ => above,
        };
        match (below, other) {
            (Some((at, time)), Some((other, other_time))) if at != other => {
                let slope = (other_time - time) / (other as f64 - at as f64);
                Some(time + UNMEASURED * slope.max(0.0) * (rows - at) as f64)
            }
            (Some((_, time)), _) | (None, Some((_, time))) => Some(time),
            (None, None) => None,
        }
    }

    /// Returns the largest number of rows of any step.
    pub fn most_rows(&self) -> usize {
        self.0.iter().rposition(|step| step.count > 0).map_or(0, |index| index + 1)
    }

    /// Returns the time of a step of `rows` rows, if steps with that number of rows or more were
    /// measured.
    pub fn measured(&self, rows: usize) -> Option<f64> {
        let [_, above] = self.around(rows);
        above.and_then(|_| self.of(rows))
    }

    /// Returns the nearest measured numbers of rows, at most and at least `rows`, with their times.
    fn around(&self, rows: usize) -> [Option<(usize, f64)>; 2] {
        [self.below(rows), (rows..=MAX_ROWS).find_map(|rows| self.average(rows))]
    }

    /// Returns the largest measured number of rows that is at most `rows`, with its time.
    fn below(&self, rows: usize) -> Option<(usize, f64)> {
        (1..=rows.min(MAX_ROWS)).rev().find_map(|rows| self.average(rows))
    }

    fn average(&self, rows: usize) -> Option<(usize, f64)> {
        Some((rows, self.0.get(rows - 1)?.average?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn times_that_were_not_measured_grow_slowly() {
        let mut times = StepTimes::default();
        assert_eq!(times.of(1), None);
        assert_eq!(times.record(2, millis(99)), millis(99));
        assert_eq!(times.of(2), None);
        assert_eq!(times.record(2, millis(10)), millis(10));
        // The first step counts as the ones before.
        assert_eq!(times.record(6, millis(70)), millis(10));
        assert_eq!(times.record(6, millis(30)), millis(30));
        times.record(17, millis(1));
        for (rows, expected) in [(1, 0.010), (2, 0.010), (3, 0.01125), (4, 0.0125), (6, 0.030), (16, 0.0425)] {
            assert!((times.of(rows).unwrap() - expected).abs() < 1e-12, "{rows}");
        }
    }

    #[test]
    fn the_first_step_counts_until_there_is_another() {
        let mut times = StepTimes::default();
        times.record(1, millis(10));
        times.record(1, millis(10));
        times.record(3, millis(17));
        times.record(4, millis(900));
        let of = |times: &StepTimes, rows| times.of(rows).unwrap();
        assert!((of(&times, 3) - 0.017).abs() < 1e-12);
        // The second step of three rows replaces the first; steps of one row bound the other.
        times.record(3, millis(15));
        assert!((of(&times, 3) - 0.015).abs() < 1e-12);
        assert!((of(&times, 4) - 0.022).abs() < 1e-12);
    }

    #[test]
    fn averages_follow_measurements_but_not_interruptions() {
        let mut times = StepTimes::default();
        times.record(1, millis(40));
        times.record(1, millis(10));
        times.record(1, Duration::from_secs(9));
        // It counts as one and a half times the average, and has half of the weight.
        assert!((times.of(1).unwrap() - 0.0125).abs() < 1e-12);
        (0..60).for_each(|_| _ = times.record(1, millis(20)));
        assert!((times.of(1).unwrap() - 0.020).abs() < 1e-5);
    }
}
