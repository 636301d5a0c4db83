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
/// the second. Reorders `pairs` and takes 16 bytes a pair beside them.
///
/// ```
/// use goodput::algo::kendall::tau_b;
/// assert_eq!(tau_b(&mut [(0.1, 0), (0.2, 1), (0.7, 2)]), Some(1.0));
/// assert_eq!(tau_b(&mut [(0.1, 2), (0.2, 1), (0.7, 0)]), Some(-1.0));
/// assert_eq!(tau_b(&mut [(0.1, 0)]), None);
/// ```
pub fn tau_b(pairs: &mut [(f64, u64)]) -> Option<f64> {
    for pair in pairs.iter_mut() {
        // Turns -0.0 into 0.0 and leaves everything else.
        pair.0 += 0.0;
    }
    pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let same_key = |a: &(f64, u64), b: &(f64, u64)| a.0.total_cmp(&b.0).is_eq();
    let ties_in_key = tied(pairs.chunk_by(same_key).map(<[_]>::len));
    let ties_in_both = tied(
        pairs
            .chunk_by(|a, b| same_key(a, b) && a.1 == b.1)
            .map(<[_]>::len),
    );
    let mut positions: Vec<u64> = pairs.iter().map(|pair| pair.1).collect();
    let discordant = sort_counting_exchanges(&mut positions);
    let ties_in_position = tied(positions.chunk_by(|a, b| a == b).map(<[_]>::len));

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

/// Sorts, and says how many pairs stood in the wrong order.
fn sort_counting_exchanges(values: &mut Vec<u64>) -> i128 {
    let n = values.len();
    let mut merged = vec![0; n];
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
        std::mem::swap(values, &mut merged);
        width *= 2;
    }
    exchanges
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
        assert_eq!(tau_b(&mut []), None);
        assert_eq!(tau_b(&mut [(1.0, 1)]), None);
        assert_eq!(tau_b(&mut [(1.0, 1), (1.0, 2)]), None);
        assert_eq!(tau_b(&mut [(1.0, 1), (2.0, 1)]), None);
        assert_eq!(tau_b(&mut [(0.0, 1), (-0.0, 2)]), None);
    }

    #[test]
    fn two_pairs_agree_or_disagree() {
        assert_eq!(tau_b(&mut [(1.0, 1), (2.0, 2)]), Some(1.0));
        assert_eq!(tau_b(&mut [(1.0, 2), (2.0, 1)]), Some(-1.0));
    }

    #[test]
    fn a_long_sorted_sequence_is_exactly_one() {
        let mut pairs: Vec<(f64, u64)> = (0..100_000).map(|i| (i as f64, i)).collect();
        assert_eq!(tau_b(&mut pairs), Some(1.0));
    }

    #[test]
    fn a_known_value_with_ties() {
        // Five concordant pairs, none against, one tie in the key: 5 / sqrt(5 * 6).
        let mut pairs = [(1.0, 1), (2.0, 2), (2.0, 3), (3.0, 4)];
        let tau = tau_b(&mut pairs).expect("defined");
        assert!((tau - 5.0 / 30f64.sqrt()).abs() < 1e-15, "{tau}");
    }

    proptest! {
        #[test]
        fn equals_the_definition(
            pairs in prop::collection::vec((-3i8..4, 0u64..12), 0..60),
        ) {
            let mut pairs: Vec<(f64, u64)> =
                pairs.into_iter().map(|(k, p)| (f64::from(k) / 2.0, p)).collect();
            let expected = by_definition(&pairs);
            prop_assert_eq!(tau_b(&mut pairs), expected);
        }
    }
}
