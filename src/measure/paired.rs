//! What a few paired runs can tell: Student's t interval, Holm's correction, the least effect that could be seen.
//!
//! There is no bootstrap: below five seeds it has too few samples to draw from, and at five the interval by
//! Student's t is no wider than it must be.

/// Seeds below which there is no interval.
pub const LEAST_SEEDS: usize = 3;
/// Power at which the least effect that could be seen is given.
const POWER: f64 = 0.8;

/// The mean of differences with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// Pairs.
    pub pairs: usize,
    /// Mean difference.
    pub mean: f64,
    /// Standard deviation of the differences, n - 1 in the denominator.
    pub deviation: f64,
    /// Lower end of the interval: mean - t(.975, n - 1) deviation / sqrt n.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
    /// Probability of a mean at least as far from 0 where the truth is 0.
    pub p_value: f64,
}

/// Student's t over paired differences. `None` below three, or where one is not finite.
///
/// ```
/// let found = goodput::measure::paired(&[1.0, 2.0, 3.0]).expect("three pairs");
/// assert_eq!((found.mean, found.deviation), (2.0, 1.0));
/// assert!((found.upper - (2.0 + 4.302653 / 3f64.sqrt())).abs() < 1e-5);
/// ```
pub fn paired(differences: &[f64]) -> Option<Paired> {
    let pairs = differences.len();
    if pairs < LEAST_SEEDS || differences.iter().any(|y| !y.is_finite()) {
        return None;
    }
    let mean = differences.iter().sum::<f64>() / pairs as f64;
    let squares: f64 = differences.iter().map(|y| (y - mean) * (y - mean)).sum();
    let deviation = (squares / (pairs - 1) as f64).sqrt();
    let error = deviation / (pairs as f64).sqrt();
    let freedom = (pairs - 1) as f64;
    let half = student_t_quantile(0.975, freedom) * error;
    let p_value = match (error > 0.0, mean == 0.0) {
        (true, _) => 2.0 * upper_tail((mean / error).abs(), freedom),
        (false, true) => 1.0,
        (false, false) => 0.0,
    };
    Some(Paired {
        pairs,
        mean,
        deviation,
        lower: mean - half,
        upper: mean + half,
        p_value,
    })
}

/// The least mean difference that a test at 5 % would find in four of five experiments with so many pairs of
/// this deviation: (t(.975, n - 1) + t(.8, n - 1)) deviation / sqrt n.
pub fn minimum_detectable(deviation: f64, pairs: usize) -> f64 {
    let freedom = (pairs.max(2) - 1) as f64;
    let quantiles = student_t_quantile(0.975, freedom) + student_t_quantile(POWER, freedom);
    quantiles * deviation / (pairs as f64).sqrt()
}

/// Holm's correction: each p-value as it counts beside the others of its family, in the order given.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut reached: f64 = 0.0;
    for (rank, at) in order.into_iter().enumerate() {
        let one = (p_values.len() - rank) as f64 * p_values[at];
        reached = reached.max(one).min(1.0);
        adjusted[at] = reached;
    }
    adjusted
}

/// Quantile of Student's t: the value that a variable with so many degrees of freedom is below with this
/// probability. Both above 0, the probability below 1.
pub fn student_t_quantile(probability: f64, freedom: f64) -> f64 {
    if probability < 0.5 {
        return -student_t_quantile(1.0 - probability, freedom);
    }
    let (mut low, mut high) = (0.0, 1.0);
    while upper_tail(high, freedom) > 1.0 - probability && high < 1e300 {
        (low, high) = (high, 2.0 * high);
    }
    // Halving ends where no number lies between: at most as often as a number has bits.
    loop {
        let middle = low + 0.5 * (high - low);
        if middle <= low || middle >= high {
            return middle;
        }
        match upper_tail(middle, freedom) > 1.0 - probability {
            true => low = middle,
            false => high = middle,
        }
    }
}

/// Probability that Student's t is above `t`, 0 or more.
fn upper_tail(t: f64, freedom: f64) -> f64 {
    0.5 * incomplete_beta(freedom / (freedom + t * t), 0.5 * freedom, 0.5)
}

/// Regularised incomplete beta function I_x(a, b), by its continued fraction.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast on one side; the other is its complement.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b)
        + a * libm::log(x)
        + b * libm::log1p(-x);
    libm::exp(front) / (a * fraction(x, a, b))
}

/// 1 + d1/(1 + d2/(1 + ...)) of the incomplete beta function, by Lentz's method.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    const STEPS: u32 = 10_000;
    let away = |value: f64| match value.abs() < TINY {
        true => TINY,
        false => value,
    };
    let (mut value, mut c, mut d) = (1.0, 1.0, 0.0);
    for step in 1..STEPS {
        let m = f64::from(step / 2);
        let term = match step % 2 {
            0 => m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            _ => -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        };
        d = 1.0 / away(1.0 + term * d);
        c = away(1.0 + term / c);
        let change = c * d;
        value *= change;
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (probability, freedom, expected) in [
            (0.975, 1.0, 12.706_205),
            (0.975, 2.0, 4.302_653),
            (0.975, 3.0, 3.182_446),
            (0.975, 4.0, 2.776_445),
            (0.975, 9.0, 2.262_157),
            (0.975, 30.0, 2.042_272),
            (0.975, 1e7, 1.959_964),
            (0.8, 2.0, 1.060_660),
            (0.8, 4.0, 0.940_965),
            (0.999, 5.0, 5.893_430),
            (0.5, 3.0, 0.0),
            (0.025, 2.0, -4.302_653),
        ] {
            let found = student_t_quantile(probability, freedom);
            assert!(
                (found - expected).abs() < 2e-6,
                "t({probability}, {freedom}) is {found}, not {expected}"
            );
        }
    }

    #[test]
    fn an_interval_needs_three_pairs_and_holds_its_mean() {
        assert_eq!(paired(&[]), None);
        assert_eq!(paired(&[0.1]), None);
        assert_eq!(paired(&[0.1, 0.2]), None);
        assert_eq!(paired(&[0.1, f64::NAN, 0.2]), None);
        let found = paired(&[0.1, 0.2, 0.3]).expect("three");
        assert!((found.mean - 0.2).abs() < 1e-15 && (found.deviation - 0.1).abs() < 1e-15);
        let half = 4.302_653 * 0.1 / 3f64.sqrt();
        assert!((found.upper - 0.2 - half).abs() < 1e-6 && (found.lower - 0.2 + half).abs() < 1e-6);
        // t = 0.2 / (0.1 / sqrt 3) = 3.4641 with 2 degrees of freedom.
        assert!((found.p_value - 0.074_180).abs() < 1e-6, "{found:?}");
        let mirrored = paired(&[-0.1, -0.2, -0.3]).expect("three");
        assert_eq!(mirrored.p_value, found.p_value);
    }

    #[test]
    fn equal_differences_are_certain_and_equal_runs_tell_nothing() {
        let same = paired(&[0.5; 3]).expect("three");
        assert_eq!((same.lower, same.upper, same.p_value), (0.5, 0.5, 0.0));
        let none = paired(&[0.0; 4]).expect("four");
        assert_eq!((none.mean, none.p_value), (0.0, 1.0));
    }

    #[test]
    fn the_p_value_is_5_percent_where_the_interval_touches_0() {
        let found = paired(&[0.9, 1.0, 1.1, 1.4]).expect("four");
        let edge: Vec<f64> = [0.9, 1.0, 1.1, 1.4]
            .iter()
            .map(|y| y - found.lower)
            .collect();
        let found = paired(&edge).expect("four");
        assert!(found.lower.abs() < 1e-12 && (found.p_value - 0.05).abs() < 1e-9);
    }

    #[test]
    fn more_seeds_see_less() {
        let with = |pairs| minimum_detectable(0.1, pairs);
        assert!((with(3) - (4.302_653 + 1.060_660) * 0.1 / 3f64.sqrt()).abs() < 1e-6);
        assert!(with(4) < with(3) && with(30) < with(10));
        assert_eq!(minimum_detectable(0.0, 3), 0.0);
    }

    #[test]
    fn holm_multiplies_the_smallest_most_and_never_turns_the_order() {
        assert_eq!(holm(&[]), Vec::<f64>::new());
        assert_eq!(holm(&[0.03]), [0.03]);
        assert_eq!(holm(&[0.01, 0.04, 0.03]), [0.03, 0.06, 0.06]);
        assert_eq!(holm(&[0.9, 0.6]), [1.0, 1.0]);
    }
}
