//! Interpolated modified Kneser-Ney smoothing (Chen and Goodman 1998) on sorted lists of n-grams.
//!
//! An n-gram (h, w) has an adjusted count a: for the longest order how often it occurs, for a
//! shorter one how many different tokens stand before it. What begins a document has nothing
//! before it and keeps its plain count. With t(h) the sum of a over all w, and D1, D2, D3 the
//! discounts of a = 1, a = 2 and a >= 3:
//!
//! ```text
//! p(w | h) = (a(h, w) - D(a)) / t(h) + gamma(h) * p(w | h without its first token)
//! gamma(h) = (sum of D(a) over the n-grams kept + sum of a over those pruned) / t(h)
//! ```
//!
//! so that probabilities sum to one however much is pruned. The first order is interpolated with
//! 1/V over the vocabulary.

use std::ops::{BitAnd, BitOr, Shl, Shr};

/// Discounts are whole multiples of 2^-24, so that sums over n-grams are exact.
pub const DISCOUNT_ONE: u64 = 1 << 24;

/// What is taken from an adjusted count of 1, of 2, and of 3 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discounts {
    units: [u64; 3],
    /// Whether the counts were too few to estimate them.
    pub fallback: bool,
}

impl Discounts {
    /// Given discounts, each from 0 to its count, rounded to multiples of 2^-24.
    pub fn fixed(discounts: [f64; 3]) -> Self {
        Discounts {
            units: discounts.map(|d| (d * DISCOUNT_ONE as f64 + 0.5) as u64),
            fallback: false,
        }
    }

    /// From n1..n4, the number of n-grams whose adjusted count is 1, 2, 3 and 4:
    /// Y = n1/(n1 + 2 n2), Dk = k - (k+1) Y n(k+1)/n(k).
    /// 0.5, 1 and 1.5 where one of the four is 0, or a discount would leave 0 to k.
    pub fn estimate(counts: [u64; 4]) -> Self {
        let fallback = Discounts {
            fallback: true,
            ..Self::fixed([0.5, 1.0, 1.5])
        };
        if counts.contains(&0) {
            return fallback;
        }
        let n = counts.map(|count| count as f64);
        let y = n[0] / (n[0] + 2.0 * n[1]);
        let d = [
            1.0 - 2.0 * y * n[1] / n[0],
            2.0 - 3.0 * y * n[2] / n[1],
            3.0 - 4.0 * y * n[3] / n[2],
        ];
        if d.iter()
            .zip(1..)
            .any(|(d, k)| !(0.0..=f64::from(k)).contains(d))
        {
            return fallback;
        }
        Self::fixed(d)
    }

    /// The discount of an adjusted count, in units of 2^-24; 0 for a count of 0.
    #[inline]
    pub fn units(&self, adjusted: u32) -> u64 {
        match adjusted {
            0 => 0,
            1 => self.units[0],
            2 => self.units[1],
            _ => self.units[2],
        }
    }

    /// The three discounts.
    pub fn values(&self) -> [f64; 3] {
        self.units.map(|units| units as f64 / DISCOUNT_ONE as f64)
    }
}

/// What a context knows of the n-grams that begin with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextSums {
    /// t(h), the sum of the adjusted counts.
    pub total: u64,
    /// What is left to the shorter context, in units of 2^-24 of a count.
    pub left: u64,
}

impl ContextSums {
    /// What an n-gram adds to its context.
    #[inline]
    pub fn of(adjusted: u32, kept: bool, discounts: &Discounts) -> Self {
        let left = if kept {
            discounts.units(adjusted)
        } else {
            u64::from(adjusted) * DISCOUNT_ONE
        };
        ContextSums {
            total: u64::from(adjusted),
            left,
        }
    }
    /// Adds what another n-gram says.
    #[inline]
    pub fn add(&mut self, other: ContextSums) {
        self.total += other.total;
        self.left += other.left;
    }
    /// gamma(h): the share left to the shorter context; 1 for a context that was never seen.
    #[inline]
    pub fn back_off(&self) -> f64 {
        if self.total == 0 {
            1.0
        } else {
            self.left as f64 / (self.total as f64 * DISCOUNT_ONE as f64)
        }
    }
    /// p(w | h) of an n-gram of this context with this adjusted count (0: not seen or pruned).
    #[inline]
    pub fn probability(&self, adjusted: u32, discounts: &Discounts, shorter: f64) -> f64 {
        let share = if self.total == 0 {
            0.0
        } else {
            let rest = u64::from(adjusted) * DISCOUNT_ONE - discounts.units(adjusted);
            rest as f64 / (self.total as f64 * DISCOUNT_ONE as f64)
        };
        share + self.back_off() * shorter
    }
}

/// An n-gram as a number: the last token in the highest bits, so that a sorted list has the
/// n-grams with the same end side by side.
pub trait Key:
    bytemuck::Pod
    + Ord
    + Send
    + Sync
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
{
    /// Bits of the number.
    const BITS: u32;
    /// A small number.
    fn from_u32(value: u32) -> Self;
    /// The lowest 32 bits.
    fn low(self) -> u32;
    /// A number with the lowest `bits` set, fewer than [`Self::BITS`].
    fn mask(bits: u32) -> Self;
}

macro_rules! key {
    ($type:ty) => {
        impl Key for $type {
            const BITS: u32 = <$type>::BITS;
            #[inline]
            fn from_u32(value: u32) -> Self {
                Self::from(value)
            }
            #[inline]
            fn low(self) -> u32 {
                self as u32
            }
            #[inline]
            fn mask(bits: u32) -> Self {
                (1 << bits) - 1
            }
        }
    };
}
key!(u64);
key!(u128);

/// How n-grams are packed: the ids of a vocabulary, and three more for borders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Number of ids of the vocabulary; the borders come after them.
    pub vocabulary_size: u32,
    /// Length of the longest n-gram.
    pub order: u32,
    /// Bits of one token.
    pub token_bits: u32,
    /// Bits of the cell number below the longest n-gram.
    pub cell_bits: u32,
}

impl Packing {
    /// For n-grams of up to `order` tokens in `cells` cells.
    pub fn new(vocabulary_size: u32, order: u32, cells: u32) -> Self {
        let bits = |values: u32| u32::BITS - (values - 1).leading_zeros();
        Packing {
            vocabulary_size,
            order,
            token_bits: bits(vocabulary_size + 3),
            cell_bits: bits(cells.max(2)),
        }
    }
    /// Stands before the first token of a document.
    pub fn begin(&self) -> u32 {
        self.vocabulary_size
    }
    /// Stands after the last token of a document.
    pub fn end(&self) -> u32 {
        self.vocabulary_size + 1
    }
    /// Stands where nothing is: before the begin.
    pub fn nothing(&self) -> u32 {
        self.vocabulary_size + 2
    }
    /// Bits of a record: the longest n-gram and its cell.
    pub fn record_bits(&self) -> u32 {
        self.order * self.token_bits + self.cell_bits
    }
    /// The first token of an n-gram.
    #[inline]
    pub fn first<K: Key>(&self, key: K) -> u32 {
        (key & K::mask(self.token_bits)).low()
    }
    /// The n-gram without its first token.
    #[inline]
    pub fn without_first<K: Key>(&self, key: K) -> K {
        key >> self.token_bits
    }
    /// The context of an n-gram of `length` tokens: without its last token.
    #[inline]
    pub fn context<K: Key>(&self, key: K, length: u32) -> K {
        key & K::mask((length - 1) * self.token_bits)
    }
    /// The last token of an n-gram of `length` tokens.
    #[inline]
    pub fn last<K: Key>(&self, key: K, length: u32) -> u32 {
        (key >> ((length - 1) * self.token_bits)).low() & ((1 << self.token_bits) - 1)
    }
    /// Hash of an n-gram of `length` tokens, the same as that of its tokens in a running text.
    #[inline]
    pub fn hash<K: Key>(&self, key: K, length: u32) -> u64 {
        let mut hash = super::ngram_table::start_hash(self.last(key, length));
        for rest in (1..length).rev() {
            hash =
                super::ngram_table::extend_hash(hash, self.last(self.context(key, rest + 1), rest));
        }
        hash
    }
    /// Hash of the last two tokens of an n-gram of `length` tokens, 2 or more.
    #[inline]
    pub fn end_hash<K: Key>(&self, key: K, length: u32) -> u64 {
        use super::ngram_table::{extend_hash, start_hash};
        let before = self.last(self.context(key, length), length - 1);
        extend_hash(start_hash(self.last(key, length)), before)
    }
    /// Calls `visit` with each longest n-gram of a document, without cell: each token and the end
    /// come last once.
    #[inline]
    pub fn each_ngram<K: Key>(&self, tokens: &[u32], mut visit: impl FnMut(K)) {
        let bits = self.token_bits;
        let top = (self.order - 1) * bits;
        let mut window = K::from_u32(self.nothing());
        for _ in 2..self.order {
            window = (window << bits) | K::from_u32(self.nothing());
        }
        // As if `order - 1` tokens had been read, the last of them the begin.
        window = (window >> bits) | (K::from_u32(self.begin()) << (top - bits));
        for &token in tokens.iter().chain(std::iter::once(&self.end())) {
            let ngram = window | (K::from_u32(token) << top);
            visit(ngram);
            window = ngram >> bits;
        }
    }
}

/// An n-gram with its counts in one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<K> {
    /// The n-gram, see [`Packing`].
    pub key: K,
    /// The count that smoothing uses.
    pub adjusted: u32,
    /// How often it occurs.
    pub occurrences: u32,
}

/// The longest n-grams of sorted records (n-gram with its cell) and their counts in a model:
/// in the cells of `cells`, a set of bits. Those that the model lacks are there with counts of 0,
/// so that the lists of all models have the same n-grams at the same places. Replaces `items`.
pub fn longest_items<K: Key>(
    records: &[K],
    counts: &[u32],
    packing: &Packing,
    cells: u32,
    items: &mut Vec<Item<K>>,
) {
    items.clear();
    items.reserve(records.len());
    let cell_mask = K::mask(packing.cell_bits);
    for (&record, &count) in records.iter().zip(counts) {
        let in_cells = cells >> (record & cell_mask).low() & 1;
        let count = count * in_cells;
        let key = record >> packing.cell_bits;
        match items.last_mut() {
            Some(last) if last.key == key => {
                last.adjusted += count;
                last.occurrences += count;
            }
            _ => items.push(Item {
                key,
                adjusted: count,
                occurrences: count,
            }),
        }
    }
}

/// The n-grams one token shorter. Entries whose first token is [`Packing::nothing`] stand for no
/// n-gram; they carry the counts of document beginnings down. Replaces `items`.
pub fn shorter_items<K: Key>(longer: &[Item<K>], packing: &Packing, items: &mut Vec<Item<K>>) {
    items.clear();
    items.reserve(longer.len());
    for item in longer {
        let key = packing.without_first(item.key);
        let is_there = u32::from(item.occurrences > 0);
        match items.last_mut() {
            Some(last) if last.key == key => {
                last.adjusted += is_there;
                last.occurrences += item.occurrences;
            }
            _ => items.push(Item {
                key,
                adjusted: is_there,
                occurrences: item.occurrences,
            }),
        }
    }
    for item in items {
        if packing.first(item.key) >= packing.begin() {
            item.adjusted = item.occurrences;
        }
    }
}

/// Which n-grams a model keeps: the most frequent ones, and among equally frequent ones the
/// shorter ones, so that the context and the end of a kept n-gram are always kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pruning {
    /// N-grams that occur more often are kept, whatever their length.
    pub occurrences: u32,
    /// N-grams that occur that often are kept up to this length.
    pub length: u32,
}

impl Pruning {
    /// Everything is kept.
    pub const NONE: Pruning = Pruning {
        occurrences: 0,
        length: 0,
    };

    /// Whether an n-gram is kept.
    #[inline]
    pub fn keeps(&self, occurrences: u32, length: u32) -> bool {
        occurrences > self.occurrences || (occurrences == self.occurrences && length <= self.length)
    }
}

/// How many n-grams there are by occurrences and length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OccurrenceCounts {
    counts: Vec<[u64; 4]>,
}

impl OccurrenceCounts {
    /// Occurrences from here on are not told apart: such n-grams are kept or dropped together.
    const MAX: usize = 1 << 16;

    /// Counts an n-gram of `length` tokens, 2 to 5.
    #[inline]
    pub fn count(&mut self, occurrences: u32, length: u32) {
        let place = (occurrences as usize).min(Self::MAX);
        if self.counts.len() <= place {
            self.counts.resize(place + 1, [0; 4]);
        }
        self.counts[place][length as usize - 2] += 1;
    }
    /// Adds another worker's counts.
    pub fn add(&mut self, other: &OccurrenceCounts) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), [0; 4]);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                *mine += theirs;
            }
        }
    }
    /// The weakest pruning that leaves at most `max_ngrams`, and how many of each length it leaves.
    pub fn prune_to(&self, max_ngrams: u64) -> (Pruning, [u64; 4]) {
        let mut kept = [0; 4];
        let mut total = 0;
        for (occurrences, lengths) in self.counts.iter().enumerate().rev() {
            for (place, &ngrams) in lengths.iter().enumerate() {
                if total + ngrams > max_ngrams {
                    return (
                        Pruning {
                            occurrences: occurrences as u32,
                            length: place as u32 + 1,
                        },
                        kept,
                    );
                }
                total += ngrams;
                kept[place] += ngrams;
            }
        }
        (Pruning::NONE, kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discounts_follow_the_formula_and_fall_back() {
        let d = Discounts::estimate([100, 40, 20, 10]);
        let y = 100.0 / 180.0;
        for (got, want) in d
            .values()
            .iter()
            .zip([1.0 - 0.8 * y, 2.0 - 1.5 * y, 3.0 - 2.0 * y])
        {
            assert!((got - want).abs() < 1e-7, "{got} {want}");
        }
        assert!(!d.fallback);
        for zero in 0..4 {
            let mut counts = [100, 40, 20, 10];
            counts[zero] = 0;
            let d = Discounts::estimate(counts);
            assert!(d.fallback);
            assert_eq!(d.values(), [0.5, 1.0, 1.5]);
        }
        // 2 - 3 Y n3/n2 is below 0 here.
        assert_eq!(
            Discounts::estimate([100, 1, 90, 10]).values(),
            [0.5, 1.0, 1.5]
        );
    }

    /// The golden bigram: tokens `a b a b a c`, plain counts without borders, D = 0.75.
    #[test]
    fn golden_bigram() {
        let d = Discounts::fixed([0.75; 3]);
        // Continuation counts of a, b, c: each follows one different token.
        let mut first = ContextSums::default();
        (0..3).for_each(|_| first.add(ContextSums::of(1, true, &d)));
        let unigram = first.probability(1, &d, 1.0 / 3.0);
        assert!((unigram - 1.0 / 3.0).abs() < 1e-12);
        let mut after_a = ContextSums::of(2, true, &d);
        after_a.add(ContextSums::of(1, true, &d));
        let after_b = ContextSums::of(2, true, &d);
        for (context, count, expected) in [
            (after_a, 0, 0.166667),
            (after_a, 2, 0.583333),
            (after_a, 1, 0.25),
            (after_b, 2, 0.75),
            (after_b, 0, 0.125),
            (after_b, 0, 0.125),
        ] {
            let p = context.probability(count, &d, unigram);
            assert!((p - expected).abs() < 1e-6, "{p} is not {expected}");
        }
    }

    /// Tokens `a b a c a b`, D = 0.5, V = 4 (d is never seen). a follows b and c: 2; b and c
    /// follow a: 1 each. t = 4, gamma = 3 * 0.5 / 4 = 0.375.
    /// p(a) = 1.5/4 + 0.375/4 = 0.46875; p(b) = p(c) = 0.5/4 + 0.09375 = 0.21875; p(d) = 0.09375.
    /// Without the uniform step p(d) would be 0 and p(a) 0.5.
    #[test]
    fn golden_of_the_uniform_step() {
        let d = Discounts::fixed([0.5; 3]);
        let mut first = ContextSums::of(2, true, &d);
        first.add(ContextSums::of(1, true, &d));
        first.add(ContextSums::of(1, true, &d));
        let p = |count| first.probability(count, &d, 0.25);
        assert_eq!(
            [p(2), p(1), p(1), p(0)],
            [0.46875, 0.21875, 0.21875, 0.09375]
        );
        // After b comes only a, once: p(d | b) = 0.5 * 0.09375.
        assert_eq!(
            ContextSums::of(1, true, &d).probability(0, &d, p(0)),
            0.046875
        );
    }

    #[test]
    fn packs_borders_and_hashes_as_in_running_text() {
        let packing = Packing::new(5, 3, 4);
        assert_eq!((packing.token_bits, packing.cell_bits), (3, 2));
        let mut ngrams: Vec<u64> = Vec::new();
        packing.each_ngram(&[1, 4], |ngram| ngrams.push(ngram));
        let (begin, end, nothing) = (packing.begin(), packing.end(), packing.nothing());
        let tokens = |key: u64| {
            [
                packing.first(key),
                packing.last(packing.context(key, 3), 2),
                packing.last(key, 3),
            ]
        };
        let all: Vec<_> = ngrams.iter().map(|&key| tokens(key)).collect();
        assert_eq!(all, [[nothing, begin, 1], [begin, 1, 4], [1, 4, end]]);
        use super::super::ngram_table::{extend_hash, start_hash};
        let hash = extend_hash(extend_hash(start_hash(4), 1), begin);
        assert_eq!(packing.hash(ngrams[1], 3), hash);
        let mut wide: Vec<u128> = Vec::new();
        packing.each_ngram(&[1, 4], |ngram| wide.push(ngram));
        assert_eq!(
            wide,
            ngrams
                .iter()
                .map(|&key| u128::from(key))
                .collect::<Vec<_>>()
        );
        let bigram = Packing::new(5, 2, 2);
        let mut pairs: Vec<u64> = Vec::new();
        bigram.each_ngram(&[1], |ngram| pairs.push(ngram));
        assert_eq!(
            pairs
                .iter()
                .map(|&k| [bigram.first(k), bigram.last(k, 2)])
                .collect::<Vec<_>>(),
            [[5, 1], [1, 6]]
        );
    }

    #[test]
    fn beginnings_keep_their_plain_count() {
        let packing = Packing::new(4, 3, 2);
        let mut records: Vec<u64> = Vec::new();
        for document in [&[0, 1][..], &[0, 1], &[2, 0, 1]] {
            packing.each_ngram(document, |ngram: u64| {
                records.push(ngram << packing.cell_bits)
            });
        }
        records.sort_unstable();
        let ones = vec![1; records.len()];
        let (mut items, mut pairs) = (Vec::new(), Vec::new());
        longest_items(&records, &ones, &packing, 1, &mut items);
        shorter_items(&items, &packing, &mut pairs);
        let find = |first, last| {
            let item = pairs
                .iter()
                .find(|i| packing.first(i.key) == first && packing.last(i.key, 2) == last);
            let item = item.expect("the pair occurs");
            (item.adjusted, item.occurrences)
        };
        // (begin, 0) twice in the text: plain. (0, 1) three times, after begin and after 2.
        assert_eq!(find(packing.begin(), 0), (2, 2));
        assert_eq!(find(0, 1), (2, 3));
        // A model without these cells has the same n-grams at the same places, and none of them.
        let n_items = items.len();
        longest_items(&records, &ones, &packing, 2, &mut items);
        shorter_items(&items, &packing, &mut pairs);
        assert_eq!(items.len(), n_items);
        let absent = |item: &Item<u64>| item.adjusted == 0 && item.occurrences == 0;
        assert!(items.iter().chain(&pairs).all(absent));
    }

    #[test]
    fn prunes_the_rarest_and_among_them_the_longest_first() {
        let mut counts = OccurrenceCounts::default();
        for (occurrences, length, ngrams) in [(1, 2, 5), (1, 3, 9), (2, 2, 4), (2, 3, 3), (7, 3, 1)]
        {
            (0..ngrams).for_each(|_| counts.count(occurrences, length));
        }
        assert_eq!(counts.prune_to(22), (Pruning::NONE, [9, 13, 0, 0]));
        let (pruning, kept) = counts.prune_to(21);
        assert_eq!(kept, [9, 4, 0, 0]);
        assert!(pruning.keeps(1, 2) && !pruning.keeps(1, 3) && pruning.keeps(2, 3));
        let (pruning, kept) = counts.prune_to(8);
        assert_eq!(kept, [4, 4, 0, 0]);
        assert!(!pruning.keeps(1, 2) && pruning.keeps(2, 3));
        assert_eq!(counts.prune_to(0).1, [0; 4]);
        assert!(!counts.prune_to(0).0.keeps(7, 3));
        assert!(Pruning::NONE.keeps(1, 5));
    }
}
