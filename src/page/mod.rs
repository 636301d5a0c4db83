//! Parts of self-contained HTML pages: a frame, tables, bars in tables, a waterfall, a plot.
//!
//! Plain values in, text out: nothing here knows what a page is about. A page loads nothing, needs no script, follows
//! the reader's light or dark setting, and prints. Everything that comes from data goes through [`escape`].
//!
//! Charts of bars are tables with a column of bars, so that each figure stands beside its bar: there is no other text
//! to keep in step, a narrow page wraps them, and a screen reader reads a table. Only the [`Plot`] is a picture of its
//! own; its points belong into a table below it.

mod plot;
mod table;
mod waterfall;

pub use plot::{Arrow, Plot, Series};
pub use table::{Cell, Segment, bars, key, number, percent, table, words};
pub use waterfall::{Step, waterfall};

use std::fmt::Write;

/// Text as it may stand in HTML, inside elements and quoted attributes. Characters that would not show or
/// would reorder the line (controls but line ends and tabs, marks of direction) become their code points.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control()
                || matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
                    | '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}' | '\u{feff}') =>
            {
                let _ = write!(out, "[U+{:04X}]", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// Light first, since paper is light; dark only on screens that ask for it. `k0` to `k11` are the colours of series
/// and parts: neighbours differ in lightness too, and a thin line parts them where colour does not.
const STYLE: &str = "\
:root{color-scheme:light;--paper:#fff;--ink:#1b1f24;--soft:#59636e;--line:#d8dde2;--card:#f6f8fa;--low:#f1f3f5;--high:#37b679;--bad:#b3261e;--link:#0b5cad;\
--k0:#2f9e6b;--k1:#3f6fb5;--k2:#e0a82e;--k3:#a8327d;--k4:#6cc0e5;--k5:#c8553d;--k6:#7a68c8;--k7:#8a8a2a;--k8:#e58fa6;--k9:#1f7f86;--k10:#b58a5c;--k11:#aab2ba}
@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark;--paper:#15181c;--ink:#e3e7ea;--soft:#9da7b0;--line:#343a41;--card:#1d2126;--low:#23282e;--high:#1d8a55;--bad:#ff7b6b;--link:#7cb7ff;\
--k0:#35b37c;--k1:#6b9be0;--k2:#e6b84f;--k3:#d268ab;--k4:#7fd0f2;--k5:#e57a61;--k6:#a193e8;--k7:#b5b54d;--k8:#f0a9bb;--k9:#3fb1b8;--k10:#cfa679;--k11:#77808a}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:1.5rem;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.45rem;line-height:1.25;margin:0 0 .3rem}h2{font-size:1.15rem;margin:2.2rem 0 .5rem}h3{font-size:1rem;margin:1.5rem 0 .4rem}
h1,h2,h3,p,li,summary{overflow-wrap:anywhere}th,td{overflow-wrap:break-word;max-width:24rem}p{max-width:46rem;margin:.4rem 0}ul{max-width:46rem;padding-left:1.2rem;margin:.4rem 0}
.soft,small,caption{color:var(--soft)}code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}
a{color:var(--link)}nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;padding:0;max-width:none}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.wide{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
caption{text-align:left;padding-bottom:.2rem}
th,td{padding:.22rem .9rem .22rem 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
thead th{color:var(--soft);font-weight:500;vertical-align:bottom}tbody th{font-weight:inherit;min-width:6rem}
td.n,th.n{text-align:right;white-space:nowrap}thead th.n{white-space:normal}.bad{color:var(--bad);font-weight:600}
table.charted{width:100%}table.charted td.b{width:50%;min-width:7rem;vertical-align:middle}
tr.sum>*{font-weight:600}
svg.bars{display:block;width:100%;height:1.05rem}svg.bars .track{fill:var(--low)}
svg.bars rect:not(.track){stroke:var(--paper);stroke-width:1px;vector-effect:non-scaling-stroke}
.loss{fill:var(--k5)}.gain{fill:var(--k0)}
.k0{fill:var(--k0)}.k1{fill:var(--k1)}.k2{fill:var(--k2)}.k3{fill:var(--k3)}.k4{fill:var(--k4)}.k5{fill:var(--k5)}.k6{fill:var(--k6)}.k7{fill:var(--k7)}.k8{fill:var(--k8)}.k9{fill:var(--k9)}.k10{fill:var(--k10)}.k11{fill:var(--k11)}
.key{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;padding:0;margin:.3rem 0;font-size:.9rem;max-width:none}
.key svg{width:.85em;height:.85em;margin-right:.4em;vertical-align:-.06em;overflow:visible}
.fall{display:flex;flex-wrap:wrap;gap:.6rem;padding:0;margin:.8rem 0;list-style:none;max-width:none}
.fall li{flex:1 1 8.5rem;background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.5rem .7rem}
.fall b{display:block;font-size:1.3rem;font-weight:600;line-height:1.3;font-variant-numeric:tabular-nums}.fall small{display:block}
svg{max-width:100%}svg text{fill:var(--soft);font:11px system-ui,sans-serif}svg .bar{fill:var(--high)}svg .axis{stroke:var(--line)}
svg.plot{display:block;width:100%;max-width:46rem;height:auto}
svg.plot text{font-size:12.5px}svg.plot .grid{stroke:var(--line)}svg.plot .arrows text{fill:var(--ink);font-weight:600;stroke:var(--paper);stroke-width:4px;paint-order:stroke}
svg.plot .curve{fill:none;stroke-width:2}svg.plot .beyond{stroke-dasharray:2 4}svg.plot .arrow{fill:none;stroke-width:1.6;stroke-dasharray:5 3}
svg.plot .whisker{fill:none;stroke-width:4;opacity:.35}svg.plot .mark{stroke:var(--paper)}
.s0{stroke:var(--k0)}.s1{stroke:var(--k1)}.s2{stroke:var(--k2)}.s3{stroke:var(--k3)}.s4{stroke:var(--k4)}.s5{stroke:var(--k5)}.s6{stroke:var(--k6)}.s7{stroke:var(--k7)}.s8{stroke:var(--k8)}.s9{stroke:var(--k9)}.s10{stroke:var(--k10)}.s11{stroke:var(--k11)}
details{margin:.5rem 0}summary{cursor:pointer;color:var(--link)}summary>h2,summary>h3{display:inline;color:var(--ink)}details.run{border-top:1px solid var(--line);padding-top:.8rem}
@media print,(min-width:40.01rem){table.charted td.b:has(~td.b),table.charted td.b~td.b{width:36%}}
@media screen and (max-width:40rem){body{padding:1rem}th,td{padding-right:.6rem}svg.plot text{font-size:20px}svg.plot .arrows text,svg.plot .minor{display:none}\
table.charted tr{display:flex;flex-wrap:wrap;justify-content:space-between;border-bottom:1px solid var(--line);padding:.3rem 0}table.charted th,table.charted td{border:0;padding:.1rem 0}table.charted tbody th,table.charted td.b{width:100%}table.charted td:empty{display:none}}
@media print{body{max-width:none;padding:0;font-size:11px}h2,h3,caption,thead{break-after:avoid}tr,svg,.fall li{break-inside:avoid}.wide{overflow:visible}nav{display:none}\
details::details-content{content-visibility:visible;height:auto}summary{list-style:none}a{color:inherit}table:not(.charted) td.n{white-space:normal}svg.plot{max-width:34rem}}
";

/// A whole page. `title` is escaped; `style` and `body` stand as they are.
pub fn page(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escape(title)
    )
}

/// Something that is opened by its summary, and is open in print. `body` stands as it is.
pub fn details(out: &mut String, summary: &str, body: &str) {
    let _ = writeln!(
        out,
        "<details><summary>{}</summary>\n{body}</details>",
        escape(summary)
    );
}

/// The figures that a reader looks for first: name, figure, what to know of it.
pub fn figures<'a>(out: &mut String, figures: impl IntoIterator<Item = (&'a str, String, String)>) {
    let mut items = String::new();
    for (name, figure, note) in figures {
        let _ = writeln!(
            items,
            "<li>{}<b>{}</b><small>{}</small></li>",
            escape(name),
            escape(&figure),
            escape(&note)
        );
    }
    if !items.is_empty() {
        let _ = writeln!(out, "<ul class=\"fall\">\n{items}</ul>");
    }
}

/// A list of sentences under a name; nothing where there are none.
pub fn sentences(out: &mut String, name: &str, sentences: &[String]) {
    if sentences.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h3>{}</h3>\n<ul>", escape(name));
    for sentence in sentences {
        let _ = writeln!(out, "<li>{}</li>", escape(sentence));
    }
    out.push_str("</ul>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_invisible_characters_are_shown_not_obeyed() {
        assert_eq!(
            escape("<b a=\"x\" c='y'>&\n\t\u{1b}\u{202e}é"),
            "&lt;b a=&quot;x&quot; c=&#39;y&#39;&gt;&amp;\n\t[U+001B][U+202E]é"
        );
    }
}
