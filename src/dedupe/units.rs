//! Exact repeats of paragraphs or lines across the corpus: equal 128-bit hashes of their texts.
//!
//! The first one stays, by rank of its document, then by its place in it; also within one document.

use super::normalised;
use crate::algo::hash;
use crate::spill::Spill;
use std::borrow::Cow;
use std::io;

/// What a text is cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Lines that are not blank, between blank lines or the ends of the text.
    Paragraph,
    /// What stands before a line end, or the end of the text.
    Line,
}

/// Which units are compared, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitRule {
    /// What they are.
    pub unit: Unit,
    /// Whether their texts are normalised before they are compared.
    pub normalise: bool,
    /// Fewest characters, without white space around them, of a unit that is compared; one exactly at it is.
    pub min_characters: u64,
}

/// One unit of a document: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct UnitRow {
    /// Hash of what is compared, high half first.
    pub hash: [u64; 2],
    /// First byte that goes with it.
    pub start: u64,
    /// The byte after the last one that goes with it.
    pub end: u64,
}

/// What the exchange carries: 32 bytes a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct UnitPlace {
    /// Hash of what is compared, high half first.
    pub hash: [u64; 2],
    /// Place of the document in the order (place in `inputs`, id).
    pub rank: u64,
    /// Place of the unit among those of the document.
    pub at: u64,
}

/// A unit that goes, and the document that keeps the first one like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// Rank of the document.
    pub rank: u64,
    /// Place of the unit among those of the document.
    pub at: u64,
    /// Rank of the document that keeps it, possibly the same.
    pub kept_rank: u64,
}

/// Appends the units of a text that are long enough.
///
/// Lines end with LF or CR LF, and line ends of both kinds are compared as one. With a line goes its line end;
/// with a paragraph also the blank lines up to the next one, or, for the last one of a text, those before it.
///
/// ```
/// # use goodput::dedupe::{Unit, UnitRule, units};
/// let rule = UnitRule { unit: Unit::Paragraph, normalise: false, min_characters: 1 };
/// let mut found = Vec::new();
/// units("one\ntwo\n\n\nthree\n", rule, &mut found);
/// let places: Vec<_> = found.iter().map(|unit| (unit.start, unit.end)).collect();
/// assert_eq!(places, [(0, 10), (8, 16)]);
/// ```
pub fn units(text: &str, rule: UnitRule, out: &mut Vec<UnitRow>) {
    let lines = text.split_inclusive('\n').scan(0, |next, line| {
        let start = *next;
        *next += line.len();
        Some((start, line))
    });
    if rule.unit == Unit::Line {
        lines.for_each(|(start, line)| push(line, start, start + line.len(), rule, out));
        return;
    }
    // First byte of a paragraph, and the byte after the line end of its last line.
    let (mut last, mut before): (Option<(usize, usize)>, _) = (None, None);
    let mut inside = false;
    for (start, line) in lines {
        let blank = line.trim().is_empty();
        match last {
            Some((first, _)) if inside && !blank => last = Some((first, start + line.len())),
            _ if !blank => {
                if let Some((first, end)) = last {
                    push(&text[first..end], first, start, rule, out);
                    before = Some(end);
                }
                last = Some((start, start + line.len()));
            }
            _ => {}
        }
        inside = !blank;
    }
    if let Some((first, end)) = last {
        let from = before.unwrap_or(first);
        push(&text[first..end], from, text.len(), rule, out);
    }
}

fn push(unit: &str, start: usize, end: usize, rule: UnitRule, out: &mut Vec<UnitRow>) {
    let trimmed = unit.trim();
    let wanted = usize::try_from(rule.min_characters).unwrap_or(usize::MAX);
    // Counting ends at the bound: a huge line is not walked through for it.
    if trimmed.chars().take(wanted).count() < wanted {
        return;
    }
    let compared: Cow<'_, str> = if rule.normalise {
        Cow::Owned(normalised(unit))
    } else {
        let unit = unit.strip_suffix('\n').unwrap_or(unit);
        let unit = unit.strip_suffix('\r').unwrap_or(unit);
        match unit.contains('\r') {
            true => Cow::Owned(unit.replace("\r\n", "\n")),
            false => Cow::Borrowed(unit),
        }
    };
    let hash = hash::content(compared.as_bytes());
    out.push(UnitRow {
        hash: [(hash >> 64) as u64, hash as u64],
        start: start as u64,
        end: end as u64,
    });
}

/// Calls `repeat` for every unit whose hash an earlier one has, in order of hash, rank and place. Returns how
/// many units there were.
///
/// # Errors
/// When intermediate files cannot be written or read, or `repeat` fails.
pub fn decide(
    places: impl Iterator<Item = UnitPlace>,
    spill: &Spill,
    mut repeat: impl FnMut(Repeat) -> io::Result<()>,
) -> io::Result<u64> {
    let mut sorter = spill.sorter("units", |a: &UnitPlace, b: &UnitPlace| {
        (a.hash, a.rank, a.at).cmp(&(b.hash, b.rank, b.at))
    });
    for place in places {
        sorter.push(place)?;
    }
    let all = sorter.len();
    let mut first: Option<UnitPlace> = None;
    for place in sorter.finish()? {
        let place = place?;
        match first {
            Some(kept) if kept.hash == place.hash => repeat(Repeat {
                rank: place.rank,
                at: place.at,
                kept_rank: kept.rank,
            })?,
            _ => first = Some(place),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const LINES: UnitRule = UnitRule {
        unit: Unit::Line,
        normalise: false,
        min_characters: 3,
    };
    const PARAGRAPHS: UnitRule = UnitRule {
        unit: Unit::Paragraph,
        ..LINES
    };

    /// What stays of each text, ranks being places in the list.
    fn deduped(texts: &[&str], rule: UnitRule, memory_bytes: usize) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spill = Spill::new(folder.path(), memory_bytes);
        let rows: Vec<Vec<UnitRow>> = texts
            .iter()
            .map(|text| {
                let mut rows = Vec::new();
                units(text, rule, &mut rows);
                rows
            })
            .collect();
        let places = rows.iter().enumerate().flat_map(|(rank, rows)| {
            rows.iter().enumerate().map(move |(at, row)| UnitPlace {
                hash: row.hash,
                rank: rank as u64,
                at: at as u64,
            })
        });
        let mut keep: Vec<Vec<bool>> = texts.iter().map(|text| vec![true; text.len()]).collect();
        decide(places, &spill, |gone| {
            let row = rows[gone.rank as usize][gone.at as usize];
            keep[gone.rank as usize][row.start as usize..row.end as usize].fill(false);
            Ok(())
        })
        .expect("decided");
        let rest = texts.iter().zip(keep).map(|(text, keep)| {
            let bytes = text.bytes().zip(keep).filter(|(_, keep)| *keep);
            String::from_utf8(bytes.map(|(byte, _)| byte).collect()).expect("whole characters")
        });
        rest.collect()
    }

    #[test]
    fn the_first_line_stays_and_short_ones_are_not_compared() {
        assert_eq!(
            deduped(&["abc\nab\nabc\nab\n", "xyz\nabc"], LINES, 1 << 16),
            ["abc\nab\nab\n", "xyz\n"]
        );
    }

    #[test]
    fn a_cut_paragraph_leaves_one_gap_and_none_at_the_end() {
        let texts = [
            "abc",
            "one\n\nabc\n\ntwo\n",
            "one1\n\n\nabc\n",
            "abc\n\ntwo2",
        ];
        assert_eq!(
            deduped(&texts, PARAGRAPHS, 1 << 16),
            ["abc", "one\n\ntwo\n", "one1\n", "two2"]
        );
    }

    #[test]
    fn line_ends_of_both_kinds_are_one_and_no_final_one_is_needed() {
        assert_eq!(
            deduped(&["abc\r\ndéf\r\n", "déf\nabc"], LINES, 1 << 16),
            ["abc\r\ndéf\r\n", ""]
        );
        assert_eq!(
            deduped(
                &["abc\r\ndef\r\n\r\nghi", "abc\ndef\n\nxyz"],
                PARAGRAPHS,
                1 << 16
            )[1],
            "xyz"
        );
    }

    #[test]
    fn a_document_of_repeats_keeps_the_first_or_nothing() {
        let page = "the same line\n".repeat(1000);
        let texts = ["", " \n\n", page.as_str(), page.as_str()];
        assert_eq!(
            deduped(&texts, LINES, 1 << 16),
            ["", " \n\n", "the same line\n", ""]
        );
    }

    #[test]
    fn normalising_folds_case_and_space_and_counts_what_stands_there() {
        let rule = UnitRule {
            normalise: true,
            ..LINES
        };
        assert_eq!(deduped(&["A  b c\na B C"], rule, 1 << 16), ["A  b c\n"]);
        let at_the_bound = UnitRule {
            min_characters: 6,
            ..rule
        };
        assert_eq!(
            deduped(&["  A  b c\na B C \n", "A  B C"], at_the_bound, 1 << 16),
            ["  A  b c\na B C \n", ""]
        );
    }

    /// The definition, in memory: lines or paragraphs in order, each kept where no equal one came before.
    fn plain(texts: &[String], rule: UnitRule) -> Vec<Vec<String>> {
        let mut seen: HashSet<String> = HashSet::new();
        let of = |text: &str| -> Vec<String> {
            let lines = text.replace("\r\n", "\n");
            match rule.unit {
                Unit::Line => lines.lines().map(String::from).collect(),
                Unit::Paragraph => {
                    let mut all = vec![Vec::new()];
                    for line in lines.lines() {
                        match line.trim().is_empty() {
                            true => all.push(Vec::new()),
                            false => all.last_mut().expect("one at least").push(line),
                        }
                    }
                    let paragraphs = all.into_iter().filter(|lines| !lines.is_empty());
                    paragraphs.map(|lines| lines.join("\n")).collect()
                }
            }
        };
        let mut stays = |unit: &String| {
            (unit.trim().chars().count() as u64) < rule.min_characters || seen.insert(unit.clone())
        };
        let each = texts.iter().map(|text| {
            let units = of(text).into_iter();
            units.filter(|unit| stays(unit)).collect()
        });
        each.collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn what_stays_is_what_the_plain_definition_says(
            texts in proptest::collection::vec("(a|b|ab|é|語語|\n|\n\n|\r\n| ){0,20}", 0..8),
            paragraphs in any::<bool>(),
            min_characters in 1u64..4,
        ) {
            let unit = if paragraphs { Unit::Paragraph } else { Unit::Line };
            let rule = UnitRule { unit, normalise: false, min_characters };
            let borrowed: Vec<&str> = texts.iter().map(String::as_str).collect();
            let rest = deduped(&borrowed, rule, 1 << 16);
            prop_assert_eq!(&rest, &deduped(&borrowed, rule, 1));
            // The rest, taken apart again, has the units of the definition, and nothing more goes.
            let none = UnitRule { min_characters: u64::MAX, ..rule };
            prop_assert_eq!(plain(&rest, none), plain(&texts, rule));
            let borrowed: Vec<&str> = rest.iter().map(String::as_str).collect();
            prop_assert_eq!(deduped(&borrowed, rule, 1 << 16), rest.clone());
        }
    }
}
