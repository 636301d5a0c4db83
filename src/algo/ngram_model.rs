//! Several smoothed n-gram models over one vocabulary in one set of tables, and surprisals by them.

use super::kneser_ney::Packing;
use super::ngram_table::{
    ABSENT, MAX_CODE, NgramTable, Storage, TablePart, TableView, extend_hash, start_hash,
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
    fn first_of(&self, token: u32, models: [usize; 2]) -> ([u32; 2], [u32; 2]) {
        let row = token as usize * 2 * self.models;
        let row = &self.first[row..row + 2 * self.models];
        (
            models.map(|model| u32::from(row[model])),
            models.map(|model| u32::from(row[self.models + model])),
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
                    let table = self.tables[length - 2].view();
                    let bucket = table.ask(part, hash);
                    let values = table.values(bucket, part, hash, models);
                    for (used, value) in used.iter_mut().zip(values.unwrap_or([ABSENT.into(); 2])) {
                        if value != u32::from(ABSENT) {
                            *used = length as u32 - 1;
                        }
                    }
                }
                used
            })
            .collect()
    }

    /// Surprisal of each token of a document by two models, in steps of 1/2048 nat, at most 32
    /// nats. Ids must be below the vocabulary's size.
    ///
    /// The n-grams that end in a token are hashed, and their lines asked for, 16 tokens before their
    /// turn, so that cache misses overlap with each other and with the work. An n-gram is only
    /// looked at where its end was found, because a model that keeps an n-gram keeps its end.
    pub fn surprisals(&self, models: [usize; 2], tokens: &[u32], out: &mut [Vec<u16>; 2]) {
        match self.packing.order {
            2 => self.surprisals_of::<1>(models, tokens, out),
            3 => self.surprisals_of::<2>(models, tokens, out),
            4 => self.surprisals_of::<3>(models, tokens, out),
            _ => self.surprisals_of::<4>(models, tokens, out),
        }
    }

    /// With the number of tables known, which is the order less one.
    fn surprisals_of<const TABLES: usize>(
        &self,
        models: [usize; 2],
        tokens: &[u32],
        out: &mut [Vec<u16>; 2],
    ) {
        let tables: [TableView<'_>; TABLES] =
            std::array::from_fn(|number| self.tables[number].view());
        let [of_p, of_q] = out;
        for codes in [&mut *of_p, &mut *of_q] {
            codes.clear();
            codes.resize(tokens.len(), 0);
        }
        let (of_p, of_q) = (&mut of_p[..tokens.len()], &mut of_q[..tokens.len()]);
        // The tokens before the one that is hashed, the nearest first.
        let mut before = [self.packing.nothing(); TABLES];
        before[0] = self.packing.begin();
        let mut ahead = [Asked::<TABLES>::NOTHING; AHEAD];
        for (asked, &token) in ahead.iter_mut().zip(tokens) {
            *asked = self.ask(&tables, token, &mut before);
        }
        let [p, q] = models;
        let columns = [p, q, self.models + p, self.models + q];
        // Back-offs of the 1..=TABLES tokens that stand before the next one.
        let mut contexts = [[0u32; 2]; TABLES];
        contexts[0] = self.first_of(self.packing.begin(), models).1;
        for (place, &token) in tokens.iter().enumerate() {
            let here = ahead[place % AHEAD];
            if let Some(&token) = tokens.get(place + AHEAD) {
                ahead[place % AHEAD] = self.ask(&tables, token, &mut before);
            }
            let (mut surprisal, back_off) = self.first_of(token, models);
            let mut next = [[0u32; 2]; TABLES];
            next[0] = back_off;
            let mut is_open = true;
            for (number, table) in tables.iter().enumerate() {
                for (surprisal, back_off) in surprisal.iter_mut().zip(contexts[number]) {
                    *surprisal += back_off;
                }
                if !is_open {
                    continue;
                }
                let (bucket, hash) = (here.buckets[number], here.hashes[number]);
                if number + 1 < TABLES {
                    let found = table.values(bucket, here.part, hash, columns);
                    if let Some([own_p, own_q, left_p, left_q]) = found {
                        replace(&mut surprisal, [own_p, own_q]);
                        next[number + 1] = [left_p, left_q];
                    }
                    is_open = found.is_some();
                } else if let Some(own) = table.values(bucket, here.part, hash, models) {
                    replace(&mut surprisal, own);
                }
            }
            contexts = next;
            let most = u32::from(MAX_CODE);
            of_p[place] = surprisal[0].min(most) as u16;
            of_q[place] = surprisal[1].min(most) as u16;
        }
    }

    /// Hashes the n-grams that end in `token` and asks for their lines; `before` moves on.
    #[inline(always)]
    fn ask<const TABLES: usize>(
        &self,
        tables: &[TableView<'_>; TABLES],
        token: u32,
        before: &mut [u32; TABLES],
    ) -> Asked<TABLES> {
        prefetch_index::prefetch_index(&self.first, token as usize * 2 * self.models);
        let mut asked = Asked::NOTHING;
        let mut hash = start_hash(token);
        for (number, table) in tables.iter().enumerate() {
            hash = extend_hash(hash, before[number]);
            if number == 0 {
                asked.part = part_of(hash, self.parts);
            }
            asked.hashes[number] = hash;
            asked.buckets[number] = table.ask(asked.part, hash);
        }
        for number in (1..TABLES).rev() {
            before[number] = before[number - 1];
        }
        before[0] = token;
        asked
    }
}

/// Tokens between asking for lines and reading them: enough for their misses to overlap, few enough
/// for the first cache to hold what was asked for.
const AHEAD: usize = 16;

/// The n-grams that end in a token, whose lines were asked for.
#[derive(Clone, Copy)]
struct Asked<const TABLES: usize> {
    part: u32,
    buckets: [u32; TABLES],
    hashes: [u64; TABLES],
}

impl<const TABLES: usize> Asked<TABLES> {
    const NOTHING: Self = Asked {
        part: 0,
        buckets: [0; TABLES],
        hashes: [0; TABLES],
    };
}

/// Takes the values of the models that hold the n-gram.
#[inline(always)]
fn replace(surprisals: &mut [u32; 2], own: [u32; 2]) {
    for (surprisal, own) in surprisals.iter_mut().zip(own) {
        if own != u32::from(ABSENT) {
            *surprisal = own;
        }
    }
}
