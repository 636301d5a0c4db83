//! The tokens of a tokenizer.json by id: for showing, for naming, for the self-check.

use serde_json::Value;

/// One entry of `added_tokens`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AddedToken {
    pub(super) text: String,
    pub(super) id: u32,
    pub(super) special: bool,
}

/// How a model spells its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// Each character stands for one byte (GPT-2's table).
    ByteLevel,
    /// `▁` stands for a space.
    Metaspace,
    /// As written.
    Plain,
}

/// All tokens of one tokenizer.json. Ids may have gaps.
pub(super) struct Vocabulary {
    /// All spellings, one after the other.
    spellings: String,
    /// (id, start, end) of each model token in `spellings`, by ascending id.
    places: Vec<(u32, u32, u32)>,
    added: Vec<AddedToken>,
    spelling: Spelling,
    /// Whether `<0xNN>` stands for the byte.
    byte_fallback: bool,
}

impl Vocabulary {
    /// Reads the tokens out of a tokenizer.json. The message of an error names the key.
    pub(super) fn from_json(json: &Value) -> Result<Self, String> {
        let model_tokens = model_tokens(json)?;
        let mut spellings = String::new();
        let mut places = Vec::with_capacity(model_tokens.len());
        for (text, id) in &model_tokens {
            let start = offset(&spellings)?;
            spellings.push_str(text);
            places.push((*id, start, offset(&spellings)?));
        }
        places.sort_unstable();
        // The engines keep whichever of two tokens they come to last, in an order that changes from run to run.
        if let Some([a, b]) = places.array_windows().find(|[a, b]| a.0 == b.0) {
            let text = |place: &(u32, u32, u32)| &spellings[place.1 as usize..place.2 as usize];
            return Err(format!(
                "`model.vocab` gives {:?} and {:?} the same id {}; give each token an id of its own",
                text(a),
                text(b),
                a.0
            ));
        }
        let mut vocabulary = Self {
            spellings,
            places,
            added: Vec::new(),
            spelling: spelling(json),
            byte_fallback: json["model"]["byte_fallback"] == Value::Bool(true),
        };
        vocabulary.added = added_tokens(json, &vocabulary)?;
        Ok(vocabulary)
    }

    /// The highest id of all tokens, added ones included; `None` for an empty vocabulary.
    pub(super) fn highest_id(&self) -> Option<u32> {
        let added = self.added.iter().map(|token| token.id).max();
        self.places.last().map(|place| place.0).max(added)
    }

    pub(super) fn added(&self) -> &[AddedToken] {
        &self.added
    }

    /// The model's own tokens with their ids, by ascending id, as the file spells them.
    pub(super) fn model_tokens(&self) -> impl Iterator<Item = (&str, u32)> {
        self.places
            .iter()
            .map(|&(id, start, end)| (&self.spellings[start as usize..end as usize], id))
    }

    /// The id of a token: an added token as written, else a model token as the file spells it,
    /// else the model token that stands for this text (`" the"` for GPT-2's `"Ġthe"`).
    pub(super) fn id_of(&self, token: &str) -> Option<u32> {
        if let Some(added) = self.added.iter().find(|added| added.text == token) {
            return Some(added.id);
        }
        let find = |spelled: &str| {
            self.model_tokens()
                .find(|(text, _)| *text == spelled)
                .map(|(_, id)| id)
        };
        find(token).or_else(|| match self.spelling {
            Spelling::ByteLevel => find(&spell_bytes(token.as_bytes())),
            Spelling::Metaspace => find(&token.replace(' ', "\u{2581}")),
            Spelling::Plain => None,
        })
    }

    /// The bytes that the token of this id stands for.
    pub(super) fn bytes_of(&self, id: u32) -> Option<Vec<u8>> {
        let at = self.added.partition_point(|added| added.id < id);
        if let Some(added) = self.added.get(at).filter(|added| added.id == id) {
            return Some(added.text.clone().into_bytes());
        }
        let first = self.places.partition_point(|place| place.0 < id);
        let &(found, start, end) = self.places.get(first)?;
        let spelled = &self.spellings[start as usize..end as usize];
        (found == id).then(
            || match self.byte_fallback.then(|| fallback_byte(spelled)) {
                Some(Some(byte)) => vec![byte],
                _ => self.meaning(spelled),
            },
        )
    }

    /// The bytes that a spelling stands for.
    pub(super) fn meaning(&self, spelled: &str) -> Vec<u8> {
        match self.spelling {
            Spelling::ByteLevel => spelled_bytes(spelled),
            Spelling::Metaspace => spelled.replace('\u{2581}', " ").into_bytes(),
            Spelling::Plain => spelled.as_bytes().to_vec(),
        }
    }
}

/// The byte of a spelling such as `<0xE2>`.
fn fallback_byte(spelled: &str) -> Option<u8> {
    let digits = spelled.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

fn offset(spellings: &str) -> Result<u32, String> {
    u32::try_from(spellings.len()).map_err(|_| "`model.vocab` holds 4 GiB of text or more".into())
}

fn model_tokens(json: &Value) -> Result<Vec<(String, u32)>, String> {
    let id_of = |value: u64| {
        u32::try_from(value).map_err(|_| format!("`model.vocab` holds the id {value}, over 2^32"))
    };
    match &json["model"]["vocab"] {
        Value::Object(entries) => entries
            .iter()
            .map(|(token, id)| {
                let id = id
                    .as_u64()
                    .ok_or_else(|| format!("`model.vocab` gives {token:?} the id {id}"))?;
                Ok((token.clone(), id_of(id)?))
            })
            .collect(),
        // Unigram: [token, log probability] pairs, the id is the place.
        Value::Array(entries) => entries
            .iter()
            .enumerate()
            .map(|(id, entry)| {
                let token = entry
                    .get(0)
                    .and_then(Value::as_str)
                    .ok_or_else(|| format!("entry {id} of `model.vocab` has no token"))?;
                Ok((token.to_owned(), id_of(id as u64)?))
            })
            .collect(),
        _ => Err("`model.vocab` is neither an object nor a list".into()),
    }
}

/// The added tokens with the ids that encoding gives them: a token that the model has keeps the
/// model's id, every other one gets the next free one in the order of the file. The `id` that the
/// file declares does not decide (the reference engine ignores it too).
fn added_tokens(json: &Value, model: &Vocabulary) -> Result<Vec<AddedToken>, String> {
    let entries = match json.get("added_tokens") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err("`added_tokens` is not a list".into()),
    };
    let mut added: Vec<AddedToken> = Vec::with_capacity(entries.len());
    // A set of their spellings, so that thousands of added tokens cost one pass over the model.
    let names: std::collections::HashSet<&str> = entries
        .iter()
        .filter_map(|entry| entry["content"].as_str())
        .collect();
    let in_model: std::collections::HashMap<&str, u32> = model
        .model_tokens()
        .filter(|(text, _)| names.contains(text))
        .collect();
    let mut next_id = u32::try_from(model.places.len())
        .map_err(|_| "`model.vocab` has 2^32 tokens or more".to_owned())?;
    let mut place_of: std::collections::HashMap<&str, usize> = std::collections::HashMap::new();
    for (place, entry) in entries.iter().enumerate() {
        let text = entry["content"]
            .as_str()
            .ok_or_else(|| format!("entry {place} of `added_tokens` has no `content`"))?;
        if text.is_empty() {
            continue;
        }
        let special = entry["special"].as_bool().unwrap_or(false);
        if let Some(&earlier) = place_of.get(text) {
            added[earlier].special |= special;
            continue;
        }
        let id = in_model.get(text).copied().unwrap_or_else(|| {
            next_id += 1;
            next_id - 1
        });
        place_of.insert(text, added.len());
        added.push(AddedToken {
            text: text.to_owned(),
            id,
            special,
        });
    }
    added.sort_by(|a, b| a.id.cmp(&b.id).then_with(|| a.text.cmp(&b.text)));
    Ok(added)
}

fn spelling(json: &Value) -> Spelling {
    let places = ["pre_tokenizer", "normalizer", "decoder"];
    let has = |kind: &str| places.iter().any(|place| names_type(&json[*place], kind));
    let model_is_byte_level = json["model"]["byte_level"] == Value::Bool(true);
    if has("ByteLevel") || model_is_byte_level {
        return Spelling::ByteLevel;
    }
    let replaces_space = places
        .iter()
        .any(|place| names_text(&json[*place], "\u{2581}"));
    if has("Metaspace") || replaces_space {
        Spelling::Metaspace
    } else {
        Spelling::Plain
    }
}

/// Whether a component, or one inside it, has this `type`.
fn names_type(component: &Value, kind: &str) -> bool {
    match component {
        Value::Object(fields) => {
            fields.get("type").and_then(Value::as_str) == Some(kind)
                || fields.values().any(|field| names_type(field, kind))
        }
        Value::Array(members) => members.iter().any(|member| names_type(member, kind)),
        _ => false,
    }
}

/// Whether a component holds exactly this string anywhere.
fn names_text(component: &Value, text: &str) -> bool {
    match component {
        Value::String(found) => found == text,
        Value::Object(fields) => fields.values().any(|field| names_text(field, text)),
        Value::Array(members) => members.iter().any(|member| names_text(member, text)),
        _ => false,
    }
}

/// GPT-2's printable character of a byte: itself where it prints, else the next free one from
/// U+0100 on.
fn byte_character(byte: u8) -> char {
    if prints(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&other| !prints(other)).count() as u32;
    char::from_u32(0x100 + before).expect("at most 68 characters from U+0100 on, all assigned")
}

fn prints(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

fn spell_bytes(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| byte_character(byte)).collect()
}

/// The bytes of a byte-level spelling. A character outside the table stands for itself.
fn spelled_bytes(spelled: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(spelled.len());
    for character in spelled.chars() {
        let code = u32::from(character);
        let byte = if code < 0x100 {
            u8::try_from(code).ok().filter(|&byte| prints(byte))
        } else {
            // The inverse of `byte_character`: 68 bytes do not print.
            (0..=255u8)
                .filter(|&byte| !prints(byte))
                .nth((code - 0x100) as usize)
        };
        match byte {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(character.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    bytes
}

/// Bytes for display: text where they are text, `<0xNN>` for each byte that is none on its own.
pub(super) fn show(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        shown.push_str(chunk.valid());
        for byte in chunk.invalid() {
            shown.push_str(&format!("<0x{byte:02X}>"));
        }
    }
    shown
}

/// The `count` candidates nearest to `name` by edits (insertions, deletions, replacements), the
/// nearest first, ties by spelling.
pub(super) fn nearest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
    count: usize,
) -> Vec<String> {
    let mut ranked: Vec<(usize, &str)> = candidates
        .map(|candidate| (edits(name, candidate), candidate))
        .collect();
    ranked.sort_unstable();
    ranked.dedup();
    ranked
        .into_iter()
        .take(count)
        .map(|(_, candidate)| candidate.to_owned())
        .collect()
}

/// Levenshtein distance in characters, letter case set aside.
fn edits(a: &str, b: &str) -> usize {
    let lower = |text: &str| text.to_lowercase().chars().collect::<Vec<char>>();
    let (a, b) = (lower(a), lower(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character_and_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        let spelled = spell_bytes(&all);
        let distinct: std::collections::HashSet<char> = spelled.chars().collect();
        assert_eq!(distinct.len(), 256);
        assert_eq!(spelled_bytes(&spelled), all);
        assert_eq!(spell_bytes(b" \n"), "\u{120}\u{10A}");
    }

    #[test]
    fn shows_bytes_that_are_no_text() {
        assert_eq!(show(b"a\xE2\x80b"), "a<0xE2><0x80>b");
        assert_eq!(show("é".as_bytes()), "é");
        assert_eq!(show(b""), "");
    }

    #[test]
    fn nearest_names_come_by_edits_then_spelling() {
        let names = ["<|endoftext|>", "<|im_end|>", "<|im_start|>"];
        assert_eq!(
            nearest("<|EndOfText>", names.into_iter(), 1),
            ["<|endoftext|>"]
        );
        assert_eq!(nearest("b", ["c", "a"].into_iter(), 9), ["a", "c"]);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
