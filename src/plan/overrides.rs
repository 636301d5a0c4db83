//! `--set key.path=value`, applied to the tree before it is checked.

use super::nearest::nearest;
use super::yaml::{Entry, Found, Mark, Node, Shape, parse};

/// Applies the `--set` number `origin` (from 1) to the tree.
///
/// What is set wrongly (an unknown option, a wrong type) is left to the checker, which finds it
/// with this origin; only a path that leads nowhere is a problem here.
pub(super) fn apply(root: &mut Node, set: &str, origin: u32, found: &mut Vec<Found>) {
    let at = Mark {
        origin,
        line: 0,
        column: 0,
    };
    let Some((path, value)) = set.split_once('=') else {
        found.push((
            at,
            "must be KEY.PATH=VALUE, such as seed=5 or stages.length.min_tokens=16".to_string(),
        ));
        return;
    };
    let steps: Vec<&str> = path.trim().split('.').collect();
    if steps.iter().any(|step| step.is_empty()) {
        let message = format!(
            "'{path}' must be keys joined by single dots, such as stages.length.min_tokens"
        );
        found.push((at, message));
        return;
    }
    let problems_before = found.len();
    let value = parse(value, origin, found);
    if found.len() > problems_before {
        found[problems_before..]
            .iter_mut()
            .for_each(|(mark, _)| *mark = at);
        return;
    }
    let mut value = value.unwrap_or(Node {
        mark: at,
        shape: Shape::Scalar {
            text: String::new(),
            plain: true,
        },
    });
    move_to(&mut value, at);
    if let Err(message) = put(root, &steps, 0, value, at) {
        found.push((at, message));
    }
}

/// Gives a whole tree one place: lines inside a `--set` or a default mean nothing to anybody.
pub(super) fn move_to(node: &mut Node, at: Mark) {
    node.mark = at;
    match &mut node.shape {
        Shape::Scalar { .. } | Shape::Refused => {}
        Shape::List(items) => items.iter_mut().for_each(|item| move_to(item, at)),
        Shape::Map(entries) => {
            for entry in entries {
                entry.mark = at;
                move_to(&mut entry.value, at);
            }
        }
    }
}

/// Puts `value` where `steps` lead, of which the first `depth` have been taken.
fn put(node: &mut Node, steps: &[&str], depth: usize, value: Node, at: Mark) -> Result<(), String> {
    let Some(&step) = steps.get(depth) else {
        *node = value;
        return Ok(());
    };
    let owner = || match depth {
        0 => "the pipeline".to_string(),
        _ => format!("'{}'", steps[..depth].join(".")),
    };
    if matches!(&node.shape, Shape::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null"))
    {
        node.shape = Shape::Map(Vec::new());
    }
    match &mut node.shape {
        Shape::Map(entries) => {
            let position = entries
                .iter()
                .position(|entry| entry.key == step)
                .unwrap_or_else(|| {
                    let empty = Node {
                        mark: at,
                        shape: Shape::Map(Vec::new()),
                    };
                    entries.push(Entry {
                        key: step.to_string(),
                        mark: at,
                        value: empty,
                    });
                    entries.len() - 1
                });
            put(&mut entries[position].value, steps, depth + 1, value, at)
        }
        Shape::List(items) => {
            let entries_are = match &steps[..depth] {
                ["stages"] => Entries::Stages,
                ["inputs"] => Entries::Inputs,
                _ => Entries::Values,
            };
            let labels = labels(items, entries_are);
            let position = match step.parse::<usize>() {
                Ok(number) if number < items.len() => number,
                _ => labels
                    .iter()
                    .position(|label| label.as_deref() == Some(step))
                    .ok_or_else(|| {
                        let names: Vec<&str> = labels.iter().filter_map(Option::as_deref).collect();
                        let way_out = match nearest(step, names.iter().copied()) {
                            Some(name) => format!("did you mean '{name}'?"),
                            None if names.is_empty() => format!(
                                "its entries are numbered, from 0, and it has {}",
                                items.len()
                            ),
                            None => format!("it has {}", names.join(", ")),
                        };
                        format!("no '{step}' in {}; {way_out}", owner())
                    })?,
            };
            let item = match entries_are {
                Entries::Stages => options_of(&mut items[position], at),
                Entries::Inputs | Entries::Values => &mut items[position],
            };
            put(item, steps, depth + 1, value, at)
        }
        Shape::Scalar { .. } => {
            let owner = owner();
            Err(format!(
                "{owner} is a single value and has no '{step}'; set {owner} itself"
            ))
        }
        Shape::Refused => Ok(()),
    }
}

/// What the entries of a list are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entries {
    /// Known by their name, under which their options stand.
    Stages,
    /// Known by their source.
    Inputs,
    /// Known by their number only.
    Values,
}

/// How the entries of a list are called, the second of the same name as `length#2`.
fn labels(items: &[Node], entries_are: Entries) -> Vec<Option<String>> {
    let mut times = std::collections::BTreeMap::new();
    items
        .iter()
        .map(|item| {
            let name = match entries_are {
                Entries::Stages => stage_name(item),
                Entries::Inputs => source_name(item),
                Entries::Values => None,
            }?;
            let time: &mut usize = times.entry(name).or_default();
            *time += 1;
            Some(label(name, *time))
        })
        .collect()
}

/// The `time`-th stage (from 1) called `name`.
pub(super) fn label(name: &str, time: usize) -> String {
    match time {
        1 => name.to_string(),
        _ => format!("{name}#{time}"),
    }
}

fn stage_name(item: &Node) -> Option<&str> {
    match &item.shape {
        Shape::Scalar { text, .. } => Some(text),
        Shape::Map(entries) => entries.first().map(|entry| entry.key.as_str()),
        Shape::List(_) | Shape::Refused => None,
    }
}

fn source_name(item: &Node) -> Option<&str> {
    let Shape::Map(entries) = &item.shape else {
        return None;
    };
    match &entries
        .iter()
        .find(|entry| entry.key == "source")?
        .value
        .shape
    {
        Shape::Scalar { text, .. } => Some(text),
        _ => None,
    }
}

/// The options of a stage, which a bare `- length` is given room for.
fn options_of(item: &mut Node, at: Mark) -> &mut Node {
    if let Shape::Scalar { text, .. } = &item.shape {
        let options = Node {
            mark: at,
            shape: Shape::Map(Vec::new()),
        };
        item.shape = Shape::Map(vec![Entry {
            key: text.clone(),
            mark: item.mark,
            value: options,
        }]);
    }
    if !matches!(&item.shape, Shape::Map(entries) if !entries.is_empty()) {
        return item;
    }
    match &mut item.shape {
        Shape::Map(entries) => &mut entries[0].value,
        _ => unreachable!("just seen to be a mapping"),
    }
}
