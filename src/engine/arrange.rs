//! Arrange: from ids, scores and token counts alone to rows of segments, and rows to shards.
//!
//! The layout is written to two files, rows and segments; memory does not grow with the documents.

use super::EngineError;
use super::decide::{Decisions, KeyValues};
use super::releases::Scratched;
use crate::algo::hash;
use crate::algo::kendall::{self, Pair};
use crate::order::{Item, Items, Keys, OrderInput, Strategy};
use crate::pack::{Frame, Packer};
use crate::spill::{Column, IoContext, ScratchColumn, Spill};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::rc::Rc;

/// A row of the layout.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct LayoutRow {
    /// First of its segments.
    pub first_segment: u64,
    /// Number of its segments.
    pub segments: u32,
    /// Begin and end tokens.
    pub special_tokens: u32,
    /// Padding places.
    pub padding: u32,
    /// Nothing.
    pub unused: u32,
    /// Token places.
    pub positions: u64,
}

/// A segment of the layout.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct LayoutSegment {
    /// Number of the document.
    pub number: u64,
    /// Position in the row of its first token.
    pub row_start: u32,
    /// Where in the document it begins.
    pub doc_token_start: u32,
    /// Tokens of text.
    pub tokens: u32,
    /// 1 where a begin token stands before it, plus 2 where an end token stands after it.
    pub frame: u16,
    /// How many times the document stands earlier in the order.
    pub copy: u16,
}

/// A document in the order.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Placed {
    /// Number of the document.
    pub number: u64,
    /// How many times it stands earlier in the order.
    pub copy: u64,
}

/// Consecutive rows that make a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardRange {
    /// First row.
    pub first_row: u64,
    /// Number of rows.
    pub rows: u64,
    /// Token places of all of them.
    pub positions: u64,
}

/// Where every kept token will stand.
pub struct Layout {
    /// Rows in order.
    pub rows: Column<LayoutRow>,
    /// Their segments, one row's after another's.
    pub segments: Column<LayoutSegment>,
    /// The documents in curriculum order.
    pub order: Column<Placed>,
    /// The keys that they are sorted by.
    pub sort_keys: Vec<String>,
    /// The shards.
    pub shards: Vec<ShardRange>,
    /// Kendall's tau-b of each sort key against the place in the order.
    pub kendall_tau_b: Vec<(String, f64)>,
}

struct OrderKeys<'a>(&'a KeyValues<'a>);

impl Keys for OrderKeys<'_> {
    fn value(&self, number: u64, key: &str) -> f64 {
        self.0.value(number, key, "order")
    }
}

/// Documents on which Kendall's tau is computed; above, a keyed sample of about as many.
const TAU_DOCUMENTS: u64 = 10_000_000;

/// Orders and packs what is kept.
pub fn arrange(
    decisions: &Decisions<'_>,
    keys: &KeyValues<'_>,
    strategy: &dyn Strategy,
    packer: &dyn Packer,
    frame: Frame,
    spill: &Spill,
    folder: &Path,
) -> Result<Layout, EngineError> {
    std::fs::create_dir_all(folder).context("create", folder)?;
    let corpus = decisions.corpus();
    let kept = || {
        corpus
            .rows()
            .filter(|(number, _)| decisions.is_kept(*number))
    };
    let (documents, tokens) = kept().fold((0, 0), |(n, tokens), (_, row)| {
        (n + 1, tokens + u64::from(row.tokens))
    });
    let sort_keys = strategy.keys();
    for key in &sort_keys {
        keys.check(key, &mut kept().map(|(number, _)| number))?;
    }
    let items = kept().map(|(number, row)| {
        Ok(Item {
            number,
            rank: decisions.rank_of(number),
            content: row.content,
            id_hash: row.id_hash,
            tokens: u64::from(row.tokens),
            copy: 0,
        })
    });
    let order_keys = OrderKeys(keys);
    let ordered = strategy.arrange(OrderInput {
        items: Box::new(items),
        documents,
        tokens,
        keys: &order_keys,
        seed: keys.seed,
        spill,
    })?;
    let sample_key = hash::purpose_key(keys.seed, "kendall sample");
    let places = documents * strategy.copies();
    let sample_below = if places <= TAU_DOCUMENTS {
        u64::MAX
    } else {
        ((TAU_DOCUMENTS as f64 / places as f64) * u64::MAX as f64) as u64
    };
    // What is seen on the way from the order to the packer, in files: memory does not grow with the documents.
    let pairs = (0..sort_keys.len())
        .map(|key| Scratched::<Pair>::create(spill, &format!("order-pairs-{key}")))
        .collect::<io::Result<Vec<_>>>()?;
    let pairs = Rc::new(RefCell::new(pairs));
    let mut position = 0u64;
    let create = |path: &Path| -> io::Result<BufWriter<File>> {
        Ok(BufWriter::with_capacity(
            1 << 18,
            File::create(path).context("write", path)?,
        ))
    };
    let order_path = folder.join("order");
    let order = Rc::new(RefCell::new(create(&order_path)?));
    let seen = {
        let (pairs, order) = (Rc::clone(&pairs), Rc::clone(&order));
        let (sort_keys, order_path) = (sort_keys.clone(), order_path.clone());
        ordered.map(move |item| {
            let item = item?;
            let placed = Placed {
                number: item.number,
                copy: item.copy,
            };
            order
                .borrow_mut()
                .write_all(bytemuck::bytes_of(&placed))
                .context("write", &order_path)?;
            if sample_below == u64::MAX || hash::keyed_by(sample_key, item.id_hash) < sample_below {
                for (name, pairs) in sort_keys.iter().zip(pairs.borrow_mut().iter_mut()) {
                    pairs.push(&[Pair {
                        key: keys.value(item.number, name, "order"),
                        place: position,
                    }])?;
                }
            }
            position += 1;
            Ok(item)
        })
    };
    let items: Items<'_> = Box::new(seen);
    let (rows_path, segments_path) = (folder.join("rows"), folder.join("segments"));
    let (mut rows, mut segments) = (create(&rows_path)?, create(&segments_path)?);
    let mut shards: Vec<ShardRange> = Vec::new();
    let (mut n_rows, mut n_segments) = (0u64, 0u64);
    for row in packer.pack(items, frame) {
        let row = row?;
        let mut positions = u64::from(row.special_tokens) + u64::from(row.padding);
        for segment in &row.segments {
            positions += u64::from(segment.tokens);
            let segment = LayoutSegment {
                number: segment.item.number,
                row_start: segment.row_start,
                doc_token_start: segment.doc_token_start,
                tokens: segment.tokens,
                frame: u16::from(segment.begins) | u16::from(segment.ends) << 1,
                copy: segment.item.copy as u16,
            };
            segments
                .write_all(bytemuck::bytes_of(&segment))
                .context("write", &segments_path)?;
        }
        let layout = LayoutRow {
            first_segment: n_segments,
            segments: row.segments.len() as u32,
            special_tokens: row.special_tokens,
            padding: row.padding,
            unused: 0,
            positions,
        };
        rows.write_all(bytemuck::bytes_of(&layout))
            .context("write", &rows_path)?;
        n_segments += row.segments.len() as u64;
        match shards.last_mut() {
            Some(shard) if shard.positions + positions <= frame.shard_tokens => {
                shard.rows += 1;
                shard.positions += positions;
            }
            _ => shards.push(ShardRange {
                first_row: n_rows,
                rows: 1,
                positions,
            }),
        }
        n_rows += 1;
    }
    for (writer, path) in [(rows, &rows_path), (segments, &segments_path)] {
        writer
            .into_inner()
            .map_err(|e| e.into_error())
            .context("write", path)?;
    }
    order.borrow_mut().flush().context("write", &order_path)?;
    let mut kendall_tau_b = Vec::new();
    for (name, pairs) in sort_keys.iter().zip(pairs.take()) {
        kendall_tau_b.extend(tau_of(pairs, spill)?.map(|tau| (name.clone(), tau)));
    }
    Ok(Layout {
        rows: Column::open(&rows_path)?,
        segments: Column::open(&segments_path)?,
        order: Column::open(&order_path)?,
        sort_keys,
        shards,
        kendall_tau_b,
    })
}

/// Kendall's tau, computed in mapped files.
fn tau_of(pairs: Scratched<Pair>, spill: &Spill) -> io::Result<Option<f64>> {
    let read = pairs.finish()?;
    let n = read.values().len() as u64;
    let path = |name: &str| spill.folder().join(name);
    let mut pairs = ScratchColumn::create(&path("tau-pairs"), n)?;
    pairs.values_mut().copy_from_slice(read.values());
    let mut places = ScratchColumn::create(&path("tau-places"), n)?;
    let mut merged = ScratchColumn::create(&path("tau-merged"), n)?;
    let (places, merged) = (places.values_mut(), merged.values_mut());
    Ok(kendall::tau_b_within(pairs.values_mut(), places, merged))
}
