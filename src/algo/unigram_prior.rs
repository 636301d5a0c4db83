//! How common the tokens of a document are: mean and standard deviation of ln p(token).
//!
//! After Seo et al. 2025 (a prior-based filter): prose keeps a stable mix of function words and
//! content words, so that both numbers lie near the corpus' centre; lists, boilerplate and other
//! languages leave it on one side, noise on the other.

use super::histogram::Histogram;

/// -ln p is counted in steps of 1/16384 nat.
pub const PRIOR_STEPS_PER_NAT: f64 = 16_384.0;
/// Bound of -ln p in steps: 32 nats.
const HIGHEST: i64 = 32 * 16_384;

/// -ln of (count + 1) / (total + V), in steps, per id.
pub fn surprisal_steps(counts: &[u32]) -> Vec<u32> {
    let total: u64 = counts.iter().map(|&count| u64::from(count)).sum();
    let all = libm::log(total as f64 + counts.len() as f64);
    let step = |&count: &u32| {
        ((all - libm::log(f64::from(count) + 1.0)) * PRIOR_STEPS_PER_NAT + 0.5) as u32
    };
    counts.iter().map(step).collect()
}

/// Mean and standard deviation of -ln p over a document's tokens, in nats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    /// Mean, 0 or more.
    pub mean_nats: f64,
    /// Standard deviation, 0 for a single token.
    pub deviation_nats: f64,
}

impl Moments {
    /// Of a document of at least one token; `steps` holds -ln p per id, see [`surprisal_steps`].
    pub fn of(tokens: &[u32], steps: &[u32]) -> Self {
        let (mut sum, mut squares) = (0u64, 0u128);
        for tokens in tokens.chunks(1 << 20) {
            let mut part = 0u64;
            for &token in tokens {
                let step = u64::from(steps[token as usize]);
                sum += step;
                part += step * step;
            }
            squares += u128::from(part);
        }
        let n = tokens.len() as u128;
        // n^2 times the variance, exact.
        let spread = n * squares - u128::from(sum) * u128::from(sum);
        let n = tokens.len() as f64;
        Moments {
            mean_nats: sum as f64 / n / PRIOR_STEPS_PER_NAT,
            deviation_nats: (spread as f64).sqrt() / n / PRIOR_STEPS_PER_NAT,
        }
    }
}

/// Median of a quantity and its robust spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Centre {
    /// Median, in nats.
    pub median: f64,
    /// Interquartile range / 1.35, in nats, at least 1/1024.
    pub spread: f64,
}

impl Centre {
    /// From counts in steps; `None` where nothing was counted.
    fn of(histogram: &Histogram) -> Option<Self> {
        let quantile = |per_mille| {
            histogram
                .quantile(per_mille)
                .map(|v| v as f64 / PRIOR_STEPS_PER_NAT)
        };
        let spread = (quantile(750)? - quantile(250)?) / 1.35;
        Some(Centre {
            median: quantile(500)?,
            spread: spread.max(1.0 / 1024.0),
        })
    }
    /// Distance from the median, in spreads, signed.
    pub fn distance(&self, value: f64) -> f64 {
        (value - self.median) / self.spread
    }
}

/// Counts from which the centres come. Adding is order-free.
#[derive(Clone, Debug)]
pub struct CentreCounts {
    means: Histogram,
    deviations: Histogram,
    tokens: Histogram,
}

impl Default for CentreCounts {
    fn default() -> Self {
        let empty = Histogram::new(0, HIGHEST);
        CentreCounts {
            means: empty.clone(),
            deviations: empty.clone(),
            tokens: empty,
        }
    }
}

impl CentreCounts {
    /// Counts a document.
    pub fn count(&mut self, tokens: &[u32], steps: &[u32]) {
        let moments = Moments::of(tokens, steps);
        self.means
            .count((moments.mean_nats * PRIOR_STEPS_PER_NAT + 0.5) as i64);
        self.deviations
            .count((moments.deviation_nats * PRIOR_STEPS_PER_NAT + 0.5) as i64);
        for &token in tokens {
            self.tokens.count(i64::from(steps[token as usize]));
        }
    }
    /// Adds another worker's counts.
    pub fn add(&mut self, other: &CentreCounts) {
        self.means.add(&other.means);
        self.deviations.add(&other.deviations);
        self.tokens.add(&other.tokens);
    }
    /// The centres; `None` where no document was counted.
    pub fn centres(&self) -> Option<Centres> {
        Some(Centres {
            mean: Centre::of(&self.means)?,
            deviation: Centre::of(&self.deviations)?,
            token: Centre::of(&self.tokens)?,
        })
    }
}

/// Where most documents lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Centres {
    /// Of the documents' means.
    pub mean: Centre,
    /// Of the documents' standard deviations.
    pub deviation: Centre,
    /// Of single tokens.
    pub token: Centre,
}

impl Centres {
    /// 1 / (1 + d), d = the distance of (mean, standard deviation) from the centre in spreads:
    /// 1 at the centre, towards 0 far away on any side.
    pub fn score(&self, moments: &Moments) -> f64 {
        let mean = self.mean.distance(moments.mean_nats);
        let deviation = self.deviation.distance(moments.deviation_nats);
        1.0 / (1.0 + (mean * mean + deviation * deviation).sqrt())
    }
    /// exp(-z^2 / 2), z = the distance of a token's -ln p from the median token in spreads.
    pub fn token_usefulness(&self, step: u32) -> f32 {
        let z = self.token.distance(f64::from(step) / PRIOR_STEPS_PER_NAT);
        libm::exp(-0.5 * z * z) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_definition() {
        let steps = surprisal_steps(&[7, 3, 0, 0]);
        let nats = |count: f64| (14.0f64 / (count + 1.0)).ln();
        assert!((f64::from(steps[0]) / PRIOR_STEPS_PER_NAT - nats(7.0)).abs() < 1e-4);
        let tokens = [0, 0, 1, 2];
        let values = [nats(7.0), nats(7.0), nats(3.0), nats(0.0)];
        let mean = values.iter().sum::<f64>() / 4.0;
        let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 4.0).sqrt();
        let moments = Moments::of(&tokens, &steps);
        assert!(
            (moments.mean_nats - mean).abs() < 1e-4
                && (moments.deviation_nats - deviation).abs() < 1e-4
        );
        assert_eq!(Moments::of(&[3], &steps).deviation_nats, 0.0);
    }

    #[test]
    fn both_ends_score_below_the_centre() {
        let steps = surprisal_steps(&[1000, 300, 100, 30, 10, 3, 1, 0]);
        let mut counts = CentreCounts::default();
        assert_eq!(counts.centres(), None);
        for a in 0..4 {
            for b in 1..5 {
                counts.count(&[0, 0, a, b, 3], &steps);
            }
        }
        let centres = counts.centres().expect("documents were counted");
        let score = |tokens: &[u32]| centres.score(&Moments::of(tokens, &steps));
        let middle = score(&[0, 0, 2, 2, 3]);
        assert!(
            middle > score(&[0; 5]) && middle > score(&[7; 5]) && middle > score(&[0, 7, 0, 7, 0])
        );
        assert!((0.0..=1.0).contains(&score(&[7])));
        assert!((0..8).all(|id| (0.0..=1.0).contains(&centres.token_usefulness(steps[id]))));
    }

    #[test]
    fn one_document_of_one_token_is_its_own_centre() {
        let steps = surprisal_steps(&[1, 0]);
        let mut counts = CentreCounts::default();
        counts.count(&[0], &steps);
        let centres = counts.centres().expect("one document");
        assert!((centres.score(&Moments::of(&[0], &steps)) - 1.0).abs() < 1e-6);
    }
}
