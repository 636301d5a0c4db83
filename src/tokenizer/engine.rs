//! The libraries that turn text into ids, all set to one habit: the ids of the text and nothing
//! else. No begin or end tokens, no truncation, no padding; a special token spelled in the text
//! is plain text, an added token that is not special is matched as its file says.

use std::mem;
use std::ops::Range;

use serde_json::Value;
use tokenizers::pipeline::{
    EncodeOptions, Override, PipelinePreTokenizer, PipelineToken, PipelineTokenizer,
};

/// The library behind [`Engine::Fast`], as outputs name it.
pub(super) const FAST: &str = "tokenizers 1.0.0-rc.3";
/// The library behind [`Engine::Reference`].
pub(super) const REFERENCE: &str = "tokenizers 0.23.2";
/// The library behind [`Engine::Builtin`].
pub(super) const BUILTIN: &str = "toktok-rs 0.3.0";

/// Ids of a text, and the bytes of it that each stands for.
type ByteRanges = (Vec<u32>, Vec<Range<usize>>);

/// One loaded tokenizer.
pub(super) enum Engine {
    /// 30 to 40 times faster than the reference.
    Fast(PipelineTokenizer),
    /// The widely used release, which decides what the ids are.
    Reference(Box<tokenizers_reference::Tokenizer>),
    /// A vocabulary compiled into the program.
    Builtin(Box<toktok::Tokenizer>),
}

/// What every call of the fast engine asks for. A constant, so that no call builds one.
const TEXT_ONLY: EncodeOptions = EncodeOptions {
    add_special_tokens: false,
    encode_special_tokens: true,
    padding: Override::Off,
    truncation: Override::Off,
};

impl Engine {
    /// Loads a tokenizer.json into the fast engine. The message says what the engine refused.
    pub(super) fn fast(json: &Value) -> Result<Self, String> {
        let mut json = json.clone();
        if let Some(keys) = json.as_object_mut() {
            // Never used here, and the engine refuses files over some of their shapes.
            keys.remove("post_processor");
            keys.remove("truncation");
            keys.remove("padding");
        }
        tokenizers::canonicalize_value(&mut json).map_err(|error| error.to_string())?;
        let canonical = serde_json::to_string(&json).map_err(|error| error.to_string())?;
        tokenizers::from_json(&canonical)
            .map(Self::Fast)
            .map_err(|error| error.to_string())
    }

    /// Loads a tokenizer.json, given as the bytes of the file, into the reference engine.
    pub(super) fn reference(bytes: &[u8]) -> Result<Self, String> {
        use tokenizers_reference::PostProcessorWrapper;

        let mut tokenizer = tokenizers_reference::Tokenizer::from_bytes(bytes)
            .map_err(|error| error.to_string())?;
        tokenizer.with_post_processor(None::<PostProcessorWrapper>);
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(None)
            .map_err(|error| error.to_string())?;
        tokenizer.set_encode_special_tokens(true);
        Ok(Self::Reference(Box::new(tokenizer)))
    }

    /// Bytes of the longest piece of `text` that the engine may have to merge as one word. The
    /// engine's buffers take some 44 bytes for each, and keep them.
    pub(super) fn longest_word_bytes(&self, text: &str) -> usize {
        match self {
            Self::Fast(tokenizer) => match tokenizer.get_pre_tokenizer() {
                PipelinePreTokenizer::None => text.len(),
                _ => {
                    let words = text.as_bytes().split(u8::is_ascii_whitespace);
                    words.map(<[u8]>::len).max().unwrap_or(0)
                }
            },
            // These keep nothing from one text to the next.
            Self::Reference(_) | Self::Builtin(_) => 0,
        }
    }

    /// The library and its version.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Fast(_) => FAST,
            Self::Reference(_) => REFERENCE,
            Self::Builtin(_) => BUILTIN,
        }
    }

    /// Puts the ids of `text` into `ids`, replacing what was there.
    pub(super) fn encode_into(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        ids.clear();
        match self {
            Self::Fast(tokenizer) => {
                // A token is an id in a wrapper of the same layout, so both conversions keep the
                // vector's memory: nothing is allocated or copied.
                let mut tokens: Vec<PipelineToken> = mem::take(ids)
                    .into_iter()
                    .map(PipelineToken::from)
                    .collect();
                let result = tokenizer.encode_into(text, &TEXT_ONLY, &mut tokens);
                *ids = tokens.into_iter().map(u32::from).collect();
                if let Err(error) = result {
                    ids.clear();
                    return Err(error.to_string());
                }
            }
            Self::Reference(tokenizer) => {
                let encoding = tokenizer
                    .encode_fast(text, false)
                    .map_err(|error| error.to_string())?;
                ids.extend_from_slice(encoding.get_ids());
            }
            Self::Builtin(tokenizer) => tokenizer.encode_into(text.as_bytes(), ids),
        }
        Ok(())
    }

    /// The bytes of `text` that each token of it stands for, where the library says; else `None`. Tokens that share
    /// a character share its bytes.
    pub(super) fn byte_ranges(&self, text: &str) -> Option<Result<ByteRanges, String>> {
        let Self::Reference(tokenizer) = self else {
            return None;
        };
        let encoding = tokenizer.encode(text, false);
        Some(encoding.map_err(|error| error.to_string()).map(|encoding| {
            let ranges = encoding
                .get_offsets()
                .iter()
                .map(|&(start, end)| start..end);
            (encoding.get_ids().to_vec(), ranges.collect())
        }))
    }

    /// The text of ids, for people; `None` where the library refuses.
    pub(super) fn decode(&self, ids: &[u32]) -> Option<String> {
        match self {
            Self::Fast(tokenizer) => tokenizer.decode(ids, false).ok(),
            Self::Reference(tokenizer) => tokenizer.decode(ids, false).ok(),
            Self::Builtin(tokenizer) => {
                Some(String::from_utf8_lossy(&tokenizer.decode(ids)).into_owned())
            }
        }
    }
}
