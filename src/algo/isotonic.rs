//! Isotonic regression, and the curve that it makes of usefulness.

/// The non-decreasing values that are nearest to the means in weighted least squares: pool adjacent
/// violators (Barlow et al. 1972). One value for each (weight, mean), in order. Weights are above 0.
///
/// ```
/// use goodput::algo::isotonic::isotonic;
/// assert_eq!(isotonic(&[(1, 0.0), (1, 3.0), (3, 1.0), (1, 2.0)]), [0.0, 1.5, 1.5, 2.0]);
/// ```
pub fn isotonic(means: &[(u64, f64)]) -> Vec<f64> {
    // Blocks of equal value: weight, mean, how many.
    let mut blocks: Vec<(f64, f64, usize)> = Vec::new();
    for &(weight, mean) in means {
        let mut block = (weight as f64, mean, 1);
        while let Some(&(weight, mean, n)) = blocks.last()
            && mean >= block.1
        {
            blocks.pop();
            let sum = weight + block.0;
            // From the one towards the other, so that equal means stay as they are.
            let pooled = mean + (block.1 - mean) * (block.0 / sum);
            block = (sum, pooled, n + block.2);
        }
        blocks.push(block);
    }
    blocks
        .into_iter()
        .flat_map(|(_, mean, n)| std::iter::repeat_n(mean, n))
        .collect()
}

/// Points of a [`Curve`]: one for each byte that a usefulness is stored in.
pub const POINTS: usize = 256;

/// A non-decreasing map from 0..1 to 0..1, straight between the points at byte / 255.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    points: Vec<f32>,
}

impl Curve {
    /// From its values at byte / 255; `None` unless there are 256, from 0 to 1, non-decreasing.
    pub fn new(points: Vec<f32>) -> Option<Curve> {
        let valid = points.len() == POINTS
            && points.iter().all(|value| (0.0..=1.0).contains(value))
            && points.windows(2).all(|pair| pair[0] <= pair[1]);
        valid.then_some(Curve { points })
    }

    /// Its values at byte / 255.
    pub fn points(&self) -> &[f32] {
        &self.points
    }

    /// The value at a usefulness from 0 to 1.
    pub fn at(&self, usefulness: f32) -> f32 {
        let place = usefulness.clamp(0.0, 1.0) * (POINTS - 1) as f32;
        let below = (place as usize).min(POINTS - 2);
        let (low, high) = (self.points[below], self.points[below + 1]);
        (low + (place - below as f32) * (high - low)).clamp(low, high)
    }
}

/// Values at all places of `known`, straight between those that are there and level beyond them.
/// `None` where there is none.
pub fn fill_gaps(known: &[Option<f64>]) -> Option<Vec<f64>> {
    let places: Vec<usize> = (0..known.len()).filter(|&at| known[at].is_some()).collect();
    let value = |place: usize| known[place].unwrap_or(0.0);
    let (&first, &last) = (places.first()?, places.last()?);
    let mut values = vec![value(first); known.len()];
    for pair in places.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        for (step, slot) in values[from..to].iter_mut().enumerate() {
            let share = step as f64 / (to - from) as f64;
            *slot = value(from) + share * (value(to) - value(from));
        }
    }
    values[last..].fill(value(last));
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The formula by minima and maxima over all stretches, as it is proved.
    fn by_definition(means: &[(u64, f64)]) -> Vec<f64> {
        let mean = |from: usize, to: usize| {
            let weight: f64 = means[from..=to].iter().map(|m| m.0 as f64).sum();
            means[from..=to]
                .iter()
                .map(|m| m.0 as f64 * m.1)
                .sum::<f64>()
                / weight
        };
        (0..means.len())
            .map(|at| {
                (0..=at)
                    .map(|from| {
                        (at..means.len())
                            .map(|to| mean(from, to))
                            .fold(f64::INFINITY, f64::min)
                    })
                    .fold(f64::NEG_INFINITY, f64::max)
            })
            .collect()
    }

    fn means() -> impl Strategy<Value = Vec<(u64, f64)>> {
        prop::collection::vec((1u64..1000, -5.0f64..5.0), 0..30)
    }

    proptest! {
        #[test]
        fn is_the_nearest_non_decreasing_sequence(means in means()) {
            let found = isotonic(&means);
            prop_assert_eq!(found.len(), means.len());
            prop_assert!(found.windows(2).all(|pair| pair[0] <= pair[1]));
            for (found, expected) in found.iter().zip(by_definition(&means)) {
                prop_assert!((found - expected).abs() < 1e-9, "{} {}", found, expected);
            }
        }

        #[test]
        fn keeps_the_mean_and_what_is_sorted_already(means in means()) {
            let found = isotonic(&means);
            let sum = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>();
            let before = sum(&mut means.iter().map(|m| m.0 as f64 * m.1));
            let after = sum(&mut means.iter().zip(&found).map(|(m, value)| m.0 as f64 * value));
            prop_assert!((before - after).abs() < 1e-6);
            let again: Vec<(u64, f64)> = means.iter().zip(&found).map(|(m, value)| (m.0, *value)).collect();
            prop_assert_eq!(isotonic(&again), found);
        }

        #[test]
        fn a_curve_keeps_the_order_and_meets_its_points(mut points in prop::collection::vec(0.0f32..=1.0, POINTS), a in 0.0f32..=1.0, b in 0.0f32..=1.0) {
            points.sort_by(f32::total_cmp);
            let curve = Curve::new(points.clone()).expect("sorted");
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(curve.at(low) <= curve.at(high));
            for byte in [0usize, 1, 127, 254, 255] {
                prop_assert!((curve.at(byte as f32 / 255.0) - points[byte]).abs() < 1e-4);
            }
        }
    }

    #[test]
    fn a_curve_that_falls_or_leaves_the_range_is_refused() {
        let line: Vec<f32> = (0..256).map(|byte| byte as f32 / 255.0).collect();
        assert!(Curve::new(line.clone()).is_some());
        assert!(Curve::new(line[1..].to_vec()).is_none());
        for (at, value) in [(5, 0.9), (255, 1.5), (0, -0.1), (9, f32::NAN)] {
            let mut wrong = line.clone();
            wrong[at] = value;
            assert!(Curve::new(wrong).is_none(), "{at} {value}");
        }
    }

    #[test]
    fn gaps_are_straight_and_ends_are_level() {
        let known = [None, Some(1.0), None, None, Some(4.0), None];
        assert_eq!(fill_gaps(&known), Some(vec![1.0, 1.0, 2.0, 3.0, 4.0, 4.0]));
        assert_eq!(fill_gaps(&[None, None]), None);
        assert_eq!(fill_gaps(&[Some(2.0)]), Some(vec![2.0]));
    }
}
