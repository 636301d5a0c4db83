//! Kendall's rank correlation.

/// Kendall's tau-b between the two members of each pair: 1 where they always rise together, -1 where
/// one rises as the other falls, near 0 where they have nothing to do with each other.
///
/// Pairs of pairs that tie in one member count neither for nor against (Kendall 1945):
/// tau-b = (concordant - discordant) / sqrt((n0 - ties in the first) (n0 - ties in the second)),
/// n0 = n (n - 1) / 2. `None` where that is undefined: fewer than two pairs, or a member that never
/// changes. Keys are compared in the IEEE total order, except that -0.0 equals 0.0.
///
/// O(n log n) by Knight (1966): sort by the first member, then count the exchanges of a merge sort by
/// the second. Takes 32 bytes a pair; [`tau_b_within`] is given them.
///
/// ```
/// use goodput::algo::kendall::tau_b;
/// assert_eq!(tau_b(&[(0.1, 0), (0.2, 1), (0.7, 2)]), Some(1.0));
/// assert_eq!(tau_b(&[(0.1, 2), (0.2, 1), (0.7, 0)]), Some(-1.0));
/// assert_eq!(tau_b(&[(0.1, 0)]), None);
/// ```
pub fn tau_b(pairs: &[(f64, u64)]) -> Option<f64> {
    let pair = |&(key, place)| Pair { key, place };
    let mut pairs: Vec<Pair> = pairs.iter().map(pair).collect();
    let mut places = vec![0; pairs.len()];
    let mut merged = vec![0; pairs.len()];
    tau_b_within(&mut pairs, &mut places, &mut merged)
}

/// What [`tau_b`] compares.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Pair {
    /// The first member.
    pub key: f64,
    /// The second.
    pub place: u64,
}

/// [`tau_b`] in memory that is given: `places` and `merged` are as long as `pairs`, and all three are overwritten.
pub fn tau_b_within(pairs: &mut [Pair], places: &mut [u64], merged: &mut [u64]) -> Option<f64> {
    for pair in pairs.iter_mut() {
        // Turns -0.0 into 0.0 and leaves everything else.
        pair.key += 0.0;
    }
    pairs.sort_unstable_by(|a, b| a.key.total_cmp(&b.key).then(a.place.cmp(&b.place)));
    let same_key = |a: &Pair, b: &Pair| a.key.total_cmp(&b.key).is_eq();
    let ties_in_key = tied(pairs.chunk_by(same_key).map(<[_]>::len));
    let ties_in_both = tied(
        pairs
            .chunk_by(|a, b| same_key(a, b) && a.place == b.place)
            .map(<[_]>::len),
    );
    for (place, pair) in places.iter_mut().zip(&*pairs) {
        *place = pair.place;
    }
    let (discordant, sorted) = sort_counting_exchanges(places, merged);
    let ties_in_position = tied(sorted.chunk_by(|a, b| a == b).map(<[_]>::len));

    let all = tied([pairs.len()].into_iter());
    let (changes_key, changes_position) = (all - ties_in_key, all - ties_in_position);
    if changes_key == 0 || changes_position == 0 {
        return None;
    }
    let concordant = all - ties_in_key - ties_in_position + ties_in_both - discordant;
    let root = (changes_key as f64 * changes_position as f64).sqrt();
    Some((concordant - discordant) as f64 / root)
}

/// Pairs inside groups of these sizes.
fn tied(sizes: impl Iterator<Item = usize>) -> i128 {
    sizes.map(|n| n as i128 * (n as i128 - 1) / 2).sum()
}

/// Sorts into one of the two, and says how many pairs stood in the wrong order.
fn sort_counting_exchanges<'v>(
    mut values: &'v mut [u64],
    mut merged: &'v mut [u64],
) -> (i128, &'v [u64]) {
    let n = values.len();
    let mut exchanges: i128 = 0;
    let mut width = 1;
    while width < n {
        for start in (0..n).step_by(2 * width) {
            let middle = (start + width).min(n);
            let end = (start + 2 * width).min(n);
            let (mut left, mut right) = (start, middle);
            for slot in &mut merged[start..end] {
                if right == end || (left < middle && values[left] <= values[right]) {
                    *slot = values[left];
                    left += 1;
                } else {
                    *slot = values[right];
                    right += 1;
                    exchanges += (middle - left) as i128;
                }
            }
        }
        std::mem::swap(&mut values, &mut merged);
        width *= 2;
    }
    (exchanges, values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_definition(pairs: &[(f64, u64)]) -> Option<f64> {
        let (mut balance, mut changes_key, mut changes_position) = (0i64, 0i64, 0i64);
        for (i, a) in pairs.iter().enumerate() {
            for b in &pairs[..i] {
                let key = (a.0 > b.0) as i64 - (a.0 < b.0) as i64;
                let position = (a.1 > b.1) as i64 - (a.1 < b.1) as i64;
                balance += key * position;
                changes_key += key * key;
                changes_position += position * position;
            }
        }
        let root = ((changes_key * changes_position) as f64).sqrt();
        (root > 0.0).then(|| balance as f64 / root)
    }

    #[test]
    fn is_undefined_without_a_change() {
        assert_eq!(tau_b(&[]), None);
        assert_eq!(tau_b(&[(1.0, 1)]), None);
        assert_eq!(tau_b(&[(1.0, 1), (1.0, 2)]), None);
        assert_eq!(tau_b(&[(1.0, 1), (2.0, 1)]), None);
        assert_eq!(tau_b(&[(0.0, 1), (-0.0, 2)]), None);
    }

    #[test]
    fn two_pairs_agree_or_disagree() {
        assert_eq!(tau_b(&[(1.0, 1), (2.0, 2)]), Some(1.0));
        assert_eq!(tau_b(&[(1.0, 2), (2.0, 1)]), Some(-1.0));
    }

    #[test]
    fn a_long_sorted_sequence_is_exactly_one() {
        let pairs: Vec<(f64, u64)> = (0..100_000).map(|i| (i as f64, i)).collect();
        assert_eq!(tau_b(&pairs), Some(1.0));
    }

    #[test]
    fn a_known_value_with_ties() {
        // Five concordant pairs, none against, one tie in the key: 5 / sqrt(5 * 6).
        let pairs = [(1.0, 1), (2.0, 2), (2.0, 3), (3.0, 4)];
        let tau = tau_b(&pairs).expect("defined");
        assert!((tau - 5.0 / 30f64.sqrt()).abs() < 1e-15, "{tau}");
    }

    proptest! {
        #[test]
        fn equals_the_definition(
            pairs in prop::collection::vec((-3i8..4, 0u64..12), 0..60),
        ) {
            let pairs: Vec<(f64, u64)> =
                pairs.into_iter().map(|(k, p)| (f64::from(k) / 2.0, p)).collect();
            let expected = by_definition(&pairs);
            prop_assert_eq!(tau_b(&pairs), expected);
        }
    }
}
