//! Repeated stretches of tokens: every stretch of at least N tokens that stands elsewhere, found exactly.
//!
//! In any N tokens in a row, one run of k tokens is the anchor: the one with the smallest hash, the last of
//! equals. Equal stretches have equal anchors at the same place, so that only stretches with the same anchor have
//! to be compared (winnowing: Schleimer, Wilkerson and Aiken 2003). The consecutive stretches that share one anchor
//! make a *context* of N to 2N - k tokens, one for about (N - k + 2) / 2 tokens. The exchanges:
//!
//! 1. contexts by anchor, 20 bytes each. Those of one anchor are taken in order of place, and each is laid beside the
//!    earlier ones, anchor on anchor, but only beside those that held something new: almost always the first one alone.
//!    Of a stretch that none of the first 64 of these holds it is only known that it is none of theirs:
//! 2. such stretches by hash, 24 bytes each, so that no large group is compared pair by pair;
//! 3. what was found, in *marks* by place, 24 bytes each: stretches in a row that stand in a row where they stood first.
//!
//! Marks that touch become spans. So it is known of every stretch where it stands first, and the spans follow from that
//! alone, however contexts were cut.
//!
//! Nothing is held in memory but what the exchanges may hold, and time is that of sorting for any input.

use crate::spill::{Parts, Spill};
use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use std::cmp::Ordering;
use std::io;
use std::ops::Range;

/// What a repeat is and what stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanRule {
    /// Fewest tokens of a repeat, from [`SpanRule::MIN_TOKENS`] to [`SpanRule::MAX_MIN_TOKENS`].
    pub min_tokens: u32,
    /// Whether the first occurrence stays; else none does.
    pub keep_first: bool,
}

impl SpanRule {
    /// Shorter repeats are ordinary phrases, and have no anchors to tell them by.
    pub const MIN_TOKENS: u32 = 8;
    /// The most that 'at least' can be: a context of twice as many has a length of 16 bits.
    pub const MAX_MIN_TOKENS: u32 = 10_000;

    /// Tokens of an anchor. Shorter ones are fewer, but more of them are the same in stretches that are not.
    fn anchor_tokens(&self) -> usize {
        self.min_tokens as usize / 4
    }
}

/// Documents by rank, the place in the order (place in `inputs`, id).
#[derive(Clone, Copy)]
pub struct RankedTokens<'a> {
    /// How many there are, below 2^48.
    pub documents: u64,
    /// The tokens of a document by rank; none for one that takes no part.
    pub tokens: &'a (dyn Fn(u64) -> &'a [u32] + Sync),
    /// Asked now and then: an error ends the work.
    pub go_on: &'a (dyn Fn() -> io::Result<()> + Sync),
}

/// A stretch of tokens that stands elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Rank of its document.
    pub rank: u64,
    /// First token.
    pub start: u32,
    /// The token after the last one.
    pub end: u32,
    /// Rank of the document where it stands too. Where the first occurrence stays, it is the first document, in order of
    /// rank, that holds these N tokens in a row: each token of the span lies in a stretch of N tokens of which this is so.
    /// (What stands there may go in part all the same, where its own beginning or end, with more before or after it,
    /// stands earlier still: then no one place holds the whole of it in the end.)
    pub kept_rank: u64,
    /// The first token there.
    pub kept_start: u32,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanReport {
    /// Contexts that were compared.
    pub contexts: u64,
    /// Stretches of anchors with many different contexts that were compared one by one.
    pub stretches: u64,
    /// Spans that were found.
    pub spans: u64,
    /// Their tokens.
    pub tokens: u64,
}

/// Consecutive stretches that share an anchor, in five words that are ordered as (anchor, rank, start): 48 bits of anchor,
/// 48 of rank, 32 of start, 16 of the number of tokens, and 16 of the place of the anchor among these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
struct Context([u32; 5]);

impl Context {
    fn new(anchor: u64, rank: u64, start: usize, tokens: usize, anchor_at: usize) -> Context {
        Context([
            (anchor >> 16) as u32,
            (anchor << 16) as u32 | (rank >> 32) as u32,
            rank as u32,
            start as u32,
            (tokens << 16) as u32 | anchor_at as u32,
        ])
    }

    fn key(&self) -> (u64, u64) {
        let [a, b, c, d, _] = self.0.map(u64::from);
        (a << 32 | b, c << 32 | d)
    }

    fn anchor(&self) -> u64 {
        u64::from(self.0[0]) << 16 | u64::from(self.0[1] >> 16)
    }

    fn rank(&self) -> u64 {
        u64::from(self.0[1] & 0xFFFF) << 32 | u64::from(self.0[2])
    }

    fn start(&self) -> u32 {
        self.0[3]
    }

    fn tokens(&self) -> usize {
        (self.0[4] >> 16) as usize
    }

    fn anchor_at(&self) -> usize {
        (self.0[4] & 0xFFFF) as usize
    }
}

/// One stretch of exactly N tokens.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Stretch {
    hash: u64,
    rank: u64,
    start: u32,
    unused: u32,
}

/// Stretches in a row that stand in a row elsewhere, in three words that are ordered as (rank, start): 48 bits of rank, 32
/// of start, 48 of the rank elsewhere, 32 of the start there, and 32 of the number of stretches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
struct Mark([u64; 3]);

impl Mark {
    fn new(
        (rank, start): (u64, u32),
        (kept_rank, kept_start): (u64, u32),
        stretches: usize,
    ) -> Mark {
        Mark([
            rank << 16 | u64::from(start >> 16),
            u64::from(start) << 48 | kept_rank,
            u64::from(kept_start) << 32 | stretches as u64,
        ])
    }

    fn rank(&self) -> u64 {
        self.0[0] >> 16
    }

    fn start(&self) -> u32 {
        (self.0[0] << 16) as u32 | (self.0[1] >> 48) as u32
    }

    fn kept_rank(&self) -> u64 {
        self.0[1] & MAX_RANK
    }

    fn kept_start(&self) -> u32 {
        (self.0[2] >> 32) as u32
    }

    fn stretches(&self) -> u32 {
        self.0[2] as u32
    }
}

/// The last rank that 48 bits hold.
const MAX_RANK: u64 = (1 << 48) - 1;
/// Most stretches of a document whose contexts are found at once. Where it has more, contexts end there: they are other
/// ones then than those of the same text elsewhere, and are compared with these as any others of one anchor.
const PIECE_STRETCHES: usize = 1 << 16;
/// Bits of a place in a piece: it has fewer than [`SpanRule::MAX_MIN_TOKENS`] anchors more than stretches.
const PLACE_BITS: u32 = 17;
/// Pieces of documents whose contexts are found at a time, and the stretches from which on no more are.
const BATCH_PIECES: usize = 2_048;
const BATCH_STRETCHES: usize = 1 << 20;
/// Most contexts of an anchor that others are laid beside.
const FEW: usize = 64;
/// Parts of an exchange that are in work at a time, where memory has room for them.
const BATCH_PARTS: usize = 32;
/// How many records ahead tokens are fetched, so that their way from memory is not waited for.
const AHEAD: usize = 8;
/// Marks and stretches that are handed on at a time where a part is too large for memory.
const BATCH_FOUND: usize = 1 << 14;

/// Calls `visit` for every span, in order of rank and start; those of a document don't overlap. Together they cover
/// exactly the tokens that lie in a stretch of N tokens which stands elsewhere: before it where the first occurrence
/// stays (in an earlier document, or earlier in the same one, possibly overlapping it), anywhere else where none does.
///
/// # Errors
/// When intermediate files cannot be written or read, or `visit` fails.
///
/// # Panics
/// When `min_tokens` is out of its bounds.
pub fn decide(
    documents: RankedTokens<'_>,
    rule: SpanRule,
    spill: &Spill,
    mut visit: impl FnMut(Span) -> io::Result<()>,
) -> io::Result<SpanReport> {
    assert!(
        (SpanRule::MIN_TOKENS..=SpanRule::MAX_MIN_TOKENS).contains(&rule.min_tokens)
            && documents.documents <= MAX_RANK,
        "out of bounds"
    );
    let mut report = SpanReport::default();
    // Two exchanges, what is in work, and two sorts of half as much, of stretches and of a part that is too large.
    let spill = spill.share(4);
    let mut contexts = spill.parts::<Context>("contexts");
    find_contexts(documents, rule, &mut contexts)?;
    report.contexts = contexts.len();

    let mut marks = Marks {
        parts: spill.parts("span-marks"),
        documents: documents.documents,
    };
    let mut stretches = spill.share(2).sorter("stretches", by_hash);
    exchange(
        &mut contexts,
        &spill,
        ("span-anchors", |a: &Context, b: &Context| {
            a.key().cmp(&b.key())
        }),
        size_of::<Context>() + 2 * size_of::<Mark>(),
        documents.go_on,
        || Anchor::new(documents, rule),
        |found| {
            found
                .marks
                .drain(..)
                .try_for_each(|mark| marks.push(mark))?;
            found
                .stretches
                .drain(..)
                .try_for_each(|stretch| stretches.push(stretch))
        },
    )?;
    drop(contexts);
    report.stretches = stretches.len();
    mark_stretches(documents, rule, stretches.finish()?, &mut marks)?;

    exchange(
        &mut marks.parts,
        &spill,
        ("spans", |a: &Mark, b: &Mark| a.0.cmp(&b.0)),
        size_of::<Mark>() + size_of::<Span>(),
        documents.go_on,
        || Joined::new(documents, rule),
        |found| {
            for span in found.drain(..) {
                report.spans += 1;
                report.tokens += u64::from(span.end - span.start);
                visit(span)?;
            }
            Ok(())
        },
    )?;
    Ok(report)
}

fn find_contexts(
    documents: RankedTokens<'_>,
    rule: SpanRule,
    contexts: &mut Parts<Context>,
) -> io::Result<()> {
    let n = rule.min_tokens as usize;
    let mut pieces = pieces(documents, n).peekable();
    let mut batch: Vec<(u64, Range<usize>)> = Vec::new();
    let parts = contexts.parts() as u64;
    while pieces.peek().is_some() {
        (documents.go_on)()?;
        batch.clear();
        let mut stretches = 0;
        while batch.len() < BATCH_PIECES
            && stretches < BATCH_STRETCHES
            && let Some((rank, starts)) = pieces.next()
        {
            stretches += starts.len();
            batch.push((rank, starts));
        }
        let found: Vec<Vec<Context>> = batch
            .par_iter()
            .map_init(Scratch::default, |scratch, (rank, starts)| {
                let tokens = &(documents.tokens)(*rank)[starts.start..starts.end + n - 1];
                contexts_of(tokens, *rank, starts.start, rule, scratch)
            })
            .collect();
        for context in found.into_iter().flatten() {
            // The smallest hashes are small, so they are spread once more.
            let spread = context.anchor().wrapping_mul(MULTIPLIER) >> 32;
            contexts.push(((spread * parts) >> 32) as usize, context)?;
        }
    }
    Ok(())
}

/// Ranks and first tokens of all stretches, in pieces of at most [`PIECE_STRETCHES`].
fn pieces(documents: RankedTokens<'_>, n: usize) -> impl Iterator<Item = (u64, Range<usize>)> {
    (0..documents.documents).flat_map(move |rank| {
        let stretches = ((documents.tokens)(rank).len() + 1).saturating_sub(n);
        (0..stretches)
            .step_by(PIECE_STRETCHES)
            .map(move |start| (rank, start..stretches.min(start + PIECE_STRETCHES)))
    })
}

/// Takes sorted records of one part, and gives what follows from them.
trait Step<T>: Sized {
    /// What it gives.
    type Found: Default + Send;
    /// Is told of a record that is taken soon, and the one before it.
    fn soon(&self, _: [&T; 2]) {}
    /// Takes the next record.
    fn take(&mut self, record: T, found: &mut Self::Found);
    /// Takes the end of the part.
    fn end(&mut self, _: &mut Self::Found) {}
    /// Roughly how much was found.
    fn count(found: &Self::Found) -> usize;
}

/// Sorts each part, gives its records to a step of its own, and what this finds to `hand_on`, part after part. A record
/// with what follows from it takes `bytes`. A part that is too large for a share of the memory is sorted on disk.
fn exchange<T, S, C>(
    parts: &mut Parts<T>,
    spill: &Spill,
    (name, compare): (&str, C),
    bytes: usize,
    go_on: &(dyn Fn() -> io::Result<()> + Sync),
    step: impl Fn() -> S + Sync,
    mut hand_on: impl FnMut(&mut S::Found) -> io::Result<()>,
) -> io::Result<()>
where
    T: Pod + Send + Sync,
    S: Step<T>,
    C: Fn(&T, &T) -> Ordering + Send + Sync + Clone + 'static,
{
    let most = (spill.memory_bytes() / bytes) as u64;
    let mut next = 0;
    while next < parts.parts() {
        go_on()?;
        if parts.len_of(next) > most {
            let mut sorter = spill.share(2).sorter(name, compare.clone());
            parts.take(next, |some| {
                some.iter().try_for_each(|&record| sorter.push(record))
            })?;
            let (mut step, mut found) = (step(), S::Found::default());
            for record in sorter.finish()? {
                step.take(record?, &mut found);
                if S::count(&found) >= BATCH_FOUND {
                    go_on()?;
                    hand_on(&mut found)?;
                }
            }
            step.end(&mut found);
            hand_on(&mut found)?;
            next += 1;
            continue;
        }
        let mut batch: Vec<Vec<T>> = Vec::new();
        let mut records = 0;
        while next < parts.parts()
            && batch.len() < BATCH_PARTS
            && records + parts.len_of(next) <= most
        {
            records += parts.len_of(next);
            let mut part = Vec::with_capacity(parts.len_of(next) as usize);
            parts.take(next, |some| {
                part.extend_from_slice(some);
                Ok(())
            })?;
            batch.push(part);
            next += 1;
        }
        let found: Vec<S::Found> = batch
            .into_par_iter()
            .map(|mut part| {
                part.sort_unstable_by(&compare);
                let (mut step, mut found) = (step(), S::Found::default());
                for (at, &record) in part.iter().enumerate() {
                    if let Some([before, soon]) = part.get(at + AHEAD..at + AHEAD + 2) {
                        step.soon([before, soon]);
                    }
                    step.take(record, &mut found);
                }
                step.end(&mut found);
                found
            })
            .collect();
        for mut found in found {
            hand_on(&mut found)?;
        }
    }
    Ok(())
}

/// Marks by range of ranks.
struct Marks {
    parts: Parts<Mark>,
    documents: u64,
}

impl Marks {
    fn push(&mut self, mark: Mark) -> io::Result<()> {
        let parts = self.parts.parts() as u64;
        // Below 2^48 documents and at most 256 parts.
        self.parts
            .push((mark.rank() * parts / self.documents) as usize, mark)
    }
}

/// Marks a stretch that stands in two places, the later one first; the earlier one too, unless it stays or is marked.
fn mark_both(
    keep_first: bool,
    later: (u64, u32),
    earlier: (u64, u32),
    stretches: usize,
    mut marked: impl FnMut(usize) -> bool,
    mut push: impl FnMut(Mark),
) {
    push(Mark::new(later, earlier, stretches));
    if keep_first {
        return;
    }
    for at in 0..stretches {
        if !marked(at) {
            let place = |(rank, start)| (rank, start + at as u32);
            push(Mark::new(place(earlier), place(later), 1));
        }
    }
}

/// The contexts of one anchor, in order of place.
struct Anchor<'d> {
    documents: RankedTokens<'d>,
    rule: SpanRule,
    anchor: u64,
    /// The first ones that held something new.
    few: Vec<Kind<'d>>,
    /// Stretches of the one in work that were found.
    found: Vec<bool>,
}

/// A context that others are laid beside.
struct Kind<'d> {
    context: Context,
    /// Its tokens, once they were needed: most anchors have one context only.
    tokens: Option<&'d [u32]>,
    /// Whether a stretch is marked, where none stays.
    marked: Vec<bool>,
}

/// What is known of contexts, and stretches of which nothing is known yet.
#[derive(Default)]
struct Found {
    marks: Vec<Mark>,
    stretches: Vec<Stretch>,
}

impl<'d> Anchor<'d> {
    fn new(documents: RankedTokens<'d>, rule: SpanRule) -> Self {
        Anchor {
            documents,
            rule,
            anchor: 0,
            few: Vec::with_capacity(FEW),
            found: Vec::new(),
        }
    }

    fn keep(&mut self, context: Context, tokens: Option<&'d [u32]>) {
        let marked = match self.rule.keep_first {
            true => 0,
            false => context.tokens() + 1 - self.rule.min_tokens as usize,
        };
        self.few.push(Kind {
            context,
            tokens,
            marked: vec![false; marked],
        });
    }
}

impl Step<Context> for Anchor<'_> {
    type Found = Found;

    fn soon(&self, [before, context]: [&Context; 2]) {
        if before.anchor() == context.anchor() {
            let tokens = self.documents.of(*context);
            // A line of the processor's caches has 16.
            for at in (0..tokens.len()).step_by(16) {
                prefetch_index::prefetch_index(tokens, at);
            }
        }
    }

    fn take(&mut self, context: Context, out: &mut Found) {
        if self.few.is_empty() || context.anchor() != self.anchor {
            self.anchor = context.anchor();
            self.few.clear();
            self.keep(context, None);
            return;
        }
        let (documents, n) = (self.documents, self.rule.min_tokens as usize);
        let tokens = documents.of(context);
        let stretches = tokens.len() + 1 - n;
        let mut left = stretches;
        self.found.clear();
        self.found.resize(stretches, false);
        for kind in &mut self.few {
            let earlier = kind.context;
            let other = *kind.tokens.get_or_insert_with(|| documents.of(earlier));
            let shared = shared(
                (tokens, context.anchor_at()),
                (other, earlier.anchor_at()),
                n,
            );
            let mut at = shared.start;
            while at < shared.end {
                let new = self.found[at..shared.end].iter();
                let length = new.take_while(|found| !**found).count();
                if length > 0 {
                    self.found[at..at + length].fill(true);
                    left -= length;
                    // Both are laid anchor on anchor.
                    let there = at + earlier.anchor_at() - context.anchor_at();
                    mark_both(
                        self.rule.keep_first,
                        (context.rank(), context.start() + at as u32),
                        (earlier.rank(), earlier.start() + there as u32),
                        length,
                        |at| std::mem::replace(&mut kind.marked[there + at], true),
                        |mark| out.marks.push(mark),
                    );
                }
                at += length.max(1);
            }
            if left == 0 {
                return;
            }
        }
        if self.few.len() < FEW {
            self.keep(context, Some(tokens));
            return;
        }
        for (at, hash) in hashes(tokens, n).enumerate() {
            if !self.found[at] {
                out.stretches.push(Stretch {
                    hash,
                    rank: context.rank(),
                    start: context.start() + at as u32,
                    unused: 0,
                });
            }
        }
    }

    fn count(found: &Found) -> usize {
        found.marks.len() + found.stretches.len()
    }
}

fn by_hash(a: &Stretch, b: &Stretch) -> Ordering {
    (a.hash, a.rank, a.start).cmp(&(b.hash, b.rank, b.start))
}

/// Marks stretches that stand before among these.
fn mark_stretches(
    documents: RankedTokens<'_>,
    rule: SpanRule,
    stretches: impl Iterator<Item = io::Result<Stretch>>,
    marks: &mut Marks,
) -> io::Result<()> {
    let n = rule.min_tokens as usize;
    let of = |stretch: &Stretch| &(documents.tokens)(stretch.rank)[stretch.start as usize..][..n];
    // The first of each text of this hash, almost always one, and whether it is marked.
    let mut same_hash: Vec<(Stretch, bool)> = Vec::new();
    for stretch in stretches {
        let stretch = stretch?;
        if same_hash
            .first()
            .is_some_and(|(first, _)| first.hash != stretch.hash)
        {
            same_hash.clear();
        }
        let Some((first, marked)) = same_hash
            .iter_mut()
            .find(|(first, _)| of(first) == of(&stretch))
        else {
            same_hash.push((stretch, false));
            continue;
        };
        let mut pushed = Ok(());
        mark_both(
            rule.keep_first,
            (stretch.rank, stretch.start),
            (first.rank, first.start),
            1,
            |_| std::mem::replace(marked, true),
            |mark| {
                let push = marks.push(mark);
                if pushed.is_ok() {
                    pushed = push;
                }
            },
        );
        pushed?;
    }
    Ok(())
}

impl<'d> RankedTokens<'d> {
    fn of(&self, context: Context) -> &'d [u32] {
        &(self.tokens)(context.rank())[context.start() as usize..][..context.tokens()]
    }
}

/// The stretches of one context that another one of its anchor holds at the same place, by their starts in it. Each is
/// its tokens and the place of the anchor among them.
fn shared((a, a_at): (&[u32], usize), (b, b_at): (&[u32], usize), n: usize) -> Range<usize> {
    if (a.len(), a_at) == (b.len(), b_at) && a == b {
        return 0..a.len() + 1 - n;
    }
    let before = common_suffix(&a[..a_at], &b[..b_at]);
    let after = common_prefix(&a[a_at..], &b[b_at..]);
    match before + after < n {
        true => 0..0,
        false => a_at - before..a_at + after + 1 - n,
    }
}

fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    let (blocks, _) = a.as_chunks::<8>();
    let same = blocks.iter().zip(b.as_chunks::<8>().0);
    let whole = 8 * same.take_while(|(a, b)| a == b).count();
    let rest = a[whole..].iter().zip(&b[whole..]);
    whole + rest.take_while(|(a, b)| a == b).count()
}

fn common_suffix(a: &[u32], b: &[u32]) -> usize {
    let (_, blocks) = a.as_rchunks::<8>();
    let same = blocks.iter().rev().zip(b.as_rchunks::<8>().1.iter().rev());
    let whole = 8 * same.take_while(|(a, b)| a == b).count();
    let rest = a[..a.len() - whole].iter().rev();
    let rest = rest.zip(b[..b.len() - whole].iter().rev());
    whole + rest.take_while(|(a, b)| a == b).count()
}

/// Joins marks to spans.
struct Joined<'d> {
    documents: RankedTokens<'d>,
    rule: SpanRule,
    open: Option<Span>,
}

impl<'d> Joined<'d> {
    fn new(documents: RankedTokens<'d>, rule: SpanRule) -> Self {
        Joined {
            documents,
            rule,
            open: None,
        }
    }
}

impl Step<Mark> for Joined<'_> {
    type Found = Vec<Span>;

    fn take(&mut self, mark: Mark, out: &mut Vec<Span>) {
        let tokens = self.documents.tokens;
        let (rank, kept_rank, start) = (mark.rank(), mark.kept_rank(), mark.start());
        let end = start + mark.stretches() + self.rule.min_tokens - 1;
        // What the span before covers is not said twice.
        let mut covered = 0;
        if let Some(span) = &mut self.open
            && span.rank == rank
            && start <= span.end
        {
            // Where it goes on as it does over there, it is one span. Elsewhere in the document that keeps it is as
            // good: of a token that is repeated ten times, each ten begin with the first.
            if span.kept_rank == kept_rank || !self.rule.keep_first {
                let there = span.kept_start + (span.end - span.start);
                let goes_on = span.kept_rank == kept_rank
                    && there.wrapping_sub(span.end) == mark.kept_start().wrapping_sub(start);
                let more = match goes_on {
                    true => end.saturating_sub(span.end),
                    false => common_prefix(
                        &tokens(rank)[span.end as usize..end.max(span.end) as usize],
                        &tokens(span.kept_rank)[there as usize..],
                    ) as u32,
                };
                span.end += more;
            }
            if span.end >= end {
                return;
            }
            covered = span.end - start;
        }
        out.extend(self.open.replace(Span {
            rank,
            start: start + covered,
            end,
            kept_rank,
            kept_start: mark.kept_start() + covered,
        }));
    }

    fn end(&mut self, out: &mut Vec<Span>) {
        out.extend(self.open.take());
    }

    fn count(found: &Vec<Span>) -> usize {
        found.len()
    }
}

/// Multiplier of the rolling hash: odd, with bits all over.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Spreads a sum over all bits, so that the smallest of several says nothing of the tokens.
#[inline]
fn mix(sum: u64) -> u64 {
    let high = (sum ^ sum >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (high ^ high >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// Hashes of each `length` tokens in a row; none where there are fewer tokens.
fn hashes(tokens: &[u32], length: usize) -> impl Iterator<Item = u64> {
    let roll = |sum: u64, token: u32| {
        sum.wrapping_mul(MULTIPLIER)
            .wrapping_add(u64::from(token) + 1)
    };
    let (first, rest) = tokens.split_at(tokens.len().min(length - 1));
    let top = MULTIPLIER.wrapping_pow(length as u32 - 1);
    let mut before = first.iter().fold(0, |sum, &token| roll(sum, token));
    rest.iter().zip(tokens).map(move |(&enters, &leaves)| {
        let sum = roll(before, enters);
        before = sum.wrapping_sub((u64::from(leaves) + 1).wrapping_mul(top));
        mix(sum)
    })
}

/// Buffers of one document.
#[derive(Default)]
struct Scratch {
    /// Hash of the anchor at each place, its low bits replaced by the place counted down.
    anchors: Vec<u64>,
    /// The smallest of a block from each place on.
    smallest: Vec<u64>,
}

/// The contexts of a document or a piece of it, in order; the first of these tokens is number `first` of the document.
///
/// The smallest of each w values in a row is that of the rest of one block of w and of the beginning of the next (van
/// Herk 1992; Gil and Werman 1993).
fn contexts_of(
    tokens: &[u32],
    rank: u64,
    first: usize,
    rule: SpanRule,
    scratch: &mut Scratch,
) -> Vec<Context> {
    const LAST_PLACE: u64 = (1 << PLACE_BITS) - 1;
    let (n, k) = (rule.min_tokens as usize, rule.anchor_tokens());
    let w = n - k + 1;
    let mut found = Vec::new();
    if tokens.len() < n {
        return found;
    }
    found.reserve(2 * tokens.len() / w);
    let Scratch { anchors, smallest } = scratch;
    anchors.clear();
    let places = (0..=LAST_PLACE).rev();
    anchors.extend(
        hashes(tokens, k)
            .zip(places)
            .map(|(hash, place)| hash & !LAST_PLACE | place),
    );
    smallest.resize(w, 0);
    let stretches = tokens.len() - n + 1;
    let mut close = |anchor: u64, start: usize, end: usize| {
        let place = (LAST_PLACE - (anchor & LAST_PLACE)) as usize;
        found.push(Context::new(
            anchor >> PLACE_BITS,
            rank,
            first + start,
            end - start - 1 + n,
            place - start,
        ));
    };
    let mut open = (u64::MAX, 0);
    for block in (0..stretches).step_by(w) {
        let mut least = u64::MAX;
        for (smallest, &anchor) in smallest.iter_mut().zip(&anchors[block..block + w]).rev() {
            least = least.min(anchor);
            *smallest = least;
        }
        let after = &anchors[block + w..];
        let mut least = u64::MAX;
        for (at, &smallest) in smallest.iter().take(stretches - block).enumerate() {
            let anchor = smallest.min(least);
            if anchor != open.0 {
                if open.0 != u64::MAX {
                    close(open.0, open.1, block + at);
                }
                open = (anchor, block + at);
            }
            least = least.min(after.get(at).copied().unwrap_or(u64::MAX));
        }
    }
    close(open.0, open.1, stretches);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULE: SpanRule = SpanRule {
        min_tokens: 8,
        keep_first: true,
    };

    fn run(documents: &[Vec<u32>], rule: SpanRule, memory_bytes: usize) -> (Vec<Span>, SpanReport) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spill = Spill::new(folder.path(), memory_bytes);
        let mut spans = Vec::new();
        let ranked = RankedTokens {
            documents: documents.len() as u64,
            tokens: &|rank| &documents[rank as usize],
            go_on: &|| Ok(()),
        };
        let report = decide(ranked, rule, &spill, |span| {
            spans.push(span);
            Ok(())
        })
        .expect("decided");
        (spans, report)
    }

    /// Which tokens go, by a suffix array over all documents.
    fn oracle(documents: &[Vec<u32>], rule: SpanRule) -> Vec<Vec<bool>> {
        let n = rule.min_tokens as usize;
        let mut suffixes: Vec<(&[u32], usize, usize)> = documents
            .iter()
            .enumerate()
            .flat_map(|(rank, tokens)| (0..tokens.len()).map(move |at| (&tokens[at..], rank, at)))
            .filter(|(suffix, ..)| suffix.len() >= n)
            .collect();
        suffixes.sort_unstable();
        let mut gone: Vec<Vec<bool>> = documents
            .iter()
            .map(|tokens| vec![false; tokens.len()])
            .collect();
        for group in suffixes.chunk_by(|a, b| a.0[..n] == b.0[..n]) {
            let first = group.iter().map(|&(_, rank, at)| (rank, at)).min();
            for &(_, rank, at) in group {
                let goes = match rule.keep_first {
                    true => Some((rank, at)) != first,
                    false => group.len() > 1,
                };
                if goes {
                    gone[rank][at..at + n].fill(true);
                }
            }
        }
        gone
    }

    /// The tokens that the spans cover; each must stand where its span says, and be no shorter than it may.
    fn covered(documents: &[Vec<u32>], spans: &[Span], rule: SpanRule) -> Vec<Vec<bool>> {
        let mut gone: Vec<Vec<bool>> = documents
            .iter()
            .map(|tokens| vec![false; tokens.len()])
            .collect();
        for span in spans {
            let (start, end) = (span.start as usize, span.end as usize);
            let kept =
                &documents[span.kept_rank as usize][span.kept_start as usize..][..end - start];
            assert_eq!(&documents[span.rank as usize][start..end], kept, "{span:?}");
            let (here, there) = ((span.rank, span.start), (span.kept_rank, span.kept_start));
            assert!(
                here != there && (!rule.keep_first || there < here),
                "{span:?}"
            );
            let places = &mut gone[span.rank as usize][start..end];
            assert!(places.iter().all(|gone| !gone), "overlaps: {span:?}");
            places.fill(true);
        }
        gone
    }

    /// Each token of a span must lie in a stretch of which the document that the span names is the first to hold it.
    fn name_the_first(documents: &[Vec<u32>], spans: &[Span], n: usize) {
        let first_with = |stretch: &[u32]| {
            let mut holding = documents.iter().enumerate();
            holding
                .find(|(_, tokens)| tokens.windows(n).any(|window| window == stretch))
                .map(|(rank, _)| rank as u64)
        };
        for span in spans {
            let tokens = &documents[span.rank as usize];
            for token in span.start as usize..span.end as usize {
                let starts = (token + 1).saturating_sub(n)..=token.min(tokens.len() - n);
                let mut stretches = starts.map(|start| &tokens[start..start + n]);
                assert!(
                    stretches.any(|stretch| first_with(stretch) == Some(span.kept_rank)),
                    "token {token} of {span:?}"
                );
            }
        }
    }

    fn both(keep_first: bool) -> SpanRule {
        SpanRule { keep_first, ..RULE }
    }

    #[test]
    fn a_copied_stretch_goes_and_names_where_it_stands() {
        let mut documents: Vec<Vec<u32>> = vec![(0..30).collect(), (100..130).collect()];
        documents[1].splice(10..10, 5..20);
        let (spans, report) = run(&documents, RULE, 1 << 20);
        let expected = Span {
            rank: 1,
            start: 10,
            end: 25,
            kept_rank: 0,
            kept_start: 5,
        };
        assert_eq!(spans, [expected]);
        assert_eq!((report.spans, report.tokens), (1, 15));
        assert_eq!(run(&documents, both(false), 1 << 20).1.tokens, 30);
    }

    #[test]
    fn one_token_fewer_than_the_least_is_no_repeat() {
        let mut documents: Vec<Vec<u32>> = vec![(0..30).collect(), (100..130).collect()];
        documents[1].splice(10..10, 5..12);
        assert_eq!(run(&documents, RULE, 1 << 20).0, []);
        documents[1].insert(17, 12);
        assert_eq!(run(&documents, RULE, 1 << 20).1.tokens, 8);
    }

    #[test]
    fn a_stream_of_equal_tokens_keeps_the_first_stretch_and_work_is_linear() {
        for count in [100_000, 200_000] {
            let documents = vec![vec![7; count], vec![7; count / 2]];
            let (spans, report) = run(&documents, RULE, 1 << 20);
            // The document's own first token is all that is no repeat.
            let told = |span: &Span| (span.rank, span.start..span.end);
            assert_eq!(
                spans.iter().map(told).collect::<Vec<_>>(),
                [(0, 1..count as u32), (1, 0..count as u32 / 2)]
            );
            // One context for each stretch, each a copy of the first.
            let stretches = (count * 3 / 2 - 2 * 7) as u64;
            assert_eq!((report.contexts, report.stretches), (stretches, 0));
        }
    }

    #[test]
    fn many_copies_of_a_page_cost_what_their_contexts_cost() {
        let page: Vec<u32> = (0..60).collect();
        for count in [10_000, 20_000] {
            let (spans, report) = run(&vec![page.clone(); count], RULE, 1 << 20);
            assert_eq!(spans.len(), count - 1);
            assert!(
                spans
                    .iter()
                    .all(|span| (span.kept_rank, span.start, span.end) == (0, 0, 60))
            );
            assert_eq!(report.stretches, 0);
            assert_eq!(report.contexts % count as u64, 0);
            assert!(report.contexts / (count as u64) < 60 / 2, "{report:?}");
        }
    }

    #[test]
    fn documents_shorter_than_the_least_make_no_work() {
        let documents = vec![vec![7; 7]; 10_000];
        assert_eq!(
            run(&documents, RULE, 1 << 20),
            (Vec::new(), SpanReport::default())
        );
    }

    #[test]
    fn a_repeat_over_the_border_of_pieces_is_found_whole() {
        let long: Vec<u32> = (0..PIECE_STRETCHES as u32 + 1_000).collect();
        let start = PIECE_STRETCHES - 30;
        let documents = vec![long.clone(), long[start..start + 60].to_vec()];
        let spans = run(&documents, RULE, 1 << 20).0;
        let expected = Span {
            rank: 1,
            start: 0,
            end: 60,
            kept_rank: 0,
            kept_start: start as u32,
        };
        assert_eq!(spans, [expected]);
    }

    #[test]
    fn a_part_that_stands_earlier_than_the_whole_names_where_it_stood_first() {
        // A stretch, the same in a longer one, and a copy of the longer one: its first part was not new there.
        let part: Vec<u32> = (0..20).collect();
        let whole: Vec<u32> = (0..40).collect();
        let documents = vec![part, vec![1_000; 4], whole.clone(), whole];
        let spans = run(&documents, RULE, 1 << 20).0;
        let told = |span: &Span| (span.rank, span.start..span.end, span.kept_rank);
        assert_eq!(
            spans.iter().map(told).collect::<Vec<_>>(),
            [(2, 0..20, 0), (3, 0..20, 0), (3, 20..40, 2)]
        );
    }

    #[test]
    fn pages_of_one_template_keep_it_once() {
        // Each page: the same 40 tokens, a number of its own, the same 40 tokens.
        // Some anchors have few different contexts, those beside the numbers one for each page.
        let documents: Vec<Vec<u32>> = (0..3_000u32)
            .map(|page| (0..40).chain([1_000 + page]).chain(40..80).collect())
            .collect();
        let (spans, report) = run(&documents, RULE, 1 << 22);
        assert_eq!(spans.len(), 2 * 2_999);
        assert!(spans.iter().all(|span| span.kept_rank < span.rank));
        assert_eq!(report.tokens, 2_999 * 80);
        // Only stretches of the contexts beside the numbers are compared one by one.
        assert!(report.stretches < 3_000 * 40, "{report:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn covers_what_a_suffix_array_finds(
            seed in proptest::collection::vec(proptest::collection::vec(0u32..4, 0..80), 1..8),
            copies in proptest::collection::vec((0usize..8, 0usize..80, 0usize..8, 0usize..80, 8usize..40), 0..6),
            keep_first: bool,
            min_tokens in 8u32..20,
        ) {
            let mut documents = seed;
            for (from, start, to, at, length) in copies {
                let source = &documents[from % documents.len()];
                let start = start.min(source.len());
                let piece: Vec<u32> = source[start..(start + length).min(source.len())].to_vec();
                let to = to % documents.len();
                let at = at.min(documents[to].len());
                documents[to].splice(at..at, piece);
            }
            let rule = SpanRule { min_tokens, keep_first };
            let (spans, report) = run(&documents, rule, 1 << 20);
            prop_assert_eq!(covered(&documents, &spans, rule), oracle(&documents, rule));
            if keep_first {
                name_the_first(&documents, &spans, min_tokens as usize);
            }
            prop_assert_eq!((&spans, &report), (&run(&documents, rule, 3_000).0, &report));
        }
    }
}
