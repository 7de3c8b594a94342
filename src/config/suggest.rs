//! The nearest known word to one that is not known.

/// The candidate that a typist most likely meant: close in edits, or the same but for case and punctuation.
pub(super) fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let length = word.chars().count();
    // Longer than any word of ours: not worth a table of that size.
    if length > 64 {
        return None;
    }
    let bound = (length / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| {
            (
                if folded(candidate) == folded(word) {
                    0
                } else {
                    distance(word, candidate)
                },
                candidate,
            )
        })
        .filter(|&(edits, _)| edits <= bound)
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, candidate)| candidate)
}

fn folded(word: &str) -> String {
    word.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

/// Insertions, deletions, replacements and swaps of neighbours that make one word the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before_last = vec![0; to.len() + 1];
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (row, &a) in from.iter().enumerate() {
        let mut current = vec![row + 1; to.len() + 1];
        for (column, &b) in to.iter().enumerate() {
            let mut edits = (last[column] + usize::from(a != b))
                .min(last[column + 1] + 1)
                .min(current[column] + 1);
            if row > 0 && column > 0 && a == to[column - 1] && from[row - 1] == b {
                edits = edits.min(before_last[column - 1] + 1);
            }
            current[column + 1] = edits;
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits_and_swaps() {
        for (from, to, edits) in [
            ("slot", "slot", 0),
            ("slott", "slot", 1),
            ("solt", "slot", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(from, to), edits, "{from} {to}");
        }
    }

    #[test]
    fn the_nearest_word_is_suggested_and_a_far_one_is_not() {
        let known = ["slot", "publication", "max_message_bytes", "tables"];
        assert_eq!(nearest("slott", known), Some("slot"));
        assert_eq!(nearest("maxMessageBytes", known), Some("max_message_bytes"));
        assert_eq!(nearest("publicaton", known), Some("publication"));
        assert_eq!(nearest("password", known), None);
        assert_eq!(nearest(&"x".repeat(100_000), known), None);
    }
}
