//! Text to ids: loading, special tokens, fingerprint.
//!
//! A [`Tokenizer`] comes from a Hugging Face tokenizer.json or from a vocabulary compiled into
//! the program ([`BUILTINS`]). It gives the ids of a document's text and nothing else: begin and
//! end tokens are the packer's business, and a special token that a document spells is plain text.
//!
//! Two engines read tokenizer.json files. The fast one is used where a self-check at load finds
//! its ids equal to the reference's; elsewhere the reference encodes ([`Tokenizer::slow_because`]
//! says why). The two know different versions of Unicode: where the check finds single characters
//! with different ids, documents that hold one go to the reference, so that the ids are the
//! reference's throughout.

mod characters;
mod check;
mod engine;
mod file;
mod vocabulary;

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use aho_corasick::AhoCorasick;
use thiserror::Error;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use characters::CharacterSet;
use check::Verdict;
use engine::Engine;
use vocabulary::{Vocabulary, nearest, show};

/// Where a tokenizer comes from, as a pipeline names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenizerSource {
    /// A tokenizer.json, or one packed with zstd.
    File(PathBuf),
    /// One of [`BUILTINS`], by its name or the name its makers use.
    Builtin(String),
}

/// A vocabulary compiled into the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Builtin {
    /// The name in a pipeline, such as `o200k`.
    pub name: &'static str,
    /// The name its makers use, such as `o200k_base`; accepted too.
    pub makers_name: &'static str,
    /// One line on what it is.
    pub about: &'static str,
}

/// The vocabularies compiled into the program.
pub const BUILTINS: &[Builtin] = &[
    Builtin {
        name: "o200k",
        makers_name: "o200k_base",
        about: "GPT-4o and later, 200,019 ids; ids equal tiktoken's",
    },
    Builtin {
        name: "o200k_harmony",
        makers_name: "o200k_harmony",
        about: "gpt-oss: o200k with its chat tokens, 201,088 ids; ids equal tiktoken's",
    },
    Builtin {
        name: "cl100k",
        makers_name: "cl100k_base",
        about: "GPT-3.5 and GPT-4, 100,277 ids; ids equal tiktoken's",
    },
];

/// Why a tokenizer cannot be loaded.
#[derive(Debug, Error)]
pub enum TokenizerError {
    /// The file cannot be opened, read or unpacked.
    #[error("{path}: the tokenizer cannot be read: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A folder was named.
    #[error("{path}: is a folder; name the tokenizer.json inside it")]
    IsAFolder {
        /// The folder.
        path: String,
    },
    /// The file is larger than any tokenizer.
    #[error("{path}: expected a tokenizer.json, found more than {max_bytes} bytes")]
    TooLarge {
        /// The file.
        path: String,
        /// The bound, in bytes after unpacking.
        max_bytes: u64,
    },
    /// A SentencePiece model.
    #[error(
        "{path}: is a SentencePiece model; convert it once, in Python: \
         transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER), \
         and name NEW_FOLDER/tokenizer.json"
    )]
    SentencePieceModel {
        /// The file.
        path: String,
    },
    /// A tiktoken rank file, which lacks the splitting pattern.
    #[error(
        "{path}: is a tiktoken rank file, which lacks the splitting pattern; use 'builtin: o200k' \
         or 'builtin: cl100k', or convert it once, in Python: \
         transformers.integrations.tiktoken.convert_tiktoken_to_fast(ENCODING, FOLDER), \
         and name FOLDER/tokenizer.json"
    )]
    TiktokenRanks {
        /// The file.
        path: String,
    },
    /// Something else.
    #[error("{path}: expected a Hugging Face tokenizer.json, found {found}")]
    NotATokenizerJson {
        /// The file.
        path: String,
        /// What it holds.
        found: String,
    },
    /// Encoding would be random.
    #[error(
        "{path}: 'model.dropout' must be null or 0 for ids that repeat, got {dropout}; \
         set it to null in a copy of the file"
    )]
    Dropout {
        /// The file.
        path: String,
        /// The value found.
        dropout: f64,
    },
    /// No engine can use the file.
    #[error("{path}: no engine can load this tokenizer.json ({reference}; {fast})")]
    NoEngine {
        /// The file.
        path: String,
        /// What the reference engine said, with its name.
        reference: String,
        /// What the fast engine said, with its name.
        fast: String,
    },
    /// A builtin that does not exist.
    #[error("no builtin tokenizer '{name}'; did you mean '{nearest}'? there are: {known}")]
    UnknownBuiltin {
        /// The name asked for.
        name: String,
        /// The name nearest to it.
        nearest: String,
        /// All names.
        known: String,
    },
    /// A builtin whose tables do not load.
    #[error("builtin tokenizer '{name}': {message}")]
    Builtin {
        /// The name asked for.
        name: String,
        /// What the library said.
        message: String,
    },
}

/// A loaded tokenizer. Cloning shares it; any number of threads may encode at once.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    exceptions: Option<Exceptions>,
    name: String,
    fingerprint: String,
    /// The tokens of a tokenizer.json; a builtin's are inside its engine.
    vocabulary: Option<Vocabulary>,
    /// By ascending id.
    special_tokens: Vec<(String, u32)>,
    /// Finds the special tokens' spellings; `None` where there are none.
    special_markers: Option<AhoCorasick>,
    highest_id: u32,
    slow_because: Option<String>,
    /// Made when it is first asked for.
    token_bytes: OnceLock<AllBytes>,
}

/// The bytes of all tokens, one after another: some MB.
struct AllBytes {
    bytes: Vec<u8>,
    /// Where those of each id begin, and the end.
    starts: Vec<usize>,
}

impl AllBytes {
    fn of(tokenizer: &Tokenizer) -> Self {
        let mut all = AllBytes {
            bytes: Vec::new(),
            starts: vec![0],
        };
        for id in 0..tokenizer.vocabulary_size() {
            // An id without a token stands in no text.
            all.bytes
                .extend(tokenizer.token_bytes(id).unwrap_or_default());
            all.starts.push(all.bytes.len());
        }
        all
    }

    fn of_id(&self, id: u32) -> Option<&[u8]> {
        let bounds = self.starts.get(id as usize..id as usize + 2)?;
        Some(&self.bytes[bounds[0]..bounds[1]])
    }
}

/// Highest id of a tokenizer.json: far above any vocabulary, far below what tables by id can hold.
const MAX_ID: u32 = (1 << 24) - 1;

/// From this many bytes on, a single word is encoded by an engine of its own, so that the memory
/// it takes (some 44 bytes per byte) goes back. Below it, the engine's buffers keep at most about
/// 180 MB per thread.
const LONG_WORD_BYTES: usize = 4 << 20;

/// Documents that the fast engine of a tokenizer.json doesn't get.
struct Exceptions {
    characters: CharacterSet,
    /// The tokenizer.json, for loading an engine when the first such document comes.
    bytes: Vec<u8>,
    reference: OnceLock<Result<Engine, String>>,
    /// Held while a document with a very long word is encoded: one at a time.
    long_words: Mutex<()>,
}

impl Exceptions {
    fn reference(&self) -> Result<&Engine, String> {
        let reference = self
            .reference
            .get_or_init(|| Engine::reference(&self.bytes))
            .as_ref();
        reference.map_err(|error| format!("{}: {error}", engine::REFERENCE))
    }

    fn encode_slow_characters(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        match self.reference() {
            Ok(reference) => reference.encode_into(text, ids),
            Err(error) => {
                ids.clear();
                Err(error)
            }
        }
    }

    fn encode_long_word(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        let _one = self
            .long_words
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        serde_json::from_slice(&self.bytes)
            .map_err(|error| error.to_string())
            .and_then(|json| Engine::fast(&json))
            .map_err(|error| format!("{}: {error}", engine::FAST))
            .and_then(|engine| engine.encode_into(text, ids))
            .inspect_err(|_| ids.clear())
    }
}

impl Tokenizer {
    /// Loads a tokenizer. `cache` is a folder where the self-check's verdict is kept (made where
    /// missing); without one, the check runs on each load and takes seconds.
    /// A verdict that cannot be written or read only costs the check again.
    ///
    /// # Errors
    ///
    /// When the source is not a tokenizer that can be used; the message says what was found and
    /// what to do.
    pub fn load(source: &TokenizerSource, cache: Option<&Path>) -> Result<Self, TokenizerError> {
        match source {
            TokenizerSource::File(path) => load_file(path, cache),
            TokenizerSource::Builtin(name) => load_builtin(name),
        }
    }

    /// Puts the ids of `text` into `ids`, replacing what was there. Only the text's: no begin or
    /// end tokens, no truncation, no padding; a special token spelled in `text` is plain text.
    /// Added tokens that the file does not call special (white-space runs, `<think>` in some
    /// files) are matched, as the reference does.
    ///
    /// Time grows in proportion to the text, up to a logarithm inside one very long word; the
    /// stack does not grow. Memory beside the text, measured as resident memory: 4 to 5 bytes per
    /// byte with the fast engine, `ids` among them, of which about 3 stay (its buffers, one set
    /// per thread); 44 bytes per byte inside one very long word, where words from 4 MiB on are
    /// encoded one document at a time by an engine that is dropped afterwards; 130 to 150 bytes
    /// per byte with the slow engine, of which the process kept 70 to 90 after one document.
    /// Reuse `ids`: the fast engine allocates nothing else once its buffers are warm.
    ///
    /// # Errors
    ///
    /// When the engine cannot encode this text (with the fast engine: 4 GiB or more). `ids` is
    /// then empty.
    pub fn encode_into(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        let engine = &self.inner.engine;
        if let Some(exceptions) = &self.inner.exceptions {
            if exceptions.characters.any_in(text) {
                return exceptions.encode_slow_characters(text, ids);
            }
            if text.len() >= LONG_WORD_BYTES && engine.longest_word_bytes(text) >= LONG_WORD_BYTES {
                return exceptions.encode_long_word(text, ids);
            }
        }
        engine.encode_into(text, ids)
    }

    /// The bytes of `text` that each of its tokens stands for; `ids` are those of [`Self::encode_into`]. A token that
    /// begins or ends inside a character has that place where the tokens' own bytes make up the text, as in
    /// byte-level vocabularies; elsewhere (where the text is normalised, or spaces are dropped) tokens that share a
    /// character share its bytes, and bytes that no token stands for are in no range. Then the reference engine
    /// encodes the text once more, some 30 times slower.
    ///
    /// # Errors
    /// When the reference engine cannot be loaded, refuses the text, or gives other ids.
    pub fn byte_ranges(&self, text: &str, ids: &[u32]) -> Result<Vec<Range<usize>>, String> {
        if let Some(ranges) = self.ranges_of_bytes(text.as_bytes(), ids) {
            return Ok(ranges);
        }
        let said = match &self.inner.exceptions {
            Some(exceptions) => exceptions.reference()?.byte_ranges(text),
            None => self.inner.engine.byte_ranges(text),
        };
        match said {
            Some(Ok((same, ranges))) if same == ids => Ok(ranges),
            Some(Err(error)) => Err(error),
            Some(Ok(_)) => Err(format!(
                "{} gives other ids than {}, so where its tokens stand is not known",
                engine::REFERENCE,
                self.engine()
            )),
            None => Err(format!(
                "{} does not say where its tokens stand",
                self.engine()
            )),
        }
    }

    /// Where the bytes of the tokens, one after another, are the text.
    fn ranges_of_bytes(&self, text: &[u8], ids: &[u32]) -> Option<Vec<Range<usize>>> {
        let all = self.inner.token_bytes.get_or_init(|| AllBytes::of(self));
        let mut ranges = Vec::with_capacity(ids.len());
        let mut start = 0;
        for &id in ids {
            let bytes = all.of_id(id)?;
            let end = start + bytes.len();
            if text.get(start..end)? != bytes {
                return None;
            }
            ranges.push(start..end);
            start = end;
        }
        (start == text.len()).then_some(ranges)
    }

    /// The text of `ids`, for people: bytes that are no text come out as U+FFFD, and some files'
    /// decoders drop a leading space. Unknown ids are left out.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.inner
            .engine
            .decode(ids)
            .unwrap_or_else(|| ids.iter().map(|&id| self.token_text(id)).collect())
    }

    /// The bytes that one token stands for, which need not be whole characters; `None` for an id that no
    /// token has.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        match (&self.inner.vocabulary, &self.inner.engine) {
            (Some(vocabulary), _) => vocabulary.bytes_of(id),
            (None, Engine::Builtin(builtin)) => builtin
                .token_bytes(id)
                .map(<[u8]>::to_vec)
                .or_else(|| self.special_text(id)),
            (None, _) => None,
        }
    }

    /// What one token stands for, for people: its text, `<0xNN>` for each byte that is no text on
    /// its own, `<id N>` for an id that no token has.
    pub fn token_text(&self, id: u32) -> String {
        self.token_bytes(id)
            .map_or_else(|| format!("<id {id}>"), |bytes| show(&bytes))
    }

    /// The id of a token such as `<|endoftext|>`: a special or added token as written, else a
    /// token of the vocabulary, spelled as the file spells it or as the text it stands for.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        match (&self.inner.vocabulary, &self.inner.engine) {
            (Some(vocabulary), _) => vocabulary.id_of(token),
            (None, Engine::Builtin(builtin)) => {
                u32::try_from(builtin.token_id(token.as_bytes())).ok()
            }
            (None, _) => None,
        }
    }

    /// Up to `count` special and added tokens whose names are nearest to `token`, nearest first:
    /// for the message when [`Self::token_id`] finds none.
    pub fn nearest_tokens(&self, token: &str, count: usize) -> Vec<String> {
        let special = self
            .inner
            .special_tokens
            .iter()
            .map(|(name, _)| name.as_str());
        let added = self
            .inner
            .vocabulary
            .iter()
            .flat_map(|vocabulary| vocabulary.added())
            .map(|added| added.text.as_str());
        nearest(token, special.chain(added), count)
    }

    /// The tokens that the tokenizer calls special, with their ids, by ascending id.
    pub fn special_tokens(&self) -> Vec<(String, u32)> {
        self.inner.special_tokens.clone()
    }

    /// Whether `text` spells one of the special tokens. It is encoded as plain text then; the
    /// audit counts such documents.
    pub fn special_markers_in(&self, text: &str) -> bool {
        self.inner
            .special_markers
            .as_ref()
            .is_some_and(|markers| markers.is_match(text))
    }

    /// The number of ids a model needs for this tokenizer: the highest id plus one. Every id that
    /// [`Self::encode_into`] or [`Self::token_id`] gives is below it.
    pub fn vocabulary_size(&self) -> u32 {
        self.inner.highest_id.saturating_add(1)
    }

    /// The highest id of any token, special and added ones included.
    pub fn highest_id(&self) -> u32 {
        self.inner.highest_id
    }

    /// 32 hexadecimal digits: xxh3-128 of the tokenizer.json's bytes after unpacking, or of a
    /// builtin's tokens. The same for the same content wherever it lies.
    pub fn fingerprint(&self) -> String {
        self.inner.fingerprint.clone()
    }

    /// The library that encodes, with its version, such as `tokenizers 0.23.2`.
    pub fn engine(&self) -> &'static str {
        self.inner.engine.name()
    }

    /// Why the slow reference engine encodes; `None` where a fast engine does. Worth a line to
    /// the user: it is some 30 times slower.
    pub fn slow_because(&self) -> Option<&str> {
        self.inner.slow_because.as_deref()
    }

    /// The characters whose documents the reference engine encodes although a fast engine encodes
    /// the others; ascending. A handful of rare ones, or none.
    pub fn slow_characters(&self) -> &[char] {
        let exceptions = self.inner.exceptions.as_ref();
        exceptions.map_or(&[], |exceptions| exceptions.characters.characters())
    }

    /// The file's name without its folder, or the builtin's name.
    pub fn name(&self) -> String {
        self.inner.name.clone()
    }

    fn special_text(&self, id: u32) -> Option<Vec<u8>> {
        let tokens = &self.inner.special_tokens;
        let place = tokens.binary_search_by_key(&id, |token| token.1).ok()?;
        Some(tokens[place].0.clone().into_bytes())
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tokenizer")
            .field("name", &self.inner.name)
            .field("fingerprint", &self.inner.fingerprint)
            .field("engine", &self.engine())
            .finish_non_exhaustive()
    }
}

fn load_file(path: &Path, cache: Option<&Path>) -> Result<Tokenizer, TokenizerError> {
    let file = file::read(path)?;
    let vocabulary =
        Vocabulary::from_json(&file.json).map_err(|found| TokenizerError::NotATokenizerJson {
            path: path.display().to_string(),
            found: format!("one that cannot be right: {found}"),
        })?;
    let Some(highest_id) = vocabulary.highest_id() else {
        return Err(TokenizerError::NotATokenizerJson {
            path: path.display().to_string(),
            found: "one without any token".to_owned(),
        });
    };
    if highest_id > MAX_ID {
        return Err(TokenizerError::NotATokenizerJson {
            path: path.display().to_string(),
            found: format!(
                "one with the id {highest_id}; ids may be up to {MAX_ID}, since each takes memory"
            ),
        });
    }
    let fingerprint = fingerprint_of(&file);
    let choice = choose_engine(path, &file, &vocabulary, &fingerprint, cache)?;
    let special_tokens: Vec<(String, u32)> = vocabulary
        .added()
        .iter()
        .filter(|token| token.special)
        .map(|token| (token.text.clone(), token.id))
        .collect();
    Ok(Tokenizer {
        inner: Arc::new(Inner {
            exceptions: choice.exceptions.map(|characters| Exceptions {
                characters,
                bytes: file.bytes,
                reference: OnceLock::new(),
                long_words: Mutex::new(()),
            }),
            engine: choice.engine,
            name: path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
            fingerprint,
            special_markers: markers(&special_tokens),
            special_tokens,
            vocabulary: Some(vocabulary),
            highest_id,
            slow_because: choice.slow_because,
            token_bytes: OnceLock::new(),
        }),
    })
}

/// What encodes a tokenizer.json.
struct Choice {
    engine: Engine,
    /// With the fast engine only.
    exceptions: Option<CharacterSet>,
    slow_because: Option<String>,
}

impl Choice {
    fn fast(engine: Engine, exceptions: CharacterSet) -> Self {
        Self {
            engine,
            exceptions: Some(exceptions),
            slow_because: None,
        }
    }

    fn reference(engine: Engine, reason: String) -> Self {
        Self {
            engine,
            exceptions: None,
            slow_because: Some(reason),
        }
    }
}

/// The fast engine where it gives the reference's ids, else the reference and why.
fn choose_engine(
    path: &Path,
    file: &file::TokenizerFile,
    vocabulary: &Vocabulary,
    fingerprint: &str,
    cache: Option<&Path>,
) -> Result<Choice, TokenizerError> {
    let no_engine = |reference: String, fast: String| TokenizerError::NoEngine {
        path: path.display().to_string(),
        reference: format!("{}: {reference}", engine::REFERENCE),
        fast: format!("{}: {fast}", engine::FAST),
    };
    let kept = cache.and_then(|cache| check::read_verdict(cache, fingerprint));
    if let Some(Verdict::Reference(reason)) = kept {
        return match Engine::reference(&file.bytes) {
            Ok(reference) => Ok(Choice::reference(reference, reason)),
            Err(error) => Err(no_engine(error, reason)),
        };
    }
    let fast = Engine::fast(&file.json);
    let fast = match (fast, kept) {
        (Ok(fast), Some(Verdict::Fast(exceptions))) => return Ok(Choice::fast(fast, exceptions)),
        (fast, _) => fast,
    };
    let (fast, reference) = match (fast, Engine::reference(&file.bytes)) {
        (Ok(fast), Ok(reference)) => (fast, reference),
        (Err(refusal), Ok(reference)) => {
            let reason = format!("{} refuses it: {refusal}", engine::FAST);
            return Ok(Choice::reference(reference, reason));
        }
        // The newer format is one that the reference cannot read, so it cannot judge.
        (Ok(fast), Err(_)) if file.json["version"] == "2.0" => {
            return Ok(Choice::fast(fast, CharacterSet::new(Vec::new())));
        }
        (Ok(_), Err(error)) => {
            return Err(no_engine(error, "loads it, but cannot be checked".into()));
        }
        (Err(refusal), Err(error)) => return Err(no_engine(error, refusal)),
    };
    let verdict = check::judge(&fast, &reference, vocabulary);
    if let Some(cache) = cache {
        // Without the kept verdict the next load checks again: slower, never wrong.
        let _ = check::write_verdict(cache, fingerprint, &verdict);
    }
    Ok(match verdict {
        Verdict::Fast(exceptions) => Choice::fast(fast, exceptions),
        Verdict::Reference(reason) => Choice::reference(reference, reason),
    })
}

fn load_builtin(name: &str) -> Result<Tokenizer, TokenizerError> {
    let known = || BUILTINS.iter().map(|builtin| builtin.name);
    let Some(builtin) = BUILTINS
        .iter()
        .find(|builtin| builtin.name == name || builtin.makers_name == name)
    else {
        return Err(TokenizerError::UnknownBuiltin {
            name: name.to_owned(),
            nearest: nearest(name, known(), 1).concat(),
            known: known().collect::<Vec<_>>().join(", "),
        });
    };
    let loaded = toktok::Tokenizer::builtin(builtin.makers_name).map_err(|error| {
        TokenizerError::Builtin {
            name: name.to_owned(),
            message: error.to_string(),
        }
    })?;
    let mut special_tokens = loaded.special_tokens().to_vec();
    special_tokens.sort_by(|a, b| a.1.cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
    let n_tokens = u32::try_from(loaded.vocab_size()).map_err(|_| TokenizerError::Builtin {
        name: name.to_owned(),
        message: "its ids do not fit 32 bits".to_owned(),
    })?;
    let highest_special = special_tokens.last().map(|token| token.1);
    let highest_id = highest_special.max(n_tokens.checked_sub(1)).unwrap_or(0);
    Ok(Tokenizer {
        inner: Arc::new(Inner {
            name: builtin.name.to_owned(),
            fingerprint: builtin_fingerprint(&loaded, n_tokens, &special_tokens),
            engine: Engine::Builtin(Box::new(loaded)),
            exceptions: None,
            vocabulary: None,
            special_markers: markers(&special_tokens),
            special_tokens,
            highest_id,
            slow_because: None,
            token_bytes: OnceLock::new(),
        }),
    })
}

/// Hashes (id, length, bytes) of each token, then of each special token.
fn fingerprint_of(file: &file::TokenizerFile) -> String {
    format!("{:032x}", xxh3_128(&file.bytes))
}

/// What [`Tokenizer::fingerprint`] says of the tokenizer of a file, without loading an engine.
///
/// # Errors
///
/// When the file cannot be read or is no tokenizer.json.
pub fn file_fingerprint(path: &Path) -> Result<String, TokenizerError> {
    Ok(fingerprint_of(&file::read(path)?))
}

fn builtin_fingerprint(
    builtin: &toktok::Tokenizer,
    n_tokens: u32,
    special_tokens: &[(String, u32)],
) -> String {
    let mut hash = Xxh3::new();
    let mut add = |id: u32, bytes: &[u8]| {
        hash.update(&id.to_le_bytes());
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for id in 0..n_tokens {
        add(id, builtin.token_bytes(id).unwrap_or_default());
    }
    for (text, id) in special_tokens {
        add(*id, text.as_bytes());
    }
    // Two builtins with the same tokens may still split text differently.
    hash.update(builtin.encoding().as_bytes());
    format!("{:032x}", hash.digest128())
}

/// The finder of the special tokens' spellings.
fn markers(special_tokens: &[(String, u32)]) -> Option<AhoCorasick> {
    if special_tokens.is_empty() {
        return None;
    }
    let finder = AhoCorasick::new(special_tokens.iter().map(|(text, _)| text))
        .expect("special tokens are far fewer and shorter than the finder's bound of 2^31 bytes");
    Some(finder)
}
