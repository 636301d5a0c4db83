//! Sorting items by a key or by chance: what most strategies begin with.

use super::{Item, Items, Keys};
use crate::algo::hash;
use crate::record::{Kind, OptionSpec, Options};
use crate::spill::{Sorted, Spill};
use std::cmp::Ordering;
use std::io;

/// An item and what it is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Keyed {
    /// Smaller stands first.
    pub key: u64,
    /// The item.
    pub item: Item,
}

/// The stable key order: key, content, rank. Ranks are unique, so no two items are equal.
pub(super) fn stable_order(a: &Keyed, b: &Keyed) -> Ordering {
    let by = |keyed: &Keyed| (keyed.key, keyed.item.content, keyed.item.rank);
    by(a).cmp(&by(b))
}

/// The option `by`.
pub(super) const BY: OptionSpec = OptionSpec {
    name: "by",
    kind: Kind::SortKey,
    default: None,
    doc: "What documents are sorted by: score, usefulness, excess_nats, difficulty, length_tokens or a declared numeric field",
};

/// The option `direction`.
pub(super) const DIRECTION: OptionSpec = OptionSpec {
    name: "direction",
    kind: Kind::Choice(&["ascending", "descending"]),
    default: Some("ascending"),
    doc: "Whether the smallest or the largest value comes first; ties are broken the same way in both",
};

/// What to sort by, and which end comes first.
#[derive(Clone, Debug)]
pub(super) struct SortBy {
    /// The sort key as the pipeline names it.
    pub key: String,
    /// Whether the largest value comes first.
    pub descending: bool,
}

impl SortBy {
    /// From the options [`BY`] and [`DIRECTION`].
    pub fn from_options(options: &Options) -> SortBy {
        SortBy {
            key: options.text("by").to_string(),
            descending: options.text("direction") == "descending",
        }
    }

    /// Items by rank: in the stable order of their key. `spill` is what this sort may use.
    ///
    /// A key that is not finite is an error that names the document.
    pub fn sort(
        &self,
        items: Items<'_>,
        keys: &dyn Keys,
        spill: &Spill,
    ) -> io::Result<Sorted<Keyed>> {
        let keyed = items.map(|item| {
            let item = item?;
            let value = keys.value(item.number, &self.key);
            if !value.is_finite() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "sort key '{}' of document {} (in reading order) must be finite, is {value}",
                        self.key, item.number
                    ),
                ));
            }
            let ascending = ordered_bits(value);
            let key = if self.descending { !ascending } else { ascending };
            Ok(Keyed { key, item })
        });
        spill.sort("order-by-key", keyed, stable_order)
    }

    /// What the learning rate should do along an order in which the key goes one way.
    pub fn lr_hint(&self) -> &'static str {
        if self.descending {
            "as for shuffled data; what comes last is learned at the smallest learning rate"
        } else {
            "constant or moderate decay, and average the checkpoints: under a strong decay what comes last, here the largest values, is learned at the smallest learning rate"
        }
    }
}

/// A learning-rate hint for orders that look everywhere alike.
pub(super) const LR_HINT_AS_SHUFFLED: &str =
    "as for shuffled data: every stretch is a sample of the whole";

/// Items in the order of their keyed hash. `spill` is what this sort may use.
pub(super) fn sort_by_chance(
    items: Items<'_>,
    seed: u64,
    strategy: &str,
    spill: &Spill,
) -> io::Result<Sorted<Keyed>> {
    let purpose = hash::purpose_key(seed, strategy);
    let keyed = items.map(|item| {
        item.map(|item| Keyed {
            key: hash::keyed_by(purpose, item.id_hash),
            item,
        })
    });
    spill.sort("order-by-chance", keyed, stable_order)
}

/// The items alone.
pub(super) fn items_of<'a>(keyed: impl Iterator<Item = io::Result<Keyed>> + 'a) -> Items<'a> {
    Box::new(keyed.map(|keyed| keyed.map(|keyed| keyed.item)))
}

/// A share of the memory for one of a strategy's own sorts, of which `at_once` live at a time.
pub(super) fn own_share(spill: &Spill, at_once: usize) -> Spill {
    spill.share(4 * at_once)
}

/// Where rank `rank` of `documents` falls when the ranks are cut into `buckets` equal buckets: bucket
/// b holds the ranks from floor(b n / buckets) up to floor((b + 1) n / buckets), so that sizes differ
/// by one at most.
pub(super) fn bucket_of(rank: u64, documents: u64, buckets: u64) -> u64 {
    let of = |bucket: u128| (bucket * u128::from(documents) / u128::from(buckets)) as u64;
    let mut bucket = u128::from(rank) * u128::from(buckets) / u128::from(documents);
    // The first guess is exact or one too low, by rounding down twice.
    while of(bucket + 1) <= rank {
        bucket += 1;
    }
    bucket as u64
}

/// Bits that sort as the finite number does; -0.0 as 0.0.
fn ordered_bits(value: f64) -> u64 {
    let bits = (value + 0.0).to_bits();
    if bits >> 63 == 1 {
        !bits
    } else {
        bits | 1 << 63
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_sort_as_numbers_do() {
        let numbers = [
            f64::MIN,
            -2.0,
            -1.0,
            -1e-300,
            0.0,
            1e-300,
            1.0,
            2.0,
            f64::MAX,
        ];
        for pair in numbers.windows(2) {
            assert!(ordered_bits(pair[0]) < ordered_bits(pair[1]), "{pair:?}");
        }
        assert_eq!(ordered_bits(-0.0), ordered_bits(0.0));
    }

    #[test]
    fn buckets_cover_all_ranks_in_equal_sizes() {
        for documents in 1..40u64 {
            for buckets in 1..45u64 {
                let mut sizes = vec![0; buckets as usize];
                let mut before = 0;
                for rank in 0..documents {
                    let bucket = bucket_of(rank, documents, buckets);
                    assert!(bucket >= before && bucket < buckets);
                    let start = bucket * documents / buckets;
                    let end = (bucket + 1) * documents / buckets;
                    assert!((start..end).contains(&rank));
                    before = bucket;
                    sizes[bucket as usize] += 1;
                }
                let (min, max) = (sizes.iter().min(), sizes.iter().max());
                assert!(max.expect("a bucket") - min.expect("a bucket") <= 1);
            }
        }
    }
}
