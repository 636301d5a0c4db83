//! Probabilities of labels by a supervised fastText model (Joulin et al. 2016), read from the bytes
//! of a `.bin` or `.ftz` file of format version 11 or 12, as the original library computes them.
//!
//! A line of text becomes rows of the input matrix: its words, their character n-grams, and its
//! word n-grams, the last two by hash. Their mean is multiplied with the output matrix. Sums are of
//! `f32` in the order of the rows, so that a text has one probability on every machine.

use std::collections::HashMap;

/// What a model file begins with, a little-endian number of 32 bits.
pub const MAGIC: i32 = 793_712_314;
const VERSIONS: [i32; 2] = [11, 12];
pub(super) const SUPERVISED: i32 = 3;
/// The number of the loss in the header.
pub(super) const SOFTMAX: i32 = 3;
/// The word that ends every line.
pub(super) const END_OF_LINE: &[u8] = b"</s>";
const LABEL_PREFIX: &[u8] = b"__label__";
/// Centroids of a quantiser: as many as a byte can name.
const CENTROIDS: usize = 256;

/// How the output is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    HierarchicalSoftmax,
    Softmax,
    /// Negative sampling and one-vs-all: a sigmoid for each label.
    Logistic,
}

/// A model, without its intermediate values. The bytes of the matrices are read in place.
pub struct Model {
    bytes: Vec<u8>,
    dim: usize,
    hashing: Hashing,
    loss: Loss,
    /// By label, the way up to the root of the Huffman tree; none with another loss.
    paths: Vec<Vec<(usize, bool)>>,
    /// Every entry of the dictionary by its bytes: words first, then labels.
    ids: HashMap<Box<[u8]>, u32>,
    n_words: u32,
    labels: Vec<(String, i64)>,
    /// Where hashed rows went when rarely used ones were cut off; `None` where all were kept.
    kept_rows: Option<HashMap<u32, u32>>,
    input: Matrix,
    output: Matrix,
}

enum Matrix {
    /// Rows of `f32` from this byte on.
    Dense { start: usize, rows: usize },
    Quantised {
        rows: usize,
        /// Per row and part of a row: number of a centroid.
        codes: usize,
        quantiser: Quantiser,
        /// Per row: number of the centroid of its norm, and those centroids.
        norms: Option<(usize, Quantiser)>,
    },
}

/// A product quantiser: each part of a row is one of 256 centroids.
struct Quantiser {
    parts: usize,
    part_length: usize,
    last_length: usize,
    centroids: usize,
}

/// Reads values one after another and says where a file ends too early.
struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Cursor<'b> {
    fn take(&mut self, length: usize, what: &str) -> Result<&'b [u8], String> {
        let end = self
            .at
            .checked_add(length)
            .filter(|&end| end <= self.bytes.len());
        let end = end.ok_or_else(|| {
            format!(
                "it ends within its {what}: {} bytes are too few",
                self.bytes.len()
            )
        })?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], String> {
        Ok(self.take(N, what)?.try_into().expect("as long as asked"))
    }

    fn i32(&mut self, what: &str) -> Result<i32, String> {
        Ok(i32::from_le_bytes(self.array(what)?))
    }

    fn i64(&mut self, what: &str) -> Result<i64, String> {
        Ok(i64::from_le_bytes(self.array(what)?))
    }

    fn count(&mut self, what: &str) -> Result<usize, String> {
        let count = self.i32(what)?;
        usize::try_from(count).map_err(|_| format!("its {what} is {count}, below 0"))
    }

    fn long_count(&mut self, what: &str) -> Result<usize, String> {
        let count = self.i64(what)?;
        usize::try_from(count).map_err(|_| format!("its {what} is {count}, below 0"))
    }

    fn flag(&mut self, what: &str) -> Result<bool, String> {
        let [byte] = self.array(what)?;
        Ok(byte != 0)
    }

    /// Passes by `count` values of `size` bytes; where they start.
    fn skip(&mut self, count: usize, size: usize, what: &str) -> Result<usize, String> {
        let start = self.at;
        let length = count
            .checked_mul(size)
            .ok_or_else(|| format!("its {what} is too large"))?;
        self.take(length, what)?;
        Ok(start)
    }

    fn quantiser(&mut self, dim: usize, what: &str) -> Result<Quantiser, String> {
        let found = self.count(what)?;
        let parts = self.count(what)?;
        let part_length = self.count(what)?;
        let last_length = self.count(what)?;
        let fits = parts > 0
            && found == dim
            && (parts - 1)
                .checked_mul(part_length)
                .and_then(|sum| sum.checked_add(last_length))
                == Some(dim);
        if !fits {
            return Err(format!("its {what} does not fit {dim} dimensions"));
        }
        let centroids = self.skip(dim * CENTROIDS, 4, what)?;
        Ok(Quantiser {
            parts,
            part_length,
            last_length,
            centroids,
        })
    }

    fn matrix(&mut self, quantised: bool, dim: usize, what: &str) -> Result<Matrix, String> {
        let has_norms = quantised && self.flag(what)?;
        let rows = self.long_count(what)?;
        let columns = self.long_count(what)?;
        if columns != dim {
            return Err(format!("its {what} has {columns} columns, not {dim}"));
        }
        if !quantised {
            let values = rows
                .checked_mul(dim)
                .ok_or_else(|| format!("its {what} is too large"))?;
            let start = self.skip(values, 4, what)?;
            return Ok(Matrix::Dense { start, rows });
        }
        let n_codes = self.count(what)?;
        let codes = self.skip(n_codes, 1, what)?;
        let quantiser = self.quantiser(dim, what)?;
        if rows.checked_mul(quantiser.parts) != Some(n_codes) {
            return Err(format!("its {what} has {n_codes} codes for {rows} rows"));
        }
        let norms = match has_norms {
            true => Some((self.skip(rows, 1, what)?, self.quantiser(1, what)?)),
            false => None,
        };
        Ok(Matrix::Quantised {
            rows,
            codes,
            quantiser,
            norms,
        })
    }
}

impl Matrix {
    fn rows(&self) -> usize {
        match self {
            Matrix::Dense { rows, .. } | Matrix::Quantised { rows, .. } => *rows,
        }
    }

    /// Calls `visit` with the place and the value of each number of a row.
    #[inline]
    fn each(&self, bytes: &[u8], dim: usize, row: usize, mut visit: impl FnMut(usize, f32)) {
        match self {
            Matrix::Dense { start, .. } => {
                let row = &bytes[start + row * dim * 4..][..dim * 4];
                for (at, value) in row.as_chunks::<4>().0.iter().enumerate() {
                    visit(at, f32::from_le_bytes(*value));
                }
            }
            Matrix::Quantised {
                codes,
                quantiser,
                norms,
                ..
            } => {
                let norm = norms.as_ref().map_or(1.0, |(codes, norms)| {
                    value_at(bytes, norms.centroids, bytes[codes + row] as usize)
                });
                for part in 0..quantiser.parts {
                    let code = bytes[codes + row * quantiser.parts + part] as usize;
                    let length = match part + 1 == quantiser.parts {
                        true => quantiser.last_length,
                        false => quantiser.part_length,
                    };
                    let first = part * CENTROIDS * quantiser.part_length + code * length;
                    for at in 0..length {
                        let value = value_at(bytes, quantiser.centroids, first + at);
                        visit(part * quantiser.part_length + at, norm * value);
                    }
                }
            }
        }
    }
}

fn value_at(bytes: &[u8], start: usize, number: usize) -> f32 {
    let value = &bytes[start + number * 4..][..4];
    f32::from_le_bytes(value.try_into().expect("four bytes"))
}

/// FNV-1a of 32 bits, with the bytes taken as signed, as fastText has it.
fn hash_on(hash: u32, byte: u8) -> u32 {
    (hash ^ (byte as i8) as u32).wrapping_mul(16_777_619)
}

const HASH_START: u32 = 2_166_136_261;

/// The hash of a word, by which its n-grams are hashed.
pub(super) fn hash(word: &[u8]) -> u32 {
    word.iter()
        .fold(HASH_START, |hash, &byte| hash_on(hash, byte))
}

/// The words of a line of text, as the dictionary knows them; without the word that ends the line.
pub(super) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_space = |byte: &u8| matches!(byte, b' ' | 0 | b'\t'..=b'\r');
    text.split(is_space)
        .filter(|word| !word.is_empty() && *word != END_OF_LINE)
}

/// Whether a word that is not in the dictionary would be a label there.
pub(super) fn is_label(word: &[u8]) -> bool {
    word.starts_with(LABEL_PREFIX)
}

/// Which n-grams have rows, by hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hashing {
    /// Words in the longest n-gram of words; up to 1 for none.
    pub(super) word_ngrams: usize,
    /// Rows that n-grams share.
    pub(super) buckets: u32,
    /// Characters in the shortest n-gram of characters.
    pub(super) min_chars: usize,
    /// Likewise in the longest; 0 for none.
    pub(super) max_chars: usize,
}

impl Hashing {
    /// Whether any n-gram has a row.
    pub(super) fn hashes(&self) -> bool {
        self.word_ngrams > 1 || self.max_chars > 0
    }

    /// The buckets of a word's n-grams of characters; the word that ends the line has none.
    pub(super) fn character_ngrams(&self, word: &[u8], mut visit: impl FnMut(u32)) {
        if self.max_chars == 0 {
            return;
        }
        let marked = [b"<", word, b">"].concat();
        let is_start = |at: usize| marked[at] & 0xC0 != 0x80;
        for start in (0..marked.len()).filter(|&at| is_start(at)) {
            let (mut hash, mut end) = (HASH_START, start);
            for characters in 1..=self.max_chars {
                if end == marked.len() {
                    break;
                }
                hash = hash_on(hash, marked[end]);
                end += 1;
                while end < marked.len() && !is_start(end) {
                    hash = hash_on(hash, marked[end]);
                    end += 1;
                }
                let is_mark = characters == 1 && (start == 0 || end == marked.len());
                if characters >= self.min_chars && !is_mark {
                    visit(hash % self.buckets);
                }
            }
        }
    }

    /// The buckets of a line's n-grams of two words and more, by the hashes of its words.
    pub(super) fn word_ngrams(&self, hashes: &[u32], mut visit: impl FnMut(u32)) {
        let longer = self.word_ngrams.saturating_sub(1);
        // A hash is a signed number there, and stays one when it is widened.
        let widened = |hash: u32| i64::from(hash as i32) as u64;
        for (at, &first) in hashes.iter().enumerate() {
            let mut ngram = widened(first);
            for &next in hashes[at + 1..].iter().take(longer) {
                ngram = ngram.wrapping_mul(116_049_371).wrapping_add(widened(next));
                visit((ngram % u64::from(self.buckets)) as u32);
            }
        }
    }
}

impl Model {
    /// Takes the bytes of a model file.
    ///
    /// # Errors
    /// With what is wrong, where they are not a whole supervised model.
    pub fn parse(bytes: Vec<u8>) -> Result<Model, String> {
        let mut cursor = Cursor {
            bytes: &bytes,
            at: 0,
        };
        let header = "header";
        if cursor.i32(header)? != MAGIC {
            return Err("it does not begin like a fastText model".to_string());
        }
        let version = cursor.i32(header)?;
        if !VERSIONS.contains(&version) {
            return Err(format!("its format version is {version}, not 11 or 12"));
        }
        let mut arguments = [0; 12];
        for argument in &mut arguments {
            *argument = cursor.i32(header)?;
        }
        cursor.take(8, header)?;
        let [
            dim,
            _,
            _,
            _,
            _,
            word_ngrams,
            loss,
            kind,
            buckets,
            min_chars,
            max_chars,
            _,
        ] = arguments;
        if kind != SUPERVISED {
            return Err("it is a model of word vectors, without labels".to_string());
        }
        let loss = match loss {
            1 => Loss::HierarchicalSoftmax,
            3 => Loss::Softmax,
            2 | 4 => Loss::Logistic,
            other => return Err(format!("its loss has the unknown number {other}")),
        };
        // Supervised models of version 11 had no character n-grams.
        let max_chars = if version == 11 { 0 } else { max_chars };
        let positive = |value: i32, what: &str| {
            usize::try_from(value).map_err(|_| format!("its {what} is {value}, below 0"))
        };
        let dim = positive(dim, "dimension")?;

        let what = "dictionary";
        let n_entries = cursor.count(what)?;
        let n_words = cursor.i32(what)?;
        let n_labels = cursor.count(what)?;
        cursor.i64(what)?;
        let n_kept = cursor.i64(what)?;
        if usize::try_from(n_words)
            .ok()
            .and_then(|n| n.checked_add(n_labels))
            != Some(n_entries)
        {
            return Err(format!(
                "its {n_entries} entries are not {n_words} words and {n_labels} labels"
            ));
        }
        let n_words = n_words as u32;
        let mut ids = HashMap::new();
        let mut labels = Vec::new();
        for id in 0..n_entries as u32 {
            let rest = &bytes[cursor.at..];
            let length = rest.iter().position(|&byte| byte == 0);
            let length = length.ok_or("it ends within its dictionary")?;
            let word = cursor.take(length + 1, what)?;
            let word = &word[..length];
            let count = cursor.i64(what)?;
            let is_label = cursor.flag(what)?;
            if is_label != (id >= n_words) {
                return Err("its dictionary has a label among the words".to_string());
            }
            if is_label {
                labels.push((String::from_utf8_lossy(word).into_owned(), count));
            }
            ids.insert(Box::from(word), id);
        }
        let mut kept_rows = (n_kept >= 0).then(HashMap::new);
        if let Some(kept) = &mut kept_rows {
            for _ in 0..n_kept {
                let (from, to) = (cursor.i32(what)?, cursor.i32(what)?);
                kept.insert(from as u32, to as u32);
            }
        }

        let input_is_quantised = cursor.flag("input matrix")?;
        let input = cursor.matrix(input_is_quantised, dim, "input matrix")?;
        let output_is_quantised = cursor.flag("output matrix")?;
        let output = cursor.matrix(
            input_is_quantised && output_is_quantised,
            dim,
            "output matrix",
        )?;
        if labels.is_empty() || output.rows() < labels.len() {
            return Err(format!(
                "its output matrix has {} rows for {} labels",
                output.rows(),
                labels.len()
            ));
        }
        let paths = match loss {
            Loss::HierarchicalSoftmax => paths(&labels),
            Loss::Softmax | Loss::Logistic => Vec::new(),
        };
        let model = Model {
            dim,
            hashing: Hashing {
                word_ngrams: positive(word_ngrams, "number of words in an n-gram")?,
                buckets: positive(buckets, "number of buckets")? as u32,
                min_chars: positive(min_chars, "number of characters in an n-gram")?,
                max_chars: positive(max_chars, "number of characters in an n-gram")?,
            },
            loss,
            paths,
            ids,
            n_words,
            labels,
            kept_rows,
            input,
            output,
            bytes,
        };
        let hashes = model.hashing.hashes();
        let hashed_rows = match &model.kept_rows {
            Some(kept) => kept
                .values()
                .max()
                .map_or(0, |&highest| highest as usize + 1),
            None if hashes => model.hashing.buckets as usize,
            None => 0,
        };
        if model.input.rows() < n_words as usize + hashed_rows {
            return Err(format!(
                "its input matrix has {} rows for {n_words} words and {hashed_rows} hashed rows",
                model.input.rows()
            ));
        }
        if hashes && model.hashing.buckets == 0 {
            return Err("it hashes n-grams into no buckets".to_string());
        }
        Ok(model)
    }

    /// The labels, in the order of the model.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(|(label, _)| label.as_str())
    }

    /// The bytes of its file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Probability of a label, by its number in [`Model::labels`], from 0 to 1. Line ends count as
    /// spaces. `None` where the model knows no word or part of a word of the text.
    ///
    /// As in the original library, 1e-5 is added to a probability, and the sigmoid of a model of
    /// negative sampling or one-vs-all is read from a table of steps of 1/32.
    pub fn probability(&self, text: &str, label: usize) -> Option<f32> {
        let hidden = self.hidden(text.as_bytes())?;
        Some(self.probability_of(&hidden, label))
    }

    /// The most probable label and its probability, as [`Model::probability`]; of equal ones the first.
    /// A probability that is not a number is never the highest.
    pub fn best_label(&self, text: &str) -> Option<(usize, f32)> {
        let hidden = self.hidden(text.as_bytes())?;
        let mut best: Option<(usize, f32)> = None;
        for label in 0..self.labels.len() {
            let value = match self.loss {
                // It rises with the probability, and does not need the other labels.
                Loss::Softmax => self.product(&hidden, label),
                Loss::Logistic | Loss::HierarchicalSoftmax => self.probability_of(&hidden, label),
            };
            let is_best = best.is_none_or(|(_, highest)| value > highest);
            if is_best && !value.is_nan() {
                best = Some((label, value));
            }
        }
        best.map(|(label, _)| (label, self.probability_of(&hidden, label)))
    }

    /// The mean of a line's rows.
    fn hidden(&self, text: &[u8]) -> Option<Vec<f32>> {
        let rows = self.rows(text);
        if rows.is_empty() {
            return None;
        }
        let mut hidden = vec![0f32; self.dim];
        for &row in &rows {
            self.input
                .each(&self.bytes, self.dim, row as usize, |at, value| {
                    hidden[at] += value
                });
        }
        let scale = 1.0 / rows.len() as f32;
        hidden.iter_mut().for_each(|value| *value *= scale);
        Some(hidden)
    }

    /// The product with a row of the output matrix.
    fn product(&self, hidden: &[f32], row: usize) -> f32 {
        let mut sum = 0f32;
        self.output.each(&self.bytes, self.dim, row, |at, value| {
            sum += hidden[at] * value
        });
        sum
    }

    fn probability_of(&self, hidden: &[f32], label: usize) -> f32 {
        let product = |row: usize| self.product(hidden, row);
        let smoothed = |probability: f32| probability + 1e-5;
        let probability = match self.loss {
            Loss::Softmax => {
                let products: Vec<f32> = (0..self.labels.len()).map(product).collect();
                let highest = products.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f32 = products
                    .iter()
                    .map(|value| libm::expf(value - highest))
                    .sum();
                smoothed(libm::expf(products[label] - highest) / sum)
            }
            Loss::Logistic => smoothed(sigmoid_by_table(product(label))),
            Loss::HierarchicalSoftmax => self.paths[label]
                .iter()
                .map(|&(node, right)| {
                    let sigmoid = 1.0 / (1.0 + libm::expf(-product(node)));
                    smoothed(if right { sigmoid } else { 1.0 - sigmoid })
                })
                .product(),
        };
        // Not `min`, which makes 1 of what is not a number.
        match probability > 1.0 {
            true => 1.0,
            false => probability,
        }
    }

    /// The rows of the input matrix that a line of text stands for.
    fn rows(&self, text: &[u8]) -> Vec<u32> {
        let (mut rows, mut hashes) = (Vec::new(), Vec::new());
        for word in words(text).chain([END_OF_LINE]) {
            let id = self.ids.get(word).copied();
            if id.map_or(is_label(word), |id| id >= self.n_words) {
                continue;
            }
            rows.extend(id);
            if word != END_OF_LINE {
                self.hashing
                    .character_ngrams(word, |bucket| self.hashed_row(bucket, &mut rows));
            }
            hashes.push(hash(word));
        }
        self.hashing
            .word_ngrams(&hashes, |bucket| self.hashed_row(bucket, &mut rows));
        rows
    }

    fn hashed_row(&self, bucket: u32, rows: &mut Vec<u32>) {
        let kept = match &self.kept_rows {
            Some(kept) => kept.get(&bucket).copied(),
            None => Some(bucket),
        };
        rows.extend(kept.map(|row| self.n_words + row));
    }
}

/// For each label the inner nodes of the Huffman tree from it up to the root, with whether the way
/// down goes to the right there. Labels stand in the order of falling counts.
fn paths(labels: &[(String, i64)]) -> Vec<Vec<(usize, bool)>> {
    let n = labels.len();
    let mut counts: Vec<i64> = labels.iter().map(|(_, count)| *count).collect();
    counts.resize(2 * n - 1, i64::MAX);
    let mut parents = vec![(0, false); 2 * n - 1];
    let (mut leaves, mut node) = (n, n);
    for parent in n..2 * n - 1 {
        let mut sum = 0i64;
        for right in [false, true] {
            let least = if leaves > 0 && counts[leaves - 1] < counts[node] {
                leaves -= 1;
                leaves
            } else {
                node += 1;
                node - 1
            };
            sum = sum.saturating_add(counts[least]);
            parents[least] = (parent, right);
        }
        counts[parent] = sum;
    }
    let path = |label: usize| {
        let mut path = Vec::new();
        let mut at = label;
        while at + 1 < 2 * n - 1 {
            let (parent, right) = parents[at];
            path.push((parent - n, right));
            at = parent;
        }
        path
    };
    (0..n).map(path).collect()
}

/// The logistic function in steps of 1/32 from -8 to 8, 0 below and 1 above.
fn sigmoid_by_table(x: f32) -> f32 {
    if x < -8.0 {
        0.0
    } else if x > 8.0 {
        1.0
    } else {
        let step = ((x + 8.0) * 32.0).floor();
        1.0 / (1.0 + libm::expf(-(step / 32.0 - 8.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model of 3 dimensions and 20 buckets, by a formula that any language can repeat: numbers
    /// from -2 to 2 of a linear congruential generator of 64 bits.
    #[derive(Clone, Copy)]
    struct Made {
        loss: i32,
        word_ngrams: i32,
        chars: [i32; 2],
        quantised: bool,
        kept: Option<&'static [i32]>,
    }

    const WORDS: [&str; 8] = ["</s>", "the", "soil", "naïve", "中文", "salt", "buy", "now"];
    const LABELS: [(&str, i64); 3] = [
        ("__label__good", 9),
        ("__label__bad", 7),
        ("__label__ugly", 2),
    ];
    const TEXTS: [&str; 5] = [
        "the soil",
        "buy salt now zebra 中文 naïve",
        "free\u{A0}salt soil",
        "__label__good salt __label__none",
        "xyz\tthe\u{B}soil\u{3000}now",
    ];

    fn floats(seed: u64, count: usize) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f64 / (1u64 << 24) as f64 - 0.5) as f32 * 4.0
        };
        (0..count).flat_map(|_| next().to_le_bytes()).collect()
    }

    fn ints(values: &[i32]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }

    fn longs(values: &[i64]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }

    fn bytes_of(made: Made) -> Vec<u8> {
        let (dim, buckets) = (3, 20);
        let [min, max] = made.chars;
        let mut bytes = ints(&[
            MAGIC,
            12,
            dim,
            5,
            1,
            1,
            5,
            made.word_ngrams,
            made.loss,
            SUPERVISED,
        ]);
        bytes.extend(ints(&[buckets, min, max, 100]));
        bytes.extend(1e-4f64.to_le_bytes());
        bytes.extend(ints(&[11, 8, 3]));
        bytes.extend(longs(&[
            100,
            made.kept.map_or(-1, |kept| kept.len() as i64),
        ]));
        for (word, count) in WORDS.into_iter().zip((0..).map(|at| 50 - at)).chain(LABELS) {
            bytes.extend(word.as_bytes());
            bytes.push(0);
            bytes.extend(longs(&[count]));
            bytes.push(u8::from(word.starts_with("__label__")));
        }
        for (row, &bucket) in made.kept.unwrap_or_default().iter().enumerate() {
            bytes.extend(ints(&[bucket, row as i32]));
        }
        let rows = 8 + made.kept.map_or(buckets as usize, <[i32]>::len);
        bytes.push(u8::from(made.quantised));
        if made.quantised {
            bytes.push(1);
            bytes.extend(longs(&[rows as i64, 3]));
            bytes.extend(ints(&[rows as i32 * 2]));
            bytes.extend((0..rows * 2).map(|at| (at * 37 + 11) as u8));
            bytes.extend(ints(&[3, 2, 2, 1]));
            bytes.extend(floats(3, 3 * 256));
            bytes.extend((0..rows).map(|at| (at * 53 + 5) as u8));
            bytes.extend(ints(&[1, 1, 1, 1]));
            bytes.extend(floats(4, 256));
        } else {
            bytes.extend(longs(&[rows as i64, 3]));
            bytes.extend(floats(1, rows * 3));
        }
        bytes.push(0);
        bytes.extend(longs(&[3, 3]));
        bytes.extend(floats(2, 3 * 3));
        bytes
    }

    const PLAIN: Made = Made {
        loss: 3,
        word_ngrams: 1,
        chars: [0, 0],
        quantised: false,
        kept: None,
    };

    /// What the original library (fasttext-wheel 0.9.2) says of the same bytes: the probabilities
    /// of the three labels for each text.
    #[test]
    fn probabilities_are_those_of_the_original_library() {
        let cases: [(&str, Made, [[f32; 3]; 5]); 7] = [
            (
                "words alone",
                PLAIN,
                [
                    [0.373731, 0.428972, 0.197327],
                    [0.60887, 0.312115, 0.079044],
                    [0.172913, 0.78058, 0.046536],
                    [0.589692, 0.314949, 0.095389],
                    [0.403147, 0.099015, 0.497868],
                ],
            ),
            (
                "word and character n-grams",
                Made {
                    word_ngrams: 3,
                    chars: [2, 4],
                    ..PLAIN
                },
                [
                    [0.331169, 0.194969, 0.473893],
                    [0.212758, 0.270484, 0.516789],
                    [0.113466, 0.179181, 0.707383],
                    [0.078556, 0.167622, 0.753852],
                    [0.264791, 0.121646, 0.613593],
                ],
            ),
            (
                "one-vs-all",
                Made {
                    loss: 4,
                    word_ngrams: 2,
                    ..PLAIN
                },
                [
                    [0.453272, 0.51563, 0.607673],
                    [0.538993, 0.52343, 0.160276],
                    [0.538993, 0.492198, 0.52343],
                    [0.507822, 0.47659, 0.569863],
                    [0.615098, 0.370235, 0.924152],
                ],
            ),
            (
                "negative sampling",
                Made {
                    loss: 2,
                    chars: [2, 3],
                    ..PLAIN
                },
                [
                    [0.55448, 0.44554, 0.644235],
                    [0.44554, 0.492198, 0.72488],
                    [0.327678, 0.577505, 0.749097],
                    [0.268951, 0.607673, 0.817585],
                    [0.507822, 0.44554, 0.77731],
                ],
            ),
            (
                "hierarchical softmax",
                Made {
                    loss: 1,
                    word_ngrams: 2,
                    chars: [1, 2],
                    ..PLAIN
                },
                [
                    [0.581396, 0.14161, 0.277022],
                    [0.50759, 0.222804, 0.269636],
                    [0.583502, 0.132064, 0.284462],
                    [0.528493, 0.182939, 0.288598],
                    [0.463268, 0.266518, 0.270245],
                ],
            ),
            (
                "quantised, four hashed rows kept",
                Made {
                    word_ngrams: 2,
                    chars: [2, 3],
                    quantised: true,
                    kept: Some(&[7, 1, 13, 4]),
                    ..PLAIN
                },
                [
                    [0.071603, 0.100034, 0.828393],
                    [0.204573, 0.206243, 0.589213],
                    [0.20483, 0.171979, 0.623221],
                    [0.142428, 0.316959, 0.540643],
                    [0.105976, 0.423906, 0.470147],
                ],
            ),
            (
                "quantised, no hashed row kept",
                Made {
                    loss: 1,
                    word_ngrams: 2,
                    chars: [2, 3],
                    quantised: true,
                    kept: Some(&[]),
                },
                [
                    [0.682284, 0.049675, 0.268068],
                    [0.524749, 0.180244, 0.295036],
                    [0.60043, 0.102721, 0.296877],
                    [0.35609, 0.382642, 0.2613],
                    [0.757076, 0.02039, 0.222559],
                ],
            ),
        ];
        for (name, made, expected) in cases {
            let model = Model::parse(bytes_of(made)).expect("a model");
            assert_eq!(
                model.labels().collect::<Vec<_>>(),
                LABELS.map(|(label, _)| label)
            );
            for (text, expected) in TEXTS.iter().zip(expected) {
                for (label, expected) in expected.into_iter().enumerate() {
                    let found = model.probability(text, label).expect("known words");
                    assert!(
                        (found - expected).abs() < 1e-5,
                        "{name}: {text:?}: {found} {expected}"
                    );
                }
                let (best, found) = model.best_label(text).expect("known words");
                assert_eq!(
                    model.probability(text, best),
                    Some(found),
                    "{name}: {text:?}"
                );
                assert!(
                    expected.iter().all(|&other| expected[best] >= other),
                    "{name}: {text:?}"
                );
            }
        }
    }

    #[test]
    fn a_line_end_is_a_space_and_an_unknown_word_alone_is_known_by_the_end_of_its_line() {
        let model = Model::parse(bytes_of(PLAIN)).expect("a model");
        assert_eq!(
            model.probability("the\nsoil", 0),
            model.probability("the soil", 0)
        );
        assert_eq!(model.probability("zebra", 0), model.probability("", 0));
        assert!(model.probability("", 0).is_some());
    }

    #[test]
    fn what_is_no_whole_supervised_model_is_refused() {
        let whole = bytes_of(Made {
            quantised: true,
            kept: Some(&[7, 1]),
            word_ngrams: 2,
            ..PLAIN
        });
        for length in 0..whole.len() {
            assert!(
                Model::parse(whole[..length].to_vec()).is_err(),
                "{length} bytes"
            );
        }
        let refused = |at: usize, value: i32, word: &str| {
            let mut bytes = bytes_of(PLAIN);
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let error = Model::parse(bytes).err().expect("refused");
            assert!(error.contains(word), "{error}");
        };
        refused(0, 1, "begin");
        refused(4, 13, "version");
        refused(8, 4, "columns");
        refused(4 * 8, 9, "loss");
        refused(4 * 9, 2, "word vectors");
        // Twenty rows for hashes are not there where 21 may be asked for.
        let mut bytes = bytes_of(Made {
            word_ngrams: 2,
            ..PLAIN
        });
        bytes[40..44].copy_from_slice(&21i32.to_le_bytes());
        assert!(Model::parse(bytes).err().expect("refused").contains("rows"));
    }
}
