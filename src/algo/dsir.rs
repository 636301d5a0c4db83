//! Data selection by importance weights of hashed word n-grams (DSIR, Xie et al. 2023), as the
//! authors' package `data-selection` computes it with NLTK 3.8: tokens of the lower-cased text, unigrams and
//! bigrams in buckets of their SHA-256, and ln of the ratio of the buckets' shares.

use super::sha256;
use unicode_normalization::char::is_combining_mark;

/// What is added to a bucket's share, so that its logarithm exists.
pub const SMOOTHING: f64 = 1e-8;

/// Whether Python's `\w` matches: letters, numbers of every kind, and the underscore.
fn is_word(c: char) -> bool {
    // Rust's alphabetic characters are the letters, some marks, and circled Latin letters.
    c == '_' || (c.is_alphanumeric() && !is_combining_mark(c) && !is_circled_letter(c))
}

fn is_circled_letter(c: char) -> bool {
    matches!(c, '\u{24B6}'..='\u{24E9}' | '\u{1F130}'..='\u{1F149}' | '\u{1F150}'..='\u{1F169}' | '\u{1F170}'..='\u{1F189}')
}

/// Whether Python's `\s` matches: white space, and the four separators of ASCII.
fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1C}'..='\u{1F}')
}

/// Calls `visit` for each token: a longest run of word characters, or of characters that are
/// neither that nor white space. This is NLTK's `wordpunct_tokenize`.
fn each_token<'t>(text: &'t str, mut visit: impl FnMut(&'t str)) {
    #[derive(Clone, Copy, PartialEq)]
    enum Run {
        Word,
        Space,
        Other,
    }
    let kind = |c: char| match c {
        c if is_word(c) => Run::Word,
        c if is_space(c) => Run::Space,
        _ => Run::Other,
    };
    let (mut start, mut run) = (0, Run::Space);
    for (at, c) in text.char_indices() {
        let next = kind(c);
        if next != run {
            if run != Run::Space {
                visit(&text[start..at]);
            }
            (start, run) = (at, next);
        }
    }
    if run != Run::Space {
        visit(&text[start..]);
    }
}

/// Calls `visit` with the bucket of each unigram and bigram of a text. A bigram is hashed as its
/// two tokens with a space between them.
pub fn each_bucket(text: &str, buckets: u32, mut visit: impl FnMut(u32)) {
    let lower = text.to_lowercase();
    let mut before: Option<&str> = None;
    let mut pair = String::new();
    each_token(&lower, |token| {
        visit(sha256::bucket(token.as_bytes(), buckets));
        if let Some(before) = before {
            pair.clear();
            pair.push_str(before);
            pair.push(' ');
            pair.push_str(token);
            visit(sha256::bucket(pair.as_bytes(), buckets));
        }
        before = Some(token);
    });
}

/// ln of the ratio of a bucket's share in the target to its share in the raw documents, by bucket.
/// Neither sum of counts may be 0.
pub fn log_ratios(target: &[u64], raw: &[u64]) -> Vec<f64> {
    let sum = |counts: &[u64]| counts.iter().sum::<u64>() as f64;
    let (target_sum, raw_sum) = (sum(target), sum(raw));
    let smoothed = |count: u64, sum: f64| libm::log(count as f64 / sum + SMOOTHING);
    target
        .iter()
        .zip(raw)
        .map(|(&target, &raw)| smoothed(target, target_sum) - smoothed(raw, raw_sum))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<&str> {
        let mut tokens = Vec::new();
        each_token(text, |token| tokens.push(token));
        tokens
    }

    /// By NLTK 3.8.1 under Python 3.11. From 3.10 on NLTK matches with another engine, whose word
    /// characters include marks and no fractions.
    #[test]
    fn tokens_are_those_of_wordpunct_tokenize() {
        assert_eq!(tokens(""), [""; 0]);
        assert_eq!(tokens(" \n"), [""; 0]);
        assert_eq!(
            tokens("can't stop; e-mail_2 costs $3.50!?"),
            [
                "can", "'", "t", "stop", ";", "e", "-", "mail_2", "costs", "$", "3", ".", "50",
                "!?"
            ]
        );
        // Marks, circled letters and separators are no word characters; numbers of all kinds are.
        assert_eq!(
            tokens("हिन्दी ⓐb x²½Ⅷ a\u{1F}b\u{85}c 中文。"),
            [
                "ह", "ि", "न", "्", "द", "ी", "ⓐ", "b", "x²½Ⅷ", "a", "b", "c", "中文", "。"
            ]
        );
    }

    /// Raw `a a b`, target `a b b`: shares by hand.
    #[test]
    fn ratios_by_hand() {
        let ratios = log_ratios(&[1, 2, 0], &[2, 1, 0]);
        assert!((ratios[0] - 0.5f64.ln()).abs() < 1e-7);
        assert!((ratios[1] - 2f64.ln()).abs() < 1e-7);
        assert_eq!(ratios[2], 0.0);
    }
}
