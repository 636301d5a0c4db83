//! MinHash signatures and bands, and the exact similarity that decides.
//!
//! Broder 1997: the chance that two sets have the same minimum under a random permutation is their
//! Jaccard similarity s. With b bands of r rows a pair becomes a candidate with probability
//! 1 - (1 - s^r)^b. More bands propose more pairs, more rows fewer.

use crate::algo::hash;
use multiversion::multiversion;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hash functions of a signature: `bands * rows` of them, the same for the same seed.
#[derive(Clone, Debug)]
pub struct MinHasher {
    multipliers: Vec<u32>,
    increments: Vec<u32>,
    rows: usize,
}

/// Buffers reused from one document to the next.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    short: Vec<u32>,
    signature: Vec<u32>,
}

impl MinHasher {
    /// `bands` bands of `rows` rows each, both at least 1. The seed is the pipeline's.
    pub fn new(seed: u64, bands: usize, rows: usize) -> Self {
        let of = |purpose: &str| {
            let key = hash::purpose_key(seed, purpose);
            (0..(bands * rows) as u64)
                .map(|i| hash::keyed_by(key, i) as u32)
                .collect::<Vec<u32>>()
        };
        MinHasher {
            multipliers: of("minhash multiplier")
                .into_iter()
                .map(|m| m | 1)
                .collect(),
            increments: of("minhash increment"),
            rows,
        }
    }

    /// Number of bands.
    pub fn bands(&self) -> usize {
        self.multipliers.len() / self.rows
    }

    /// Appends one 64-bit hash for each band of the set of `shingles` (distinct, not empty).
    pub fn bands_into(&self, shingles: &[u64], scratch: &mut Scratch, bands: &mut Vec<u64>) {
        scratch.short.clear();
        scratch
            .short
            .extend(shingles.iter().map(|&shingle| (shingle >> 32) as u32));
        scratch.signature.clear();
        scratch.signature.resize(self.multipliers.len(), u32::MAX);
        minima(
            &scratch.short,
            &self.multipliers,
            &self.increments,
            &mut scratch.signature,
        );
        for (band, rows) in scratch.signature.chunks_exact(self.rows).enumerate() {
            bands.push(xxh3_64_with_seed(bytemuck::cast_slice(rows), band as u64));
        }
    }
}

/// Lane i becomes the minimum over all values v of `(v * multiplier_i + increment_i) mod 2^32`.
/// Integers only, so every instruction set gives the same result.
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512vl+avx512dq",
    "x86_64+avx2",
    "x86_64+sse4.1",
    "aarch64+neon"
))]
fn minima(values: &[u32], multipliers: &[u32], increments: &[u32], minima: &mut [u32]) {
    const LANES: usize = 16;
    let mut start = 0;
    while start < minima.len() {
        let end = (start + LANES).min(minima.len());
        if end - start == LANES {
            let mut multiplier = [0u32; LANES];
            let mut increment = [0u32; LANES];
            let mut lowest = [u32::MAX; LANES];
            multiplier.copy_from_slice(&multipliers[start..end]);
            increment.copy_from_slice(&increments[start..end]);
            for &value in values {
                for lane in 0..LANES {
                    let hashed = value
                        .wrapping_mul(multiplier[lane])
                        .wrapping_add(increment[lane]);
                    lowest[lane] = lowest[lane].min(hashed);
                }
            }
            minima[start..end].copy_from_slice(&lowest);
        } else {
            for lane in start..end {
                for &value in values {
                    let hashed = value
                        .wrapping_mul(multipliers[lane])
                        .wrapping_add(increments[lane]);
                    minima[lane] = minima[lane].min(hashed);
                }
            }
        }
        start = end;
    }
}

/// Exact Jaccard similarity of two sets, each sorted and without repeats, or `None` where it is
/// below `at_least`. Two empty sets have none.
pub fn jaccard_at_least(a: &[u64], b: &[u64], at_least: f64) -> Option<f64> {
    let (small, large) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if small.is_empty() || (small.len() as f64) / (large.len() as f64) < at_least {
        return None;
    }
    // Of the smaller set at most `spare` may be missing from the larger one:
    // i / (|a| + |b| - i) >= t  <=>  i >= t (|a| + |b|) / (1 + t). One is left over for rounding.
    let needed = (at_least * (a.len() + b.len()) as f64 / (1.0 + at_least)).floor() as usize;
    let spare = small.len().saturating_sub(needed.saturating_sub(1));
    let (mut i, mut j, mut shared, mut missing) = (0, 0, 0usize, 0usize);
    while i < small.len() && j < large.len() {
        let (x, y) = (small[i], large[j]);
        shared += usize::from(x == y);
        missing += usize::from(x < y);
        i += usize::from(x <= y);
        j += usize::from(y <= x);
        if missing > spare {
            return None;
        }
    }
    let similarity = shared as f64 / (a.len() + b.len() - shared) as f64;
    (similarity >= at_least).then_some(similarity)
}

/// The probability that a pair of similarity `similarity` becomes a candidate.
pub fn candidate_probability(similarity: f64, bands: u32, rows: u32) -> f64 {
    1.0 - (1.0 - similarity.powi(rows as i32)).powi(bands as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn hashes(range: std::ops::Range<u64>) -> Vec<u64> {
        let mut all: Vec<u64> = range.map(|i| hash::keyed(1, "test", i)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn similarity_is_that_of_the_sets() {
        let (a, b) = (hashes(0..100), hashes(20..120));
        let left: BTreeSet<_> = a.iter().collect();
        let right: BTreeSet<_> = b.iter().collect();
        let exact = left.intersection(&right).count() as f64 / left.union(&right).count() as f64;
        assert_eq!(jaccard_at_least(&a, &b, 0.0), Some(exact));
        assert_eq!(jaccard_at_least(&a, &b, exact), Some(exact));
        assert_eq!(jaccard_at_least(&a, &b, exact + 1e-9), None);
        assert_eq!(jaccard_at_least(&[], &[], 0.0), None);
        assert_eq!(jaccard_at_least(&a, &[], 0.1), None);
    }

    #[test]
    fn more_bands_propose_more_and_more_rows_fewer() {
        assert!(candidate_probability(0.8, 20, 8) > candidate_probability(0.8, 10, 8));
        assert!(candidate_probability(0.8, 10, 12) < candidate_probability(0.8, 10, 8));
    }

    #[test]
    fn measured_candidates_follow_the_curve() {
        let hasher = MinHasher::new(3, 14, 8);
        let mut scratch = Scratch::default();
        // Pairs that share 160 of 240 shingles: s = 2/3.
        let (mut met, pairs) = (0, 2_000u64);
        for pair in 0..pairs {
            let base = pair * 1_000;
            let (mut a, mut b) = (Vec::new(), Vec::new());
            hasher.bands_into(&hashes(base..base + 200), &mut scratch, &mut a);
            hasher.bands_into(&hashes(base + 40..base + 240), &mut scratch, &mut b);
            met += u64::from(a.iter().zip(&b).any(|(x, y)| x == y));
        }
        let expected = candidate_probability(160.0 / 240.0, 14, 8);
        let deviation = (expected * (1.0 - expected) / pairs as f64).sqrt();
        let measured = met as f64 / pairs as f64;
        assert!(
            (measured - expected).abs() < 4.0 * deviation,
            "{measured} against {expected}"
        );
    }

    #[test]
    fn lanes_that_do_not_fill_a_vector_agree_with_those_that_do() {
        let set = hashes(0..50);
        let (mut few, mut many) = (Vec::new(), Vec::new());
        MinHasher::new(9, 5, 1).bands_into(&set, &mut Scratch::default(), &mut few);
        MinHasher::new(9, 32, 1).bands_into(&set, &mut Scratch::default(), &mut many);
        assert_eq!(few[..], many[..5]);
    }
}
