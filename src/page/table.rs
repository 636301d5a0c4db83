//! Tables, with bars in them where a column is of bars.

use super::escape;
use std::fmt::Write;

/// Columns up to which a table is not a stop of the tabulator key: it hardly ever scrolls.
const NARROW: usize = 5;

/// What stands in a place of a table.
pub struct Cell {
    /// As HTML.
    html: String,
    class: &'static str,
}

/// Text, escaped.
pub fn words(text: &str) -> Cell {
    Cell {
        html: escape(text),
        class: "",
    }
}

/// A number, to the right.
pub fn number(text: impl ToString) -> Cell {
    Cell {
        html: escape(&text.to_string()),
        class: "n",
    }
}

/// A share as a number; 0 of nothing.
pub fn percent(part: u64, whole: u64) -> Cell {
    let share = match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    };
    number(format!("{:.2} %", 100.0 * share))
}

impl Cell {
    /// The same as something that must not be overlooked.
    pub fn bad(mut self) -> Cell {
        self.html = format!("<span class=\"bad\">{}</span>", self.html);
        self
    }
}

/// A part of a bar: from and to in shares of the width of all bars of a column.
pub struct Segment {
    /// Where it begins.
    pub from: f64,
    /// Where it ends, not before its beginning.
    pub to: f64,
    /// Its class: `k0` to `k11`, `loss` or `gain`.
    pub class: String,
    /// What is shown where a pointer rests on it.
    pub title: String,
}

/// A bar of segments. A segment of next to nothing is still a line that can be seen. Its figures stand in other
/// cells of its row, so readers that speak pass over it.
pub fn bars(segments: &[Segment]) -> Cell {
    const WIDTH: f64 = 1000.0;
    const LEAST: f64 = 3.0;
    let mut html = String::from(
        "<svg class=\"bars\" viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
         <rect class=\"track\" width=\"1000\" height=\"10\"/>",
    );
    for segment in segments.iter().filter(|segment| segment.to > segment.from) {
        let width = (WIDTH * (segment.to - segment.from)).max(LEAST);
        let from = (WIDTH * segment.from).clamp(0.0, WIDTH - LEAST);
        let _ = write!(
            html,
            "<rect class=\"{}\" x=\"{from:.2}\" width=\"{width:.2}\" height=\"10\"><title>{}</title></rect>",
            escape(&segment.class),
            escape(&segment.title)
        );
    }
    html.push_str("</svg>");
    Cell { html, class: "b" }
}

/// What the colours of bars mean: class and name.
pub fn key<'a>(out: &mut String, names: impl IntoIterator<Item = (String, &'a str)>) {
    out.push_str("<ul class=\"key\" aria-label=\"colours\">");
    for (class, name) in names {
        let _ = write!(
            out,
            "<li><svg viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"{}\" width=\"10\" height=\"10\"/></svg>{}</li>",
            escape(&class),
            escape(name)
        );
    }
    out.push_str("</ul>\n");
}

/// A table. Headings are escaped; one that starts with `#` is of numbers. The first cell of a row is its heading.
/// It scrolls in itself where it is wider than the page, by keys as well.
pub fn table(out: &mut String, heads: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) {
    let rows: Vec<Vec<Cell>> = rows.into_iter().collect();
    let charted = rows.iter().flatten().any(|cell| cell.class == "b");
    let name = heads
        .iter()
        .map(|head| head.trim_start_matches('#'))
        .filter(|head| !head.is_empty())
        .collect::<Vec<_>>()
        .join(", ");
    let _ = write!(
        out,
        "<div class=\"wide\"{}><table{}><thead><tr>",
        match heads.len() > NARROW {
            true => format!(
                " tabindex=\"0\" role=\"region\" aria-label=\"table of {}\"",
                escape(&name)
            ),
            false => String::new(),
        },
        if charted { " class=\"charted\"" } else { "" }
    );
    for head in heads {
        let (class, head) = match head.strip_prefix('#') {
            Some(head) => (" class=\"n\"", head),
            None => ("", *head),
        };
        // A heading that says nothing is no heading.
        let element = if head.is_empty() { "td" } else { "th" };
        let scope = if head.is_empty() {
            ""
        } else {
            " scope=\"col\""
        };
        let _ = write!(out, "<{element}{class}{scope}>{}</{element}>", escape(head));
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            let class = match cell.class {
                "" => String::new(),
                class => format!(" class=\"{class}\""),
            };
            match at {
                0 => {
                    let _ = write!(out, "<th scope=\"row\"{class}>{}</th>", cell.html);
                }
                _ => {
                    let _ = write!(out, "<td{class}>{}</td>", cell.html);
                }
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}
