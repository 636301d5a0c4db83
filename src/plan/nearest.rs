//! The valid name that somebody most likely meant.

/// Names longer than this are never typing errors of ours.
const LONGEST_NAME_CHARS: usize = 64;

/// The candidate nearest to `name`, if one is near enough to be worth proposing.
///
/// Distance: insertions, deletions, substitutions and swaps of neighbours (optimal string
/// alignment, Damerau 1964), regardless of case; at most a third of the name's length, and 3.
/// Among equals the first candidate wins.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = name
        .to_lowercase()
        .chars()
        .take(LONGEST_NAME_CHARS + 1)
        .collect();
    if wanted.is_empty() || wanted.len() > LONGEST_NAME_CHARS {
        return None;
    }
    let cutoff = (wanted.len() / 3).clamp(1, 3);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        if candidate.chars().count().abs_diff(wanted.len()) > cutoff {
            continue;
        }
        let letters: Vec<char> = candidate.to_lowercase().chars().collect();
        let distance = distance(&wanted, &letters);
        if distance <= cutoff && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&str] = &["min_tokens", "max_tokens", "keep", "by"];

    #[test]
    fn proposes_the_nearest_name_within_the_cutoff() {
        assert_eq!(
            nearest("min_tokns", NAMES.iter().copied()),
            Some("min_tokens")
        );
        assert_eq!(
            nearest("mni_tokens", NAMES.iter().copied()),
            Some("min_tokens")
        );
        assert_eq!(
            nearest("MAX_TOKENS", NAMES.iter().copied()),
            Some("max_tokens")
        );
        assert_eq!(nearest("kep", NAMES.iter().copied()), Some("keep"));
    }

    #[test]
    fn proposes_nothing_for_a_name_that_is_far_from_all() {
        assert_eq!(nearest("colour", NAMES.iter().copied()), None);
        assert_eq!(nearest("", NAMES.iter().copied()), None);
        assert_eq!(nearest(&"x".repeat(10_000), NAMES.iter().copied()), None);
    }

    #[test]
    fn a_swap_of_neighbours_counts_once() {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        assert_eq!(distance(&chars("ab"), &chars("ba")), 1);
        assert_eq!(distance(&chars("kitten"), &chars("sitting")), 3);
        assert_eq!(distance(&chars(""), &chars("abc")), 3);
    }
}
