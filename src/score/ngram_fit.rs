//! Counting n-grams of token sources in files, and smoothing them into tables.
//!
//! Each n-gram is counted in *cells* (a fold of the corpus, a fold of the reference); a model is a
//! set of cells. So each model is fitted on its own cells only, pruning included, and the presence
//! of other models in the same tables changes nothing for it.
//!
//! The records of the longest n-grams are spread over files by a hash of their last two tokens.
//! All n-grams with the same end then lie in one file, so that one sorted pass over it yields the
//! counts of every length; and they lie in one part of the tables, so that a worker that has a file
//! fills its part alone, within the cache. What an n-gram needs from elsewhere is its context.
//! Passes over the files: sort and count; choose what is kept; put it into the tables; find the
//! contexts; then for each model add up the contexts, and write the values. Sums are whole numbers,
//! so that it doesn't matter who adds first.

use super::parallel::share;
use super::{FitError, TokenDocument, TokenSource};
use crate::algo::kneser_ney::{
    ContextSums, Discounts, Item, Key, OccurrenceCounts, Packing, Pruning, longest_items,
    shorter_items,
};
use crate::algo::ngram_model::{NgramModels, part_of};
use crate::algo::ngram_table::{BLOCK, NgramTable, TablePart, code_of};
use rayon::prelude::*;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tokens that a file of records is meant for.
const TOKENS_PER_FILE: u64 = 1 << 18;
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

/// How wide the numbers must be that hold the records of a packing.
pub(super) enum KeyWidth {
    U64,
    U128,
}

impl KeyWidth {
    /// The narrowest that suffices.
    pub(super) fn of(packing: &Packing) -> Result<Self, FitError> {
        if packing.record_bits() <= u64::BITS {
            Ok(KeyWidth::U64)
        } else if packing.record_bits() <= u128::BITS && packing.token_bits < u32::BITS {
            Ok(KeyWidth::U128)
        } else {
            Err(FitError::Data(format!(
                "a vocabulary of {} ids is too large for n-grams of {} tokens; lower 'order'",
                packing.vocabulary_size, packing.order
            )))
        }
    }
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
    /// `cells` is called for every document, with what its worker has gathered, and `apply` with
    /// what each worker has gathered in the end, in no certain order.
    pub(super) fn add<T: Send>(
        &self,
        source: &dyn TokenSource,
        new: impl Fn() -> T + Sync,
        cells: impl Fn(&mut T, &TokenDocument<'_>) -> u32 + Sync,
        mut apply: impl FnMut(T),
    ) -> Result<Learned, FitError> {
        struct Worker<T, K> {
            value: T,
            learned: Learned,
            gathered: Vec<Vec<K>>,
        }
        let n_files = self.files.len() as u32;
        let (order, cell_bits) = (self.packing.order, self.packing.cell_bits);
        let start = || Worker {
            value: new(),
            learned: Learned::default(),
            gathered: vec![Vec::<K>::new(); self.files.len()],
        };
        let read = |worker: &mut Worker<T, K>, part| {
            let mut written = Ok(());
            source.read(part, &mut |document| {
                let cells = cells(&mut worker.value, &document);
                if cells == 0 || written.is_err() {
                    return;
                }
                worker.learned.documents += 1;
                worker.learned.tokens += document.tokens.len() as u64;
                self.packing.each_ngram(document.tokens, |ngram: K| {
                    let file = part_of(self.packing.end_hash(ngram, order), n_files) as usize;
                    let gathered = &mut worker.gathered[file];
                    let mut rest = cells;
                    while rest != 0 {
                        let cell = rest.trailing_zeros();
                        rest &= rest - 1;
                        gathered.push((ngram << cell_bits) | K::from_u32(cell));
                    }
                    if gathered.len() >= GATHERED {
                        let result = self.write(file, gathered);
                        if written.is_ok() {
                            written = result;
                        }
                    }
                });
            })?;
            Ok(written?)
        };
        let mut learned = Learned::default();
        for mut worker in share(source.parts(), usize::MAX, start, read)? {
            for (file, records) in worker.gathered.iter_mut().enumerate() {
                self.write(file, records)?;
            }
            learned.documents += worker.learned.documents;
            learned.tokens += worker.learned.tokens;
            apply(worker.value);
        }
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
            return Err(FitError::Memory {
                what: "counting n-grams needs".to_string(),
                lower: "'fit_tokens'",
                needed_bytes: one_file,
                given_bytes: self.memory_bytes,
            });
        }
        counted.width = counted.width.clamp(1, rayon::current_num_threads());
        let n_files = (0..)
            .take_while(|&n| records_path(&counted.folder, n).exists())
            .count();
        let sort = |lengths: &mut Vec<(usize, usize)>, number| {
            lengths.push((number, sort_file::<K>(&counted.folder, number)?));
            Ok(())
        };
        let mut lengths = share(n_files, counted.width, Vec::new, sort)?.concat();
        lengths.sort_unstable();
        counted.lengths = lengths.into_iter().map(|(_, length)| length).collect();
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

fn slots_path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("slots-{number:03}"))
}

fn contexts_path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("contexts-{number:03}"))
}

/// Reads `n` values in place of those there.
fn read_into<T: bytemuck::Pod>(
    file: &mut File,
    n: usize,
    values: &mut Vec<T>,
) -> std::io::Result<()> {
    values.resize(n, T::zeroed());
    file.read_exact(bytemuck::cast_slice_mut(values))
}

/// Sorts the records of one file and writes each once, with its count. Returns their number.
fn sort_file<K: Key>(folder: &Path, number: usize) -> Result<usize, FitError> {
    let path = records_path(folder, number);
    let mut file = File::open(&path)?;
    let n_records = (file.metadata()?.len() / size::<K>()) as usize;
    let mut keys: Vec<K> = Vec::new();
    read_into(&mut file, n_records, &mut keys)?;
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

/// Memory in bytes that so many models take while they are made of about `tokens`, and afterwards: an estimate, since
/// how many n-grams are different is known when they are counted.
pub(super) fn model_bytes(tokens: u64, order: u32, max_ngrams: u64, models: u64) -> u64 {
    // Of all places of n-grams of two tokens and more about half hold a new one, in prose and code. Models are of
    // parts of the text: what two of them keep differs, but for the most frequent.
    let different = tokens.saturating_mul(u64::from(order) - 1) / 2;
    let kept = max_ngrams
        .saturating_mul(models.saturating_sub(1).max(1))
        .min(different);
    // A slot has a fingerprint and two values for each model; tables have air, and contexts sums beside them.
    let slot_bytes = (4 + 4 * models) * 3 / 2;
    // Half of the memory is for the files that are worked on meanwhile.
    kept.saturating_mul(slot_bytes).saturating_mul(2)
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

/// The records of one file and the n-grams in them, for one worker, who keeps the memory for the
/// next file.
struct FileItems<K> {
    /// The cells of all models that are made together.
    cells: u32,
    keys: Vec<K>,
    counts: Vec<u32>,
    by_length: Vec<Vec<Item<K>>>,
}

impl<K> FileItems<K> {
    fn new(plans: &[Plan]) -> Self {
        FileItems {
            cells: plans.iter().fold(0, |cells, plan| cells | plan.cells),
            keys: Vec::new(),
            counts: Vec::new(),
            by_length: Vec::new(),
        }
    }
}

/// What the values of a model follow from.
struct Smoothing<'a> {
    plan: &'a Plan,
    /// By length of the context from 1.
    sums: &'a [Vec<SharedSums>],
    /// Probabilities of single tokens.
    first: &'a [f64],
}

/// What a worker needs to write values, and keeps for the next file.
struct ValueScratch<K> {
    file: FileItems<K>,
    contexts: Vec<u32>,
    slots: Vec<u32>,
    probabilities: Vec<f64>,
    shorter_probabilities: Vec<f64>,
}

/// The slot of an n-gram that no model keeps.
const NO_SLOT: u32 = u32::MAX;

/// Sums of a context to which several workers add.
#[derive(Default)]
struct SharedSums {
    total: AtomicU64,
    left: AtomicU64,
}

impl SharedSums {
    #[inline]
    fn add(&self, sums: ContextSums) {
        self.total.fetch_add(sums.total, Ordering::Relaxed);
        self.left.fetch_add(sums.left, Ordering::Relaxed);
    }

    #[inline]
    fn get(&self) -> ContextSums {
        ContextSums {
            total: self.total.load(Ordering::Relaxed),
            left: self.left.load(Ordering::Relaxed),
        }
    }
}

/// Reads the sums at `slots`, so that the misses overlap.
#[inline]
fn touch(sums: &[SharedSums], slots: &[u32]) {
    let mut sum = 0;
    for &slot in slots.iter().filter(|&&slot| slot != NO_SLOT) {
        sum ^= sums[slot as usize].total.load(Ordering::Relaxed);
    }
    std::hint::black_box(sum);
}

impl<K: Key> Counted<K> {
    /// Reads the records of a file that are in the cells asked for.
    fn read(&self, number: usize, file: &mut FileItems<K>) -> Result<(), FitError> {
        let mut sorted = File::open(sorted_path(&self.folder, number))?;
        let FileItems {
            cells,
            keys,
            counts,
            ..
        } = file;
        read_into(&mut sorted, self.lengths[number], keys)?;
        read_into(&mut sorted, self.lengths[number], counts)?;
        let cell_mask = K::mask(self.packing.cell_bits);
        let mut n = 0;
        for place in 0..keys.len() {
            (keys[n], counts[n]) = (keys[place], counts[place]);
            n += (*cells >> (keys[place] & cell_mask).low() & 1) as usize;
        }
        keys.truncate(n);
        counts.truncate(n);
        Ok(())
    }

    /// The n-grams of a file that was read by length from 2, with their counts in a model.
    fn count_in<'f>(&self, file: &'f mut FileItems<K>, cells: u32) -> &'f mut [Vec<Item<K>>] {
        let packing = &self.packing;
        let order = packing.order as usize;
        let FileItems {
            keys,
            counts,
            by_length,
            ..
        } = file;
        by_length.resize_with(order - 1, Vec::new);
        longest_items(keys, counts, packing, cells, &mut by_length[order - 2]);
        for length in (0..order - 2).rev() {
            let (shorter, longer) = by_length.split_at_mut(length + 1);
            shorter_items(&longer[0], packing, &mut shorter[length]);
        }
        by_length
    }

    /// As [`Self::read`] and [`Self::count_in`].
    fn items<'f>(
        &self,
        number: usize,
        file: &'f mut FileItems<K>,
        cells: u32,
    ) -> Result<&'f mut [Vec<Item<K>>], FitError> {
        self.read(number, file)?;
        Ok(self.count_in(file, cells))
    }

    fn is_ngram(&self, key: K) -> bool {
        self.packing.first(key) != self.packing.nothing()
    }

    /// Makes one model of each set of cells, all in the same tables. Models come out in the order
    /// of `cells`. The counts stay, so that other tables can be made of them.
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
        self.find_contexts(&plans, &models)?;
        let size_of_length = |length| match length {
            1 => self.packing.vocabulary_size as usize + 1,
            _ => models.table(length).slots(),
        };
        // By length of the context from 1: of each token and the begin, then by slot.
        let mut sums: Vec<Vec<SharedSums>> = (1..self.packing.order)
            .map(|length| {
                let mut sums = Vec::new();
                sums.resize_with(size_of_length(length), SharedSums::default);
                sums
            })
            .collect();
        for model in 0..plans.len() {
            self.fill(&mut models, &plans, model, &mut sums)?;
        }
        for number in 0..self.lengths.len() {
            std::fs::remove_file(slots_path(&self.folder, number))?;
            std::fs::remove_file(contexts_path(&self.folder, number))?;
        }
        Ok((models, reports))
    }

    fn count(&self, cells: &[u32]) -> Result<Vec<Plan>, FitError> {
        let size = self.packing.vocabulary_size as usize + 2;
        let plans = || -> Vec<Plan> {
            let plan = |&cells: &u32| Plan {
                cells,
                counts_of_counts: [[0; 4]; 5],
                occurrences: OccurrenceCounts::default(),
                continuations: vec![0; size],
                discounts: [Discounts::fixed([0.0; 3]); 5],
                pruning: Pruning::NONE,
            };
            cells.iter().map(plan).collect()
        };
        let count = |(plans, file): &mut (Vec<Plan>, FileItems<K>), number: usize| {
            self.read(number, file)?;
            for plan in plans {
                for (length, items) in (2..).zip(&*self.count_in(file, plan.cells)) {
                    let there = |item: &&Item<K>| item.occurrences > 0 && self.is_ngram(item.key);
                    for item in items.iter().filter(there) {
                        if let 1..=4 = item.adjusted {
                            let place = item.adjusted as usize - 1;
                            plan.counts_of_counts[length as usize - 1][place] += 1;
                        }
                        plan.occurrences.count(item.occurrences, length);
                        if length == 2 {
                            let token = self.packing.last(item.key, 2);
                            plan.continuations[token as usize] += 1;
                        }
                    }
                }
            }
            Ok(())
        };
        let mut sum = plans();
        let new = || {
            let plans = plans();
            let file = FileItems::new(&plans);
            (plans, file)
        };
        for (part, _) in share(self.lengths.len(), self.width, new, count)? {
            for (plan, part) in sum.iter_mut().zip(part) {
                let theirs = part.counts_of_counts.as_flattened().iter();
                for (mine, theirs) in plan
                    .counts_of_counts
                    .as_flattened_mut()
                    .iter_mut()
                    .zip(theirs)
                {
                    *mine += theirs;
                }
                plan.occurrences.add(&part.occurrences);
                for (mine, theirs) in plan.continuations.iter_mut().zip(part.continuations) {
                    *mine += theirs;
                }
            }
        }
        for plan in &mut sum {
            for &n in &plan.continuations {
                if let 1..=4 = n {
                    plan.counts_of_counts[0][n as usize - 1] += 1;
                }
            }
        }
        Ok(sum)
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

    /// Tables that hold every n-gram that some model keeps, without values. Leaves the slots of
    /// the n-grams of each file in a file, by length from 2.
    fn keep(&self, plans: &[Plan], memory: TableMemory) -> Result<NgramModels, FitError> {
        let lengths = 2..=self.packing.order;
        type Sizes = Vec<(usize, Vec<u64>)>;
        let choose = |(sizes, file): &mut (Sizes, FileItems<K>), number: usize| {
            self.read(number, file)?;
            let mut kept: Vec<Vec<u8>> = lengths.clone().map(|_| Vec::new()).collect();
            for plan in plans {
                let by_length = &*self.count_in(file, plan.cells);
                for ((length, items), kept) in lengths.clone().zip(by_length).zip(&mut kept) {
                    kept.resize(items.len(), 0);
                    for (item, kept) in items.iter().zip(kept) {
                        *kept |= u8::from(
                            plan.pruning.keeps(item.occurrences, length) && self.is_ngram(item.key),
                        );
                    }
                }
            }
            std::fs::write(kept_path(&self.folder, number), kept.concat())?;
            let n_kept = |kept: &Vec<u8>| kept.iter().map(|&kept| u64::from(kept)).sum();
            sizes.push((number, kept.iter().map(n_kept).collect()));
            Ok(())
        };
        let new = || (Vec::new(), FileItems::new(plans));
        let chosen = share(self.lengths.len(), self.width, new, choose)?;
        let mut sizes: Sizes = chosen.into_iter().flat_map(|(sizes, _)| sizes).collect();
        sizes.sort_unstable();
        let sizes: Vec<Vec<u64>> = sizes.into_iter().map(|(_, sizes)| sizes).collect();
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
            + contexts * size_of::<SharedSums>() as u64 * 3 / 2;
        // The other half is for the files that are worked on meanwhile.
        if bytes > memory.of_run / 2 {
            return Err(FitError::Memory {
                what: "making the n-gram models needs".to_string(),
                lower: "'model_ngrams', 'fit_tokens' or 'order'",
                needed_bytes: bytes * 2,
                given_bytes: memory.of_run,
            });
        }
        if let Some(too_many) = totals.iter().find(|&&n| n > 1 << 31) {
            return Err(FitError::Data(format!(
                "a table would have {too_many} n-grams and can have {}; lower 'model_ngrams'",
                1u64 << 31
            )));
        }
        let mut models = NgramModels::new(self.packing, plans.len(), &sizes);
        let parts = by_number(models.parts_mut());
        let insert = |(file, kept): &mut (FileItems<K>, Vec<u8>), number: usize| {
            let cells = file.cells;
            let items = &*self.items(number, file, cells)?;
            let path = kept_path(&self.folder, number);
            let mut kept_file = File::open(&path)?;
            let mut slots = BufWriter::new(File::create(slots_path(&self.folder, number))?);
            let mut parts = take(&parts, number);
            for ((length, items), part) in lengths.clone().zip(items).zip(&mut parts) {
                read_into(&mut kept_file, items.len(), kept)?;
                let first = part.first_slot();
                let slot = |(item, kept): (&Item<K>, &u8)| match kept {
                    0 => NO_SLOT,
                    _ => first + part.insert(self.packing.hash(item.key, length)),
                };
                let of_length: Vec<u32> = items.iter().zip(&*kept).map(slot).collect();
                slots.write_all(bytemuck::cast_slice(&of_length))?;
            }
            slots.flush()?;
            std::fs::remove_file(path)?;
            Ok(())
        };
        let new = || (FileItems::new(plans), Vec::new());
        share(self.lengths.len(), self.width, new, insert)?;
        drop(parts);
        Ok(models)
    }

    /// Leaves the places of the sums of the contexts of the n-grams of each file in a file, by
    /// length from 2.
    fn find_contexts(&self, plans: &[Plan], models: &NgramModels) -> Result<(), FitError> {
        let packing = &self.packing;
        let n_parts = self.lengths.len() as u32;
        let find = |(file, contexts): &mut (FileItems<K>, Vec<u32>), number: usize| {
            let mut written = BufWriter::new(File::create(contexts_path(&self.folder, number))?);
            let cells = file.cells;
            for (length, items) in (2..).zip(&*self.items(number, file, cells)?) {
                contexts.clear();
                contexts.resize(items.len(), NO_SLOT);
                if length == 2 {
                    for (context, item) in contexts.iter_mut().zip(items) {
                        let first = packing.first(item.key);
                        if first <= packing.begin() {
                            *context = first;
                        }
                    }
                } else {
                    let table = models.table(length - 1);
                    let mut hashes = [0; BLOCK];
                    let mut parts = [0; BLOCK];
                    let mut buckets = [0; BLOCK];
                    for (contexts, items) in contexts.chunks_mut(BLOCK).zip(items.chunks(BLOCK)) {
                        for (place, item) in items.iter().enumerate() {
                            let context = packing.context(item.key, length);
                            hashes[place] = packing.hash(context, length - 1);
                            parts[place] = part_of(packing.end_hash(context, length - 1), n_parts);
                            buckets[place] = table.bucket(parts[place], hashes[place]);
                        }
                        table.touch(&buckets[..items.len()]);
                        for (place, (context, item)) in contexts.iter_mut().zip(items).enumerate() {
                            if self.is_ngram(item.key) {
                                let slot = table.find(parts[place], hashes[place]);
                                *context = slot.unwrap_or(NO_SLOT);
                            }
                        }
                    }
                }
                written.write_all(bytemuck::cast_slice(contexts))?;
            }
            written.flush()?;
            Ok(())
        };
        let new = || (FileItems::new(plans), Vec::new());
        share(self.lengths.len(), self.width, new, find)?;
        Ok(())
    }

    /// Writes the values of one model. `sums` is any memory of the right size.
    fn fill(
        &self,
        models: &mut NgramModels,
        plans: &[Plan],
        model: usize,
        sums: &mut [Vec<SharedSums>],
    ) -> Result<(), FitError> {
        let plan = &plans[model];
        let vocabulary_size = self.packing.vocabulary_size;
        for sums in sums.iter_mut() {
            sums.par_iter_mut()
                .with_min_len(1 << 16)
                .for_each(|sums| *sums = SharedSums::default());
        }
        let sums = &*sums;
        let add = |(file, contexts): &mut (FileItems<K>, Vec<u32>), number: usize| {
            self.add_contexts(plan, sums, file, contexts, number)
        };
        let new = || (FileItems::new(plans), Vec::new());
        share(self.lengths.len(), self.width, new, add)?;
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
            let back_off = sums[0][token as usize].get().back_off();
            models.set_first(
                token,
                model,
                code_of(first[token as usize]),
                code_of(back_off),
            );
        }
        let columns = models.columns(model);
        let parts = by_number(models.parts_mut());
        let smoothing = Smoothing {
            plan,
            sums,
            first: &first,
        };
        let write = |scratch: &mut ValueScratch<K>, number: usize| {
            let mut parts = take(&parts, number);
            self.write_values(&mut parts, columns, &smoothing, scratch, number)
        };
        let new = || ValueScratch {
            file: FileItems::new(plans),
            contexts: Vec::new(),
            slots: Vec::new(),
            probabilities: Vec::new(),
            shorter_probabilities: Vec::new(),
        };
        share(self.lengths.len(), self.width, new, write)?;
        Ok(())
    }

    /// Adds the n-grams of one file to the sums of their contexts.
    fn add_contexts(
        &self,
        plan: &Plan,
        sums: &[Vec<SharedSums>],
        file: &mut FileItems<K>,
        contexts: &mut Vec<u32>,
        number: usize,
    ) -> Result<(), FitError> {
        let mut contexts_file = File::open(contexts_path(&self.folder, number))?;
        let by_length = (2..).zip(&*self.items(number, file, plan.cells)?);
        for ((length, items), sums) in by_length.zip(sums) {
            let discounts = &plan.discounts[length as usize - 1];
            read_into(&mut contexts_file, items.len(), contexts)?;
            for (items, contexts) in items.chunks(BLOCK).zip(contexts.chunks(BLOCK)) {
                touch(sums, contexts);
                for (item, &context) in items.iter().zip(contexts) {
                    if item.occurrences > 0 && context != NO_SLOT {
                        let kept = plan.pruning.keeps(item.occurrences, length);
                        sums[context as usize].add(ContextSums::of(item.adjusted, kept, discounts));
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the surprisals of the n-grams of one file, and the back-offs of its part.
    fn write_values(
        &self,
        parts: &mut [TablePart<'_>],
        columns: [usize; 2],
        smoothing: &Smoothing<'_>,
        scratch: &mut ValueScratch<K>,
        number: usize,
    ) -> Result<(), FitError> {
        let Smoothing { plan, sums, first } = *smoothing;
        for (part, sums) in parts.iter_mut().zip(&sums[1..]) {
            let first = part.first_slot() as usize;
            let of_part = sums[first..first + part.slots()].iter();
            for (slot, sums) in (0..).zip(of_part.map(SharedSums::get)) {
                if sums.total > 0 {
                    part.set(slot, columns[1], code_of(sums.back_off()));
                }
            }
        }
        let ValueScratch {
            file,
            contexts,
            slots,
            probabilities,
            shorter_probabilities,
        } = scratch;
        let mut contexts_file = File::open(contexts_path(&self.folder, number))?;
        let mut slots_file = File::open(slots_path(&self.folder, number))?;
        let by_length = &*self.items(number, file, plan.cells)?;
        let mut shorter: &[Item<K>] = &[];
        for (((length, items), sums), part) in (2..).zip(by_length).zip(sums).zip(parts) {
            let discounts = &plan.discounts[length as usize - 1];
            read_into(&mut contexts_file, items.len(), contexts)?;
            read_into(&mut slots_file, items.len(), slots)?;
            let first_slot = part.first_slot();
            std::mem::swap(probabilities, shorter_probabilities);
            probabilities.clear();
            probabilities.reserve(items.len());
            let mut parent = 0;
            for (block, items) in items.chunks(BLOCK).enumerate() {
                let place = block * BLOCK..block * BLOCK + items.len();
                let (contexts, slots) = (&contexts[place.clone()], &slots[place]);
                touch(sums, contexts);
                for ((item, &context), &slot) in items.iter().zip(contexts).zip(slots) {
                    let kept = plan.pruning.keeps(item.occurrences, length);
                    if !kept || slot == NO_SLOT || context == NO_SLOT {
                        // Nothing longer is kept either: no one asks for it.
                        probabilities.push(0.0);
                        continue;
                    }
                    let low = if length == 2 {
                        first[self.packing.last(item.key, 2) as usize]
                    } else {
                        let end = self.packing.without_first(item.key);
                        while shorter[parent].key != end {
                            parent += 1;
                        }
                        shorter_probabilities[parent]
                    };
                    let sums = sums[context as usize].get();
                    let probability = sums.probability(item.adjusted, discounts, low);
                    probabilities.push(probability);
                    part.set(slot - first_slot, columns[0], code_of(probability));
                }
            }
            shorter = items;
        }
        Ok(())
    }
}

/// The parts of the tables by the number of their file, each for one worker.
type PartsByNumber<'a> = Vec<Mutex<Vec<TablePart<'a>>>>;

fn by_number(parts: Vec<Vec<TablePart<'_>>>) -> PartsByNumber<'_> {
    parts.into_iter().map(Mutex::new).collect()
}

fn take<'a>(parts: &PartsByNumber<'a>, number: usize) -> Vec<TablePart<'a>> {
    let mut parts = parts[number].lock().expect("no holder of the lock panics");
    std::mem::take(&mut *parts)
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
