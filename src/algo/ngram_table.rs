//! A hashed table of n-grams that holds the values of several models, built for batched look-ups.
//!
//! A bucket is one cache line (two or four where many models share the table): first the tags of
//! its slots, then their values. A look-up reads one line as a rule; a full bucket overflows into
//! the next one, and says so. N-grams are known by a 64-bit hash: its high bits choose the bucket,
//! its low 31 bits are the tag. An n-gram that is not in the table is taken for another one with a
//! probability below 10^-8.

use bytemuck::{Pod, Zeroable};

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
/// The error is at most 1/4096 nat below that bound.
pub fn code_of(probability: f64) -> u16 {
    if probability >= 1.0 {
        return 0;
    }
    let code = (-libm::log(probability) * STEPS_PER_NAT + 0.5).floor();
    // A probability of zero has an infinite logarithm; the cast saturates.
    (code as u64).min(u64::from(MAX_CODE)) as u16
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

/// See the module. `columns` values of 16 bits per n-gram.
pub struct NgramTable {
    lines: Vec<Line>,
    buckets: u64,
    lines_per_bucket: usize,
    slots_per_bucket: usize,
    columns: usize,
    entries: u64,
    initial: Vec<u16>,
}

impl NgramTable {
    /// An empty table with room for `entries` n-grams, whose values start as `initial`.
    pub fn new(entries: u64, initial: &[u16]) -> Self {
        let columns = initial.len();
        let slot_bytes = 4 + 2 * columns;
        // The smallest bucket that wastes at most an eighth, else the largest one.
        let lines_per_bucket = [1usize, 2, 4]
            .into_iter()
            .find(|lines| (64 * lines) % slot_bytes * 8 <= 64 * lines && 64 * lines >= slot_bytes)
            .unwrap_or(4);
        let slots_per_bucket = 64 * lines_per_bucket / slot_bytes;
        let buckets = (entries as f64 / (slots_per_bucket as f64 * MAX_LOAD)).ceil() as u64 + 1;
        NgramTable {
            lines: vec![Line([0; 16]); buckets as usize * lines_per_bucket],
            buckets,
            lines_per_bucket,
            slots_per_bucket,
            columns,
            entries: 0,
            initial: initial.to_vec(),
        }
    }

    /// Bytes that the table takes with room for `entries` n-grams of `columns` values.
    pub fn bytes_for(entries: u64, columns: usize) -> u64 {
        (entries as f64 * (4 + 2 * columns) as f64 / MAX_LOAD * 1.125) as u64 + 256
    }

    /// Number of n-grams.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> u64 {
        self.lines.len() as u64 * 64
    }

    /// Number of slots, a bound on what [`Self::find`] returns.
    pub fn slots(&self) -> usize {
        self.buckets as usize * self.slots_per_bucket
    }

    /// The whole table as bytes, for a checksum.
    pub fn as_bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.lines)
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        ((u128::from(hash) * u128::from(self.buckets)) >> 64) as usize
    }

    #[inline]
    fn tag(hash: u64) -> u32 {
        (hash as u32 & !OVERFLOWED).max(1)
    }

    #[inline]
    fn words(&self, bucket: usize) -> &[u32] {
        let start = bucket * self.lines_per_bucket;
        bytemuck::cast_slice(&self.lines[start..start + self.lines_per_bucket])
    }

    /// Reads the first line of each n-gram's bucket, so that the misses overlap and the look-ups
    /// that follow find them in the cache.
    #[inline]
    pub fn touch(&self, hashes: &[u64]) {
        let mut sum = 0;
        for &hash in hashes {
            sum ^= self.lines[self.bucket(hash) * self.lines_per_bucket].0[0];
        }
        std::hint::black_box(sum);
    }

    /// The slot of an n-gram.
    #[inline]
    pub fn find(&self, hash: u64) -> Option<u32> {
        self.find_place(hash)
            .map(|(bucket, slot)| (bucket * self.slots_per_bucket + slot) as u32)
    }

    /// Bucket and place in it.
    #[inline]
    fn find_place(&self, hash: u64) -> Option<(usize, usize)> {
        let tag = Self::tag(hash);
        let mut bucket = self.bucket(hash);
        loop {
            let tags = &self.words(bucket)[..self.slots_per_bucket];
            for (slot, &found) in tags.iter().enumerate() {
                if found & !OVERFLOWED == tag {
                    return Some((bucket, slot));
                }
            }
            if tags[0] & OVERFLOWED == 0 {
                return None;
            }
            bucket = self.next(bucket);
        }
    }

    #[inline]
    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets as usize {
            0
        } else {
            bucket + 1
        }
    }

    /// Puts an n-gram in, unless it is there.
    ///
    /// # Panics
    /// When more n-grams are put in than there are slots.
    pub fn insert(&mut self, hash: u64) {
        assert!(
            (self.entries as usize) < self.slots(),
            "more n-grams than the table was made for"
        );
        let tag = Self::tag(hash);
        let (slots, columns) = (self.slots_per_bucket, self.columns);
        let mut bucket = self.bucket(hash);
        loop {
            let next = self.next(bucket);
            let start = bucket * self.lines_per_bucket;
            let lines = &mut self.lines[start..start + self.lines_per_bucket];
            let words: &mut [u32] = bytemuck::cast_slice_mut(lines);
            for slot in 0..slots {
                if words[slot] & !OVERFLOWED == tag {
                    return;
                }
                if words[slot] == 0 {
                    words[slot] = tag;
                    let halves: &mut [u16] = bytemuck::cast_slice_mut(lines);
                    halves[2 * slots + slot * columns..][..columns].copy_from_slice(&self.initial);
                    self.entries += 1;
                    return;
                }
            }
            words[0] |= OVERFLOWED;
            bucket = next;
        }
    }

    /// Writes a value.
    #[inline]
    pub fn set(&mut self, slot: u32, column: usize, value: u16) {
        let (bucket, slot) = (
            slot as usize / self.slots_per_bucket,
            slot as usize % self.slots_per_bucket,
        );
        let start = bucket * self.lines_per_bucket;
        let halves: &mut [u16] =
            bytemuck::cast_slice_mut(&mut self.lines[start..start + self.lines_per_bucket]);
        halves[2 * self.slots_per_bucket + slot * self.columns + column] = value;
    }

    /// Looks up `hashes` and hands `visit` the place in the list, whether the n-gram is there, and
    /// its values, or those of an n-gram that no model holds.
    #[inline]
    pub fn look_up<const C: usize>(
        &self,
        hashes: &[u64],
        columns: [usize; C],
        mut visit: impl FnMut(usize, bool, [u16; C]),
    ) {
        // The common widths get a loop of known length.
        match (self.lines_per_bucket, self.slots_per_bucket) {
            (1, 3) => self.look_up_narrow::<3, C>(hashes, columns, &mut visit),
            (1, 4) => self.look_up_narrow::<4, C>(hashes, columns, &mut visit),
            (1, 5) => self.look_up_narrow::<5, C>(hashes, columns, &mut visit),
            (1, 6) => self.look_up_narrow::<6, C>(hashes, columns, &mut visit),
            _ => {
                for (place, &hash) in hashes.iter().enumerate() {
                    let found = self.find_place(hash);
                    visit(place, found.is_some(), self.values_of(found, columns));
                }
            }
        }
    }

    #[inline]
    fn look_up_narrow<const SLOTS: usize, const C: usize>(
        &self,
        hashes: &[u64],
        columns: [usize; C],
        visit: &mut impl FnMut(usize, bool, [u16; C]),
    ) {
        for (place, &hash) in hashes.iter().enumerate() {
            let tag = Self::tag(hash);
            let line = &self.lines[self.bucket(hash)];
            let mut found = SLOTS;
            for slot in 0..SLOTS {
                if line.0[slot] & !OVERFLOWED == tag {
                    found = slot;
                }
            }
            if found == SLOTS && line.0[0] & OVERFLOWED != 0 {
                let elsewhere = self.find_place(hash);
                visit(
                    place,
                    elsewhere.is_some(),
                    self.values_of(elsewhere, columns),
                );
                continue;
            }
            let halves: &[u16; 32] = bytemuck::cast_ref(&line.0);
            let start = 2 * SLOTS
                + if found == SLOTS {
                    0
                } else {
                    found * self.columns
                };
            let mut values = [0; C];
            for (value, &column) in values.iter_mut().zip(&columns) {
                let stored = halves[(start + column) & 31];
                *value = if found == SLOTS {
                    self.initial[column]
                } else {
                    stored
                };
            }
            visit(place, found != SLOTS, values);
        }
    }

    fn values_of<const C: usize>(
        &self,
        place: Option<(usize, usize)>,
        columns: [usize; C],
    ) -> [u16; C] {
        match place {
            None => columns.map(|column| self.initial[column]),
            Some((bucket, slot)) => {
                let halves: &[u16] = bytemuck::cast_slice(self.words(bucket));
                let start = 2 * self.slots_per_bucket + slot * self.columns;
                columns.map(|column| halves[start + column])
            }
        }
    }
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
            let mut table = NgramTable::new(5_000, &initial);
            for i in 0..5_000u32 {
                table.insert(hash_of([i, i * 7, 3]));
                table.insert(hash_of([i, i * 7, 3]));
            }
            assert_eq!(table.entries(), 5_000);
            for i in 0..5_000u32 {
                let slot = table.find(hash_of([i, i * 7, 3])).expect("was put in");
                assert!((slot as usize) < table.slots());
                table.set(slot, columns - 1, (i % 60_000) as u16);
            }
            let hashes: Vec<u64> = (0..10_000u32).map(|i| hash_of([i, i * 7, 3])).collect();
            for (block, chunk) in hashes.chunks(BLOCK).enumerate() {
                table.touch(chunk);
                table.look_up(chunk, [columns - 1], |place, found, [value]| {
                    let i = block * BLOCK + place;
                    assert_eq!(found, i < 5_000);
                    let expected = if i < 5_000 {
                        i as u16
                    } else {
                        initial[columns - 1]
                    };
                    assert_eq!(value, expected, "columns {columns}, n-gram {i}");
                });
            }
            assert!(table.bytes() <= NgramTable::bytes_for(5_000, columns) * 2);
        }
    }

    #[test]
    fn hashes_of_small_ids_fill_the_buckets_evenly() {
        let mut table = NgramTable::new(300_000, &[ABSENT; 3]);
        for a in 0..67 {
            for b in 0..67 {
                for c in 0..66 {
                    table.insert(hash_of([a, b, c]));
                }
            }
        }
        assert_eq!(table.entries(), 67 * 67 * 66);
        let overflowed = (0..table.buckets as usize)
            .filter(|&bucket| table.words(bucket)[0] & OVERFLOWED != 0)
            .count();
        // A Poisson law of mean 4.2 puts 13 % above six; what spills over adds some.
        assert!(
            (overflowed as f64) < 0.25 * table.buckets as f64,
            "{overflowed} of {}",
            table.buckets
        );
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
