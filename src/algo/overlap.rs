//! Which of many known texts a document holds, whole or in part: n-grams of bare words, found by
//! rolling hashes and decided on the words themselves.
//!
//! An [`OverlapBuilder`] takes the texts in, an [`OverlapIndex`] looks for them. A text of `n` words
//! or more is known by its n-grams; a shorter one as a whole, as a run of words.
//!
//! Memory: 4 bytes for each word of the texts, 15 to 17 for each n-gram (8 of hash, 4 of place, 2 to 4
//! of filter, 1 of table), and a few hundred for each text and different word; 16 more for each n-gram
//! while the index is built. Looking takes 8 bytes for each word of the document.

use super::bare_words::{bare_words, each_bare_word};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

/// What makes a text known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlapRules {
    /// Words of an n-gram, 1 or more.
    pub ngram_words: usize,
    /// A text with fewer words is not looked for. 1 or more.
    pub min_text_words: usize,
    /// An n-gram that stands in more different texts than this is a template's and tells nothing.
    pub max_texts_per_ngram: usize,
}

/// A name of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextName {
    /// Number of the set.
    pub set: u32,
    /// Id of the first item of the set that has these words.
    pub id: String,
    /// Items of the set that have these words.
    pub items: u32,
}

/// What a set gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetCounts {
    /// Its items.
    pub items: u64,
    /// Those with too few words to be looked for.
    pub too_short: u64,
    /// Those of which no n-gram counts: all are a template's, or allowed.
    pub without_key: u64,
}

/// A stretch of a document that stands in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// First byte of the document, at the border of a word.
    pub start: usize,
    /// Byte after the last.
    pub end: usize,
    /// Number of the text.
    pub text: u32,
    /// Different n-grams of the text that the whole document holds; 1 for a short text.
    pub held: u32,
    /// Different n-grams of the text that count; 1 for a short text.
    pub of: u32,
}

impl Held {
    /// Share of the text's n-grams that the document holds, above 0 and up to 1.
    pub fn overlap(&self) -> f64 {
        f64::from(self.held) / f64::from(self.of)
    }
}

/// More words than can be numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyWords;

/// Most hashes of words that a thread keeps room for from one document to the next: a megabyte.
const KEPT_HASHES: usize = 1 << 17;

/// No word of the texts: stands for every word of a document that they don't have.
const UNKNOWN: u32 = u32::MAX;

/// Texts on their way into an index.
pub struct OverlapBuilder {
    rules: OverlapRules,
    vocabulary: HashMap<Box<str>, u32>,
    /// By number of the word.
    word_hashes: Vec<u64>,
    /// Words of all texts, one text after another.
    words: Vec<u32>,
    /// First word of each text, and the number of all words.
    starts: Vec<u32>,
    numbers: HashMap<Box<[u32]>, u32>,
    names: Vec<Vec<TextName>>,
    sets: Vec<SetCounts>,
}

impl OverlapBuilder {
    /// With no text yet.
    ///
    /// # Panics
    /// When the rules ask for n-grams or texts of no words.
    pub fn new(rules: OverlapRules) -> OverlapBuilder {
        assert!(
            rules.ngram_words > 0 && rules.min_text_words > 0,
            "an n-gram has at least one word"
        );
        OverlapBuilder {
            rules,
            vocabulary: HashMap::new(),
            word_hashes: Vec::new(),
            words: Vec::new(),
            starts: vec![0],
            numbers: HashMap::new(),
            names: Vec::new(),
            sets: Vec::new(),
        }
    }

    /// Adds an item of set number `set`. Items with the same words are one text with several names.
    ///
    /// # Errors
    /// When there are 2^32 - 1 words or more.
    pub fn add(&mut self, set: u32, id: &str, text: &str) -> Result<(), TooManyWords> {
        let mut hashes = Vec::new();
        bare_words(text, &mut hashes);
        let mut words = Vec::with_capacity(hashes.len());
        let (vocabulary, word_hashes) = (&mut self.vocabulary, &mut self.word_hashes);
        each_bare_word(text, |_, word| {
            let number = match vocabulary.get(word) {
                Some(&number) => number,
                None => {
                    let number = vocabulary.len() as u32;
                    vocabulary.insert(word.into(), number);
                    word_hashes.push(hashes[words.len()]);
                    number
                }
            };
            words.push(number);
            true
        });
        debug_assert_eq!(words.len(), hashes.len());
        let place = set as usize;
        if self.sets.len() <= place {
            self.sets.resize(place + 1, SetCounts::default());
        }
        self.sets[place].items += 1;
        if words.len() < self.rules.min_text_words {
            self.sets[place].too_short += 1;
            return Ok(());
        }
        if let Some(&number) = self.numbers.get(words.as_slice()) {
            let names = &mut self.names[number as usize];
            match names.iter_mut().find(|name| name.set == set) {
                Some(name) => name.items += 1,
                None => names.push(TextName::first(set, id)),
            }
            return Ok(());
        }
        // One number is left over: it stands for no word.
        let end = u32::try_from(self.words.len() + words.len()).map_err(|_| TooManyWords)?;
        if end == UNKNOWN {
            return Err(TooManyWords);
        }
        self.words.extend_from_slice(&words);
        self.starts.push(end);
        self.numbers
            .insert(words.into_boxed_slice(), self.names.len() as u32);
        self.names.push(vec![TextName::first(set, id)]);
        Ok(())
    }

    /// The index of all texts.
    pub fn build(mut self) -> OverlapIndex {
        let mut runs = std::mem::take(&mut self.numbers);
        let n = self.rules.ngram_words;
        let OverlapBuilder { words, starts, .. } = &self;
        let texts = || starts.windows(2).map(|pair| pair[0]..pair[1]);
        let hash_from = |place: u32, width: usize| {
            let window = &words[place as usize..place as usize + width];
            window
                .iter()
                .fold(0, |hash, &word| roll(hash, self.word_hashes[word as usize]))
        };
        let mut entries: Vec<(u64, u32)> = Vec::new();
        for text in texts().filter(|text| text.len() >= n) {
            let last = text.end - n as u32;
            let first = hash_from(text.start, n);
            entries.push((first, text.start));
            let (power, mut hash) = (power(n), first);
            for place in text.start..last {
                let of = |place: u32| self.word_hashes[words[place as usize] as usize];
                hash = roll(hash, of(place + n as u32)).wrapping_sub(of(place).wrapping_mul(power));
                entries.push((hash, place + 1));
            }
        }
        entries.sort_unstable();
        let ngram = |place: u32| &words[place as usize..place as usize + n];
        let text_of = |place: u32| starts.partition_point(|&start| start <= place) - 1;
        let mut in_many_texts = 0;
        let mut kept: Vec<(u64, u32)> = Vec::new();
        for same_hash in entries.chunk_by(|a, b| a.0 == b.0) {
            // Almost always one n-gram; two that share a hash are told apart by their words.
            let mut ngrams: Vec<Vec<(u64, u32)>> = Vec::new();
            for &(hash, place) in same_hash {
                let known = ngrams
                    .iter_mut()
                    .find(|known| ngram(known[0].1) == ngram(place));
                match known {
                    // Places ascend, so a second one in the same text follows the first.
                    Some(places) if text_of(places[places.len() - 1].1) == text_of(place) => {}
                    Some(places) => places.push((hash, place)),
                    None => ngrams.push(vec![(hash, place)]),
                }
            }
            for places in ngrams {
                if places.len() > self.rules.max_texts_per_ngram {
                    in_many_texts += 1;
                } else {
                    kept.extend(places);
                }
            }
        }
        // N-grams that share a hash must stay in one order.
        kept.sort_unstable();
        runs.retain(|words, _| words.len() < n);
        let mut lengths: Vec<usize> = runs.keys().map(|words| words.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let shortest = lengths.first().copied().unwrap_or(1);
        let run_places: Vec<u32> = runs.values().map(|&text| starts[text as usize]).collect();
        let mut prefixes: Vec<u64> = run_places
            .iter()
            .map(|&place| hash_from(place, shortest))
            .collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        let word_hash = |word: u32| self.word_hashes[word as usize];
        let places: Vec<u32> = kept.iter().map(|entry| entry.1).collect();
        let parts = parts_at(places.clone(), n, words, word_hash);
        let run_parts = parts_at(run_places, shortest, words, word_hash);
        let mut index = OverlapIndex {
            rules: self.rules,
            ngrams: Keys::new(n, kept.iter().map(|entry| entry.0).collect(), &parts),
            places,
            allowed: Vec::new(),
            ngrams_allowed: 0,
            in_many_texts,
            prefixes: Keys::new(shortest, prefixes, &run_parts),
            runs,
            lengths,
            counted: Vec::new(),
            vocabulary: self.vocabulary,
            word_hashes: self.word_hashes,
            words: self.words,
            starts: self.starts,
            names: self.names,
            sets: self.sets,
        };
        index.settle();
        index
    }
}

impl TextName {
    fn first(set: u32, id: &str) -> TextName {
        TextName {
            set,
            id: id.to_string(),
            items: 1,
        }
    }
}

/// Looks for known texts in documents.
pub struct OverlapIndex {
    rules: OverlapRules,
    /// Sorted hashes of the n-grams of long texts, once for each text that has the n-gram.
    ngrams: Keys,
    /// Place in `words` of each of them.
    places: Vec<u32>,
    /// Which of them an allowed text holds; empty once they are gone.
    allowed: Vec<bool>,
    ngrams_allowed: u64,
    in_many_texts: u64,
    /// Hashes of the first words of short texts, as many as the shortest has.
    prefixes: Keys,
    /// Short texts by their words.
    runs: HashMap<Box<[u32]>, u32>,
    /// Their lengths, ascending.
    lengths: Vec<usize>,
    /// By text: n-grams that count, 1 for a short text, 0 for one that cannot be found.
    counted: Vec<u32>,
    vocabulary: HashMap<Box<str>, u32>,
    word_hashes: Vec<u64>,
    words: Vec<u32>,
    starts: Vec<u32>,
    names: Vec<Vec<TextName>>,
    sets: Vec<SetCounts>,
}

/// What was found at a window of a document.
enum Match<'a> {
    /// An n-gram of a text, by its number among the keys.
    Ngram(usize),
    /// A short text.
    Run(u32, &'a [u32]),
}

/// Words of a window, by their numbers in the document.
struct Window<'a> {
    first: usize,
    spans: &'a [Range<usize>],
}

impl OverlapIndex {
    /// Takes away every n-gram and short text that `text` holds: they don't count any more, from the
    /// next [`OverlapIndex::settle`] on. Returns whether it holds any.
    pub fn allow(&mut self, text: &str) -> bool {
        let mut allowed = std::mem::take(&mut self.allowed);
        allowed.resize(self.places.len(), false);
        let mut runs: Vec<Box<[u32]>> = Vec::new();
        let mut any = false;
        self.scan(text, &mut |found, _| {
            any = true;
            match found {
                Match::Ngram(entry) => allowed[entry] = true,
                Match::Run(_, words) => runs.push(words.into()),
            }
        });
        for run in runs {
            if self.runs.remove(&run).is_some() {
                self.ngrams_allowed += 1;
            }
        }
        self.allowed = allowed;
        any
    }

    /// Makes what was allowed so far take effect.
    pub fn settle(&mut self) {
        if self.allowed.contains(&true) {
            let stays: Vec<usize> = (0..self.places.len())
                .filter(|&entry| !self.allowed[entry])
                .collect();
            // An n-gram of several texts has an entry for each and is counted once for each.
            self.ngrams_allowed += (self.places.len() - stays.len()) as u64;
            let hashes = stays.iter().map(|&entry| self.ngrams.hashes[entry]);
            let hashes: Vec<u64> = hashes.collect();
            self.places = stays.iter().map(|&entry| self.places[entry]).collect();
            let n = self.rules.ngram_words;
            let word_hash = |word: u32| self.word_hashes[word as usize];
            let parts = parts_at(self.places.clone(), n, &self.words, word_hash);
            self.ngrams = Keys::new(n, hashes, &parts);
        }
        self.allowed = Vec::new();
        let mut counted = vec![0; self.names.len()];
        for &place in &self.places {
            counted[self.text_of(place)] += 1;
        }
        for &text in self.runs.values() {
            counted[text as usize] = 1;
        }
        self.counted = counted;
    }

    fn text_of(&self, place: u32) -> usize {
        self.starts.partition_point(|&start| start <= place) - 1
    }

    /// Names of the texts, by number: each by set in the order in which they came.
    pub fn names(&self) -> &[Vec<TextName>] {
        &self.names
    }

    /// What each set gave, by number.
    pub fn sets(&self) -> Vec<SetCounts> {
        let mut sets = self.sets.clone();
        for (names, _) in self
            .names
            .iter()
            .zip(&self.counted)
            .filter(|(_, counted)| **counted == 0)
        {
            for name in names {
                sets[name.set as usize].without_key += u64::from(name.items);
            }
        }
        sets
    }

    /// Different n-grams that don't count since they stand in too many texts.
    pub fn in_many_texts(&self) -> u64 {
        self.in_many_texts
    }

    /// N-grams (once for each text that has it) and short texts that don't count since they are allowed.
    pub fn allowed(&self) -> u64 {
        self.ngrams_allowed
    }

    /// Every stretch of `text` that stands in a known text of whose n-grams the document holds at
    /// least the share `min_overlap`, by start, end and number of the text. N-grams of one text that
    /// overlap or touch make one stretch.
    pub fn find(&self, text: &str, min_overlap: f64) -> Vec<Held> {
        #[derive(Default)]
        struct Found {
            held: u32,
            /// Bytes of each stretch, and the number of the word after it.
            stretches: Vec<(Range<usize>, usize)>,
        }
        let mut found: BTreeMap<u32, Found> = BTreeMap::new();
        let mut seen: HashSet<usize> = HashSet::new();
        self.scan(text, &mut |what, window| {
            let (text, words, is_new) = match what {
                Match::Ngram(entry) => (
                    self.text_of(self.places[entry]) as u32,
                    self.rules.ngram_words,
                    seen.insert(entry),
                ),
                Match::Run(text, words) => (text, words.len(), false),
            };
            let here = found.entry(text).or_default();
            here.held += u32::from(is_new || here.held == 0);
            let end = window.spans[words - 1].end;
            let end_word = window.first + words;
            match here.stretches.last_mut() {
                Some((bytes, last)) if window.first <= *last => {
                    (bytes.end, *last) = (end, end_word)
                }
                _ => here.stretches.push((window.spans[0].start..end, end_word)),
            }
        });
        let mut all: Vec<Held> = found
            .into_iter()
            .flat_map(|(text, found)| {
                found.stretches.into_iter().map(move |(bytes, _)| Held {
                    start: bytes.start,
                    end: bytes.end,
                    text,
                    held: found.held,
                    of: self.counted[text as usize],
                })
            })
            .filter(|held| held.overlap() >= min_overlap)
            .collect();
        all.sort_unstable_by_key(|held| (held.start, held.end, held.text));
        all
    }

    /// Calls `visit` for all that stands at each window of `text`, windows in order.
    fn scan(&self, text: &str, visit: &mut dyn FnMut(Match<'_>, &Window<'_>)) {
        thread_local! {
            /// A fresh one for each document would cost as much as the words.
            static HASHES: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
        }
        let mut hashes = HASHES.take();
        bare_words(text, &mut hashes);
        let mut candidates = Vec::new();
        self.ngrams.candidates(&hashes, &mut candidates);
        self.prefixes.candidates(&hashes, &mut candidates);
        if !candidates.is_empty() {
            // Few documents come here.
            self.decide_all(text, &hashes, candidates, visit);
        }
        if hashes.capacity() <= KEPT_HASHES {
            HASHES.set(hashes);
        }
    }

    /// Calls `visit` for all that stands at the windows that hashes propose, decided on the words.
    fn decide_all(
        &self,
        text: &str,
        hashes: &[u64],
        mut candidates: Vec<Range<usize>>,
        visit: &mut dyn FnMut(Match<'_>, &Window<'_>),
    ) {
        candidates.sort_unstable_by_key(|range| range.start);
        let mut windows = Windows {
            ranges: candidates.into_iter(),
            range: 0..0,
        };
        let n = self.rules.ngram_words;
        let mut next = windows.next();
        // Words from the next candidate on, and how many words there were in all.
        let mut words: Vec<u32> = Vec::new();
        let mut spans: Vec<Range<usize>> = Vec::new();
        let mut number = 0;
        each_bare_word(text, |span, word| {
            if next.is_some_and(|first| first <= number) {
                words.push(self.vocabulary.get(word).copied().unwrap_or(UNKNOWN));
                spans.push(span);
            }
            number += 1;
            while let Some(first) = next
                && first + n <= number
            {
                self.decide(hashes, first, &words, &spans, visit);
                next = windows.next();
                let passed = next.map_or(words.len(), |next| (next - first).min(words.len()));
                words.drain(..passed);
                spans.drain(..passed);
            }
            next.is_some()
        });
        // Windows so near the end that no n-gram begins there, only short texts.
        while let Some(first) = next {
            self.decide(hashes, first, &words, &spans, visit);
            next = windows.next();
            let passed = next.map_or(words.len(), |next| (next - first).min(words.len()));
            words.drain(..passed);
            spans.drain(..passed);
        }
    }

    /// What stands at the window that begins with word number `first`, whose words follow.
    fn decide(
        &self,
        hashes: &[u64],
        first: usize,
        words: &[u32],
        spans: &[Range<usize>],
        visit: &mut dyn FnMut(Match<'_>, &Window<'_>),
    ) {
        let n = self.rules.ngram_words;
        let window = Window { first, spans };
        if let Some(ngram) = words.get(..n) {
            for entry in self.ngrams.equal(hash_of(&hashes[first..first + n])) {
                let place = self.places[entry] as usize;
                if &self.words[place..place + n] == ngram {
                    visit(Match::Ngram(entry), &window);
                }
            }
        }
        for &length in &self.lengths {
            if let Some(run) = words.get(..length)
                && let Some(&text) = self.runs.get(run)
            {
                visit(Match::Run(text, run), &window);
            }
        }
    }
}

/// Numbers in ranges that are sorted by their starts and may overlap, each once, ascending.
struct Windows {
    ranges: std::vec::IntoIter<Range<usize>>,
    range: Range<usize>,
}

impl Iterator for Windows {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while self.range.is_empty() {
            let next = self.ranges.next()?;
            self.range = next.start.max(self.range.end)..next.end.max(self.range.end);
        }
        self.range.next()
    }
}

/// An odd constant with mixed bits: a fraction of the square root of 5.
const BASE: u64 = 0x3c6e_f372_fe94_f82b;

/// Appends a word to the hash of a window: a polynomial in [`BASE`] modulo 2^64.
#[inline]
fn roll(hash: u64, word: u64) -> u64 {
    hash.wrapping_mul(BASE).wrapping_add(word)
}

/// What a word's hash was multiplied by once it leaves a window of `width` words.
fn power(width: usize) -> u64 {
    (0..width).fold(1u64, |power, _| power.wrapping_mul(BASE))
}

/// Bits of filter for each part, at least.
const FILTER_BITS: usize = 16;
/// Parts that are looked up at a time: what the filter says of them is on its way from memory at once.
const BATCH_PARTS: usize = 32;
/// Hashes in a bucket of the table, at most on average.
const BUCKET_HASHES: usize = 4;

/// Hashes of windows of one width, to be asked for each window of a document.
///
/// Most windows of most documents are none of these, and most are never hashed. Let a *part* be a run of
/// `part_words` words: a window of `width` words has `step = width - part_words + 1` of them, one after another, so
/// that exactly one begins at a word of the document whose number is a multiple of `step`. Only these parts are looked
/// up, in a filter of all parts of all windows, and only the windows around one that may be known are hashed.
struct Keys {
    width: usize,
    /// Sorted.
    hashes: Vec<u64>,
    /// First hash of each bucket, and the number of hashes. A hash's highest bits name its bucket.
    buckets: Vec<u32>,
    bucket_shift: u32,
    /// Three bits of one word for each part.
    filter: Vec<u64>,
    filter_shift: u32,
}

/// Words of the parts of windows of `width` words: half of them, so that parts are few and seldom stand anywhere else.
fn part_words(width: usize) -> usize {
    width.div_ceil(2)
}

/// Hashes of the parts of the windows of `width` words that begin at these places.
fn parts_at(
    mut places: Vec<u32>,
    width: usize,
    words: &[u32],
    word_hash: impl Fn(u32) -> u64,
) -> Vec<u64> {
    places.sort_unstable();
    let part_words = part_words(width);
    let mut parts = Vec::with_capacity(places.len());
    // Windows one after another share all parts but one.
    let mut next = 0;
    for place in places {
        let first = place as usize;
        let end = first + width - part_words + 1;
        for at in next.max(first)..end {
            let words = words[at..at + part_words].iter();
            parts.push(words.fold(0, |hash, &word| roll(hash, word_hash(word))));
        }
        next = end;
    }
    parts
}

/// Hash of a window or part.
#[inline]
fn hash_of(words: &[u64]) -> u64 {
    words.iter().fold(0, |hash, &word| roll(hash, word))
}

impl Keys {
    /// `parts` are hashes of all parts of the windows, in any order; the same one may come several times.
    fn new(width: usize, hashes: Vec<u64>, parts: &[u64]) -> Keys {
        debug_assert!(hashes.is_sorted());
        // A shift by 64 is none, so there are at least two of each.
        let number_of_buckets = (hashes.len() / BUCKET_HASHES).next_power_of_two().max(2);
        let bucket_shift = 64 - number_of_buckets.ilog2();
        let mut buckets = vec![0u32; number_of_buckets + 1];
        for &hash in &hashes {
            buckets[(hash >> bucket_shift) as usize + 1] += 1;
        }
        for bucket in 1..buckets.len() {
            buckets[bucket] += buckets[bucket - 1];
        }
        let number_of_words = (parts.len() * FILTER_BITS / 64).next_power_of_two().max(2);
        let filter_shift = 64 - number_of_words.ilog2();
        let mut filter = vec![0; number_of_words];
        for &part in parts {
            filter[(part >> filter_shift) as usize] |= filter_bits(part);
        }
        Keys {
            width,
            hashes,
            buckets,
            bucket_shift,
            filter,
            filter_shift,
        }
    }

    /// Places among the hashes that hold `hash`.
    fn equal(&self, hash: u64) -> Range<usize> {
        let bucket = (hash >> self.bucket_shift) as usize;
        let (first, end) = (self.buckets[bucket], self.buckets[bucket + 1]);
        let inside = &self.hashes[first as usize..end as usize];
        let before = inside.partition_point(|&other| other < hash);
        let same = inside[before..].partition_point(|&other| other == hash);
        first as usize + before..first as usize + before + same
    }

    #[inline]
    fn may_hold(&self, part: u64) -> bool {
        let bits = filter_bits(part);
        self.filter[(part >> self.filter_shift) as usize] & bits == bits
    }

    /// Appends the numbers of the windows of a document whose hash is one of these, as ranges. Returns how many
    /// windows were hashed.
    fn candidates(&self, words: &[u64], found: &mut Vec<Range<usize>>) -> usize {
        if self.hashes.is_empty() || words.len() < self.width {
            return 0;
        }
        let begin = found.len();
        let last_window = words.len() - self.width;
        let part_words = part_words(self.width);
        let step = self.width - part_words + 1;
        let power = power(self.width);
        let number_of_parts = (words.len() - part_words) / step + 1;
        let mut hashed = 0;
        let mut batch = [0; BATCH_PARTS];
        for first_part in (0..number_of_parts).step_by(BATCH_PARTS) {
            let batch = &mut batch[..BATCH_PARTS.min(number_of_parts - first_part)];
            for (number, part) in (first_part..).zip(batch.iter_mut()) {
                *part = hash_of(&words[number * step..][..part_words]);
                prefetch_index::prefetch_index(&self.filter, (*part >> self.filter_shift) as usize);
            }
            for (number, &part) in (first_part..).zip(batch.iter()) {
                if !self.may_hold(part) {
                    continue;
                }
                // The windows that have this part and none looked up before.
                let first = (number * step + 1).saturating_sub(step);
                let mut hash = 0;
                for window in first..=(number * step).min(last_window) {
                    hash = match window == first {
                        true => hash_of(&words[first..first + self.width]),
                        false => roll(hash, words[window + self.width - 1])
                            .wrapping_sub(words[window - 1].wrapping_mul(power)),
                    };
                    hashed += 1;
                    if self.equal(hash).is_empty() {
                        continue;
                    }
                    match found[begin..].last_mut() {
                        Some(range) if range.end == window => range.end += 1,
                        _ => found.push(window..window + 1),
                    }
                }
            }
        }
        hashed
    }
}

/// The three bits of a part's hash in its word of the filter, from its lowest bits.
#[inline]
fn filter_bits(hash: u64) -> u64 {
    1 << (hash & 63) | 1 << (hash >> 6 & 63) | 1 << (hash >> 12 & 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: OverlapRules = OverlapRules {
        ngram_words: 3,
        min_text_words: 1,
        max_texts_per_ngram: 100,
    };

    fn index(rules: OverlapRules, items: &[&str], allowed: &[&str]) -> OverlapIndex {
        let mut builder = OverlapBuilder::new(rules);
        for (number, item) in items.iter().enumerate() {
            builder
                .add(0, &number.to_string(), item)
                .expect("few words");
        }
        let mut index = builder.build();
        for text in allowed {
            index.allow(text);
        }
        index.settle();
        index
    }

    /// (stretch, id of the item, held, of).
    fn found<'t>(index: &OverlapIndex, text: &'t str) -> Vec<(&'t str, String, u32, u32)> {
        let held = index.find(text, 0.0);
        held.iter()
            .map(|held| {
                let name = &index.names()[held.text as usize][0];
                (
                    &text[held.start..held.end],
                    name.id.clone(),
                    held.held,
                    held.of,
                )
            })
            .collect()
    }

    fn bare(text: &str) -> (Vec<String>, Vec<Range<usize>>) {
        let (mut words, mut spans) = (Vec::new(), Vec::new());
        each_bare_word(text, |span, word| {
            words.push(word.to_string());
            spans.push(span);
            true
        });
        (words, spans)
    }

    /// By the definition, window by window and item by item.
    fn by_definition(
        rules: OverlapRules,
        items: &[&str],
        allowed: &[&str],
        text: &str,
        min_overlap: f64,
    ) -> Vec<Held> {
        let n = rules.ngram_words;
        let mut texts: Vec<Vec<String>> = Vec::new();
        for item in items {
            let words = bare(item).0;
            if words.len() >= rules.min_text_words && !texts.contains(&words) {
                texts.push(words);
            }
        }
        let holds = |document: &[String], run: &[String]| {
            document.windows(run.len()).any(|window| window == run)
        };
        let allowed: Vec<Vec<String>> = allowed.iter().map(|text| bare(text).0).collect();
        let (document, spans) = bare(text);
        let mut all = Vec::new();
        for (number, item) in texts.iter().enumerate() {
            let width = n.min(item.len());
            let mut keys: Vec<&[String]> = item.windows(width).collect();
            keys.sort();
            keys.dedup();
            keys.retain(|key| {
                let in_texts = texts
                    .iter()
                    .filter(|text| text.len() >= n && holds(text, key));
                let is_short = item.len() < n;
                (is_short || in_texts.count() <= rules.max_texts_per_ngram)
                    && !allowed.iter().any(|text| holds(text, key))
            });
            let held = keys.iter().filter(|key| holds(&document, key)).count();
            if held == 0 || (held as f64 / keys.len() as f64) < min_overlap {
                continue;
            }
            let mut stretches: Vec<Range<usize>> = Vec::new();
            for (at, window) in document.windows(width).enumerate() {
                if keys.contains(&window) {
                    match stretches.last_mut() {
                        Some(last) if at <= last.end => last.end = at + width,
                        _ => stretches.push(at..at + width),
                    }
                }
            }
            all.extend(stretches.iter().map(|words| Held {
                start: spans[words.start].start,
                end: spans[words.end - 1].end,
                text: number as u32,
                held: held as u32,
                of: keys.len() as u32,
            }));
        }
        all.sort_unstable_by_key(|held| (held.start, held.end, held.text));
        all
    }

    proptest::proptest! {
        #[test]
        fn finds_what_the_definition_finds(
            items in proptest::collection::vec("[ab語]( [abc語]){0,7}", 0..8),
            allowed in proptest::collection::vec("[abc語]( [abc]){0,4}", 0..2),
            text in "([abcd語],?[ \n]){0,60}",
            ngram_words in 1usize..5,
            min_text_words in 1usize..4,
            max_texts_per_ngram in 1usize..4,
            min_overlap in proptest::sample::select(vec![0.0, 0.25, 0.5, 1.0]),
        ) {
            let rules = OverlapRules { ngram_words, min_text_words, max_texts_per_ngram };
            let items: Vec<&str> = items.iter().map(String::as_str).collect();
            let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
            let ours = index(rules, &items, &allowed).find(&text, min_overlap);
            let theirs = by_definition(rules, &items, &allowed, &text, min_overlap);
            proptest::prop_assert_eq!(ours, theirs);
        }

        #[test]
        fn candidates_are_the_windows_whose_hash_is_a_key(
            words in proptest::collection::vec(0u64..4, 0..60),
            all in proptest::collection::vec(0u32..4, 16..80),
            places in proptest::collection::vec(0u32..64, 0..6),
            width in 1usize..15,
        ) {
            // Small numbers as hashes of words: the polynomial must hold for these too.
            let places: Vec<u32> = places.into_iter().filter(|&at| at as usize + width <= all.len()).collect();
            let key = |at: &u32| {
                let words: Vec<u64> = all[*at as usize..][..width].iter().map(|&word| u64::from(word)).collect();
                hash_of(&words)
            };
            let mut hashes: Vec<u64> = places.iter().map(key).collect();
            hashes.sort_unstable();
            let parts = parts_at(places, width, &all, u64::from);
            let mut ranges = Vec::new();
            Keys::new(width, hashes.clone(), &parts).candidates(&words, &mut ranges);
            let ours: Vec<usize> = ranges.into_iter().flatten().collect();
            let theirs = words.windows(width).enumerate().filter(|(_, window)| hashes.contains(&hash_of(window)));
            proptest::prop_assert_eq!(ours, theirs.map(|(at, _)| at).collect::<Vec<_>>());
        }
    }

    #[test]
    fn few_windows_of_a_document_without_a_known_part_are_hashed() {
        let numbers = |seed: u64, count: u64| {
            let word = move |at| crate::algo::words::mix(seed, at);
            (0..count).map(word).collect::<Vec<u64>>()
        };
        let known = numbers(1, 10_000);
        let all: Vec<u32> = (0..known.len() as u32).collect();
        let places: Vec<u32> = (0..=all.len() as u32 - 13).collect();
        let mut hashes: Vec<u64> = known.windows(13).map(hash_of).collect();
        hashes.sort_unstable();
        let parts = parts_at(places, 13, &all, |word| known[word as usize]);
        let keys = Keys::new(13, hashes, &parts);
        let mut found = Vec::new();
        // Of 100,000 windows a seventh have their part looked up, of which the filter lets a few in 100 pass.
        let hashed = keys.candidates(&numbers(2, 100_000), &mut found);
        assert!(found.is_empty() && hashed < 5_000, "{hashed} {found:?}");
        assert_eq!(keys.candidates(&known, &mut found), known.len() - 12);
        assert_eq!((found.len(), found[0].clone()), (1, 0..known.len() - 12));
    }

    #[test]
    fn a_text_is_found_whole_or_in_part_whatever_its_case_and_punctuation() {
        let index = index(RULES, &["Don't stop the cat now, please"], &[]);
        let of = |text, held| vec![(text, "0".to_string(), held, 4)];
        let text = "so: dont STOP the\n\"cat\" now please.";
        assert_eq!(
            found(&index, text),
            of("dont STOP the\n\"cat\" now please.", 4)
        );
        assert_eq!(found(&index, "the cat now, it"), of("the cat now,", 1));
        assert_eq!(found(&index, "the cat then now please"), []);
        let held = index.find("the cat now", 0.25);
        assert_eq!((held.len(), held[0].overlap()), (1, 0.25));
        assert_eq!(index.find("the cat now", 0.26), []);
    }

    #[test]
    fn parts_apart_are_stretches_apart_and_parts_that_touch_are_one() {
        let index = index(RULES, &["a b c d e f"], &[]);
        let names = |held| ("0".to_string(), held, 4);
        let (id, held, of) = names(2);
        assert_eq!(
            found(&index, "a b c x d e f"),
            [
                ("a b c", id.clone(), held, of),
                ("d e f", id.clone(), held, of)
            ]
        );
        assert_eq!(found(&index, "a b c a b c"), [("a b c a b c", id, 1, 4)]);
    }

    #[test]
    fn a_short_text_counts_as_a_whole_only() {
        let short = index(RULES, &["to be", "no"], &[]);
        let text = "They said No; to be is to. to - Be";
        assert_eq!(
            found(&short, text),
            [
                ("No;", "1".to_string(), 1, 1),
                ("to be", "0".to_string(), 1, 1),
                ("to - Be", "0".to_string(), 1, 1)
            ]
        );
        // The last words of a document are looked at too.
        assert_eq!(found(&short, "no"), [("no", "1".to_string(), 1, 1)]);
        let rules = OverlapRules {
            min_text_words: 2,
            ..RULES
        };
        let long_enough = index(rules, &["to be", "no"], &[]);
        assert_eq!(found(&long_enough, "no"), []);
        assert_eq!(found(&long_enough, "to be").len(), 1);
        let counts = SetCounts {
            items: 2,
            too_short: 1,
            without_key: 0,
        };
        assert_eq!(long_enough.sets(), [counts]);
    }

    #[test]
    fn what_stands_in_many_texts_is_a_template_and_does_not_count() {
        let rules = OverlapRules {
            max_texts_per_ngram: 2,
            ..RULES
        };
        let items = [
            "pick the word a b",
            "pick the word c d",
            "pick the word e f",
        ];
        let all = index(rules, &items, &[]);
        assert_eq!(all.in_many_texts(), 1);
        assert_eq!(found(&all, "pick the word"), []);
        assert_eq!(
            found(&all, "pick the word a b"),
            [("the word a b", "0".to_string(), 2, 2)]
        );
        // In two texts it still tells something, and each of them is named.
        let two = index(rules, &items[..2], &[]);
        assert_eq!(found(&two, "pick the word").len(), 2);
        // The same text again is no further text.
        let again = index(rules, &["a b c d", "A b c. d", "a b c d"], &[]);
        assert_eq!(again.names()[0][0].items, 3);
        assert_eq!(found(&again, "a b c").len(), 1);
    }

    #[test]
    fn what_an_allowed_text_holds_does_not_count() {
        let items = ["we the people of the land", "to be"];
        let some = index(RULES, &items, &["We the people of it. To be!"]);
        assert_eq!(found(&some, "we the people of, to be"), []);
        assert_eq!(
            found(&some, "we the people of the land"),
            [("people of the land", "0".to_string(), 2, 2)]
        );
        assert_eq!(some.allowed(), 3);
        let none = index(RULES, &items, &[items[0], items[1]]);
        assert_eq!(found(&none, "we the people of the land to be"), []);
        assert_eq!(none.sets()[0].without_key, 2);
    }

    #[test]
    fn a_text_of_two_sets_has_both_names() {
        let mut builder = OverlapBuilder::new(RULES);
        builder.add(0, "x", "a b c d").expect("few words");
        builder.add(1, "y\n\u{1}", "a B c. d").expect("few words");
        builder.add(1, "z", "a b c d").expect("few words");
        let index = builder.build();
        assert_eq!(index.find("a b c d", 1.0).len(), 1);
        let name = |set, id: &str, items| TextName {
            set,
            id: id.to_string(),
            items,
        };
        assert_eq!(index.names(), [[name(0, "x", 1), name(1, "y\n\u{1}", 2)]]);
    }

    #[test]
    fn nothing_is_found_where_there_is_nothing() {
        let empty = index(RULES, &[], &["a b c"]);
        assert_eq!(empty.find("a b c", 0.0), []);
        let index = index(RULES, &["", " - ", "a b c"], &[]);
        assert_eq!(index.sets()[0].too_short, 2);
        assert_eq!(index.find("", 0.0), []);
        assert_eq!(index.find("...", 0.0), []);
    }

    #[test]
    fn characters_of_scripts_without_spaces_are_words_and_cuts_are_between_them() {
        let index = index(RULES, &["猫は好きですか"], &[]);
        assert_eq!(
            found(&index, "「猫は好き」と言う"),
            [("「猫は好き」", "0".to_string(), 2, 5)]
        );
    }

    #[test]
    fn ten_million_equal_words_take_time_in_proportion() {
        let item = "a ".repeat(1_000_000);
        let index = index(RULES, &[&item, "a a", "b"], &[]);
        let text = "a ".repeat(10_000_000);
        let held = index.find(&text, 0.0);
        let bytes: Vec<_> = held
            .iter()
            .map(|held| (held.start, held.end, held.of))
            .collect();
        assert_eq!(bytes, [(0, text.len() - 1, 1), (0, text.len() - 1, 1)]);
    }
}
