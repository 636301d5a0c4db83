//! Repeated stretches of tokens: every stretch of at least N tokens that stands elsewhere, found exactly.
//!
//! In any N tokens in a row, one run of k tokens is the anchor: the one with the smallest hash, the last of
//! equals. Equal stretches have equal anchors at the same place, so that only stretches with the same anchor have
//! to be compared (winnowing: Schleimer, Wilkerson and Aiken 2003). The consecutive stretches that share one anchor
//! make a *context* of N to 2N - k tokens. The exchanges:
//!
//! 1. contexts by (anchor, hash of the context, place), 32 bytes each, one for about (N - k + 2) / 2 tokens. Equal
//!    contexts are repeats as a whole, decided on the tokens;
//! 2. where one anchor has a few different contexts, the first of each is laid beside the others, anchor on anchor;
//!    where it has many, their stretches are sorted by (hash, place), 24 bytes each, so that no large group is compared
//!    pair by pair. So it is known of every stretch of the first of each different context where it stands first;
//! 3. copies of a context by its first place, 32 bytes each, where its anchor has other contexts too: they are told
//!    what is known of the first.
//!
//! What was found is sorted by place, 32 bytes for each mark, and marks that touch become spans.
//!
//! Nothing is held in memory but what the sorts may hold, and time is that of sorting for any input.

use crate::spill::{Sorter, Spill};
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

    /// Tokens of an anchor.
    fn anchor_tokens(&self) -> usize {
        self.min_tokens as usize / 3
    }
}

/// Documents by rank, the place in the order (place in `inputs`, id).
#[derive(Clone, Copy)]
pub struct RankedTokens<'a> {
    /// How many there are.
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
    /// Stretches of different contexts of one anchor that were compared.
    pub stretches: u64,
    /// Copies of contexts of an anchor that has several, whose stretches may stand earlier than the whole.
    pub copies: u64,
    /// Spans that were found.
    pub spans: u64,
    /// Their tokens.
    pub tokens: u64,
}

/// Consecutive stretches that share an anchor.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Context {
    anchor: u64,
    hash: u64,
    rank: u64,
    start: u32,
    tokens: u16,
    /// Where the anchor stands in it.
    anchor_at: u16,
}

/// One stretch of exactly N tokens.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Stretch {
    hash: u64,
    rank: u64,
    start: u32,
    unused: u32,
}

/// A context that stands elsewhere as a whole: stretches of it may stand earlier than the whole does.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct CopiedContext {
    kept_rank: u64,
    rank: u64,
    kept_start: u32,
    start: u32,
    tokens: u32,
    unused: u32,
}

/// A stretch that is known to stand elsewhere.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Mark {
    rank: u64,
    kept_rank: u64,
    start: u32,
    tokens: u32,
    kept_start: u32,
    unused: u32,
}

/// Most stretches of a document whose contexts are found at once. Where it has more, contexts end there: they are other
/// ones then than those of the same text elsewhere, and are compared with these as any others of one anchor.
const PIECE_STRETCHES: usize = 1 << 16;
/// Pieces of documents whose contexts are found at a time, and the stretches from which on no more are.
const BATCH_PIECES: usize = 2_048;
const BATCH_STRETCHES: usize = 1 << 20;
/// Contexts that are compared at a time.
const BATCH_CONTEXTS: usize = 1 << 15;
/// Copies of contexts of one anchor that are held until it is known whether it has one context only.
const HELD_COPIES: usize = 1 << 15;
/// Most different contexts of an anchor that are laid beside each other.
const FEW: usize = 16;

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
        (SpanRule::MIN_TOKENS..=SpanRule::MAX_MIN_TOKENS).contains(&rule.min_tokens),
        "out of bounds"
    );
    let n = rule.min_tokens as usize;
    let powers = Powers::new(2 * n);
    let mut report = SpanReport::default();
    // Five sorts at a time at most.
    let spill = spill.share(5);
    let mut contexts = spill.sorter("contexts", |a: &Context, b: &Context| {
        (a.anchor, a.hash, a.rank, a.start).cmp(&(b.anchor, b.hash, b.rank, b.start))
    });
    let mut pieces = pieces(documents, n).peekable();
    let mut batch: Vec<(u64, Range<usize>)> = Vec::new();
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
                contexts_of(tokens, *rank, starts.start, rule, &powers, scratch)
            })
            .collect();
        for context in found.into_iter().flatten() {
            contexts.push(context)?;
        }
    }
    report.contexts = contexts.len();

    let by_place = |a: &Mark, b: &Mark| {
        let key = |mark: &Mark| {
            (
                mark.rank,
                mark.start,
                !mark.tokens,
                mark.kept_rank,
                mark.kept_start,
            )
        };
        key(a).cmp(&key(b))
    };
    let mut marks = spill.sorter("span-marks", by_place);
    // Marks in the first of each different context, to be handed on to its copies.
    let mut firsts = spill.sorter("span-firsts", by_place);
    let mut copies = spill.sorter("span-copies", |a: &CopiedContext, b: &CopiedContext| {
        let key = |copy: &CopiedContext| {
            (
                copy.kept_rank,
                copy.kept_start,
                copy.tokens,
                copy.rank,
                copy.start,
            )
        };
        key(a).cmp(&key(b))
    });
    let mut stretches = spill.sorter("stretches", |a: &Stretch, b: &Stretch| {
        (a.hash, a.rank, a.start).cmp(&(b.hash, b.rank, b.start))
    });
    {
        let mut compared = Compared {
            documents,
            rule,
            powers: &powers,
            scratch: Scratch::default(),
            marks: &mut marks,
            firsts: &mut firsts,
            copies: &mut copies,
            stretches: &mut stretches,
            pairs: Vec::new(),
            groups: Vec::new(),
            ends: Vec::new(),
        };
        // The first of each different context of the anchor in work, as long as they are few, and copies of them.
        let mut group: Vec<Context> = Vec::new();
        let mut held: Vec<[Context; 2]> = Vec::new();
        let mut first: Option<Context> = None;
        for context in contexts.finish()? {
            let context = context?;
            match first {
                Some(first) if first.anchor == context.anchor => {
                    let same = |context: Context| (context.hash, context.tokens, context.anchor_at);
                    if same(first) == same(context) {
                        held.push([first, context]);
                        if held.len() == HELD_COPIES {
                            compared.copied(&mut held, false)?;
                        }
                        continue;
                    }
                }
                _ => {
                    compared.group(&mut group, &mut held)?;
                }
            }
            first = Some(context);
            group.push(context);
            if group.len() > FEW {
                // Those before it went when it was the first too many.
                let all = match group.len() {
                    n if n == FEW + 1 => 0,
                    n => n - 1,
                };
                for &context in &group[all..] {
                    compared.split(context)?;
                }
                group.truncate(FEW + 1);
            }
        }
        compared.group(&mut group, &mut held)?;
        compared.close()?;
    }
    report.stretches = stretches.len();
    report.copies = copies.len();

    {
        let of =
            |stretch: &Stretch| &(documents.tokens)(stretch.rank)[stretch.start as usize..][..n];
        // The first of each text of this hash: almost always one.
        let mut same_hash: Vec<Stretch> = Vec::new();
        for stretch in stretches.finish()? {
            let stretch = stretch?;
            if same_hash
                .first()
                .is_some_and(|first| first.hash != stretch.hash)
            {
                same_hash.clear();
            }
            let place = |stretch: &Stretch| (stretch.rank, stretch.start);
            match same_hash.iter().find(|first| of(first) == of(&stretch)) {
                // One that was split twice.
                Some(first) if place(first) == place(&stretch) => {}
                Some(first) => push(
                    &mut firsts,
                    rule,
                    [stretch.rank, first.rank],
                    [stretch.start, first.start],
                    rule.min_tokens,
                )?,
                None => same_hash.push(stretch),
            }
        }
    }
    (documents.go_on)()?;
    hand_on(firsts.finish()?, copies.finish()?, n, &mut marks)?;

    let mut open: Option<Span> = None;
    for mark in marks.finish()? {
        let mark = mark?;
        let end = mark.start + mark.tokens;
        if let Some(span) = &mut open
            && span.rank == mark.rank
            && (span.kept_rank == mark.kept_rank || !rule.keep_first)
            && mark.start <= span.end
        {
            // Where it goes on as it does over there, it is one span. Elsewhere in the document that keeps it is as
            // good: of a token that is repeated ten times, each ten begin with the first.
            let more = end.saturating_sub(span.end) as usize;
            let here = &(documents.tokens)(span.rank)[span.end as usize..][..more];
            let there = (span.kept_start + span.end - span.start) as usize;
            let kept = (documents.tokens)(span.kept_rank).get(there..there + more);
            if kept == Some(here) {
                span.end += more as u32;
                continue;
            }
        }
        // What the span before covers is not said twice.
        let covered = match &open {
            Some(span) if span.rank == mark.rank => span.end.saturating_sub(mark.start),
            _ => 0,
        };
        if let Some(span) = open.replace(Span {
            rank: mark.rank,
            start: mark.start + covered,
            end,
            kept_rank: mark.kept_rank,
            kept_start: mark.kept_start + covered,
        }) {
            report.close(span, &mut visit)?;
        }
    }
    if let Some(span) = open {
        report.close(span, &mut visit)?;
    }
    Ok(report)
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

/// What two contexts have in common: ranks, starts, tokens.
type Common = ([u64; 2], [u32; 2], u32);

/// Gives the marks in the first of each different context to its copies as well, and all of them to `marks`. What is
/// not marked in the first of its kind stands first there.
fn hand_on<M>(
    firsts: impl Iterator<Item = io::Result<Mark>>,
    copies: impl Iterator<Item = io::Result<CopiedContext>>,
    n: usize,
    marks: &mut Sorter<Mark, M>,
) -> io::Result<()>
where
    M: Fn(&Mark, &Mark) -> Ordering + Send + Sync + Clone + 'static,
{
    let mut firsts = firsts.peekable();
    // The context in work: its rank, start and tokens, and what its first tokens to last tokens are copies of.
    let mut context = None;
    let mut parts: Vec<Mark> = Vec::new();
    for copy in copies {
        let copy = copy?;
        let this = (copy.kept_rank, copy.kept_start, copy.tokens);
        if context != Some(this) {
            context = Some(this);
            parts.clear();
            let whole = |start: u32, end: u32| Mark {
                rank: copy.kept_rank,
                kept_rank: copy.kept_rank,
                start,
                tokens: end - start,
                kept_start: start,
                unused: 0,
            };
            // First stretch that no part has, and the one after the last.
            let mut next = copy.kept_start;
            let last = copy.kept_start + copy.tokens - n as u32;
            while let Some(mark) = firsts.next_if(|mark| match mark {
                Ok(mark) => (mark.rank, mark.start) <= (copy.kept_rank, last),
                Err(_) => true,
            }) {
                let mark = mark?;
                marks.push(mark)?;
                if mark.rank != copy.kept_rank || mark.start < next {
                    continue;
                }
                if next < mark.start {
                    parts.push(whole(next, mark.start - 1 + n as u32));
                }
                next = mark.start + mark.tokens + 1 - n as u32;
                match parts.last_mut() {
                    Some(before)
                        if before.start + before.tokens + 1 == mark.start + n as u32
                            && before.kept_rank == mark.kept_rank
                            && before.kept_start + (mark.start - before.start)
                                == mark.kept_start =>
                    {
                        before.tokens = mark.start + mark.tokens - before.start;
                    }
                    _ => parts.push(mark),
                }
            }
            if next <= last {
                parts.push(whole(next, copy.kept_start + copy.tokens));
            }
        }
        for part in &parts {
            marks.push(Mark {
                rank: copy.rank,
                start: copy.start + (part.start - copy.kept_start),
                ..*part
            })?;
        }
    }
    firsts.try_for_each(|mark| marks.push(mark?))
}

/// What is known of contexts goes into marks, firsts and copies, and what is not into stretches.
struct Compared<'a, 'd, M, C, S> {
    documents: RankedTokens<'d>,
    rule: SpanRule,
    powers: &'a Powers,
    scratch: Scratch,
    marks: &'a mut Sorter<Mark, M>,
    firsts: &'a mut Sorter<Mark, M>,
    copies: &'a mut Sorter<CopiedContext, C>,
    stretches: &'a mut Sorter<Stretch, S>,
    /// Contexts of one hash: the first one, and one like it; and whether they are all that their anchor has.
    pairs: Vec<([Context; 2], bool)>,
    /// Different contexts of one anchor, group after group, and where each group ends.
    groups: Vec<Context>,
    ends: Vec<usize>,
}

impl<M, C, S> Compared<'_, '_, M, C, S>
where
    M: Fn(&Mark, &Mark) -> Ordering + Send + Sync + Clone + 'static,
    C: Fn(&CopiedContext, &CopiedContext) -> Ordering + Send + Sync + Clone + 'static,
    S: Fn(&Stretch, &Stretch) -> Ordering + Send + Sync + Clone + 'static,
{
    /// Takes contexts like the first of their kind; `alone` where their anchor has no other kind.
    fn copied(&mut self, held: &mut Vec<[Context; 2]>, alone: bool) -> io::Result<()> {
        for pair in held.drain(..) {
            self.pairs.push((pair, alone));
            if self.pairs.len() == BATCH_CONTEXTS {
                self.close()?;
            }
        }
        Ok(())
    }

    /// Takes the different contexts of an anchor, unless there is one only or they were split, and copies of them.
    fn group(&mut self, group: &mut Vec<Context>, held: &mut Vec<[Context; 2]>) -> io::Result<()> {
        self.copied(held, group.len() == 1)?;
        if (2..=FEW).contains(&group.len()) {
            group.sort_unstable_by_key(|context| (context.rank, context.start));
            self.groups.extend_from_slice(group);
            self.ends.push(self.groups.len());
        }
        group.clear();
        if self.groups.len() >= BATCH_CONTEXTS {
            self.close()?;
        }
        Ok(())
    }

    /// Compares what waits.
    fn close(&mut self) -> io::Result<()> {
        (self.documents.go_on)()?;
        let (documents, rule) = (self.documents, self.rule);
        let equal: Vec<bool> = self
            .pairs
            .par_iter()
            .map(|&([a, b], _)| documents.of(a) == documents.of(b))
            .collect();
        let pairs = std::mem::take(&mut self.pairs);
        for (([first, other], alone), equal) in pairs.into_iter().zip(equal) {
            let tokens = u32::from(first.tokens);
            if equal && rule.keep_first && !alone {
                self.copies.push(CopiedContext {
                    kept_rank: first.rank,
                    rank: other.rank,
                    kept_start: first.start,
                    start: other.start,
                    tokens,
                    unused: 0,
                })?;
            } else if equal {
                push(
                    self.marks,
                    rule,
                    [other.rank, first.rank],
                    [other.start, first.start],
                    tokens,
                )?;
            } else {
                // Different texts of one hash: what they have in common is found stretch by stretch.
                self.split(first)?;
                self.split(other)?;
            }
        }
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        let groups: Vec<&[Context]> = starts
            .zip(&self.ends)
            .map(|(start, &end)| &self.groups[start..end])
            .collect();
        let common: Vec<Vec<Common>> = groups
            .par_iter()
            .map(|group| {
                let mut common = Vec::new();
                let mut found = Vec::new();
                for (at, &later) in group.iter().enumerate() {
                    found.clear();
                    found.resize(
                        usize::from(later.tokens) + 1 - rule.min_tokens as usize,
                        false,
                    );
                    for &earlier in &group[..at] {
                        documents.common(later, earlier, rule.min_tokens, &mut found, &mut common);
                    }
                }
                common
            })
            .collect();
        for (ranks, starts, tokens) in common.into_iter().flatten() {
            push(self.firsts, rule, ranks, starts, tokens)?;
        }
        self.groups.clear();
        self.ends.clear();
        Ok(())
    }

    fn split(&mut self, context: Context) -> io::Result<()> {
        let n = self.rule.min_tokens as usize;
        self.scratch.prefix_of(self.documents.of(context));
        for start in 0..=usize::from(context.tokens) - n {
            self.stretches.push(Stretch {
                hash: self.scratch.hash(start, n, self.powers),
                rank: context.rank,
                start: context.start + start as u32,
                unused: 0,
            })?;
        }
        Ok(())
    }
}

impl RankedTokens<'_> {
    fn of(&self, context: Context) -> &[u32] {
        &(self.tokens)(context.rank)[context.start as usize..][..usize::from(context.tokens)]
    }

    /// Appends what two contexts of one anchor have in common around it, where that is long enough, but for stretches of
    /// `later` that were `found` before; and says that they are.
    fn common(
        &self,
        later: Context,
        earlier: Context,
        n: u32,
        found: &mut [bool],
        common: &mut Vec<Common>,
    ) {
        let (a, b) = (self.of(later), self.of(earlier));
        let (a_before, a_after) = a.split_at(usize::from(later.anchor_at));
        let (b_before, b_after) = b.split_at(usize::from(earlier.anchor_at));
        let pairs = a_before.iter().rev().zip(b_before.iter().rev());
        let before = pairs.take_while(|(a, b)| a == b).count();
        let after = a_after
            .iter()
            .zip(b_after)
            .take_while(|(a, b)| a == b)
            .count();
        let n = n as usize;
        if before + after < n {
            return;
        }
        // Stretches of the later one, by their starts in it.
        let mut at = a_before.len() - before;
        let end = a_before.len() + after - n + 1;
        while at < end {
            let length = found[at..end].iter().take_while(|found| !**found).count();
            if length > 0 {
                found[at..at + length].fill(true);
                let start = later.start + at as u32;
                // Both are laid anchor on anchor.
                let kept_start = earlier.start + (at + b_before.len() - a_before.len()) as u32;
                common.push((
                    [later.rank, earlier.rank],
                    [start, kept_start],
                    (length + n - 1) as u32,
                ));
            }
            at += length.max(1);
        }
    }
}

/// Marks a stretch that stands in two places, the later one first; both, where no occurrence stays.
fn push<M>(
    marks: &mut Sorter<Mark, M>,
    rule: SpanRule,
    [rank, kept_rank]: [u64; 2],
    [start, kept_start]: [u32; 2],
    tokens: u32,
) -> io::Result<()>
where
    M: Fn(&Mark, &Mark) -> Ordering + Send + Sync + Clone + 'static,
{
    let mark = Mark {
        rank,
        kept_rank,
        start,
        tokens,
        kept_start,
        unused: 0,
    };
    marks.push(mark)?;
    if !rule.keep_first {
        marks.push(Mark {
            rank: kept_rank,
            kept_rank: rank,
            start: kept_start,
            kept_start: start,
            ..mark
        })?;
    }
    Ok(())
}

impl SpanReport {
    fn close(
        &mut self,
        span: Span,
        visit: &mut impl FnMut(Span) -> io::Result<()>,
    ) -> io::Result<()> {
        self.spans += 1;
        self.tokens += u64::from(span.end - span.start);
        visit(span)
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

/// Powers of [`MULTIPLIER`].
struct Powers(Vec<u64>);

impl Powers {
    fn new(count: usize) -> Self {
        let powers =
            std::iter::successors(Some(1u64), |power| Some(power.wrapping_mul(MULTIPLIER)));
        Powers(powers.take(count + 1).collect())
    }
}

/// Buffers of one document.
#[derive(Default)]
struct Scratch {
    /// Hash of the tokens before each place.
    prefix: Vec<u64>,
    /// Places of anchors that may still be the smallest, with their hashes: ascending by both.
    smallest: std::collections::VecDeque<(usize, u64)>,
}

impl Scratch {
    fn prefix_of(&mut self, tokens: &[u32]) {
        self.prefix.clear();
        self.prefix.reserve(tokens.len() + 1);
        let mut sum = 0u64;
        self.prefix.push(sum);
        for &token in tokens {
            sum = sum
                .wrapping_mul(MULTIPLIER)
                .wrapping_add(u64::from(token) + 1);
            self.prefix.push(sum);
        }
    }

    /// Hash of `length` tokens from `start` on.
    #[inline]
    fn hash(&self, start: usize, length: usize, powers: &Powers) -> u64 {
        let before = self.prefix[start].wrapping_mul(powers.0[length]);
        mix(self.prefix[start + length].wrapping_sub(before))
    }
}

/// The contexts of a document or a piece of it, in order; the first of these tokens is number `first` of the document.
fn contexts_of(
    tokens: &[u32],
    rank: u64,
    first: usize,
    rule: SpanRule,
    powers: &Powers,
    scratch: &mut Scratch,
) -> Vec<Context> {
    let (n, k) = (rule.min_tokens as usize, rule.anchor_tokens());
    let mut found = Vec::new();
    if tokens.len() < n {
        return found;
    }
    scratch.prefix_of(tokens);
    scratch.smallest.clear();
    // (anchor's place, its hash, first stretch)
    let mut open: Option<(usize, u64, usize)> = None;
    let mut close = |scratch: &Scratch, (place, anchor, start): (usize, u64, usize), end: usize| {
        let length = end - start - 1 + n;
        found.push(Context {
            anchor,
            hash: scratch.hash(start, length, powers),
            rank,
            start: (first + start) as u32,
            tokens: length as u16,
            anchor_at: (place - start) as u16,
        });
    };
    for place in 0..=tokens.len() - k {
        let hash = scratch.hash(place, k, powers);
        while scratch
            .smallest
            .back()
            .is_some_and(|&(_, other)| other >= hash)
        {
            scratch.smallest.pop_back();
        }
        scratch.smallest.push_back((place, hash));
        // The stretch whose last anchor this one is.
        let Some(start) = (place + k).checked_sub(n) else {
            continue;
        };
        while scratch
            .smallest
            .front()
            .is_some_and(|&(place, _)| place < start)
        {
            scratch.smallest.pop_front();
        }
        let Some(&(anchor, hash)) = scratch.smallest.front() else {
            continue;
        };
        match open {
            Some((same, ..)) if same == anchor => {}
            _ => {
                if let Some(before) = open.replace((anchor, hash, start)) {
                    close(scratch, before, start);
                }
            }
        }
    }
    if let Some(last) = open {
        close(scratch, last, tokens.len() - n + 1);
    }
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
            assert!(report.copies < stretches);
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
