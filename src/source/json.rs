//! JSON lines to documents: one pass that checks the whole record and remembers where the wanted
//! values are, and one copy of each of those.
//!
//! A scanner of our own, because a record must be checked to its last byte, a repeated key must
//! be noticed, the stack must stay bounded however deep the nesting, and most of a wide record
//! is never decoded.

use super::value::{Value, field_of, id_of, text_of};
use super::{BadRecord, Entry, Fault, InputSpec, MAX_JSON_DEPTH, reason};
use crate::record::{Document, FieldValue};
use std::borrow::Cow;

/// UTF-8 byte order mark; skipped at the start of a file.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Dots up to which every way of reading a path (which dots lead inward, which belong to a key)
/// is tried; beyond, only the fully nested one and the fully literal one.
const MAX_FREE_DOTS: usize = 6;

/// Parses lines, the first of which begins at offset `place` of the file.
pub(super) fn decode(place: u64, bytes: &[u8], spec: &InputSpec, visit: &mut dyn FnMut(Entry)) {
    let mark = byte_order_mark(place, bytes);
    let place = place + mark as u64;
    let bytes = &bytes[mark..];
    let mut decoder = Decoder::new(spec);
    // Checking the chunk at once is faster; only a chunk with a fault is checked line by line.
    match std::str::from_utf8(bytes) {
        Ok(mut rest) => {
            let mut at = place;
            while !rest.is_empty() {
                let (line, after) = match rest.find('\n') {
                    Some(end) => (&rest[..end], &rest[end + 1..]),
                    None => (rest, ""),
                };
                visit(decoder.entry(at, line));
                at += (rest.len() - after.len()) as u64;
                rest = after;
            }
        }
        Err(_) => {
            let mut at = place;
            for line in bytes.split_inclusive(|&byte| byte == b'\n') {
                let record = line.strip_suffix(b"\n").unwrap_or(line);
                visit(decoder.entry_of_bytes(at, record));
                at += line.len() as u64;
            }
        }
    }
}

/// Length of the mark that a file's first chunk begins with; 0 elsewhere.
pub(super) fn byte_order_mark(place: u64, bytes: &[u8]) -> usize {
    if place == 0 && bytes.starts_with(BYTE_ORDER_MARK) {
        BYTE_ORDER_MARK.len()
    } else {
        0
    }
}

struct Decoder<'s> {
    spec: &'s InputSpec,
    wanted: Node,
    /// Per target: the best match so far.
    slots: Vec<Option<(Rank, Span)>>,
    /// Per entry of the wanted tree: whether its key has been seen in this record.
    seen: Vec<bool>,
    targets: Targets,
}

/// Which slot is what.
struct Targets {
    text: usize,
    id: Option<usize>,
    fields: Vec<Option<usize>>,
}

impl<'s> Decoder<'s> {
    fn new(spec: &'s InputSpec) -> Self {
        let mut paths: Vec<&str> = Vec::new();
        let mut target = |path: &'s str| {
            paths.push(path);
            paths.len() - 1
        };
        let targets = Targets {
            text: target(&spec.text),
            id: spec.id.as_deref().map(&mut target),
            fields: spec
                .fields
                .iter()
                .map(|field| field.as_ref().map(|field| target(&field.path)))
                .collect(),
        };
        let suffixes: Vec<Suffix<'_>> = paths
            .iter()
            .enumerate()
            .map(|(target, path)| Suffix {
                target,
                rank: 0,
                rest: path,
            })
            .collect();
        let mut entries = 0;
        let wanted = Node::build(&suffixes, &mut entries);
        Decoder {
            spec,
            wanted,
            slots: vec![None; paths.len()],
            seen: vec![false; entries],
            targets,
        }
    }

    fn entry_of_bytes(&mut self, place: u64, record: &[u8]) -> Entry {
        match std::str::from_utf8(record) {
            Ok(record) => self.entry(place, record),
            Err(_) if record.len() as u64 > self.spec.max_document_bytes => {
                self.bad(place, self.too_long(record.len()), record)
            }
            Err(error) => {
                let at = error.valid_up_to();
                let detail = format!(
                    "byte {at} is 0x{:02X}, which is not UTF-8 there",
                    record[at]
                );
                self.bad(place, Fault::new(reason::INVALID_UTF8, detail), record)
            }
        }
    }

    fn entry(&mut self, place: u64, record: &str) -> Entry {
        match self.document(place, record) {
            Ok(document) => Entry::Document(document),
            Err(fault) => self.bad(place, fault, record.as_bytes()),
        }
    }

    fn bad(&self, place: u64, fault: Fault, record: &[u8]) -> Entry {
        Entry::Bad(BadRecord::new(place, fault, record))
    }

    fn too_long(&self, bytes: usize) -> Fault {
        Fault::too_long(bytes as u64, self.spec.max_document_bytes)
    }

    fn document(&mut self, place: u64, record: &str) -> Result<Document, Fault> {
        if record.len() as u64 > self.spec.max_document_bytes {
            return Err(self.too_long(record.len()));
        }
        let mut scanner = Scanner {
            text: record,
            bytes: record.as_bytes(),
            at: 0,
        };
        scanner.white_space();
        if scanner.at == record.len() {
            return Err(Fault::new(
                reason::BLANK,
                format!("{} bytes of white space", record.len()),
            ));
        }
        self.slots.fill(None);
        self.seen.fill(false);
        let mut sink = Sink {
            slots: &mut self.slots,
            seen: &mut self.seen,
            repeated: None,
        };
        let kind = scanner
            .record(&self.wanted, &mut sink)
            .map_err(Broken::into_fault)?;
        if kind != Shape::Object {
            return Err(Fault::new(
                reason::NOT_AN_OBJECT,
                format!("the record is {}", kind.name()),
            ));
        }
        if let Some(key) = sink.repeated {
            return Err(Fault::new(
                reason::DUPLICATE_KEY,
                format!("the key '{key}' stands twice in its object"),
            ));
        }

        let targets = &self.targets;
        let text = text_of(self.value(record, targets.text), &self.spec.text)?;
        let id = match (targets.id, &self.spec.id) {
            (Some(slot), Some(path)) => Some(id_of(self.value(record, slot), path)?),
            _ => None,
        };
        let mut fields = Vec::with_capacity(targets.fields.len());
        for (slot, field) in targets.fields.iter().zip(&self.spec.fields) {
            fields.push(match (slot, field) {
                (Some(slot), Some(field)) => field_of(self.value(record, *slot), field)?,
                _ => FieldValue::Null,
            });
        }
        Ok(Document {
            place,
            id,
            text,
            fields,
            ..Document::default()
        })
    }

    fn value<'r>(&self, record: &'r str, slot: usize) -> Value<'r> {
        let Some((_, span)) = &self.slots[slot] else {
            return Value::Missing;
        };
        let written = &record[span.start..span.end];
        match span.shape {
            Shape::Null => Value::Null,
            Shape::Bool => Value::Bool(written == "true"),
            Shape::String { escaped: false } => Value::Text(Cow::Borrowed(written)),
            Shape::String { escaped: true } => match unescape(written) {
                Ok(text) => Value::Text(Cow::Owned(text)),
                Err(at) => Value::LoneSurrogate(at),
            },
            Shape::Integer => match written.parse::<i128>() {
                Ok(number) => Value::Integer(number),
                Err(_) => Value::LongInteger(written),
            },
            // Out of range becomes infinite, which `field_of` refuses.
            Shape::Float => Value::Float(written.parse().unwrap_or(f64::INFINITY)),
            Shape::Array if self.spec.join_lists => match joined_list(written) {
                Some(text) => Value::Text(Cow::Owned(text)),
                None => Value::Other("an array of other than texts and numbers".into()),
            },
            shape @ (Shape::Array | Shape::Object) => Value::Other(shape.name().into()),
        }
    }
}

/// The values of a list, one a line, but for nulls; `None` where one holds others.
fn joined_list(written: &str) -> Option<String> {
    let values: Vec<serde_json::Value> = serde_json::from_str(written).ok()?;
    let mut lines = Vec::new();
    for value in values {
        match value {
            serde_json::Value::Null => {}
            serde_json::Value::String(text) => lines.push(text),
            serde_json::Value::Number(number) => lines.push(number.to_string()),
            _ => return None,
        }
    }
    Some(lines.join("\n"))
}

/// How a path was read: a bit per dot, 1 where the dot belongs to a key. Lower wins.
type Rank = u64;

/// What is left of a wanted path inside an object.
#[derive(Clone, Copy)]
struct Suffix<'p> {
    target: usize,
    rank: Rank,
    rest: &'p str,
}

/// The keys that matter in one object.
struct Node {
    keys: Vec<WantedKey>,
}

struct WantedKey {
    key: String,
    /// Number among all entries of the tree.
    number: usize,
    /// Slots that this key's value fills.
    targets: Vec<(usize, Rank)>,
    /// What matters inside the value, when it is an object.
    inside: Option<Node>,
}

/// A [`WantedKey`] in the making.
struct Draft<'p> {
    key: &'p str,
    targets: Vec<(usize, Rank)>,
    inside: Vec<Suffix<'p>>,
}

fn draft_of<'f, 'p>(found: &'f mut Vec<Draft<'p>>, key: &'p str) -> &'f mut Draft<'p> {
    let index = match found.iter().position(|draft| draft.key == key) {
        Some(index) => index,
        None => {
            found.push(Draft {
                key,
                targets: Vec::new(),
                inside: Vec::new(),
            });
            found.len() - 1
        }
    };
    &mut found[index]
}

impl Node {
    fn build(suffixes: &[Suffix<'_>], entries: &mut usize) -> Node {
        let mut found: Vec<Draft<'_>> = Vec::new();
        for suffix in suffixes {
            let dots: Vec<usize> = suffix.rest.match_indices('.').map(|(at, _)| at).collect();
            let free = dots.len() <= MAX_FREE_DOTS;
            for (index, &dot) in dots.iter().enumerate() {
                if index > 0 && !free {
                    break;
                }
                // Dots before this one are inside the key, this one leads inward.
                let rank = (suffix.rank << (index + 1)) | (((1 << index) - 1) << 1);
                draft_of(&mut found, &suffix.rest[..dot])
                    .inside
                    .push(Suffix {
                        target: suffix.target,
                        rank,
                        rest: &suffix.rest[dot + 1..],
                    });
            }
            // All dots inside the key. A path of too many dots gets the highest rank there is.
            let rank = if free {
                (suffix.rank << dots.len()) | ((1 << dots.len()) - 1)
            } else {
                Rank::MAX
            };
            draft_of(&mut found, suffix.rest)
                .targets
                .push((suffix.target, rank));
        }
        let keys = found
            .into_iter()
            .map(|draft| {
                let number = *entries;
                *entries += 1;
                let inside =
                    (!draft.inside.is_empty()).then(|| Node::build(&draft.inside, entries));
                WantedKey {
                    key: draft.key.to_string(),
                    number,
                    targets: draft.targets,
                    inside,
                }
            })
            .collect();
        Node { keys }
    }

    fn find(&self, key: &str) -> Option<&WantedKey> {
        self.keys.iter().find(|wanted| wanted.key == key)
    }
}

/// Where the wanted values of the record at hand are noted.
struct Sink<'s, 'k> {
    slots: &'s mut [Option<(Rank, Span)>],
    seen: &'s mut [bool],
    repeated: Option<&'k str>,
}

/// Where a value is. For strings: between the quotes.
#[derive(Clone, Copy, Debug)]
struct Span {
    shape: Shape,
    start: usize,
    end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Null,
    Bool,
    Integer,
    Float,
    String { escaped: bool },
    Array,
    Object,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Shape::Null => "null",
            Shape::Bool => "a bool",
            Shape::Integer => "an integer",
            Shape::Float => "a float",
            Shape::String { .. } => "a string",
            Shape::Array => "an array",
            Shape::Object => "an object",
        }
    }
}

/// Where and why a record is not JSON.
#[derive(Debug)]
struct Broken {
    at: usize,
    problem: &'static str,
    reason: &'static str,
}

impl Broken {
    fn into_fault(self) -> Fault {
        Fault::new(self.reason, format!("byte {}: {}", self.at, self.problem))
    }
}

struct Scanner<'r> {
    text: &'r str,
    bytes: &'r [u8],
    at: usize,
}

/// Which containers are open, a bit each: 1 for objects.
struct Open {
    bits: [u64; MAX_JSON_DEPTH / 64],
    depth: usize,
}

impl Open {
    fn push(&mut self, object: bool) {
        let (word, bit) = (self.depth / 64, self.depth % 64);
        self.bits[word] = (self.bits[word] & !(1 << bit)) | (u64::from(object) << bit);
        self.depth += 1;
    }

    fn innermost_is_object(&self) -> bool {
        let last = self.depth - 1;
        self.bits[last / 64] >> (last % 64) & 1 == 1
    }
}

impl Scanner<'_> {
    fn broken<T>(&self, problem: &'static str) -> Result<T, Broken> {
        self.broken_at(self.at, problem)
    }

    fn broken_at<T>(&self, at: usize, problem: &'static str) -> Result<T, Broken> {
        let problem = if at >= self.bytes.len() {
            "the record ends inside the JSON value"
        } else {
            problem
        };
        Err(Broken {
            at,
            problem,
            reason: reason::INVALID_JSON,
        })
    }

    fn too_deep<T>(&self) -> Result<T, Broken> {
        Err(Broken {
            at: self.at,
            problem: "nested deeper than 1,024 levels",
            reason: reason::TOO_DEEP,
        })
    }

    #[inline]
    fn peek(&self) -> u8 {
        // NUL is valid nowhere outside strings, so it can stand for the end.
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    #[inline]
    fn white_space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r' | b'\n') {
            self.at += 1;
        }
    }

    /// The whole record, from its first byte after white space to its last.
    fn record<'k>(&mut self, wanted: &'k Node, sink: &mut Sink<'_, 'k>) -> Result<Shape, Broken> {
        let shape = if self.peek() == b'{' {
            self.wanted_object(wanted, 0, sink)?;
            Shape::Object
        } else {
            self.value(0)?.shape
        };
        self.white_space();
        if self.at != self.bytes.len() {
            return self.broken("the record goes on after the JSON value");
        }
        Ok(shape)
    }

    /// An object of which some keys matter. Recurses along wanted paths only.
    fn wanted_object<'k>(
        &mut self,
        wanted: &'k Node,
        depth: usize,
        sink: &mut Sink<'_, 'k>,
    ) -> Result<(), Broken> {
        if depth >= MAX_JSON_DEPTH {
            return self.too_deep();
        }
        self.at += 1;
        self.white_space();
        if self.peek() == b'}' {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key = self.key()?;
            let written = &self.text[key.start..key.end];
            let found = match key.shape {
                Shape::String { escaped: true } => match unescape(written) {
                    Ok(key) => wanted.find(&key),
                    Err(_) => None,
                },
                _ => wanted.find(written),
            };
            match found {
                None => {
                    self.value(depth + 1)?;
                }
                Some(found) => {
                    if std::mem::replace(&mut sink.seen[found.number], true) {
                        sink.repeated.get_or_insert(&found.key);
                    }
                    let start = self.at;
                    let span = match &found.inside {
                        Some(inside) if self.peek() == b'{' => {
                            self.wanted_object(inside, depth + 1, sink)?;
                            Span {
                                shape: Shape::Object,
                                start,
                                end: self.at,
                            }
                        }
                        _ => self.value(depth + 1)?,
                    };
                    for &(target, rank) in &found.targets {
                        if sink.slots[target].is_none_or(|(best, _)| rank < best) {
                            sink.slots[target] = Some((rank, span));
                        }
                    }
                }
            }
            self.white_space();
            match self.peek() {
                b',' => {
                    self.at += 1;
                    self.white_space();
                }
                b'}' => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.broken("expected ',' or '}' after a value"),
            }
        }
    }

    /// A key with its colon; stops at the value.
    #[inline]
    fn key(&mut self) -> Result<Span, Broken> {
        if self.peek() != b'"' {
            return self.broken("expected a key in double quotes");
        }
        let key = self.string()?;
        self.white_space();
        if self.peek() != b':' {
            return self.broken("expected ':' after a key");
        }
        self.at += 1;
        self.white_space();
        Ok(key)
    }

    /// Any value, checked and skipped without recursion.
    #[inline]
    fn value(&mut self, depth: usize) -> Result<Span, Broken> {
        match self.peek() {
            b'{' | b'[' => self.container(depth),
            _ => self.scalar(),
        }
    }

    #[inline]
    fn scalar(&mut self) -> Result<Span, Broken> {
        match self.peek() {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word("true", Shape::Bool),
            b'f' => self.word("false", Shape::Bool),
            b'n' => self.word("null", Shape::Null),
            _ => self.broken("expected a JSON value"),
        }
    }

    fn word(&mut self, word: &'static str, shape: Shape) -> Result<Span, Broken> {
        let start = self.at;
        if !self.bytes[start..].starts_with(word.as_bytes()) {
            return self.broken("expected a JSON value");
        }
        self.at += word.len();
        Ok(Span {
            shape,
            start,
            end: self.at,
        })
    }

    /// An object or array, and everything in it.
    fn container(&mut self, outer_depth: usize) -> Result<Span, Broken> {
        let start = self.at;
        let shape = if self.peek() == b'{' {
            Shape::Object
        } else {
            Shape::Array
        };
        let mut open = Open {
            bits: [0; MAX_JSON_DEPTH / 64],
            depth: 0,
        };
        loop {
            // A value begins here.
            let opening = self.peek();
            let mut ended = true;
            if opening == b'{' || opening == b'[' {
                if outer_depth + open.depth >= MAX_JSON_DEPTH {
                    return self.too_deep();
                }
                open.push(opening == b'{');
                self.at += 1;
                self.white_space();
                let closing = if opening == b'{' { b'}' } else { b']' };
                if self.peek() == closing {
                    self.at += 1;
                    open.depth -= 1;
                } else {
                    if opening == b'{' {
                        self.key()?;
                    }
                    ended = false;
                }
            } else {
                self.scalar()?;
            }
            // A value has ended here, unless one has just been opened.
            while ended {
                if open.depth == 0 {
                    return Ok(Span {
                        shape,
                        start,
                        end: self.at,
                    });
                }
                self.white_space();
                let object = open.innermost_is_object();
                match (self.peek(), object) {
                    (b',', _) => {
                        self.at += 1;
                        self.white_space();
                        if object {
                            self.key()?;
                        }
                        ended = false;
                    }
                    (b'}', true) | (b']', false) => {
                        self.at += 1;
                        open.depth -= 1;
                    }
                    (_, true) => return self.broken("expected ',' or '}' after a value"),
                    (_, false) => return self.broken("expected ',' or ']' after a value"),
                }
            }
        }
    }

    fn number(&mut self) -> Result<Span, Broken> {
        let start = self.at;
        let mut shape = Shape::Integer;
        if self.peek() == b'-' {
            self.at += 1;
        }
        match self.peek() {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits(),
            _ => return self.broken("expected a digit"),
        }
        if self.peek().is_ascii_digit() {
            return self.broken("a number begins with 0");
        }
        if self.peek() == b'.' {
            shape = Shape::Float;
            self.at += 1;
            if !self.peek().is_ascii_digit() {
                return self.broken("expected a digit after '.'");
            }
            self.digits();
        }
        if matches!(self.peek(), b'e' | b'E') {
            shape = Shape::Float;
            self.at += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.at += 1;
            }
            if !self.peek().is_ascii_digit() {
                return self.broken("expected a digit in an exponent");
            }
            self.digits();
        }
        Ok(Span {
            shape,
            start,
            end: self.at,
        })
    }

    fn digits(&mut self) {
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
    }

    #[inline]
    fn string(&mut self) -> Result<Span, Broken> {
        let start = self.at + 1;
        let mut at = start;
        let mut escaped = false;
        loop {
            at = next_special(self.bytes, at);
            match self.bytes.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    return Ok(Span {
                        shape: Shape::String { escaped },
                        start,
                        end: at,
                    });
                }
                Some(b'\\') => {
                    escaped = true;
                    match self.bytes.get(at + 1) {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => at += 2,
                        Some(b'u') => {
                            let hex = self.bytes.get(at + 2..at + 6);
                            if !hex.is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) {
                                return self.broken_at(at, "expected four hex digits after \\u");
                            }
                            at += 6;
                        }
                        Some(_) => return self.broken_at(at, "unknown escape in a string"),
                        None => return self.broken_at(at + 1, "unknown escape in a string"),
                    }
                }
                Some(_) => return self.broken_at(at, "a control character inside a string"),
                None => return self.broken_at(at, "a string without an end"),
            }
        }
    }
}

/// The first `"`, `\` or control character from `from` on, or the length. Eight bytes at a time.
#[inline]
fn next_special(bytes: &[u8], from: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let mut at = from;
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*eight);
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        // A byte's high bit is set where it borrows, that is where it was below the subtrahend;
        // false hits stand only above a true one, so the lowest is exact.
        let hits = (quote.wrapping_sub(ONES) & !quote
            | backslash.wrapping_sub(ONES) & !backslash
            | word.wrapping_sub(ONES * 0x20) & !word)
            & HIGH;
        if hits != 0 {
            return at + (hits.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while at < bytes.len() && !matches!(bytes[at], b'"' | b'\\' | 0..0x20) {
        at += 1;
    }
    at
}

/// Decodes the escapes of a string that [`Scanner::string`] has checked. The error is the place of
/// an escape that is half a surrogate pair.
fn unescape(written: &str) -> Result<String, usize> {
    let mut out = String::with_capacity(written.len());
    let bytes = written.as_bytes();
    let mut at = 0;
    while let Some(run) = next_backslash(bytes, at) {
        out.push_str(&written[at..run]);
        at = run;
        let plain = match bytes[at + 1] {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => {
                let unit = hex_unit(bytes, at + 2);
                let escape = at;
                at += 6;
                let scalar = match unit {
                    0xD800..=0xDBFF => {
                        let low = match (bytes.get(at), bytes.get(at + 1)) {
                            (Some(b'\\'), Some(b'u')) => hex_unit(bytes, at + 2),
                            _ => return Err(escape),
                        };
                        if !(0xDC00..=0xDFFF).contains(&low) {
                            return Err(escape);
                        }
                        at += 6;
                        0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)
                    }
                    unit => unit,
                };
                // Only a low half that no high half precedes is not a character.
                out.push(char::from_u32(scalar).ok_or(escape)?);
                continue;
            }
            other => other as char,
        };
        out.push(plain);
        at += 2;
    }
    out.push_str(&written[at..]);
    Ok(out)
}

fn next_backslash(bytes: &[u8], from: usize) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let mut at = from;
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let backslash = u64::from_le_bytes(*eight) ^ (ONES * b'\\' as u64);
        let hits = backslash.wrapping_sub(ONES) & !backslash & HIGH;
        if hits != 0 {
            return Some(at + (hits.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    bytes[at..]
        .iter()
        .position(|&byte| byte == b'\\')
        .map(|found| at + found)
}

fn hex_unit(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |unit, &digit| {
        unit << 4
            | (digit as char)
                .to_digit(16)
                .expect("the scanner has checked the digits")
    })
}
