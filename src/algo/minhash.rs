//! MinHash signatures and bands, and the exact similarity that decides.
//!
//! Broder 1997: the chance that two sets have the same minimum under a random permutation is their
//! Jaccard similarity s. With b bands of r rows a pair becomes a candidate with probability
//! 1 - (1 - s^r)^b. More bands propose more pairs, more rows fewer.

use crate::algo::hash;
use multiversion::multiversion;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Most bands that a signature may have.
pub const MAX_BANDS: u32 = 512;
/// Most rows that a band may have.
pub const MAX_ROWS: u32 = 64;
/// Most hashes of a signature that [`bands_and_rows`] chooses: one document's cost is proportional to it.
pub const MAX_HASHES: u32 = 128;
/// The probability with which [`bands_and_rows`] and [`fewest_bands`] propose the pairs they are made for.
pub const PROPOSED: f64 = 0.99;

/// Hash functions of a signature: `bands * rows` of them, the same for the same seed.
#[derive(Clone, Debug)]
pub struct MinHasher {
    /// Those of the signature, then as many as fill the last vector.
    multipliers: Vec<u32>,
    increments: Vec<u32>,
    bands: usize,
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
            (0..(bands * rows).next_multiple_of(LANES) as u64)
                .map(|i| hash::keyed_by(key, i) as u32)
                .collect::<Vec<u32>>()
        };
        MinHasher {
            multipliers: of("minhash multiplier")
                .into_iter()
                .map(|m| m | 1)
                .collect(),
            increments: of("minhash increment"),
            bands,
            rows,
        }
    }

    /// Number of bands.
    pub fn bands(&self) -> usize {
        self.bands
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
        for (band, rows) in scratch
            .signature
            .chunks_exact(self.rows)
            .take(self.bands)
            .enumerate()
        {
            bands.push(xxh3_64_with_seed(bytemuck::cast_slice(rows), band as u64));
        }
    }
}

/// Hash functions that one pass over the values computes: one register of 512 bits, two of 256.
const LANES: usize = 16;

/// Lane i becomes the minimum over all values v of `(v * multiplier_i + increment_i) mod 2^32`.
/// The lengths are equal and multiples of [`LANES`]. Integers only, so every instruction set gives
/// the same result.
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512vl+avx512dq",
    "x86_64+avx2",
    "x86_64+sse4.1",
    "aarch64+neon"
))]
fn minima(values: &[u32], multipliers: &[u32], increments: &[u32], minima: &mut [u32]) {
    minima_of_lanes(values, multipliers, increments, minima);
}

/// The body of [`minima`], compiled into each of its versions, and once for no special one.
#[inline(always)]
fn minima_of_lanes(values: &[u32], multipliers: &[u32], increments: &[u32], minima: &mut [u32]) {
    let lanes = multipliers
        .as_chunks::<LANES>()
        .0
        .iter()
        .zip(increments.as_chunks::<LANES>().0)
        .zip(minima.as_chunks_mut::<LANES>().0);
    for ((multiplier, increment), minima) in lanes {
        let mut lowest = [u32::MAX; LANES];
        for &value in values {
            for lane in 0..LANES {
                let hashed = value
                    .wrapping_mul(multiplier[lane])
                    .wrapping_add(increment[lane]);
                lowest[lane] = lowest[lane].min(hashed);
            }
        }
        *minima = lowest;
    }
}

/// How alike two sets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// What both hold, over what either holds.
    Jaccard,
    /// What both hold, over the smaller set.
    Containment,
}

impl Measure {
    /// The exact similarity of two sets, each sorted and without repeats, or `None` where it is
    /// below `at_least`. With an empty set there is none.
    pub fn at_least(self, a: &[u64], b: &[u64], at_least: f64) -> Option<f64> {
        match self {
            Measure::Jaccard => jaccard_at_least(a, b, at_least),
            Measure::Containment => containment_at_least(a, b, at_least),
        }
    }

    /// The Jaccard similarity of two sets of this similarity, the smaller one having `size_ratio`
    /// (above 0, up to 1) times the elements of the larger one. MinHash goes by it.
    pub fn jaccard_of(self, similarity: f64, size_ratio: f64) -> f64 {
        match self {
            Measure::Jaccard => similarity,
            // Of sets of r and 1 elements c r are shared: c r / (1 + r - c r).
            Measure::Containment => {
                similarity * size_ratio / (1.0 + size_ratio - similarity * size_ratio)
            }
        }
    }
}

/// Exact Jaccard similarity of two sets, each sorted and without repeats, or `None` where it is
/// below `at_least`. Two empty sets have none.
pub fn jaccard_at_least(a: &[u64], b: &[u64], at_least: f64) -> Option<f64> {
    let (small, large) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if small.is_empty() || (small.len() as f64) / (large.len() as f64) < at_least {
        return None;
    }
    // i / (|a| + |b| - i) >= t  <=>  i >= t (|a| + |b|) / (1 + t).
    let needed = (at_least * (a.len() + b.len()) as f64 / (1.0 + at_least)).floor() as usize;
    let shared = shared_if_about(small, large, needed)?;
    let similarity = shared as f64 / (a.len() + b.len() - shared) as f64;
    (similarity >= at_least).then_some(similarity)
}

/// Exact containment of two sets, each sorted and without repeats: the share of the smaller one that
/// the other one holds. `None` where it is below `at_least`, or a set is empty.
pub fn containment_at_least(a: &[u64], b: &[u64], at_least: f64) -> Option<f64> {
    let (small, large) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if small.is_empty() {
        return None;
    }
    let needed = (at_least * small.len() as f64).floor() as usize;
    let similarity = shared_if_about(small, large, needed)? as f64 / small.len() as f64;
    (similarity >= at_least).then_some(similarity)
}

/// How many elements two sets share; `None` as soon as it is clear that it is less than `needed` by
/// more than the one that rounding may have cost.
fn shared_if_about(small: &[u64], large: &[u64], needed: usize) -> Option<usize> {
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
    Some(shared)
}

/// The probability that a pair of Jaccard similarity `similarity` becomes a candidate.
pub fn candidate_probability(similarity: f64, bands: u32, rows: u32) -> f64 {
    1.0 - product(1.0 - product(similarity, rows), bands)
}

/// A power, multiplied one by one: what is chosen by it must be the same on every machine.
fn product(base: f64, times: u32) -> f64 {
    (0..times).fold(1.0, |product, _| product * base)
}

/// The similarity whose pairs are to be proposed with probability [`PROPOSED`] where documents go
/// from `min_similarity` on: 0.05 above it, or half of the way to 1 where that is nearer.
pub fn aimed_similarity(min_similarity: f64) -> f64 {
    (min_similarity + 0.05).min((1.0 + min_similarity) / 2.0)
}

/// Fewest bands of `rows` rows that propose pairs of Jaccard similarity `similarity` with
/// probability [`PROPOSED`]; `None` where [`MAX_BANDS`] do not.
pub fn fewest_bands(similarity: f64, rows: u32) -> Option<u32> {
    let missed_by_one = 1.0 - product(similarity, rows);
    let mut missed = 1.0;
    (1..=MAX_BANDS).find(|_| {
        missed *= missed_by_one;
        1.0 - missed >= PROPOSED
    })
}

/// Most rows that `bands` bands may have and still propose pairs of Jaccard similarity `similarity`
/// with probability [`PROPOSED`]; `None` where not even bands of one row do.
pub fn most_rows(similarity: f64, bands: u32) -> Option<u32> {
    (1..=MAX_ROWS)
        .rev()
        .find(|&rows| candidate_probability(similarity, bands, rows) >= PROPOSED)
}

/// Bands and rows for pairs of Jaccard similarity `similarity`: of what proposes them with
/// probability [`PROPOSED`] from at most [`MAX_HASHES`] hashes, that with the most rows, whose curve
/// is the steepest. Where nothing does, as many bands of one row.
pub fn bands_and_rows(similarity: f64) -> (u32, u32) {
    (1..=MAX_ROWS)
        .rev()
        .find_map(|rows| {
            let bands = fewest_bands(similarity, rows)?;
            (bands * rows <= MAX_HASHES).then_some((bands, rows))
        })
        .unwrap_or((MAX_HASHES, 1))
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
        assert_eq!(few.len(), 5);
        assert_eq!(few[..], many[..5]);
    }

    /// Of one lane, in the widest integers, as the documentation says.
    fn minimum(values: &[u32], multiplier: u32, increment: u32) -> u32 {
        let hashed = |&value: &u32| {
            ((u128::from(value) * u128::from(multiplier) + u128::from(increment)) % (1 << 32))
                as u32
        };
        values.iter().map(hashed).min().unwrap_or(u32::MAX)
    }

    proptest::proptest! {
        #[test]
        fn every_instruction_set_gives_the_minima_of_the_definition(
            values in proptest::collection::vec(proptest::prelude::any::<u32>(), 0..70),
            lanes in 1usize..4,
            seed in proptest::prelude::any::<u64>(),
        ) {
            let numbers = |purpose: &str| -> Vec<u32> {
                (0..(lanes * LANES) as u64).map(|i| hash::keyed(seed, purpose, i) as u32).collect()
            };
            let (multipliers, increments) = (numbers("m"), numbers("i"));
            let expected: Vec<u32> = multipliers.iter().zip(&increments)
                .map(|(&m, &i)| minimum(&values, m, i)).collect();
            // What this machine takes, and what one without vector units would.
            let (mut best, mut plain) = (vec![7; lanes * LANES], vec![9; lanes * LANES]);
            minima(&values, &multipliers, &increments, &mut best);
            minima_of_lanes(&values, &multipliers, &increments, &mut plain);
            proptest::prop_assert_eq!(&best, &expected);
            proptest::prop_assert_eq!(&plain, &expected);
        }

        #[test]
        fn containment_is_that_of_the_sets(
            a in proptest::collection::btree_set(0u64..60, 0..40),
            b in proptest::collection::btree_set(0u64..60, 0..40),
            at_least in 0.0f64..1.0,
        ) {
            let (left, right): (Vec<u64>, Vec<u64>) = (a.iter().copied().collect(), b.iter().copied().collect());
            let smaller = a.len().min(b.len());
            let exact = a.intersection(&b).count() as f64 / smaller as f64;
            let expected = (smaller > 0 && exact >= at_least).then_some(exact);
            proptest::prop_assert_eq!(containment_at_least(&left, &right, at_least), expected);
            proptest::prop_assert_eq!(containment_at_least(&right, &left, at_least), expected);
            if smaller > 0 {
                proptest::prop_assert_eq!(containment_at_least(&left, &right, exact), Some(exact));
                let jaccard = jaccard_at_least(&left, &right, 0.0).unwrap_or(0.0);
                let ratio = smaller as f64 / a.len().max(b.len()) as f64;
                let by_containment = Measure::Containment.jaccard_of(exact, ratio);
                proptest::prop_assert!((jaccard - by_containment).abs() < 1e-12, "{} {}", jaccard, by_containment);
            }
        }
    }

    #[test]
    fn what_is_chosen_proposes_the_pairs_it_is_chosen_for() {
        for hundredths in 10..=100 {
            let similarity = f64::from(hundredths) / 100.0;
            let (bands, rows) = bands_and_rows(similarity);
            assert!(candidate_probability(similarity, bands, rows) >= PROPOSED);
            assert!(
                bands * rows <= MAX_HASHES && rows <= MAX_ROWS,
                "{bands} x {rows}"
            );
            // One band less would not do, and no steeper curve fits.
            assert!(bands == 1 || candidate_probability(similarity, bands - 1, rows) < PROPOSED);
            for steeper in rows + 1..=MAX_ROWS {
                assert!(
                    fewest_bands(similarity, steeper)
                        .is_none_or(|bands| bands * steeper > MAX_HASHES)
                );
            }
        }
        let chosen = |min_similarity: f64| bands_and_rows(aimed_similarity(min_similarity));
        assert_eq!(chosen(0.8), (15, 8));
        assert_eq!(chosen(1.0), (1, 64));
        // The choice of before, 14 bands of 8 rows, misses a little more than one in a hundred at 0.85.
        assert!(candidate_probability(0.85, 14, 8) < PROPOSED);
        assert_eq!(
            (fewest_bands(0.85, 8), most_rows(0.85, 15)),
            (Some(15), Some(8))
        );
        assert_eq!((fewest_bands(0.1, 8), most_rows(0.1, 1)), (None, None));
    }
}
