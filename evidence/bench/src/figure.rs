//! A figure: the samples of one measurement, and its goals.

use serde::Serialize;

/// The unit of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    PairsPerSecond,
    PerSecond,
    PerMinute,
    Bytes,
    Megabytes,
    Microseconds,
    Milliseconds,
    Seconds,
    Ratio,
    Count,
}

/// One quantity, measured more than once.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    name: String,
    unit: Unit,
    /// In ascending order.
    samples: Vec<f64>,
    goals: Vec<Goal>,
}

/// The statistic that is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Statistic {
    Min,
    Median,
    Max,
}

/// Whether a goal is a lower or an upper bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    AtLeast,
    AtMost,
}

/// A bound that a statistic should keep.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Goal {
    pub(crate) of: Statistic,
    pub(crate) side: Side,
    pub(crate) bound: f64,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, unit: Unit, mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Self { name: name.into(), unit, samples, goals: Vec::new() }
    }

    #[must_use]
    pub(crate) fn with_goal(mut self, of: Statistic, side: Side, bound: f64) -> Self {
        self.goals.push(Goal { of, side, bound });
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn unit(&self) -> Unit {
        self.unit
    }

    pub(crate) fn samples(&self) -> &[f64] {
        &self.samples
    }

    pub(crate) fn goals(&self) -> &[Goal] {
        &self.goals
    }

    /// NaN without a sample, which meets no goal.
    pub(crate) fn statistic(&self, of: Statistic) -> f64 {
        let Some(last) = self.samples.len().checked_sub(1) else { return f64::NAN };
        match of {
            Statistic::Min => self.samples[0],
            Statistic::Median => f64::midpoint(self.samples[last / 2], self.samples[last.div_ceil(2)]),
            Statistic::Max => self.samples[last],
        }
    }

    pub(crate) fn meets(&self, goal: Goal) -> bool {
        let found = self.statistic(goal.of);
        match goal.side {
            Side::AtLeast => found >= goal.bound,
            Side::AtMost => found <= goal.bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(samples: &[f64]) -> Figure {
        Figure::new("x", Unit::Bytes, samples.to_vec())
    }

    #[test]
    fn median_is_the_middle_sample() {
        assert_eq!(figure(&[3.0, 1.0, 7.0]).statistic(Statistic::Median), 3.0);
        assert_eq!(figure(&[3.0, 1.0, 7.0, 5.0]).statistic(Statistic::Median), 4.0);
        assert_eq!(figure(&[3.0]).statistic(Statistic::Median), 3.0);
    }

    #[test]
    fn goal_is_compared_with_its_statistic() {
        let figure = figure(&[1.0, 2.0, 9.0]);
        let goal = |of, side, bound| Goal { of, side, bound };
        assert!(figure.meets(goal(Statistic::Median, Side::AtMost, 2.0)));
        assert!(!figure.meets(goal(Statistic::Max, Side::AtMost, 2.0)));
        assert!(figure.meets(goal(Statistic::Max, Side::AtLeast, 9.0)));
        assert!(!figure.meets(goal(Statistic::Min, Side::AtLeast, 2.0)));
    }

    #[test]
    fn figure_without_samples_meets_no_goal() {
        let goal = |side| Goal { of: Statistic::Median, side, bound: 0.0 };
        assert!(!figure(&[]).meets(goal(Side::AtLeast)));
        assert!(!figure(&[]).meets(goal(Side::AtMost)));
    }
}
