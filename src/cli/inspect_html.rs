//! Documents as one HTML page: a heat map of tokens by usefulness.

use super::inspect::Stretch;
use crate::page::{escape, page};
use crate::shard::Manifest;
use crate::tokenizer::Tokenizer;
use std::fmt::Write;

const STYLE: &str = "\
article{border-top:1px solid var(--line);padding:.6rem 0 1rem}
.t{font:15px/1.9 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;tab-size:4;margin:.5rem 0}
.t b{font-weight:400;border-radius:2px;padding:.12em 0;background:color-mix(in oklab,var(--high) calc(var(--u)*1%),var(--low));box-shadow:inset -1px 0 var(--paper)}
.t b.x{color:var(--soft)}
.t i{opacity:.45;font-style:normal;user-select:none}
article .soft{white-space:pre-wrap}
.scale{display:inline-block;width:12rem;height:.8rem;vertical-align:middle;border:1px solid var(--line);background:linear-gradient(90deg in oklab,var(--low),var(--high))}
#detail{position:fixed;right:1rem;bottom:1rem;max-width:26rem;background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.6rem .9rem;white-space:pre-wrap;font:13px/1.5 ui-monospace,monospace;box-shadow:0 2px 10px #0003}
#detail:empty{display:none}
";

/// Shows the detail of the token under the pointer; the same text is its title where scripts are off.
const SCRIPT: &str = "\
<div id=\"detail\" role=\"status\"></div>\n<script>\n\
const detail=document.getElementById('detail');\n\
for(const b of document.querySelectorAll('.t b[title]')){b.dataset.d=b.title;b.removeAttribute('title')}\n\
const show=e=>{const b=e.target.closest&&e.target.closest('.t b');detail.textContent=b?b.dataset.d:''};\n\
document.addEventListener('pointerover',show);document.addEventListener('pointerdown',show);\n\
</script>\n";

/// A page of documents.
pub(super) struct Html {
    body: String,
    documents: u64,
}

impl Html {
    pub(super) fn new() -> Html {
        Html {
            body: String::new(),
            documents: 0,
        }
    }

    pub(super) fn stretch(
        &mut self,
        head: &str,
        stretch: &Stretch<'_>,
        shown: usize,
        tokenizer: &Tokenizer,
    ) {
        self.documents += 1;
        let out = &mut self.body;
        let _ = writeln!(
            out,
            "<article>\n<code>{}</code>\n<div class=\"soft\">{}</div>",
            escape(stretch.doc_id),
            escape(head.trim_start())
        );
        let Some(ids) = stretch.ids else {
            out.push_str("<p class=\"soft\">its tokens were not kept</p>\n</article>\n");
            return;
        };
        out.push_str("<p class=\"t\" dir=\"auto\">");
        let ids_shown = &ids[..shown.min(ids.len())];
        let bytes: Vec<Option<Vec<u8>>> = ids_shown
            .iter()
            .map(|&id| tokenizer.token_bytes(id))
            .collect();
        let mut at = 0;
        while at < bytes.len() {
            let end = at + characters(&bytes[at..]);
            tokens(out, stretch, at, &ids[at..end], &bytes[at..end]);
            at = end;
        }
        out.push_str("</p>\n");
        if ids_shown.len() < ids.len() {
            let _ = writeln!(
                out,
                "<small>… {} more tokens</small>",
                ids.len() - ids_shown.len()
            );
        }
        out.push_str("</article>\n");
    }

    pub(super) fn page(self, manifest: &Manifest, rejects: bool) -> String {
        let what = if rejects { "rejects" } else { "documents" };
        let mut head = format!(
            "<h1>{}: {what}</h1>\n<p class=\"soft\">{} shown; dataset <code>{}</code>, tokenizer {}</p>\n",
            escape(&manifest.pipeline),
            self.documents,
            escape(&manifest.checksum),
            escape(&manifest.tokenizer.name)
        );
        if let Some(estimator) = &manifest.estimator {
            let calibration = estimator.fitted["calibration"].as_str().unwrap_or("");
            let _ = writeln!(
                head,
                "<p>usefulness ({}, {})  0 <span class=\"scale\"></span> 1<br><small>Each token's background is its \
                 usefulness. Point at a token for its id, text, place and values. One box over several tokens: they share \
                 the bytes of a character.</small></p>",
                escape(&estimator.name),
                escape(calibration)
            );
        }
        head.push_str(&self.body);
        head.push_str(SCRIPT);
        page(&format!("{}: {what}", manifest.pipeline), STYLE, &head)
    }
}

/// How many of the first tokens belong together: the fewest whose bytes are whole characters; one where
/// no few of them are.
fn characters(bytes: &[Option<Vec<u8>>]) -> usize {
    let mut all = Vec::new();
    for (at, token) in bytes.iter().enumerate() {
        match token {
            Some(token) => all.extend_from_slice(token),
            None => break,
        }
        match std::str::from_utf8(&all) {
            Ok(_) => return at + 1,
            // More bytes can't repair a wrong one; they can end a character that has begun.
            Err(error) if error.error_len().is_some() => break,
            Err(_) => {}
        }
    }
    1
}

/// One box: a token, or the tokens that share a character.
fn tokens(
    out: &mut String,
    stretch: &Stretch<'_>,
    at: usize,
    ids: &[u32],
    bytes: &[Option<Vec<u8>>],
) {
    let joined: Vec<u8> = bytes.iter().flatten().flatten().copied().collect();
    let (text, class) = match std::str::from_utf8(&joined) {
        Ok("") => (format!("[id {}]", ids[0]), " class=\"x\""),
        Ok(text) => (escape(text).replace('\n', "<i>\u{21b5}</i>\n"), ""),
        // A character that is cut off at the border of the row, or bytes that are no text.
        Err(_) => (hexadecimal(&joined), " class=\"x\""),
    };
    let mut detail = String::new();
    for (place, (&id, bytes)) in ids.iter().zip(bytes).enumerate() {
        let place = at + place;
        let spelled = match bytes.as_deref().map(std::str::from_utf8) {
            Some(Ok(text)) => format!("{text:?}"),
            Some(Err(_)) => format!("bytes {}", hexadecimal(bytes.as_deref().unwrap_or(&[]))),
            None => "no token of the tokenizer".to_string(),
        };
        let _ = write!(
            detail,
            "{}token {}: id {id}, {spelled}",
            if detail.is_empty() { "" } else { "\n" },
            stretch.first_token + place
        );
        if let Some(usefulness) = stretch.usefulness {
            let _ = write!(detail, "\nusefulness {:.3}", usefulness[place]);
        }
        if let Some(excess) = stretch.excess_nats {
            let _ = write!(detail, "\nexcess {:+.3} nats", excess[place]);
        }
        if let Some(explained) = stretch.explained {
            let token = &explained[place];
            let _ = write!(
                detail,
                "\n{}: left {:.3} * able {:.3} * want {:.3}\nsurprisal {:.3} nats by the corpus ({} tokens of context), \
                 {:.3} by the reference ({})\nmean excess {:+.3} nats",
                token.class(),
                token.left,
                token.able,
                token.want,
                token.surprisal_general_nats,
                token.context_general_tokens,
                token.surprisal_target_nats,
                token.context_target_tokens,
                token.mean_excess_nats
            );
        }
    }
    let mut style = String::new();
    if let Some(usefulness) = stretch.usefulness {
        let shades: Vec<f32> = usefulness[at..at + ids.len()].to_vec();
        match shades.as_slice() {
            [one] => {
                let _ = write!(style, " style=\"--u:{:.0}\"", 100.0 * one);
            }
            several => {
                let width = 100.0 / several.len() as f32;
                let stops: Vec<String> = several
                    .iter()
                    .enumerate()
                    .map(|(at, shade)| {
                        format!(
                            "color-mix(in oklab,var(--high) {:.0}%,var(--low)) {:.1}% {:.1}%",
                            100.0 * shade,
                            width * at as f32,
                            width * (at + 1) as f32
                        )
                    })
                    .collect();
                let _ = write!(
                    style,
                    " style=\"background:linear-gradient(90deg,{})\"",
                    stops.join(",")
                );
            }
        }
    }
    let _ = write!(
        out,
        "<b{class}{style} title=\"{}\">{text}</b>",
        escape(&detail).replace('\n', "&#10;")
    );
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    format!("[{}]", digits.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(tokens: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        tokens.iter().map(|token| Some(token.to_vec())).collect()
    }

    #[test]
    fn tokens_that_share_a_character_stand_together() {
        let euro = "€".as_bytes();
        assert_eq!(characters(&some(&[b"a", b"b"])), 1);
        assert_eq!(
            characters(&some(&[&euro[..1], &euro[1..2], &euro[2..], b"x"])),
            3
        );
        // The end of one and the beginning of another character in one token.
        let two = "€€".as_bytes();
        assert_eq!(characters(&some(&[&two[..2], &two[2..4], &two[4..]])), 3);
        assert_eq!(characters(&some(&[&euro[..1], b"x"])), 1, "never whole");
        assert_eq!(characters(&some(&[&euro[..1]])), 1, "cut off");
        assert_eq!(characters(&[None, Some(vec![b'a'])]), 1);
        assert_eq!(characters(&some(&[b"\xff", b"a"])), 1);
    }
}
