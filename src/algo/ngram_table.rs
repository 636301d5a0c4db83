//! A hashed table of n-grams that holds the values of several models, built for look-ups that are
//! asked for ahead.
//!
//! A bucket is one cache line (two or four where many models share the table): first the tags of
//! its slots, then their values. A look-up reads one line as a rule; a full bucket overflows into
//! the next one, and says so. N-grams are known by a 64-bit hash: its high bits choose the bucket,
//! its low 31 bits are the tag. An n-gram that is not in the table is taken for another one with a
//! probability below 10^-8.

use bytemuck::{Pod, Zeroable};
use memmap2::MmapMut;
use std::ops::Range;
use std::sync::Arc;

/// The value of an n-gram that a model does not hold.
pub const ABSENT: u16 = u16::MAX;
/// Surprisals are whole multiples of this part of a nat: 1/2048.
pub const STEPS_PER_NAT: f64 = 2048.0;
/// The largest surprisal that a value can hold, in steps: 32 nats.
pub const MAX_CODE: u16 = u16::MAX - 1;
/// Largest share of slots in use.
const MAX_LOAD: f64 = 0.7;
/// Bit of a bucket's first tag that says that n-grams of this bucket went to the next one.
const OVERFLOWED: u32 = 1 << 31;
/// How far apart a touched block may lie; also the unit of work of batched look-ups.
pub const BLOCK: usize = 64;

/// The nearest multiple of 1/2048 nat to -ln(probability), at most 32 nats.
/// The error is at most 1/4096 nat and 10^-9 below that bound.
pub fn code_of(probability: f64) -> u16 {
    if probability >= 1.0 {
        return 0;
    }
    // A probability of zero, or too small to be normal, is beyond the bound anyway.
    if probability < 1e-15 {
        return MAX_CODE;
    }
    let code = (-ln(probability) * STEPS_PER_NAT + 0.5) as u64;
    code.min(u64::from(MAX_CODE)) as u16
}

/// Pieces of the mantissa for which [`ln`] knows the logarithm of the middle.
const LN_PIECES: usize = 256;

/// The reciprocals of the middles of the pieces of 1..2, and the logarithms of the middles.
static LN_TABLE: std::sync::LazyLock<[[f64; 2]; LN_PIECES]> = std::sync::LazyLock::new(|| {
    std::array::from_fn(|piece| {
        let middle = 1.0 + (piece as f64 + 0.5) / LN_PIECES as f64;
        [1.0 / middle, libm::log(middle)]
    })
});

/// Natural logarithm of a normal positive number, within 10^-13 of its true value: exponent and
/// middle of the mantissa's piece from a table, and four terms of the series of ln(1 + r) for what
/// is left, |r| <= 1/512. Several times faster than the exactly rounded one.
#[inline]
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i64 - 1023;
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    let [reciprocal, ln_middle] = LN_TABLE[(bits >> 44) as usize % LN_PIECES];
    let r = mantissa * reciprocal - 1.0;
    let series = r * (1.0 - r * (1.0 / 2.0 - r * (1.0 / 3.0 - r * 0.25)));
    exponent as f64 * std::f64::consts::LN_2 + ln_middle + series
}

/// Hash of the last token of an n-gram: the start of [`extend_hash`].
#[inline]
pub fn start_hash(token: u32) -> u64 {
    extend_hash(0x2437_6A88_85A3_08D3, token)
}

/// Hash of an n-gram, from that of the n-gram without its first token.
#[inline]
pub fn extend_hash(hash: u64, earlier_token: u32) -> u64 {
    let mixed = hash ^ (u64::from(earlier_token) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let product = u128::from(mixed) * 0xD6E8_FEB8_6659_FD93;
    (product as u64) ^ ((product >> 64) as u64)
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u32; 16]);

/// Where the buckets of a part lie.
#[derive(Clone, Copy, Debug)]
struct Part {
    first: u32,
    buckets: u32,
}

/// What all parts of a table have in common.
#[derive(Clone, Debug)]
struct Shape {
    lines_per_bucket: usize,
    slots_per_bucket: usize,
    columns: usize,
    initial: Vec<u16>,
}

impl Shape {
    fn new(initial: &[u16]) -> Self {
        let columns = initial.len();
        let slot_bytes = 4 + 2 * columns;
        // The smallest bucket that wastes at most an eighth, else the largest one.
        let lines_per_bucket = [1usize, 2, 4]
            .into_iter()
            .find(|lines| (64 * lines) % slot_bytes * 8 <= 64 * lines && 64 * lines >= slot_bytes)
            .unwrap_or(4);
        Shape {
            lines_per_bucket,
            slots_per_bucket: 64 * lines_per_bucket / slot_bytes,
            columns,
            initial: initial.to_vec(),
        }
    }

    fn buckets(&self, entries: u64) -> u64 {
        (entries as f64 / (self.slots_per_bucket as f64 * MAX_LOAD)).ceil() as u64 + 1
    }
}

/// Bytes that don't change, such as those of a mapped file.
pub trait Storage: Send + Sync {
    /// The bytes, at an address that is a multiple of 64.
    fn bytes(&self) -> &[u8];
}

enum Lines {
    /// Anonymous memory, in huge pages where the system has them: a look-up at random then finds
    /// its address in the processor's buffer, where 4 KiB pages cost a walk for each line.
    Own(MmapMut),
    /// A range of bytes that was checked to be whole lines.
    Stored(Arc<dyn Storage>, Range<usize>),
}

impl Lines {
    /// Zeros, which take memory when they are written.
    ///
    /// # Panics
    /// When the system has no address range of that size.
    fn zeroed(n_lines: usize) -> Self {
        let bytes = (n_lines * size_of::<Line>()).max(1);
        let memory = MmapMut::map_anon(bytes)
            .unwrap_or_else(|error| panic!("{bytes} bytes for a table of n-grams: {error}"));
        // Advice: where it is not taken, look-ups are only slower.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        Lines::Own(memory)
    }

    #[inline]
    fn get(&self) -> &[Line] {
        match self {
            Lines::Own(memory) => whole_lines(memory),
            Lines::Stored(storage, range) => bytemuck::cast_slice(&storage.bytes()[range.clone()]),
        }
    }
}

/// The lines of a memory map, which begins at a page.
#[inline]
fn whole_lines(memory: &[u8]) -> &[Line] {
    bytemuck::cast_slice(&memory[..memory.len() / size_of::<Line>() * size_of::<Line>()])
}

/// See the module. `columns` values of 16 bits per n-gram. The table is cut into parts, which
/// lie one after another and can be filled side by side.
pub struct NgramTable {
    shape: Shape,
    parts: Vec<Part>,
    lines: Lines,
}

impl NgramTable {
    /// An empty table with room for `entries[i]` n-grams in part `i`, whose values start as
    /// `initial`.
    ///
    /// # Panics
    /// When the table would have 2^32 slots or more.
    pub fn new(entries: &[u64], initial: &[u16]) -> Self {
        let shape = Shape::new(initial);
        let mut first = 0;
        let mut parts = Vec::new();
        for &entries in entries {
            let buckets = shape.buckets(entries);
            parts.push(Part {
                first: first as u32,
                buckets: buckets as u32,
            });
            first += buckets;
        }
        assert!(
            first * (shape.slots_per_bucket as u64) < u64::from(u32::MAX),
            "a slot is a number of 32 bits"
        );
        NgramTable {
            lines: Lines::zeroed(first as usize * shape.lines_per_bucket),
            parts,
            shape,
        }
    }

    /// A table whose bytes stand in a storage, from [`Self::as_bytes`] of one with the same values
    /// for n-grams that no model holds. `buckets[i]` is the number of buckets of part `i`.
    ///
    /// # Errors
    /// When the bytes are not such a table.
    pub fn stored(
        buckets: &[u32],
        initial: &[u16],
        storage: Arc<dyn Storage>,
        range: Range<usize>,
    ) -> Result<Self, String> {
        let shape = Shape::new(initial);
        let mut parts = Vec::new();
        let mut first = 0u64;
        for &buckets in buckets {
            parts.push(Part {
                first: first as u32,
                buckets,
            });
            first = first.saturating_add(u64::from(buckets));
        }
        let bytes = first.saturating_mul(shape.lines_per_bucket as u64 * 64);
        let whole = storage
            .bytes()
            .get(range.clone())
            .filter(|found| found.len() as u64 == bytes)
            .is_some_and(|found| bytemuck::try_cast_slice::<u8, Line>(found).is_ok());
        if !whole || buckets.contains(&0) || first > u64::from(u32::MAX) {
            return Err(format!(
                "{} bytes at {} are not the table of {} parts with {bytes} bytes that its header says",
                range.len(),
                range.start,
                buckets.len()
            ));
        }
        Ok(NgramTable {
            lines: Lines::Stored(storage, range),
            parts,
            shape,
        })
    }

    /// Buckets of each part.
    pub fn buckets(&self) -> Vec<u32> {
        self.parts.iter().map(|part| part.buckets).collect()
    }

    /// Bytes that the table takes with room for `entries` n-grams of `columns` values.
    pub fn bytes_for(entries: u64, columns: usize) -> u64 {
        (entries as f64 * (4 + 2 * columns) as f64 / MAX_LOAD * 1.125) as u64 + 256
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> u64 {
        self.lines.get().len() as u64 * 64
    }

    /// Number of slots, a bound on what [`Self::find`] returns.
    pub fn slots(&self) -> usize {
        self.lines.get().len() / self.shape.lines_per_bucket * self.shape.slots_per_bucket
    }

    /// The whole table as bytes, for a checksum.
    pub fn as_bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self.lines.get())
    }

    /// The parts, to be filled.
    ///
    /// # Panics
    /// When the table stands in a storage.
    pub fn parts_mut(&mut self) -> impl Iterator<Item = TablePart<'_>> {
        let shape = &self.shape;
        let mut rest = match &mut self.lines {
            Lines::Own(memory) => bytemuck::cast_slice_mut(memory),
            Lines::Stored(..) => panic!("a stored table does not change"),
        };
        self.parts.iter().map(move |&place| {
            let n_lines = place.buckets as usize * shape.lines_per_bucket;
            let (lines, others) = std::mem::take(&mut rest).split_at_mut(n_lines);
            rest = others;
            TablePart {
                shape,
                place,
                lines,
                entries: 0,
            }
        })
    }

    /// The bucket of an n-gram of a part.
    #[inline(always)]
    pub fn bucket(&self, part: u32, hash: u64) -> u32 {
        let Part { first, buckets } = self.parts[part as usize];
        first + bucket_of(hash, buckets)
    }

    #[inline]
    fn words(&self, bucket: usize) -> &[u32] {
        let start = bucket * self.shape.lines_per_bucket;
        bytemuck::cast_slice(&self.lines.get()[start..start + self.shape.lines_per_bucket])
    }

    /// Reads the first line of each bucket, so that the misses overlap and the look-ups that
    /// follow find them in the cache.
    #[inline]
    pub fn touch(&self, buckets: &[u32]) {
        let lines = self.lines.get();
        let mut sum = 0;
        for &bucket in buckets {
            sum ^= lines[bucket as usize * self.shape.lines_per_bucket].0[0];
        }
        std::hint::black_box(sum);
    }

    /// The slot of an n-gram of a part.
    #[inline]
    pub fn find(&self, part: u32, hash: u64) -> Option<u32> {
        self.find_place(part, hash)
            .map(|(bucket, slot)| (bucket * self.shape.slots_per_bucket + slot) as u32)
    }

    /// Bucket and place in it.
    fn find_place(&self, part: u32, hash: u64) -> Option<(usize, usize)> {
        let tag = tag_of(hash);
        let place = self.parts[part as usize];
        let mut bucket = bucket_of(hash, place.buckets);
        for _ in 0..place.buckets {
            let tags = &self.words((place.first + bucket) as usize)[..self.shape.slots_per_bucket];
            for (slot, &found) in tags.iter().enumerate() {
                if found & !OVERFLOWED == tag {
                    return Some(((place.first + bucket) as usize, slot));
                }
            }
            if tags[0] & OVERFLOWED == 0 {
                return None;
            }
            bucket = next_bucket(bucket, place.buckets);
        }
        None
    }

    /// The table as look-ups want it.
    pub fn view(&self) -> TableView<'_> {
        TableView {
            lines: self.lines.get(),
            parts: &self.parts,
            lines_shift: self.shape.lines_per_bucket.trailing_zeros(),
            slots: if self.shape.lines_per_bucket == 1 && self.shape.slots_per_bucket <= 8 {
                u64::MAX >> (64 - 8 * self.shape.slots_per_bucket)
            } else {
                0
            },
            first_value: 2 * self.shape.slots_per_bucket,
            columns: self.shape.columns,
            table: self,
        }
    }
}

/// A table to be read: what each look-up needs, at hand.
#[derive(Clone, Copy)]
pub struct TableView<'a> {
    lines: &'a [Line],
    parts: &'a [Part],
    /// A bucket begins at its number shifted left by this.
    lines_shift: u32,
    /// One byte of ones for each slot of a bucket; 0 where a bucket is more than a line or than
    /// eight slots.
    slots: u64,
    /// Place of the first value in a bucket, in halves of a word.
    first_value: usize,
    columns: usize,
    table: &'a NgramTable,
}

impl TableView<'_> {
    /// The bucket of an n-gram of a part; its line is asked for, without waiting for it.
    #[inline(always)]
    pub fn ask(&self, part: u32, hash: u64) -> u32 {
        let Part { first, buckets } = self.parts[part as usize];
        let bucket = first + bucket_of(hash, buckets);
        prefetch_index::prefetch_index(self.lines, (bucket as usize) << self.lines_shift);
        bucket
    }

    /// Values of an n-gram of a part, whose bucket is that of [`Self::ask`]; `None` where no model
    /// holds it.
    #[inline(always)]
    pub fn values<const C: usize>(
        &self,
        bucket: u32,
        part: u32,
        hash: u64,
        columns: [usize; C],
    ) -> Option<[u32; C]> {
        if self.slots == 0 {
            return self.values_elsewhere(part, hash, columns);
        }
        let line = &self.lines[bucket as usize].0;
        let found = equal_words(line, tag_of(hash)) & self.slots;
        if found != 0 {
            Some(self.values_in(line, found, columns))
        } else if line[0] & OVERFLOWED == 0 {
            None
        } else {
            self.values_elsewhere(part, hash, columns)
        }
    }

    /// Values in a bucket of one line, at the first place found by [`equal_words`].
    #[inline(always)]
    fn values_in<const C: usize>(
        &self,
        line: &[u32; 16],
        found: u64,
        columns: [usize; C],
    ) -> [u32; C] {
        let halves: &[u16; 32] = bytemuck::cast_ref(line);
        let start = self.first_value + (found.trailing_zeros() / 8) as usize * self.columns;
        columns.map(|column| u32::from(halves[(start + column) & 31]))
    }

    /// Where buckets are wide, or where the n-gram's own one has no room for it.
    #[inline(never)]
    fn values_elsewhere<const C: usize>(
        &self,
        part: u32,
        hash: u64,
        columns: [usize; C],
    ) -> Option<[u32; C]> {
        if self.slots == 0 {
            let (bucket, slot) = self.table.find_place(part, hash)?;
            let halves: &[u16] = bytemuck::cast_slice(self.table.words(bucket));
            let start = self.first_value + slot * self.columns;
            return Some(columns.map(|column| u32::from(halves[start + column])));
        }
        let Part { first, buckets } = self.parts[part as usize];
        let (mut bucket, tag) = (bucket_of(hash, buckets), tag_of(hash));
        for _ in 1..buckets {
            bucket = next_bucket(bucket, buckets);
            let line = &self.lines[(first + bucket) as usize].0;
            let found = equal_words(line, tag) & self.slots;
            if found != 0 {
                return Some(self.values_in(line, found, columns));
            }
            if line[0] & OVERFLOWED == 0 {
                return None;
            }
        }
        None
    }
}

/// A byte of 1 for each of the first eight words of a line that is `tag`, 0 for the others: in this
/// shape the compiler compares them all at once.
#[inline(always)]
fn equal_words(line: &[u32; 16], tag: u32) -> u64 {
    let mut equal = [0; 8];
    for (equal, &word) in equal.iter_mut().zip(line) {
        *equal = u8::from(word & !OVERFLOWED == tag);
    }
    u64::from_le_bytes(equal)
}

/// A part of a table, to be filled.
pub struct TablePart<'a> {
    shape: &'a Shape,
    place: Part,
    lines: &'a mut [Line],
    entries: u64,
}

impl TablePart<'_> {
    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.place.buckets as usize * self.shape.slots_per_bucket
    }

    /// The slot in the table that the first slot of this part is.
    pub fn first_slot(&self) -> u32 {
        self.place.first * self.shape.slots_per_bucket as u32
    }

    /// Puts an n-gram in, unless it is there, and returns its slot in the part.
    ///
    /// # Panics
    /// When more n-grams are put in than there are slots.
    pub fn insert(&mut self, hash: u64) -> u32 {
        assert!(
            (self.entries as usize) < self.slots(),
            "more n-grams than the part was made for"
        );
        let tag = tag_of(hash);
        let shape = self.shape;
        let (slots, columns) = (shape.slots_per_bucket, shape.columns);
        let mut bucket = bucket_of(hash, self.place.buckets);
        loop {
            let start = bucket as usize * shape.lines_per_bucket;
            let lines = &mut self.lines[start..start + shape.lines_per_bucket];
            let words: &mut [u32] = bytemuck::cast_slice_mut(lines);
            for slot in 0..slots {
                if words[slot] & !OVERFLOWED == tag {
                    return bucket * slots as u32 + slot as u32;
                }
                if words[slot] == 0 {
                    words[slot] = tag;
                    let halves: &mut [u16] = bytemuck::cast_slice_mut(lines);
                    halves[2 * slots + slot * columns..][..columns].copy_from_slice(&shape.initial);
                    self.entries += 1;
                    return bucket * slots as u32 + slot as u32;
                }
            }
            words[0] |= OVERFLOWED;
            bucket = next_bucket(bucket, self.place.buckets);
        }
    }

    /// Writes a value, by the slot in the part.
    #[inline]
    pub fn set(&mut self, slot: u32, column: usize, value: u16) {
        let shape = self.shape;
        let (bucket, slot) = (
            slot as usize / shape.slots_per_bucket,
            slot as usize % shape.slots_per_bucket,
        );
        let start = bucket * shape.lines_per_bucket;
        let halves: &mut [u16] =
            bytemuck::cast_slice_mut(&mut self.lines[start..start + shape.lines_per_bucket]);
        halves[2 * shape.slots_per_bucket + slot * shape.columns + column] = value;
    }
}

#[inline(always)]
fn tag_of(hash: u64) -> u32 {
    (hash as u32 & !OVERFLOWED).max(1)
}

#[inline(always)]
fn bucket_of(hash: u64, buckets: u32) -> u32 {
    ((u128::from(hash) * u128::from(buckets)) >> 64) as u32
}

#[inline]
fn next_bucket(bucket: u32, buckets: u32) -> u32 {
    if bucket + 1 == buckets { 0 } else { bucket + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(tokens: [u32; 3]) -> u64 {
        extend_hash(extend_hash(start_hash(tokens[2]), tokens[1]), tokens[0])
    }

    #[test]
    fn finds_what_was_put_in_and_nothing_else_for_every_width() {
        for columns in [1, 2, 3, 5, 6, 9, 17, 34, 51] {
            let initial: Vec<u16> = (0..columns as u16)
                .map(|c| if c == 0 { ABSENT } else { 0 })
                .collect();
            let mut table = NgramTable::new(&[2_500; 2], &initial);
            for (number, mut part) in table.parts_mut().enumerate() {
                for i in (number as u32..5_000).step_by(2) {
                    let slot = part.insert(hash_of([i, i * 7, 3]));
                    assert_eq!(part.insert(hash_of([i, i * 7, 3])), slot);
                    part.set(slot, columns - 1, i as u16);
                }
                assert_eq!(part.entries, 2_500);
            }
            let mut slots: Vec<u32> = (0..5_000u32)
                .map(|i| {
                    table
                        .find(i % 2, hash_of([i, i * 7, 3]))
                        .expect("was put in")
                })
                .collect();
            slots.sort_unstable();
            slots.dedup();
            assert_eq!(slots.len(), 5_000);
            assert!((slots[4_999] as usize) < table.slots());
            let hashes: Vec<u64> = (0..10_000u32).map(|i| hash_of([i, i * 7, 3])).collect();
            let view = table.view();
            for (i, &hash) in (0..).zip(&hashes) {
                let part = i % 2;
                let bucket = view.ask(part, hash);
                let values = view.values(bucket, part, hash, [columns - 1]);
                let expected = (i < 5_000).then_some([i]);
                assert_eq!(values, expected, "columns {columns}, n-gram {i}");
            }
            assert!(table.bytes() <= NgramTable::bytes_for(5_000, columns) * 2);
        }
    }

    #[test]
    fn hashes_of_small_ids_fill_the_buckets_evenly() {
        let mut table = NgramTable::new(&[300_000], &[ABSENT; 3]);
        let mut part = table.parts_mut().next().expect("one part");
        for a in 0..67 {
            for b in 0..67 {
                for c in 0..66 {
                    part.insert(hash_of([a, b, c]));
                }
            }
        }
        assert_eq!(part.entries, 67 * 67 * 66);
        let buckets = table.parts[0].buckets as usize;
        let overflowed = (0..buckets)
            .filter(|&bucket| table.words(bucket)[0] & OVERFLOWED != 0)
            .count();
        // A Poisson law of mean 4.2 puts 13 % above six; what spills over adds some.
        assert!(
            (overflowed as f64) < 0.25 * buckets as f64,
            "{overflowed} of {buckets}"
        );
    }

    #[test]
    fn the_fast_logarithm_is_one() {
        for i in 1..200_000u32 {
            let x = f64::from(i) / 100_003.0 * libm::exp(-f64::from(i % 61));
            let error = ln(x) - libm::log(x);
            assert!(
                error.abs() < 1e-13 * (1.0 + libm::log(x).abs()),
                "{x}: {error}"
            );
        }
    }

    #[test]
    fn codes_are_nearest_multiples_and_saturate() {
        assert_eq!(code_of(1.0), 0);
        assert_eq!(
            code_of(0.5),
            (std::f64::consts::LN_2 * 2048.0).round() as u16
        );
        assert_eq!(code_of(0.0), MAX_CODE);
        assert_eq!(code_of(libm::exp(-40.0)), MAX_CODE);
        for i in 1..3000 {
            let nats = f64::from(i) * 0.01;
            let error = f64::from(code_of(libm::exp(-nats))) / STEPS_PER_NAT - nats;
            assert!(error.abs() <= 0.5 / STEPS_PER_NAT + 1e-9, "{nats}: {error}");
        }
    }
}
