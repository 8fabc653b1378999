//! A table with a number for each code point.

use std::collections::HashMap;

/// Code points from here on are not in the table: supplementary ideographs, tags, private use.
/// They are rare, and the table is built at each load.
const END: u32 = 0x2_0000;
const BLOCK: usize = 128;

/// Two stages, equal blocks stored once.
#[derive(Debug)]
pub(super) struct CodePointTable {
    /// Start in `entries` of each block.
    starts: Vec<u32>,
    entries: Vec<u32>,
    /// Of all code points from `END` on.
    beyond: u32,
}

impl CodePointTable {
    /// The table of `entry`, but with `beyond` for code points that are too many and too rare.
    pub(super) fn new(beyond: u32, mut entry: impl FnMut(char) -> u32) -> Self {
        let mut table = Self {
            starts: Vec::new(),
            entries: Vec::new(),
            beyond,
        };
        let mut known: HashMap<Vec<u32>, u32> = HashMap::new();
        for first in (0..END).step_by(BLOCK) {
            let block: Vec<u32> = (first..first + BLOCK as u32)
                .map(|code| char::from_u32(code).map_or(beyond, &mut entry))
                .collect();
            let start = *known.entry(block).or_insert_with_key(|block| {
                let start = table.entries.len() as u32;
                table.entries.extend_from_slice(block);
                start
            });
            table.starts.push(start);
        }
        table
    }

    #[inline]
    pub(super) fn get(&self, c: char) -> u32 {
        let code = c as usize;
        self.starts
            .get(code / BLOCK)
            .and_then(|&start| self.entries.get(start as usize + code % BLOCK))
            .copied()
            .unwrap_or(self.beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_point_has_its_entry() {
        let entry = |c: char| if c as u32 % 1_000 < 3 { c as u32 } else { 0 };
        let table = CodePointTable::new(7, entry);
        for c in '\0'..=char::MAX {
            let expected = if (c as u32) < END { entry(c) } else { 7 };
            assert_eq!(table.get(c), expected, "{c:?}");
        }
    }
}
