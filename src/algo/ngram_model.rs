//! Several smoothed n-gram models over one vocabulary in one set of tables, and surprisals by them.

use super::kneser_ney::Packing;
use super::ngram_table::{
    ABSENT, BLOCK, MAX_CODE, NgramTable, Storage, TablePart, Wanted, extend_hash, start_hash,
};
use std::ops::Range;
use std::sync::Arc;

/// The tables of `models` models. A value is a surprisal, or the -ln of a back-off weight, in
/// steps of 1/2048 nat. Each value is rounded once, so that a surprisal is off by at most
/// `order` / 4096 nat.
pub struct NgramModels {
    packing: Packing,
    models: usize,
    /// Parts of each table; see [`part_of`].
    parts: u32,
    /// One row per id and one for the begin: surprisals of all models, then back-offs of all.
    first: Vec<u16>,
    /// N-grams of 2 tokens and more; columns as above, without back-offs for the longest.
    tables: Vec<NgramTable>,
}

/// The part, of `parts`, of all n-grams that end with two tokens, by the hash of these. Mixed once
/// more, since the hash itself places pairs inside their part.
#[inline(always)]
pub fn part_of(end_hash: u64, parts: u32) -> u32 {
    let mixed = end_hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((u128::from(mixed) * u128::from(parts)) >> 64) as u32
}

/// The values of an n-gram of `length` tokens that no model holds.
fn initial_of(packing: &Packing, models: usize, length: u32) -> Vec<u16> {
    let mut initial = vec![ABSENT; models];
    if length < packing.order {
        initial.resize(2 * models, 0);
    }
    initial
}

impl NgramModels {
    /// Empty tables with room for `ngrams[part][i]` n-grams of `i + 2` tokens.
    pub fn new(packing: Packing, models: usize, ngrams: &[Vec<u64>]) -> Self {
        let tables = (2..=packing.order)
            .map(|length| {
                let entries: Vec<u64> = ngrams
                    .iter()
                    .map(|of_part| of_part[length as usize - 2])
                    .collect();
                NgramTable::new(&entries, &initial_of(&packing, models, length))
            })
            .collect();
        let first = vec![0; (packing.vocabulary_size as usize + 1) * 2 * models];
        NgramModels {
            packing,
            models,
            parts: ngrams.len() as u32,
            first,
            tables,
        }
    }

    /// Models whose tables stand in a storage: the rows of single tokens as [`Self::first`] gives
    /// them, and for each length from 2 the buckets of the parts and where the table is.
    ///
    /// # Errors
    /// When a table is not there as described.
    pub fn stored(
        packing: Packing,
        models: usize,
        first: Vec<u16>,
        tables: &[(Vec<u32>, Range<usize>)],
        storage: &Arc<dyn Storage>,
    ) -> Result<Self, String> {
        let rows = (packing.vocabulary_size as usize + 1) * 2 * models;
        let parts = tables.first().map_or(0, |(buckets, _)| buckets.len());
        let even = tables.iter().all(|(buckets, _)| buckets.len() == parts);
        if first.len() != rows || tables.len() + 1 != packing.order as usize || parts == 0 || !even
        {
            return Err(format!(
                "{} values for single tokens and {} tables of {parts} parts are not those of {models} models of order {}",
                first.len(),
                tables.len(),
                packing.order
            ));
        }
        let tables = (2..)
            .zip(tables)
            .map(|(length, (buckets, range))| {
                let initial = initial_of(&packing, models, length);
                NgramTable::stored(buckets, &initial, Arc::clone(storage), range.clone())
            })
            .collect::<Result<_, String>>()?;
        Ok(NgramModels {
            packing,
            models,
            parts: parts as u32,
            first,
            tables,
        })
    }

    /// Surprisals and back-offs of single tokens: one row per id and one for the begin, surprisals
    /// of all models, then back-offs of all.
    pub fn first(&self) -> &[u16] {
        &self.first
    }

    /// Number of models.
    pub fn models(&self) -> usize {
        self.models
    }

    /// Number of ids, and tokens of the longest n-grams.
    pub fn packing(&self) -> &Packing {
        &self.packing
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> u64 {
        self.first.len() as u64 * 2 + self.tables.iter().map(NgramTable::bytes).sum::<u64>()
    }

    /// A hash of all values: equal models have equal ones.
    pub fn checksum(&self) -> u64 {
        let parts = self
            .tables
            .iter()
            .map(|table| xxhash_rust::xxh3::xxh3_64(table.as_bytes()));
        let first = xxhash_rust::xxh3::xxh3_64(bytemuck::cast_slice(&self.first));
        parts.fold(first, |sum, part| extend_hash(sum ^ part, 1))
    }

    /// The table of the n-grams of `length` tokens, 2 or more.
    pub fn table(&self, length: u32) -> &NgramTable {
        &self.tables[length as usize - 2]
    }

    /// By part, the tables of that part by length from 2, to be filled.
    pub fn parts_mut(&mut self) -> Vec<Vec<TablePart<'_>>> {
        let mut by_part: Vec<Vec<TablePart<'_>>> = (0..self.parts).map(|_| Vec::new()).collect();
        for table in &mut self.tables {
            for (of_part, part) in by_part.iter_mut().zip(table.parts_mut()) {
                of_part.push(part);
            }
        }
        by_part
    }

    /// The columns of a model: its surprisals, and its back-offs, which the longest n-grams lack.
    pub fn columns(&self, model: usize) -> [usize; 2] {
        [model, self.models + model]
    }

    /// Sets the surprisal and the back-off of a single token; the begin stands after the last id.
    pub fn set_first(&mut self, token: u32, model: usize, surprisal: u16, back_off: u16) {
        let row = token as usize * 2 * self.models;
        self.first[row + model] = surprisal;
        self.first[row + self.models + model] = back_off;
    }

    #[inline(always)]
    fn first_of(&self, token: u32, models: [usize; 2]) -> ([u16; 2], [u16; 2]) {
        let row = token as usize * 2 * self.models;
        let row = &self.first[row..row + 2 * self.models];
        (
            models.map(|model| row[model]),
            models.map(|model| row[self.models + model]),
        )
    }

    /// By token, how many tokens before it each of two models used: one fewer than the longest
    /// n-gram that ends there and that it holds. The begin of the document counts as a token.
    pub fn contexts(&self, models: [usize; 2], tokens: &[u32]) -> Vec<[u32; 2]> {
        let begin = [self.packing.begin()];
        let all: Vec<u32> = begin.iter().chain(tokens).copied().collect();
        (1..all.len())
            .map(|end| {
                let mut used = [0; 2];
                let mut hash = start_hash(all[end]);
                let mut part = 0;
                for length in 2..=(self.packing.order as usize).min(end + 1) {
                    hash = extend_hash(hash, all[end + 1 - length]);
                    if length == 2 {
                        part = part_of(hash, self.parts);
                    }
                    let table = &self.tables[length - 2];
                    let wanted = Wanted {
                        buckets: &[table.bucket(part, hash)],
                        hashes: &[hash],
                        parts: &[part],
                    };
                    table.look_up(wanted, models, |_, _, values| {
                        for (used, value) in used.iter_mut().zip(values) {
                            if value != ABSENT {
                                *used = length as u32 - 1;
                            }
                        }
                    });
                }
                used
            })
            .collect()
    }

    /// Surprisal of each token of a document by two models, in steps of 1/2048 nat, at most 32
    /// nats. Ids must be below the vocabulary's size.
    ///
    /// Works block by block and length by length. The lines of the next block's n-grams of two and
    /// three tokens are asked for before a block is worked on, so that they have come when their turn
    /// is; longer ones are hashed, touched, then looked up, so that cache misses overlap. An n-gram is
    /// only looked for where its end was found, because a model that keeps an n-gram keeps its end.
    pub fn surprisals(&self, models: [usize; 2], tokens: &[u32], out: &mut [Vec<u16>; 2]) {
        for codes in out.iter_mut() {
            codes.clear();
            codes.reserve(tokens.len());
        }
        let order = self.packing.order as usize;
        let (p, q) = (models[0], models[1]);
        let mut ahead = Ahead::NONE;
        let mut now = Ahead::NONE;
        self.look_ahead(tokens, 0, &mut ahead);
        // By place: the hash of what was looked for last.
        let mut hashes = [0u64; BLOCK];
        // The places where the last n-gram was found; what is wanted there next, and where it is.
        let mut found_places = [0u8; BLOCK];
        let mut wanted_hashes = [0u64; BLOCK];
        let mut wanted_parts = [0u32; BLOCK];
        let mut wanted_buckets = [0u32; BLOCK];
        // Back-off of the 1..4 tokens that stand before the block.
        let mut carried = [[0u16; 2]; 5];
        carried[1] = self.first_of(self.packing.begin(), models).1;
        let mut surprisals = [[0u32; 2]; BLOCK];
        // Place i holds the back-off of the context of token i.
        let mut back_offs = [[0u16; 2]; BLOCK + 1];
        let mut longer_back_offs = [[0u16; 2]; BLOCK + 1];
        for (number_of_block, block) in tokens.chunks(BLOCK).enumerate() {
            let n = block.len();
            std::mem::swap(&mut now, &mut ahead);
            self.look_ahead(tokens, (number_of_block + 1) * BLOCK, &mut ahead);
            let mut n_found = n;
            for length in 2..=order {
                let table = &self.tables[length - 2];
                let wanted = if length == 2 {
                    for (place, found) in found_places[..n].iter_mut().enumerate() {
                        *found = place as u8;
                    }
                    Wanted {
                        buckets: &now.buckets[0][..n],
                        hashes: &now.hashes[0][..n],
                        parts: &now.parts[..n],
                    }
                } else {
                    for (number, &place) in found_places[..n_found].iter().enumerate() {
                        let place = usize::from(place);
                        let part = now.parts[place];
                        let (hash, bucket) = if length == 3 {
                            (now.hashes[1][place], now.buckets[1][place])
                        } else {
                            let before =
                                (number_of_block * BLOCK + place) as isize + 1 - length as isize;
                            let hash = extend_hash(hashes[place], self.token_at(tokens, before));
                            (hash, table.bucket(part, hash))
                        };
                        hashes[place] = hash;
                        wanted_hashes[number] = hash;
                        wanted_parts[number] = part;
                        wanted_buckets[number] = bucket;
                    }
                    if length > 3 {
                        table.touch(&wanted_buckets[..n_found]);
                    }
                    Wanted {
                        buckets: &wanted_buckets[..n_found],
                        hashes: &wanted_hashes[..n_found],
                        parts: &wanted_parts[..n_found],
                    }
                };
                if length == 2 {
                    back_offs[0] = carried[1];
                    for (place, &token) in block.iter().enumerate() {
                        let (surprisal, back_off) = self.first_of(token, models);
                        surprisals[place] = surprisal.map(u32::from);
                        back_offs[place + 1] = back_off;
                    }
                    carried[1] = back_offs[n];
                }
                // What holds where nothing is found.
                for (surprisal, back_off) in surprisals[..n].iter_mut().zip(&back_offs) {
                    surprisal[0] += u32::from(back_off[0]);
                    surprisal[1] += u32::from(back_off[1]);
                }
                n_found = 0;
                if length < order {
                    longer_back_offs[..=n].fill([0; 2]);
                    longer_back_offs[0] = carried[length];
                    let columns = [p, q, self.models + p, self.models + q];
                    table.look_up(wanted, columns, |number, found, values| {
                        let place = found_places[number];
                        found_places[n_found] = place;
                        n_found += usize::from(found);
                        let [own_p, own_q, left_p, left_q] = values;
                        longer_back_offs[usize::from(place) + 1] = [left_p, left_q];
                        replace(&mut surprisals[usize::from(place)], [own_p, own_q]);
                    });
                    carried[length] = longer_back_offs[n];
                    std::mem::swap(&mut back_offs, &mut longer_back_offs);
                } else {
                    table.look_up(wanted, [p, q], |number, _, own| {
                        replace(&mut surprisals[usize::from(found_places[number])], own);
                    });
                }
            }
            for (model, codes) in out.iter_mut().enumerate() {
                codes.extend(
                    surprisals[..n]
                        .iter()
                        .map(|both| both[model].min(u32::from(MAX_CODE)) as u16),
                );
            }
        }
    }

    /// The token at a place of a document, or what stands before its begin.
    #[inline(always)]
    fn token_at(&self, tokens: &[u32], place: isize) -> u32 {
        match place {
            0.. => tokens[place as usize],
            -1 => self.packing.begin(),
            _ => self.packing.nothing(),
        }
    }

    /// Hashes the n-grams of two and three tokens that end in the block from `start` on, and asks for
    /// their lines.
    #[inline(always)]
    fn look_ahead(&self, tokens: &[u32], start: usize, ahead: &mut Ahead) {
        let Some(block) = tokens.get(start..).filter(|block| !block.is_empty()) else {
            return;
        };
        let mut last = [1, 2].map(|back| self.token_at(tokens, start as isize - back));
        for (place, &token) in block.iter().take(BLOCK).enumerate() {
            let pair = extend_hash(start_hash(token), last[0]);
            let part = part_of(pair, self.parts);
            let bucket = self.tables[0].bucket(part, pair);
            self.tables[0].prefetch(bucket);
            ahead.parts[place] = part;
            ahead.hashes[0][place] = pair;
            ahead.buckets[0][place] = bucket;
            if let Some(table) = self.tables.get(1) {
                let triple = extend_hash(pair, last[1]);
                let bucket = table.bucket(part, triple);
                table.prefetch(bucket);
                ahead.hashes[1][place] = triple;
                ahead.buckets[1][place] = bucket;
            }
            last = [token, last[0]];
        }
    }
}

/// N-grams of two and of three tokens of a block, whose lines were asked for.
struct Ahead {
    parts: [u32; BLOCK],
    hashes: [[u64; BLOCK]; 2],
    buckets: [[u32; BLOCK]; 2],
}

impl Ahead {
    const NONE: Ahead = Ahead {
        parts: [0; BLOCK],
        hashes: [[0; BLOCK]; 2],
        buckets: [[0; BLOCK]; 2],
    };
}

/// Takes the values of the models that hold the n-gram.
#[inline(always)]
fn replace(surprisals: &mut [u32; 2], own: [u16; 2]) {
    for (surprisal, own) in surprisals.iter_mut().zip(own) {
        *surprisal = if own == ABSENT {
            *surprisal
        } else {
            u32::from(own)
        };
    }
}
