//! Exact quantiles of whole numbers, by counting: merging is addition, so no order matters.

/// Counts of whole numbers from `lowest` to `highest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    lowest: i64,
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    /// For numbers from `lowest` to `highest`, both included. Others count as the nearer bound.
    pub fn new(lowest: i64, highest: i64) -> Self {
        assert!(lowest <= highest, "a histogram needs at least one number");
        Histogram {
            lowest,
            counts: vec![0; (highest - lowest) as usize + 1],
            total: 0,
        }
    }
    /// Counts a number.
    #[inline]
    pub fn count(&mut self, value: i64) {
        let place = value
            .saturating_sub(self.lowest)
            .clamp(0, self.counts.len() as i64 - 1);
        self.counts[place as usize] += 1;
        self.total += 1;
    }
    /// Adds the counts of another histogram of the same range.
    pub fn add(&mut self, other: &Histogram) {
        assert_eq!(
            (self.lowest, self.counts.len()),
            (other.lowest, other.counts.len()),
            "the same range"
        );
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
    }
    /// How many numbers were counted.
    pub fn total(&self) -> u64 {
        self.total
    }
    /// The smallest number that at least `per_mille` thousandths of those counted do not exceed;
    /// `None` where nothing was counted.
    pub fn quantile(&self, per_mille: u32) -> Option<i64> {
        if self.total == 0 {
            return None;
        }
        let rank = (u128::from(self.total) * u128::from(per_mille))
            .div_ceil(1000)
            .max(1) as u64;
        let mut seen = 0;
        let place = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        place.map(|place| self.lowest + place as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_ranks_for_any_merge() {
        let mut all = Histogram::new(-5, 20);
        assert_eq!(all.quantile(500), None);
        for value in [-3, 0, 7, 7, 19, 99, -99] {
            let mut one = Histogram::new(-5, 20);
            one.count(value);
            assert_eq!(one.quantile(0), one.quantile(1000));
            all.add(&one);
        }
        assert_eq!(all.total(), 7);
        let quantiles: Vec<_> = [0, 142, 143, 500, 715, 1000]
            .iter()
            .map(|&q| all.quantile(q).unwrap_or(0))
            .collect();
        assert_eq!(quantiles, [-5, -5, -3, 7, 19, 20]);
    }
}
