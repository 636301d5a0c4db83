//! Training of a supervised fastText model of two labels (Joulin et al. 2016), as the bytes of a
//! `.bin` file that [`Model`](super::fasttext::Model) and the original library read.
//!
//! A line's words and hashed n-grams are rows of a matrix; their mean, times a row per label, goes
//! through a softmax; stochastic gradient descent on -ln p of the right label, with the gradient of
//! the mean divided by the number of rows and a learning rate that falls linearly to 0, as the
//! original library does with one thread. What differs: initial values come from a keyed hash, and
//! the two sets take turns, the smaller one from its start again, so that both weigh the same.

use super::fasttext::{END_OF_LINE, Hashing, MAGIC, SOFTMAX, SUPERVISED, hash, is_label, words};
use super::hash::keyed_by;
use std::collections::HashMap;

/// The labels of a trained model in its order: the text wanted, and the text to tell it from.
pub const LABELS: [&str; 2] = ["__label__reference", "__label__negative"];
/// Lines of each set between two looks at whether to go on.
const BREATH: usize = 1024;
/// No row of its own.
const NO_ROW: u32 = u32::MAX;

/// How a model is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// Numbers in a row.
    pub dimensions: usize,
    /// How often the larger set is gone through.
    pub epochs: u32,
    /// Learning rate of the first step.
    pub learning_rate: f32,
    /// Words in the longest n-gram.
    pub word_ngrams: usize,
    /// Characters in the shortest and the longest n-gram of characters; a longest of 0 for none.
    pub character_ngrams: [usize; 2],
    /// Rows that n-grams share.
    pub buckets: u32,
    /// Occurrences that a word needs for a row of its own, at least 1.
    pub min_word_count: u64,
    /// Words with a row of their own at most; the most frequent ones.
    pub max_words: usize,
}

impl Training {
    fn hashing(&self) -> Hashing {
        let [min_chars, max_chars] = self.character_ngrams;
        Hashing {
            word_ngrams: self.word_ngrams,
            buckets: self.buckets,
            min_chars,
            max_chars,
        }
    }

    fn hashed_rows(&self) -> usize {
        match self.hashing().hashes() {
            true => self.buckets as usize,
            false => 0,
        }
    }

    /// Bytes that training a model takes where texts have so many different words, and holds
    /// afterwards: the matrix and its copy in the file.
    pub fn bytes(&self, different_words: usize) -> u64 {
        let rows = self.max_words.min(different_words) + self.hashed_rows() + 1;
        rows as u64 * self.dimensions as u64 * 4 * 2 + different_words as u64 * 20
    }
}

/// Numbers of words, dense from 0 in the order in which they were met.
#[derive(Default)]
pub struct Words(HashMap<Box<[u8]>, u32>);

impl Words {
    /// The number of a word.
    pub fn number(&mut self, word: &[u8]) -> u32 {
        if let Some(&number) = self.0.get(word) {
            return number;
        }
        let number = u32::try_from(self.0.len()).expect("texts of less than 2^32 words");
        self.0.insert(Box::from(word), number);
        number
    }

    /// Calls `visit` with the numbers of a text's words. Those that look like labels are none.
    pub fn each_of(&mut self, text: &str, mut visit: impl FnMut(u32)) {
        for word in words(text.as_bytes()).filter(|word| !is_label(word)) {
            visit(self.number(word));
        }
    }

    /// The words by number.
    pub fn by_number(self) -> Vec<Box<[u8]>> {
        let mut words = vec![Box::default(); self.0.len()];
        for (word, number) in self.0 {
            words[number as usize] = word;
        }
        words
    }
}

/// What was trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Words with a row of their own, the end of the line among them.
    pub words: usize,
    /// Mean of -ln (p + 1e-5) of the right label over the last epoch, in nats, each line before its
    /// step; NaN where a value of the model is not finite.
    pub loss_nats: f64,
}

/// Trains on two sets of lines, given by the numbers of their words; neither is empty. The lines of a
/// set are taken in their order. `key` shapes the initial values.
///
/// # Errors
/// What `go_on` says, which is asked now and then.
pub fn train<E>(
    words: &[Box<[u8]>],
    sets: [&[&[u32]]; 2],
    training: &Training,
    key: u64,
    mut go_on: impl FnMut() -> Result<(), E>,
) -> Result<(Vec<u8>, Report), E> {
    let dictionary = Dictionary::new(words, sets, training);
    let hashing = training.hashing();
    let n_rows = dictionary.words.len() + training.hashed_rows();
    let mut weights = Weights::new(training.dimensions, n_rows, key);
    let lines_per_epoch = sets[0].len().max(sets[1].len());
    let turns = lines_per_epoch * training.epochs as usize;
    let line = |set: usize, turn: usize| sets[set][turn % sets[set].len()];
    let words_in = |line: &[u32]| line.len() as u64 + 1;
    let total: u64 = (0..turns)
        .map(|turn| words_in(line(0, turn)) + words_in(line(1, turn)))
        .sum();
    let (mut seen, mut loss) = (0u64, 0f64);
    let (mut rows, mut hashes) = (Vec::new(), Vec::new());
    for turn in 0..turns {
        if turn % BREATH == 0 {
            go_on()?;
        }
        for label in 0..2 {
            let line = line(label, turn);
            dictionary.rows_of(line, &hashing, &mut rows, &mut hashes);
            let rate = learning_rate(training.learning_rate, seen, total);
            let probability = weights.step(&rows, label, rate);
            seen += words_in(line);
            if turn >= turns - lines_per_epoch {
                loss -= libm::log(f64::from(probability) + 1e-5);
            }
        }
    }
    let report = Report {
        words: dictionary.words.len(),
        loss_nats: match weights.are_finite() {
            true => loss / (2 * lines_per_epoch) as f64,
            false => f64::NAN,
        },
    };
    Ok((dictionary.file(training, &weights), report))
}

/// The rate after `seen` of `total` words.
fn learning_rate(first: f32, seen: u64, total: u64) -> f32 {
    first * (1.0 - seen as f64 / total as f64) as f32
}

/// Which words have rows.
struct Dictionary<'w> {
    /// In the order of their rows with their counts: the end of the line, then words by falling count.
    words: Vec<(&'w [u8], u64)>,
    /// By number of a word: its row, or [`NO_ROW`].
    rows: Vec<u32>,
    /// By number of a word: its hash.
    hashes: Vec<u32>,
    /// All words by number.
    by_number: &'w [Box<[u8]>],
    /// Words of all lines, ends included.
    total: u64,
    lines: [u64; 2],
}

impl<'w> Dictionary<'w> {
    fn new(words: &'w [Box<[u8]>], sets: [&[&[u32]]; 2], training: &Training) -> Self {
        let mut counts = vec![0u64; words.len()];
        let lines = sets.map(|set| set.len() as u64);
        let mut total = lines[0] + lines[1];
        for line in sets.into_iter().flatten() {
            total += line.len() as u64;
            for &word in *line {
                counts[word as usize] += 1;
            }
        }
        let mut kept: Vec<u32> = (0..words.len() as u32)
            .filter(|&word| counts[word as usize] >= training.min_word_count.max(1))
            .collect();
        kept.sort_unstable_by(|&a, &b| {
            let falling = counts[b as usize].cmp(&counts[a as usize]);
            falling.then_with(|| words[a as usize].cmp(&words[b as usize]))
        });
        kept.truncate(training.max_words);
        let mut rows = vec![NO_ROW; words.len()];
        for (row, &word) in (1..).zip(&kept) {
            rows[word as usize] = row;
        }
        let of = |&word: &u32| (&*words[word as usize], counts[word as usize]);
        Dictionary {
            words: std::iter::once((END_OF_LINE, lines[0] + lines[1]))
                .chain(kept.iter().map(of))
                .collect(),
            rows,
            hashes: words.iter().map(|word| hash(word)).collect(),
            by_number: words,
            total,
            lines,
        }
    }

    /// The rows of a line, in the order in which a model adds them up.
    fn rows_of(&self, line: &[u32], hashing: &Hashing, rows: &mut Vec<u32>, hashes: &mut Vec<u32>) {
        rows.clear();
        hashes.clear();
        let first_hashed = self.words.len() as u32;
        for &word in line {
            let row = self.rows[word as usize];
            if row != NO_ROW {
                rows.push(row);
            }
            hashing.character_ngrams(&self.by_number[word as usize], |bucket| {
                rows.push(first_hashed + bucket);
            });
            hashes.push(self.hashes[word as usize]);
        }
        rows.push(0);
        hashes.push(hash(END_OF_LINE));
        hashing.word_ngrams(hashes, |bucket| rows.push(first_hashed + bucket));
    }

    /// The bytes of a `.bin` file, format version 12.
    fn file(&self, training: &Training, weights: &Weights) -> Vec<u8> {
        let hashing = training.hashing();
        let matrix_bytes = (weights.input.len() + weights.output.len()) * 4;
        let word_bytes: usize = self.words.iter().map(|(word, _)| word.len() + 10).sum();
        let mut file = Vec::with_capacity(matrix_bytes + word_bytes + 256);
        // Window, negatives and the words between two updates of the rate are those of the original's
        // defaults; nothing in a supervised model with softmax depends on them.
        let header = [
            MAGIC,
            12,
            training.dimensions as i32,
            5,
            training.epochs as i32,
            i32::try_from(training.min_word_count).unwrap_or(i32::MAX),
            5,
            training.word_ngrams as i32,
            SOFTMAX,
            SUPERVISED,
            training.hashed_rows() as i32,
            hashing.min_chars as i32,
            hashing.max_chars as i32,
            100,
        ];
        let dictionary = [
            self.words.len() as i32 + 2,
            self.words.len() as i32,
            LABELS.len() as i32,
        ];
        file.extend(header.iter().flat_map(|value| value.to_le_bytes()));
        file.extend(1e-4f64.to_le_bytes());
        file.extend(dictionary.iter().flat_map(|value| value.to_le_bytes()));
        file.extend(self.total.to_le_bytes());
        file.extend((-1i64).to_le_bytes());
        let labels = LABELS.iter().zip(self.lines);
        let labels = labels.map(|(label, lines)| (label.as_bytes(), lines, 1u8));
        let words = self.words.iter().map(|&(word, count)| (word, count, 0u8));
        for (word, count, kind) in words.chain(labels) {
            file.extend(word);
            file.push(0);
            file.extend(count.to_le_bytes());
            file.push(kind);
        }
        for matrix in [&weights.input, &weights.output] {
            file.push(0);
            let rows = matrix.len() / training.dimensions;
            file.extend((rows as u64).to_le_bytes());
            file.extend((training.dimensions as u64).to_le_bytes());
            file.extend(matrix.iter().flat_map(|value| value.to_le_bytes()));
        }
        file
    }
}

/// The two matrices, row after row.
struct Weights {
    dimensions: usize,
    input: Vec<f32>,
    output: Vec<f32>,
    hidden: Vec<f32>,
    gradient: Vec<f32>,
}

impl Weights {
    /// Input rows uniform in ±1 / dimensions, output rows 0.
    fn new(dimensions: usize, rows: usize, key: u64) -> Self {
        let bound = 1.0 / dimensions as f32;
        // 24 bits of a hash are a number below 1 that f32 holds exactly.
        let value = |at: u64| {
            let uniform = (keyed_by(key, at) >> 40) as f32 / 16_777_216.0;
            (2.0 * uniform - 1.0) * bound
        };
        Weights {
            dimensions,
            input: (0..(rows * dimensions) as u64).map(value).collect(),
            output: vec![0.0; LABELS.len() * dimensions],
            hidden: vec![0.0; dimensions],
            gradient: vec![0.0; dimensions],
        }
    }

    /// One step on a line of these rows, at least one. Returns the probability of `label` before it.
    fn step(&mut self, rows: &[u32], label: usize, rate: f32) -> f32 {
        let dimensions = self.dimensions;
        let scale = 1.0 / rows.len() as f32;
        self.hidden.fill(0.0);
        for &row in rows {
            let row = &self.input[row as usize * dimensions..][..dimensions];
            for (sum, value) in self.hidden.iter_mut().zip(row) {
                *sum += value;
            }
        }
        self.hidden.iter_mut().for_each(|value| *value *= scale);
        let products = [0, 1].map(|label: usize| {
            let row = &self.output[label * dimensions..][..dimensions];
            let pairs = self.hidden.iter().zip(row);
            pairs.fold(0f32, |sum, (hidden, value)| sum + hidden * value)
        });
        let highest = products[0].max(products[1]);
        let exponentials = products.map(|product| libm::expf(product - highest));
        let sum = exponentials[0] + exponentials[1];
        let probabilities = exponentials.map(|exponential| exponential / sum);
        self.gradient.fill(0.0);
        for (number, probability) in probabilities.into_iter().enumerate() {
            let right = if number == label { 1.0 } else { 0.0 };
            let step = rate * (right - probability);
            let row = &mut self.output[number * dimensions..][..dimensions];
            let both = self.gradient.iter_mut().zip(&self.hidden);
            for (value, (gradient, hidden)) in row.iter_mut().zip(both) {
                *gradient += step * *value;
                *value += step * hidden;
            }
        }
        self.gradient.iter_mut().for_each(|value| *value *= scale);
        for &row in rows {
            let row = &mut self.input[row as usize * dimensions..][..dimensions];
            for (value, gradient) in row.iter_mut().zip(&self.gradient) {
                *value += gradient;
            }
        }
        probabilities[label]
    }

    fn are_finite(&self) -> bool {
        let mut values = self.input.iter().chain(&self.output);
        values.all(|value| value.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fasttext::Model;
    use super::*;

    const TRAINING: Training = Training {
        dimensions: 4,
        epochs: 20,
        learning_rate: 0.5,
        word_ngrams: 2,
        character_ngrams: [3, 0],
        buckets: 50,
        min_word_count: 1,
        max_words: 100,
    };

    fn trained(texts: [&[&str]; 2], training: &Training, key: u64) -> (Vec<u8>, Report) {
        let mut words = Words::default();
        let lines = texts.map(|set| {
            set.iter()
                .map(|text| {
                    let mut line = Vec::new();
                    words.each_of(text, |word| line.push(word));
                    line
                })
                .collect::<Vec<_>>()
        });
        let slices = lines
            .each_ref()
            .map(|set| set.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let words = words.by_number();
        let go_on = || Ok::<(), ()>(());
        train(&words, [&slices[0], &slices[1]], training, key, go_on).expect("goes on")
    }

    const GOOD: [&str; 3] = [
        "salt in the soil of the field",
        "the roots of plants",
        "water in the soil",
    ];
    const BAD: [&str; 2] = ["buy now and save", "click here to buy the best price"];

    /// Rows (0.2, -0.4) and (0.6, 0.8), labels (1, 0.5) and (0, -1), rate 0.5. The mean is (0.4, 0.2),
    /// the products are 0.5 and -0.2, so p = 1 / (1 + e^-0.7) = 0.6681878 and the steps are
    /// ±0.5 * 0.3318122 = ±0.1659061. The gradient (0.1659061, 0.0829531 + 0.1659061) is halved, for
    /// two rows.
    #[test]
    fn one_step_by_hand() {
        let mut weights = Weights {
            input: vec![9.0, 9.0, 0.2, -0.4, 0.6, 0.8],
            output: vec![1.0, 0.5, 0.0, -1.0],
            ..Weights::new(2, 3, 0)
        };
        let probability = weights.step(&[1, 2], 0, 0.5);
        assert!((probability - 0.668_187_8).abs() < 1e-6);
        let near = |found: &[f32], expected: &[f32]| {
            let differences = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
            assert!(
                found.len() == expected.len() && differences.fold(0.0, f32::max) < 1e-6,
                "{found:?} {expected:?}"
            );
        };
        near(
            &weights.output,
            &[1.066_362_4, 0.533_181_2, -0.066_362_4, -1.033_181_2],
        );
        near(
            &weights.input,
            &[
                9.0,
                9.0,
                0.282_953_1,
                -0.275_570_4,
                0.682_953_1,
                0.924_429_6,
            ],
        );
    }

    /// Two words and the end of the line, no n-grams, one dimension: all rows start in ±1, the labels
    /// at 0, so the first line of two rows has p = 0.5 and moves the labels by ±rate / 2 times its
    /// mean. The second line has 3 rows; 2 of 5 words are behind it, so its rate is 0.6 times the first.
    #[test]
    fn two_lines_by_hand() {
        let training = Training {
            dimensions: 1,
            epochs: 1,
            word_ngrams: 1,
            ..TRAINING
        };
        let (file, report) = trained([&["a"], &["b a"]], &training, 5);
        let start = Weights::new(1, 3, 5).input;
        // Rows: the end of the line, a (two occurrences), b.
        let mean = (start[1] + start[0]) / 2.0;
        let (good, bad) = (0.25 * mean, -0.25 * mean);
        let mean = (start[2] + start[1] + start[0]) / 3.0;
        let p = 1.0 / (1.0 + (-(bad - good) * mean).exp());
        let step = 0.5 * 0.6 * (1.0 - p);
        let numbers: Vec<f32> = file[file.len() - 8..]
            .as_chunks::<4>()
            .0
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect();
        assert!((numbers[0] - (good - step * mean)).abs() < 1e-6);
        assert!((numbers[1] - (bad + step * mean)).abs() < 1e-6);
        let loss = (-(0.5f64 + 1e-5).ln() - (f64::from(p) + 1e-5).ln()) / 2.0;
        assert!((report.loss_nats - loss).abs() < 1e-6);
        assert_eq!(report.words, 3);
    }

    #[test]
    fn a_trained_model_is_a_model_file_that_tells_the_sets_apart() {
        for training in [
            TRAINING,
            Training {
                word_ngrams: 1,
                ..TRAINING
            },
            Training {
                character_ngrams: [2, 4],
                ..TRAINING
            },
        ] {
            let training = Training {
                epochs: 200,
                ..training
            };
            let (file, report) = trained([&GOOD, &BAD], &training, 1);
            assert!(report.loss_nats < 0.5, "{report:?}");
            let model = Model::parse(file).expect("a whole model");
            assert!(model.labels().eq(LABELS));
            for (texts, label) in [(&GOOD[..], 0), (&BAD[..], 1)] {
                for text in texts {
                    let (best, probability) = model.best_label(text).expect("known words");
                    assert!(best == label && probability > 0.6, "{text}: {probability}");
                }
            }
        }
    }

    /// Two steps by the trainer's rows give the probability that scoring finds by its own, bit for bit.
    #[test]
    fn training_and_scoring_see_the_same_rows() {
        let training = Training {
            epochs: 1,
            character_ngrams: [2, 3],
            learning_rate: 0.3,
            ..TRAINING
        };
        let (file, report) = trained([&["naïve salt"], &["naïve salt"]], &training, 3);
        let model = Model::parse(file).expect("a model");
        let mut dictionary_words = Words::default();
        let mut line = Vec::new();
        dictionary_words.each_of("naïve salt", |word| line.push(word));
        let words = dictionary_words.by_number();
        let sets: [&[&[u32]]; 2] = [&[&line], &[&line]];
        let dictionary = Dictionary::new(&words, sets, &training);
        let mut weights = Weights::new(4, dictionary.words.len() + 50, 3);
        let (mut rows, mut hashes) = (Vec::new(), Vec::new());
        dictionary.rows_of(&line, &training.hashing(), &mut rows, &mut hashes);
        weights.step(&rows, 0, 0.3);
        let second = weights.step(&rows, 1, 0.15);
        let before = weights.step(&rows, 0, 0.0);
        let found = model.probability("naïve\nsalt", 0).expect("known words");
        assert_eq!(found.to_bits(), (before + 1e-5).to_bits());
        let loss = (-(0.5f64 + 1e-5).ln() - (f64::from(second) + 1e-5).ln()) / 2.0;
        assert!((report.loss_nats - loss).abs() < 1e-12);
    }

    #[test]
    fn the_dictionary_is_bounded_and_ordered_by_count_then_bytes() {
        let mut words = Words::default();
        let mut line = Vec::new();
        words.each_of("d b b __label__x a a c </s>", |word| line.push(word));
        let words = words.by_number();
        let of = |min_word_count, max_words| {
            let training = Training {
                min_word_count,
                max_words,
                ..TRAINING
            };
            let dictionary = Dictionary::new(&words, [&[&line], &[&[]]], &training);
            let names = dictionary
                .words
                .iter()
                .map(|(word, count)| format!("{}{count}", String::from_utf8_lossy(word)));
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(1, 9), "</s>2 a2 b2 c1 d1");
        assert_eq!(of(2, 9), "</s>2 a2 b2");
        assert_eq!(of(3, 9), "</s>2");
        assert_eq!(of(1, 3), "</s>2 a2 b2 c1");
    }

    #[test]
    fn another_key_gives_other_values_and_a_rate_beyond_reason_is_told() {
        assert_ne!(
            trained([&GOOD, &BAD], &TRAINING, 1).0,
            trained([&GOOD, &BAD], &TRAINING, 2).0
        );
        let wild = Training {
            learning_rate: 1e30,
            ..TRAINING
        };
        let (_, report) = trained([&GOOD, &BAD], &wild, 1);
        assert!(report.loss_nats.is_nan());
    }

    #[test]
    fn the_smaller_set_is_gone_through_again() {
        let once = Training {
            epochs: 1,
            ..TRAINING
        };
        let (repeated, _) = trained([&["a", "b"], &["a"]], &once, 1);
        let (written_out, _) = trained([&["a", "b"], &["a", "a"]], &once, 1);
        // The counts differ in the dictionary, the matrices do not: rows of the end of the line, two
        // words and 50 buckets, the head of the second matrix, rows of two labels.
        let matrices = (1 + 2 + 50) * 4 * 4 + 17 + 2 * 4 * 4;
        assert_eq!(
            repeated[repeated.len() - matrices..],
            written_out[written_out.len() - matrices..]
        );
    }
}
