//! A set of characters, found in text at memory speed.

/// Bytes looked at together. One comparison passes over a chunk without any candidate.
const CHUNK_BYTES: usize = 64;
/// Code points per page.
const PAGE_BITS: u32 = 8;
const N_PAGES: usize = 0x11_0000 >> PAGE_BITS;
const PAGE_WORDS: usize = (1 << PAGE_BITS) / 64;

/// A set of characters outside ASCII.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CharacterSet {
    /// Ascending, without repeats.
    characters: Vec<char>,
    /// First UTF-8 byte of the lowest character: no byte below it starts a member.
    lowest_lead: u8,
    /// Place of each page in `members`; 0 is the empty one, shared by all without a member.
    pages: Box<[u16; N_PAGES]>,
    /// One bit for each code point of a page.
    members: Vec<[u64; PAGE_WORDS]>,
}

impl CharacterSet {
    /// The set of these characters, ASCII left out.
    pub(super) fn new(mut characters: Vec<char>) -> Self {
        characters.retain(|character| !character.is_ascii());
        characters.sort_unstable();
        characters.dedup();
        let mut pages = Box::new([0; N_PAGES]);
        let mut members = vec![[0; PAGE_WORDS]];
        for &character in &characters {
            let place = &mut pages[u32::from(character) as usize >> PAGE_BITS];
            if *place == 0 {
                *place = members.len() as u16;
                members.push([0; PAGE_WORDS]);
            }
            let [word, bit] = word_and_bit(u32::from(character));
            members[usize::from(*place)][word] |= 1 << bit;
        }
        let lowest_lead = characters.first().map_or(u8::MAX, |character| {
            character.encode_utf8(&mut [0; 4]).as_bytes()[0]
        });
        Self {
            characters,
            lowest_lead,
            pages,
            members,
        }
    }

    pub(super) fn characters(&self) -> &[char] {
        &self.characters
    }

    /// Whether `text` holds one of the characters.
    pub(super) fn any_in(&self, text: &str) -> bool {
        if self.characters.is_empty() {
            return false;
        }
        let bytes = text.as_bytes();
        let mut chunk_start = 0;
        for chunk in bytes.chunks(CHUNK_BYTES) {
            // A maximum over the chunk: the compiler makes it a few vector instructions.
            if chunk.iter().fold(0, |max, &byte| byte.max(max)) >= self.lowest_lead {
                for (place, &byte) in chunk.iter().enumerate() {
                    // Continuation bytes are below every lead byte outside ASCII.
                    if byte >= self.lowest_lead && self.starts_at(bytes, chunk_start + place) {
                        return true;
                    }
                }
            }
            chunk_start += chunk.len();
        }
        false
    }

    /// Whether the character that begins at `place` is a member; its first byte is a lead byte.
    #[inline]
    fn starts_at(&self, text: &[u8], place: usize) -> bool {
        let low = |ahead: usize| u32::from(text.get(place + ahead).copied().unwrap_or(0) & 0x3F);
        let lead = u32::from(text[place]);
        let character = match lead {
            ..0xE0 => (lead & 0x1F) << 6 | low(1),
            0xE0..0xF0 => (lead & 0x0F) << 12 | low(1) << 6 | low(2),
            _ => (lead & 0x07) << 18 | low(1) << 12 | low(2) << 6 | low(3),
        };
        let page = self.pages[(character as usize >> PAGE_BITS).min(N_PAGES - 1)];
        let [word, bit] = word_and_bit(character);
        self.members[usize::from(page)][word] >> bit & 1 == 1
    }
}

/// Where a code point's bit stands in its page.
#[inline]
fn word_and_bit(character: u32) -> [usize; 2] {
    let within = character as usize % (1 << PAGE_BITS);
    [within / 64, within % 64]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_its_members_and_no_neighbours() {
        let set = CharacterSet::new(vec!['\u{1DF6}', 'é', '\u{10FFFF}', 'é', 'a']);
        assert_eq!(set.characters(), ['é', '\u{1DF6}', '\u{10FFFF}']);
        for member in set.characters() {
            for before in [0, 1, 61, 62, 63, 64, 65, 127, 128] {
                let text = format!("{}{member}", "a".repeat(before));
                assert!(set.any_in(&text), "{member:?} after {before}");
                assert!(set.any_in(&format!("{text}漢")));
            }
        }
        for other in [
            "",
            "a",
            "è",
            "ê",
            "\u{1DF5}",
            "\u{1DF7}",
            "\u{10FFFE}",
            "漢字😀",
        ] {
            assert!(!set.any_in(&other.repeat(50)), "{other:?}");
        }
    }

    #[test]
    fn an_empty_set_is_in_no_text() {
        assert!(!CharacterSet::new(vec!['a']).any_in("a\u{10FFFF}"));
    }
}
