//! Counting n-grams of token sources in files, and smoothing them into tables.
//!
//! Each n-gram is counted in *cells* (a fold of the corpus, a fold of the reference); a model is a
//! set of cells. So each model is fitted on its own cells only, pruning included, and the presence
//! of other models in the same tables changes nothing for it.
//!
//! The records of the longest n-grams are spread over files by a hash of their last two tokens.
//! All n-grams with the same end then lie in one file, so that one sorted pass over it yields the
//! counts of every length. What an n-gram needs from elsewhere is its context, which is looked up
//! in the tables. Passes: sort and count; choose what is kept; then for each model add up the
//! contexts, and write the probabilities. Files are worked on in parallel and applied in order.

use super::parallel::in_order;
use super::{FitError, TokenDocument, TokenSource};
use crate::algo::kneser_ney::{
    ContextSums, Discounts, Item, Key, OccurrenceCounts, Packing, Pruning, longest_items,
    shorter_items,
};
use crate::algo::ngram_model::NgramModels;
use crate::algo::ngram_table::{BLOCK, NgramTable, code_of, extend_hash, start_hash};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Tokens that a file of records is meant for.
const TOKENS_PER_FILE: u64 = 1 << 20;
/// Bound of the number of files, which are open at once while counting.
const MAX_FILES: u64 = 256;
/// Records that a worker gathers for a file before it writes them.
const GATHERED: usize = 2048;

/// Documents and tokens that something was learned from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct Learned {
    pub(super) documents: u64,
    pub(super) tokens: u64,
}

/// Counts n-grams into files.
pub(super) struct Counter<K> {
    packing: Packing,
    folder: PathBuf,
    files: Vec<Mutex<BufWriter<File>>>,
    memory_bytes: u64,
    keys: PhantomData<K>,
}

impl<K: Key> Counter<K> {
    /// Counts n-grams of about `tokens` tokens in `folder`, which must exist.
    pub(super) fn new(
        packing: Packing,
        tokens: u64,
        folder: &Path,
        memory_bytes: u64,
    ) -> Result<Self, FitError> {
        assert!(packing.record_bits() <= K::BITS, "the records fit the keys");
        let n_files = (tokens / TOKENS_PER_FILE + 1).min(MAX_FILES);
        let file = |number| {
            File::create(records_path(folder, number)).map(|f| Mutex::new(BufWriter::new(f)))
        };
        let files = (0..n_files as usize).map(file).collect::<Result<_, _>>()?;
        Ok(Counter {
            packing,
            folder: folder.to_path_buf(),
            files,
            memory_bytes,
            keys: PhantomData,
        })
    }

    /// Adds the documents of a source for which `cells` gives a set of cells that is not empty;
    /// `seen` is called for every document, with what its part has gathered.
    pub(super) fn add<T: Send>(
        &self,
        source: &dyn TokenSource,
        new: impl Fn() -> T + Sync,
        cells: impl Fn(&mut T, &TokenDocument<'_>) -> u32 + Sync,
        mut apply: impl FnMut(T),
    ) -> Result<Learned, FitError> {
        let mut learned = Learned::default();
        let n_files = self.files.len() as u64;
        let read = |part| {
            let mut value = new();
            let mut learned = Learned::default();
            let mut gathered: Vec<Vec<K>> = vec![Vec::new(); self.files.len()];
            let mut written = Ok(());
            source.read(part, &mut |document| {
                let cells = cells(&mut value, &document);
                if cells == 0 || written.is_err() {
                    return;
                }
                learned.documents += 1;
                learned.tokens += document.tokens.len() as u64;
                let (order, cell_bits) = (self.packing.order, self.packing.cell_bits);
                self.packing.each_ngram(document.tokens, |ngram: K| {
                    let end = extend_hash(
                        start_hash(self.packing.last(ngram, order)),
                        self.packing
                            .last(self.packing.context(ngram, order), order - 1),
                    );
                    let file = ((u128::from(end) * u128::from(n_files)) >> 64) as usize;
                    let mut rest = cells;
                    while rest != 0 {
                        let cell = rest.trailing_zeros();
                        rest &= rest - 1;
                        gathered[file].push((ngram << cell_bits) | K::from_u32(cell));
                    }
                    if gathered[file].len() >= GATHERED {
                        let result = self.write(file, &mut gathered[file]);
                        if written.is_ok() {
                            written = result;
                        }
                    }
                });
            })?;
            written?;
            for (file, records) in gathered.iter_mut().enumerate() {
                self.write(file, records)?;
            }
            Ok((value, learned))
        };
        in_order(
            source.parts(),
            rayon::current_num_threads() * 2,
            read,
            |_, (value, part)| {
                learned.documents += part.documents;
                learned.tokens += part.tokens;
                apply(value);
                Ok(())
            },
        )?;
        Ok(learned)
    }

    fn write(&self, file: usize, records: &mut Vec<K>) -> std::io::Result<()> {
        let mut file = self.files[file]
            .lock()
            .expect("no holder of the lock panics");
        file.write_all(bytemuck::cast_slice(records))?;
        records.clear();
        Ok(())
    }

    /// Sorts what was counted.
    pub(super) fn finish(self) -> Result<Counted<K>, FitError> {
        let mut most_records = 0;
        for (number, file) in self.files.into_iter().enumerate() {
            file.into_inner()
                .expect("no holder of the lock panics")
                .into_inner()
                .map_err(|e| e.into_error())?;
            most_records = most_records
                .max(records_path(&self.folder, number).metadata()?.len() / size::<K>());
        }
        // Records, the items of all lengths and the results of one file, in bytes, roughly.
        let one_file = most_records * (size::<K>() + 4) * 8;
        let mut counted = Counted {
            packing: self.packing,
            folder: self.folder,
            lengths: Vec::new(),
            // Half of the memory is for the tables; the rest of it is air.
            width: (self.memory_bytes / 4 / (one_file + 1)) as usize,
            keys: PhantomData,
        };
        if one_file > self.memory_bytes {
            return Err(FitError::Data(format!(
                "counting n-grams needs about {} MiB of memory; lower 'fit_tokens', or raise --memory to {}MiB or more",
                (one_file >> 20) + 1,
                (one_file >> 20) + 1
            )));
        }
        counted.width = counted.width.clamp(1, rayon::current_num_threads());
        let n_files = (0..)
            .take_while(|&n| records_path(&counted.folder, n).exists())
            .count();
        let mut lengths = Vec::new();
        in_order(
            n_files,
            counted.width,
            |number| sort_file::<K>(&counted.folder, number),
            |_, length| {
                lengths.push(length);
                Ok(())
            },
        )?;
        counted.lengths = lengths;
        Ok(counted)
    }
}

fn size<K>() -> u64 {
    size_of::<K>() as u64
}

fn records_path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("records-{number:03}"))
}

fn sorted_path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("sorted-{number:03}"))
}

fn kept_path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("kept-{number:03}"))
}

fn read_all<T: bytemuck::Pod>(file: &mut File, n: usize) -> std::io::Result<Vec<T>> {
    let mut values = vec![T::zeroed(); n];
    file.read_exact(bytemuck::cast_slice_mut(&mut values))?;
    Ok(values)
}

/// Sorts the records of one file and writes each once, with its count. Returns their number.
fn sort_file<K: Key>(folder: &Path, number: usize) -> Result<usize, FitError> {
    let path = records_path(folder, number);
    let mut file = File::open(&path)?;
    let n_records = (file.metadata()?.len() / size::<K>()) as usize;
    let mut keys: Vec<K> = read_all(&mut file, n_records)?;
    drop(file);
    keys.sort_unstable();
    let mut counts: Vec<u32> = Vec::new();
    let mut n_keys = 0;
    for place in 0..keys.len() {
        if n_keys > 0 && keys[n_keys - 1] == keys[place] {
            counts[n_keys - 1] += 1;
        } else {
            keys[n_keys] = keys[place];
            counts.push(1);
            n_keys += 1;
        }
    }
    let mut sorted = File::create(sorted_path(folder, number))?;
    sorted.write_all(bytemuck::cast_slice(&keys[..n_keys]))?;
    sorted.write_all(bytemuck::cast_slice(&counts))?;
    std::fs::remove_file(path)?;
    Ok(n_keys)
}

/// What a model was made of, for the description.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub(super) struct ModelReport {
    /// N-grams found, by length from 1.
    pub(super) ngrams_found: Vec<u64>,
    /// N-grams kept, by length from 1.
    pub(super) ngrams_kept: Vec<u64>,
    /// D1, D2 and D3+ by length from 1.
    pub(super) discounts: Vec<[f64; 3]>,
    /// Lengths whose discounts could not be estimated and are 0.5, 1 and 1.5.
    pub(super) fallback_lengths: Vec<u32>,
}

/// A model on its way: its cells, then its counts, then what follows from them.
struct Plan {
    cells: u32,
    counts_of_counts: [[u64; 4]; 5],
    occurrences: OccurrenceCounts,
    /// In how many different contexts of one token each token occurs; the end included.
    continuations: Vec<u32>,
    discounts: [Discounts; 5],
    pruning: Pruning,
}

/// What tables may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableMemory {
    /// The budget of the run; half of it is for tables.
    pub(super) of_run: u64,
    /// Bytes of other tables that live at the same time.
    pub(super) taken: u64,
}

/// How the tables are filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct BuildOptions {
    /// N-grams of two tokens and more that each model keeps at most.
    pub(super) max_ngrams: u64,
    /// Discounts that replace the estimates, for tests of golden values.
    pub(super) discounts: Option<[f64; 3]>,
}

/// Sorted counts in files.
pub(super) struct Counted<K> {
    packing: Packing,
    folder: PathBuf,
    lengths: Vec<usize>,
    width: usize,
    keys: PhantomData<K>,
}

impl<K: Key> Counted<K> {
    /// The n-grams of a model in one file, by length from 2.
    fn items(&self, number: usize, cells: u32) -> Result<Vec<Vec<Item<K>>>, FitError> {
        let (keys, counts) = self.records(number)?;
        Ok(self.items_of(&keys, &counts, cells))
    }

    fn records(&self, number: usize) -> Result<(Vec<K>, Vec<u32>), FitError> {
        let mut file = File::open(sorted_path(&self.folder, number))?;
        let n = self.lengths[number];
        Ok((read_all(&mut file, n)?, read_all(&mut file, n)?))
    }

    fn items_of(&self, keys: &[K], counts: &[u32], cells: u32) -> Vec<Vec<Item<K>>> {
        let mut by_length = vec![longest_items(keys, counts, &self.packing, cells)];
        for _ in 2..self.packing.order {
            let shorter = shorter_items(by_length.last().expect("starts with one"), &self.packing);
            by_length.push(shorter);
        }
        by_length.reverse();
        by_length
    }

    fn is_ngram(&self, key: K) -> bool {
        self.packing.first(key) != self.packing.nothing()
    }

    /// Makes one model of each set of cells, all in the same tables. Models come out in the order
    /// of `cells`. Removes no file, so that other tables can be made of the same counts.
    pub(super) fn build(
        &self,
        cells: &[u32],
        options: BuildOptions,
        memory: TableMemory,
    ) -> Result<(NgramModels, Vec<ModelReport>), FitError> {
        let mut plans = self.count(cells)?;
        let reports: Vec<ModelReport> = plans
            .iter_mut()
            .map(|plan| self.choose(plan, &options))
            .collect();
        let mut models = self.keep(&plans, memory)?;
        for (model, plan) in plans.iter().enumerate() {
            self.fill(&mut models, model, plan)?;
        }
        Ok((models, reports))
    }

    fn count(&self, cells: &[u32]) -> Result<Vec<Plan>, FitError> {
        let size = self.packing.vocabulary_size as usize + 2;
        let mut plans: Vec<Plan> = cells
            .iter()
            .map(|&cells| Plan {
                cells,
                counts_of_counts: [[0; 4]; 5],
                occurrences: OccurrenceCounts::default(),
                continuations: vec![0; size],
                discounts: [Discounts::fixed([0.0; 3]); 5],
                pruning: Pruning::NONE,
            })
            .collect();
        type Part = ([[u64; 4]; 5], OccurrenceCounts, Vec<(u32, u32)>);
        let compute = |number: usize| {
            let (keys, counts) = self.records(number)?;
            let part = |&cells: &u32| -> Part {
                let mut counts_of_counts = [[0; 4]; 5];
                let mut occurrences = OccurrenceCounts::default();
                let mut continuations: Vec<(u32, u32)> = Vec::new();
                for (length, items) in (2..).zip(self.items_of(&keys, &counts, cells)) {
                    for item in items.iter().filter(|item| self.is_ngram(item.key)) {
                        if let 1..=4 = item.adjusted {
                            counts_of_counts[length as usize - 1][item.adjusted as usize - 1] += 1;
                        }
                        occurrences.count(item.occurrences, length);
                        if length == 2 {
                            let token = self.packing.last(item.key, 2);
                            match continuations.last_mut() {
                                Some((last, n)) if *last == token => *n += 1,
                                _ => continuations.push((token, 1)),
                            }
                        }
                    }
                }
                (counts_of_counts, occurrences, continuations)
            };
            Ok(cells.iter().map(part).collect::<Vec<Part>>())
        };
        in_order(self.lengths.len(), self.width, compute, |_, parts| {
            for (plan, (counts_of_counts, occurrences, continuations)) in
                plans.iter_mut().zip(parts)
            {
                for (mine, theirs) in plan.counts_of_counts.iter_mut().zip(&counts_of_counts) {
                    for (mine, theirs) in mine.iter_mut().zip(theirs) {
                        *mine += theirs;
                    }
                }
                plan.occurrences.add(&occurrences);
                for (token, n) in continuations {
                    plan.continuations[token as usize] += n;
                }
            }
            Ok(())
        })?;
        for plan in &mut plans {
            for &n in &plan.continuations {
                if let 1..=4 = n {
                    plan.counts_of_counts[0][n as usize - 1] += 1;
                }
            }
        }
        Ok(plans)
    }

    fn choose(&self, plan: &mut Plan, options: &BuildOptions) -> ModelReport {
        let order = self.packing.order as usize;
        for (discounts, counts) in plan.discounts.iter_mut().zip(plan.counts_of_counts) {
            *discounts = options
                .discounts
                .map_or_else(|| Discounts::estimate(counts), Discounts::fixed);
        }
        let (pruning, kept) = plan.occurrences.prune_to(options.max_ngrams);
        plan.pruning = pruning;
        let found = plan.occurrences.prune_to(u64::MAX).1;
        let first = plan.continuations.iter().filter(|&&n| n > 0).count() as u64;
        let with_first = |rest: [u64; 4]| std::iter::once(first).chain(rest).take(order).collect();
        ModelReport {
            ngrams_found: with_first(found),
            ngrams_kept: with_first(kept),
            discounts: plan.discounts[..order]
                .iter()
                .map(Discounts::values)
                .collect(),
            fallback_lengths: (1..=order as u32)
                .filter(|&n| plan.discounts[n as usize - 1].fallback)
                .collect(),
        }
    }

    /// Tables that hold every n-gram that some model keeps, without values.
    fn keep(&self, plans: &[Plan], memory: TableMemory) -> Result<NgramModels, FitError> {
        let lengths = 2..=self.packing.order;
        let mut sizes: Vec<Vec<u64>> = Vec::new();
        let compute = |number: usize| {
            let (keys, counts) = self.records(number)?;
            let mut kept: Vec<Vec<K>> = lengths.clone().map(|_| Vec::new()).collect();
            for plan in plans {
                let by_length = self.items_of(&keys, &counts, plan.cells);
                for ((length, items), kept) in lengths.clone().zip(by_length).zip(&mut kept) {
                    let keeps = |item: &&Item<K>| {
                        plan.pruning.keeps(item.occurrences, length) && self.is_ngram(item.key)
                    };
                    kept.extend(items.iter().filter(keeps).map(|item| item.key));
                }
            }
            let mut file = BufWriter::new(File::create(kept_path(&self.folder, number))?);
            let mut sizes = Vec::new();
            for (length, keys) in lengths.clone().zip(&mut kept) {
                keys.sort_unstable();
                keys.dedup();
                sizes.push(keys.len() as u64);
                for &key in keys.iter() {
                    file.write_all(&self.packing.hash(key, length).to_ne_bytes())?;
                }
            }
            file.flush()?;
            Ok(sizes)
        };
        in_order(self.lengths.len(), self.width, compute, |_, part| {
            sizes.push(part);
            Ok(())
        })?;
        let places = 0..lengths.clone().count();
        let totals: Vec<u64> = places
            .map(|place| sizes.iter().map(|part| part[place]).sum())
            .collect();
        // While a model is filled, every slot of an n-gram that may be a context has its sums.
        let contexts: u64 = totals.iter().rev().skip(1).sum();
        let bytes: u64 = memory.taken
            + totals
                .iter()
                .map(|&n| NgramTable::bytes_for(n, plans.len() * 2))
                .sum::<u64>()
            + contexts * size::<ContextSums>() * 4 / 3;
        let may = memory.of_run / 2;
        if bytes > may {
            return Err(FitError::Data(format!(
                "the n-gram models need about {} MiB of memory and may use {} MiB, half of --memory; \
                 lower 'model_ngrams', 'fit_tokens' or 'order', or raise --memory to {}MiB or more",
                (bytes >> 20) + 1,
                may >> 20,
                (bytes >> 19) + 2
            )));
        }
        let mut models = NgramModels::new(self.packing, plans.len(), &totals);
        for (number, sizes) in sizes.iter().enumerate() {
            let path = kept_path(&self.folder, number);
            let mut file = File::open(&path)?;
            for (length, &n) in lengths.clone().zip(sizes) {
                let hashes: Vec<u64> = read_all(&mut file, n as usize)?;
                let table = models.table_mut(length);
                for block in hashes.chunks(BLOCK) {
                    table.touch(block);
                    for &hash in block {
                        table.insert(hash);
                    }
                }
            }
            drop(file);
            std::fs::remove_file(path)?;
        }
        Ok(models)
    }

    /// Writes the values of one model.
    fn fill(&self, models: &mut NgramModels, model: usize, plan: &Plan) -> Result<(), FitError> {
        let vocabulary_size = self.packing.vocabulary_size;
        let sums = self.context_sums(models, plan)?;
        let mut whole = ContextSums::default();
        for &n in plan.continuations.iter().filter(|&&n| n > 0) {
            whole.add(ContextSums::of(n, true, &plan.discounts[0]));
        }
        // The vocabulary shares the uniform part; the end is predicted as often as it was seen.
        let uniform = 1.0 / f64::from(vocabulary_size);
        let first: Vec<f64> = (0..)
            .zip(&plan.continuations)
            .map(|(token, &n)| {
                let uniform = if token < vocabulary_size {
                    uniform
                } else {
                    0.0
                };
                whole.probability(n, &plan.discounts[0], uniform)
            })
            .collect();
        for token in 0..=vocabulary_size {
            let back_off = sums[0][token as usize].back_off();
            models.set_first(
                token,
                model,
                code_of(first[token as usize]),
                code_of(back_off),
            );
        }
        for (length, sums) in (2..).zip(&sums[1..]) {
            for (slot, sums) in (0..).zip(sums).filter(|(_, sums)| sums.total > 0) {
                models.set_back_off(length, slot, model, code_of(sums.back_off()));
            }
        }
        // The tables are read by the workers and written between their turns.
        for start in (0..self.lengths.len()).step_by(self.width) {
            let n = self.width.min(self.lengths.len() - start);
            let mut values = Vec::new();
            let shared = &*models;
            let compute = |place: usize| self.values(shared, plan, &sums, &first, start + place);
            in_order(n, n, compute, |_, part| {
                values.push(part);
                Ok(())
            })?;
            for part in values {
                for (length, values) in (2..).zip(part) {
                    for (slot, code) in values {
                        models.set_surprisal(length, slot, model, code);
                    }
                }
            }
        }
        Ok(())
    }

    /// Sums of the contexts by their length from 1: of each token and the begin, then by slot.
    fn context_sums(
        &self,
        models: &NgramModels,
        plan: &Plan,
    ) -> Result<Vec<Vec<ContextSums>>, FitError> {
        let size_of_length = |length| match length {
            1 => self.packing.vocabulary_size as usize + 1,
            _ => models.table(length).slots(),
        };
        let mut sums: Vec<Vec<ContextSums>> = (1..self.packing.order)
            .map(|length| vec![ContextSums::default(); size_of_length(length)])
            .collect();
        let compute = |number: usize| {
            let mut updates: Vec<Vec<(u32, u32, bool)>> = Vec::new();
            for (length, items) in (2..).zip(self.items(number, plan.cells)?) {
                let mut of_length = Vec::with_capacity(items.len());
                for block in items.chunks(BLOCK) {
                    for (item, slot) in block.iter().zip(self.context_slots(models, block, length))
                    {
                        if let Some(slot) = slot {
                            of_length.push((
                                slot,
                                item.adjusted,
                                plan.pruning.keeps(item.occurrences, length),
                            ));
                        }
                    }
                }
                updates.push(of_length);
            }
            Ok(updates)
        };
        in_order(self.lengths.len(), self.width, compute, |_, updates| {
            for ((sums, updates), discounts) in
                sums.iter_mut().zip(updates).zip(&plan.discounts[1..])
            {
                for (slot, adjusted, kept) in updates {
                    sums[slot as usize].add(ContextSums::of(adjusted, kept, discounts));
                }
            }
            Ok(())
        })?;
        Ok(sums)
    }

    /// Slots and surprisals of the n-grams of one file, by length from 2.
    fn values(
        &self,
        models: &NgramModels,
        plan: &Plan,
        sums: &[Vec<ContextSums>],
        first: &[f64],
        number: usize,
    ) -> Result<Vec<Vec<(u32, u16)>>, FitError> {
        let mut values = Vec::new();
        let mut shorter: (Vec<Item<K>>, Vec<f64>) = (Vec::new(), Vec::new());
        for (length, items) in (2..).zip(self.items(number, plan.cells)?) {
            let place = length as usize - 2;
            let mut of_length = Vec::with_capacity(items.len());
            let mut probabilities = Vec::with_capacity(items.len());
            let mut parent = 0;
            for block in items.chunks(BLOCK) {
                let contexts = self.context_slots(models, block, length);
                let slots = self.own_slots(models, block, length);
                for ((item, context), slot) in block.iter().zip(contexts).zip(slots) {
                    let kept = plan.pruning.keeps(item.occurrences, length);
                    let (Some(context), Some(slot), true) = (context, slot, kept) else {
                        // Nothing longer is kept either: no one asks for it.
                        probabilities.push(0.0);
                        continue;
                    };
                    let low = if length == 2 {
                        first[self.packing.last(item.key, 2) as usize]
                    } else {
                        let end = self.packing.without_first(item.key);
                        while shorter.0[parent].key != end {
                            parent += 1;
                        }
                        shorter.1[parent]
                    };
                    let sums = &sums[place][context as usize];
                    let probability =
                        sums.probability(item.adjusted, &plan.discounts[place + 1], low);
                    probabilities.push(probability);
                    of_length.push((slot, code_of(probability)));
                }
            }
            values.push(of_length);
            shorter = (items, probabilities);
        }
        Ok(values)
    }

    /// Where the sums of each n-gram's context are: none where it is no n-gram, or where nothing
    /// with this context is kept.
    fn context_slots(
        &self,
        models: &NgramModels,
        block: &[Item<K>],
        length: u32,
    ) -> [Option<u32>; BLOCK] {
        let mut slots = [None; BLOCK];
        if length == 2 {
            for (slot, item) in slots.iter_mut().zip(block) {
                *slot = Some(self.packing.first(item.key))
                    .filter(|&first| first <= self.packing.begin());
            }
            return slots;
        }
        let hash = |item: &Item<K>| {
            self.packing
                .hash(self.packing.context(item.key, length), length - 1)
        };
        self.find_block(models.table(length - 1), block, hash)
    }

    fn own_slots(
        &self,
        models: &NgramModels,
        block: &[Item<K>],
        length: u32,
    ) -> [Option<u32>; BLOCK] {
        self.find_block(models.table(length), block, |item| {
            self.packing.hash(item.key, length)
        })
    }

    fn find_block(
        &self,
        table: &NgramTable,
        block: &[Item<K>],
        hash: impl Fn(&Item<K>) -> u64,
    ) -> [Option<u32>; BLOCK] {
        let mut hashes = [0; BLOCK];
        for (place, item) in hashes.iter_mut().zip(block) {
            *place = hash(item);
        }
        let hashes = &hashes[..block.len()];
        table.touch(hashes);
        let mut slots = [None; BLOCK];
        for ((slot, &hash), item) in slots.iter_mut().zip(hashes).zip(block) {
            *slot = if self.is_ngram(item.key) {
                table.find(hash)
            } else {
                None
            };
        }
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Corpus;
    use super::*;
    use crate::algo::hash::keyed_by;
    use crate::algo::ngram_table::STEPS_PER_NAT;
    use std::collections::{BTreeMap, BTreeSet};

    const PLENTY: TableMemory = TableMemory {
        of_run: 1 << 30,
        taken: 0,
    };

    /// The definition, word by word, on lists of tokens.
    struct Slow {
        vocabulary_size: u32,
        order: usize,
        /// Occurrences by n-gram.
        occurrences: Vec<BTreeMap<Vec<u32>, u64>>,
        adjusted: Vec<BTreeMap<Vec<u32>, u64>>,
        discounts: Vec<[f64; 3]>,
        kept: BTreeSet<Vec<u32>>,
    }

    impl Slow {
        fn new(
            documents: &[&[u32]],
            vocabulary_size: u32,
            order: usize,
            options: &BuildOptions,
        ) -> Slow {
            let (begin, end) = (vocabulary_size, vocabulary_size + 1);
            let mut occurrences = vec![BTreeMap::new(); order + 1];
            for document in documents {
                let padded = [&[begin][..], document, &[end]].concat();
                for (n, counts) in occurrences.iter_mut().enumerate().skip(1) {
                    for ngram in padded.windows(n).filter(|ngram| *ngram != [begin]) {
                        *counts.entry(ngram.to_vec()).or_insert(0) += 1;
                    }
                }
            }
            let mut adjusted = occurrences.clone();
            for n in 1..order {
                for (ngram, count) in adjusted[n]
                    .iter_mut()
                    .filter(|(ngram, _)| ngram[0] != begin)
                {
                    *count = occurrences[n + 1]
                        .keys()
                        .filter(|longer| longer[1..] == ngram[..])
                        .count() as u64;
                }
            }
            let discount = |counts: &BTreeMap<Vec<u32>, u64>| {
                let n: Vec<f64> = (1..=4)
                    .map(|k| counts.values().filter(|&&c| c == k).count() as f64)
                    .collect();
                let y = n[0] / (n[0] + 2.0 * n[1]);
                let d: Vec<f64> = (0..3)
                    .map(|k| (k + 1) as f64 - (k + 2) as f64 * y * n[k + 1] / n[k])
                    .collect();
                let sane = d
                    .iter()
                    .enumerate()
                    .all(|(k, d)| *d >= 0.0 && *d <= (k + 1) as f64);
                if n.contains(&0.0) || !sane {
                    [0.5, 1.0, 1.5]
                } else {
                    [d[0], d[1], d[2]]
                }
            };
            let discounts = adjusted
                .iter()
                .map(|counts| options.discounts.unwrap_or_else(|| discount(counts)))
                .collect();
            // Classes of equal count and length, from the most frequent and shortest on.
            let mut classes: BTreeMap<(i64, usize), Vec<Vec<u32>>> = BTreeMap::new();
            for (n, counts) in occurrences.iter().enumerate().skip(2) {
                for (ngram, &count) in counts {
                    classes
                        .entry((-(count as i64), n))
                        .or_default()
                        .push(ngram.clone());
                }
            }
            let mut kept = BTreeSet::new();
            for class in classes.into_values() {
                if (kept.len() + class.len()) as u64 > options.max_ngrams {
                    break;
                }
                kept.extend(class);
            }
            Slow {
                vocabulary_size,
                order,
                occurrences,
                adjusted,
                discounts,
                kept,
            }
        }

        fn probability(&self, context: &[u32], token: u32) -> f64 {
            let n = context.len() + 1;
            let discount = |count: u64| {
                if count == 0 {
                    0.0
                } else {
                    self.discounts[n][count.min(3) as usize - 1]
                }
            };
            let of = |ngram: &Vec<u32>| self.adjusted[n].get(ngram).copied().unwrap_or(0);
            let lower = match context {
                [] if token < self.vocabulary_size => 1.0 / f64::from(self.vocabulary_size),
                [] => 0.0,
                [_, rest @ ..] => self.probability(rest, token),
            };
            let followers: Vec<&Vec<u32>> = self.adjusted[n]
                .keys()
                .filter(|k| k[..n - 1] == *context)
                .collect();
            let total: u64 = followers.iter().map(|ngram| of(ngram)).sum();
            if total == 0 {
                return lower;
            }
            let kept = |ngram: &Vec<u32>| n == 1 || self.kept.contains(ngram);
            let left: f64 = followers
                .iter()
                .map(|f| {
                    if kept(f) {
                        discount(of(f))
                    } else {
                        of(f) as f64
                    }
                })
                .sum();
            let ngram = [context, &[token]].concat();
            let share = if kept(&ngram) {
                of(&ngram) as f64 - discount(of(&ngram))
            } else {
                0.0
            };
            (share + left * lower) / total as f64
        }

        fn surprisals(&self, document: &[u32]) -> Vec<f64> {
            let padded = [&[self.vocabulary_size][..], document].concat();
            let of = |place: usize| {
                let context =
                    &padded[(place + 1).saturating_sub(self.order - 1).min(place + 1)..place + 1];
                -self.probability(context, padded[place + 1]).ln()
            };
            (0..document.len()).map(of).collect()
        }
    }

    fn documents(n: u64, vocabulary_size: u32, seed: u64) -> Vec<Vec<u32>> {
        (0..n)
            .map(|document| {
                let draw = |place: u64| keyed_by(seed, document * 1000 + place);
                // Squared, so that some ids are far more frequent than others.
                let token = |place: u64| {
                    let x = (draw(place) >> 11) as f64 / (1u64 << 53) as f64;
                    (x * x * f64::from(vocabulary_size)) as u32
                };
                (0..1 + draw(999) % 14).map(token).collect()
            })
            .collect()
    }

    fn count<K: Key>(
        packing: Packing,
        documents: &Corpus,
        folder: &Path,
        files: u64,
    ) -> Counted<K> {
        let counter = Counter::<K>::new(packing, (files - 1) * TOKENS_PER_FILE, folder, 1 << 30)
            .expect("a folder");
        assert_eq!(counter.files.len() as u64, files);
        let cells = |_: &mut (), document: &TokenDocument<'_>| 1 << (document.number % 2);
        let learned = counter
            .add(documents, || (), cells, |()| {})
            .expect("counts");
        assert_eq!(learned.documents, documents.documents.len() as u64);
        counter.finish().expect("sorts")
    }

    fn all_surprisals(
        models: &NgramModels,
        pair: [usize; 2],
        documents: &[Vec<u32>],
    ) -> Vec<[Vec<u16>; 2]> {
        documents
            .iter()
            .map(|document| {
                let mut codes = [Vec::new(), Vec::new()];
                models.surprisals(pair, document, &mut codes);
                codes
            })
            .collect()
    }

    /// Every order and pruning: the tables say what the definition says, within the stated error,
    /// and the definition sums to one.
    #[test]
    fn agrees_with_the_definition_and_sums_to_one() {
        let vocabulary_size = 7;
        let training = Corpus::new(documents(60, vocabulary_size, 5));
        let unseen = documents(20, vocabulary_size, 6);
        for order in 2..=5u32 {
            for max_ngrams in [u64::MAX, 120, 0] {
                let options = BuildOptions {
                    max_ngrams,
                    discounts: None,
                };
                let folder = tempfile::tempdir().expect("a folder");
                let packing = Packing::new(vocabulary_size, order, 4);
                let counted = count::<u64>(packing, &training, folder.path(), 3);
                // Cell 0, both cells, cell 1.
                let (models, reports) = counted.build(&[1, 3, 2], options, PLENTY).expect("builds");
                for (model, cells) in [(0, 1u32), (1, 3), (2, 2)] {
                    let in_cells = |&place: &usize| cells >> (place % 2) & 1 == 1;
                    let mine: Vec<&[u32]> = (0..60)
                        .filter(in_cells)
                        .map(|place| &training.documents[place][..])
                        .collect();
                    let slow = Slow::new(&mine, vocabulary_size, order as usize, &options);
                    let report = &reports[model];
                    assert_eq!(
                        report.ngrams_kept[1..].iter().sum::<u64>(),
                        slow.kept.len() as u64
                    );
                    for n in 1..=order as usize {
                        assert_eq!(report.ngrams_found[n - 1], slow.occurrences[n].len() as u64);
                        for (fast, slow) in report.discounts[n - 1].iter().zip(slow.discounts[n]) {
                            assert!((fast - slow).abs() < 1e-7);
                        }
                    }
                    let bound = f64::from(order) / (2.0 * STEPS_PER_NAT) + 1e-6;
                    for document in unseen.iter().chain(&training.documents) {
                        let mut codes = [Vec::new(), Vec::new()];
                        models.surprisals([model, model], document, &mut codes);
                        assert_eq!(codes[0], codes[1]);
                        for (code, nats) in codes[0].iter().zip(slow.surprisals(document)) {
                            let error = (f64::from(*code) / STEPS_PER_NAT - nats).abs();
                            assert!(
                                error <= bound,
                                "order {order}, {max_ngrams} n-grams: off by {error}"
                            );
                        }
                    }
                    for context in unseen.iter().filter(|d| d.len() >= order as usize).take(8) {
                        for length in 0..order as usize {
                            let sum = |all: &dyn Fn(u32) -> f64| {
                                (0..vocabulary_size).map(all).sum::<f64>()
                            };
                            let end = slow.probability(&context[..length], vocabulary_size + 1);
                            let exact =
                                end + sum(&|token| slow.probability(&context[..length], token));
                            assert!((exact - 1.0).abs() < 1e-12, "{exact}");
                        }
                        let context = &context[..order as usize - 1];
                        let fast = |token: u32| {
                            let mut codes = [Vec::new(), Vec::new()];
                            models.surprisals(
                                [model, model],
                                &[context, &[token]].concat(),
                                &mut codes,
                            );
                            (-f64::from(*codes[0].last().expect("a token")) / STEPS_PER_NAT).exp()
                        };
                        let end = slow.probability(context, vocabulary_size + 1);
                        let total: f64 = end + (0..vocabulary_size).map(fast).sum::<f64>();
                        assert!((total - 1.0).abs() < 2.0 * bound, "{total}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_model_does_not_depend_on_the_others_in_its_tables_nor_on_key_width_or_files() {
        let training = Corpus::new(documents(50, 9, 1));
        let packing = Packing::new(9, 3, 4);
        let options = BuildOptions {
            max_ngrams: 60,
            discounts: None,
        };
        let folder = || tempfile::tempdir().expect("a folder");
        let together = folder();
        let counted = count::<u64>(packing, &training, together.path(), 4);
        let (both, reports) = counted.build(&[1, 2], options, PLENTY).expect("builds");
        let (alone, _) = counted.build(&[2], options, PLENTY).expect("builds");
        let expected = all_surprisals(&both, [0, 1], &training.documents);
        let of_alone = all_surprisals(&alone, [0, 0], &training.documents);
        assert!(
            expected
                .iter()
                .zip(&of_alone)
                .all(|(both, alone)| both[1] == alone[0])
        );
        for files in [1, 9] {
            let other = folder();
            let cut = Corpus {
                parts: 5,
                ..Corpus::new(training.documents.clone())
            };
            let wide = count::<u128>(packing, &cut, other.path(), files);
            let (models, wide_reports) = wide.build(&[1, 2], options, PLENTY).expect("builds");
            assert_eq!(wide_reports, reports);
            assert_eq!(
                all_surprisals(&models, [0, 1], &training.documents),
                expected
            );
        }
        let error = counted
            .build(
                &[1, 2],
                options,
                TableMemory {
                    of_run: 100,
                    taken: 0,
                },
            )
            .err()
            .expect("100 bytes are not enough");
        assert!(error.to_string().contains("model_ngrams"), "{error}");
    }

    /// Two documents `0 1 0` and `0`, V = 2, order 2, D = 0.75; B begin, E end.
    /// Pairs: B0 twice, 01, 10, 0E twice. Continuations: 0 after B and 1: 2; 1 after 0: 1; E after 0: 1.
    /// t = 4, gamma = 3 * 0.75 / 4 = 0.5625: p(0) = 1.25/4 + 0.5625/2 = 0.59375,
    /// p(1) = 0.25/4 + 0.28125 = 0.34375, p(E) = 0.0625.
    /// p(0 | B) = 1.25/2 + 0.375 p(0) = 0.84765625. After 0: 1 once, E twice, t = 3, gamma 0.5:
    /// p(1 | 0) = 0.25/3 + 0.5 p(1) = 0.25520833. After 1: 0 once: p(0 | 1) = 0.25 + 0.75 p(0) = 0.6953125.
    #[test]
    fn golden_with_borders_by_hand() {
        let corpus = Corpus::new(vec![vec![0, 1, 0], vec![0]]);
        let folder = tempfile::tempdir().expect("a folder");
        let counted = count::<u64>(Packing::new(2, 2, 2), &corpus, folder.path(), 2);
        let options = BuildOptions {
            max_ngrams: 100,
            discounts: Some([0.75; 3]),
        };
        let (models, reports) = counted.build(&[3], options, PLENTY).expect("builds");
        assert_eq!(reports[0].ngrams_kept, [3, 4]);
        let mut codes = [Vec::new(), Vec::new()];
        models.surprisals([0, 0], &[0, 1, 0], &mut codes);
        let expected = [0.84765625f64, 0.25520833, 0.6953125];
        for (code, p) in codes[0].iter().zip(expected) {
            assert!(
                (f64::from(*code) / STEPS_PER_NAT + p.ln()).abs() <= 0.5 / STEPS_PER_NAT + 1e-6
            );
        }
    }

    #[test]
    fn a_model_of_nothing_is_uniform() {
        let corpus = Corpus::new(vec![vec![0, 1, 2]]);
        let folder = tempfile::tempdir().expect("a folder");
        let counted = count::<u64>(Packing::new(4, 3, 4), &corpus, folder.path(), 1);
        let options = BuildOptions {
            max_ngrams: 100,
            discounts: None,
        };
        let (models, _) = counted.build(&[2, 1], options, PLENTY).expect("builds");
        let mut codes = [Vec::new(), Vec::new()];
        models.surprisals([0, 1], &[0, 1, 2], &mut codes);
        assert_eq!(codes[0], vec![code_of(0.25); 3]);
        assert!(codes[1].iter().all(|&code| code < code_of(0.25)));
    }
}
