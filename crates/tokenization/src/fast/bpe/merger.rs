//! Merges the symbols of one word: always the pair of lowest rank, the leftmost of equals.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::merges::{Merge, MergeTable, NEVER};

/// Up to here, looking at all pairs before each merge is faster than a heap.
const SCANNED_SYMBOLS: usize = 48;

/// No neighbour.
const NONE: u32 = u32::MAX;

/// Buffers for one word at a time; they keep their size.
#[derive(Default)]
pub(super) struct Merger {
    /// Of each symbol with the one after it.
    pairs: Vec<Merge>,
    symbols: Vec<Symbol>,
    /// Rank in the upper half, index of the left symbol in the lower: the order of merging.
    heap: BinaryHeap<Reverse<u64>>,
}

#[derive(Clone, Copy)]
struct Symbol {
    token_id: u32,
    previous: u32,
    next: u32,
    /// With the symbol after it.
    merge: Merge,
}

impl Merger {
    /// Merges `token_ids[start..]`, one word's symbols, in place.
    pub(super) fn merge(&mut self, table: &MergeTable, token_ids: &mut Vec<u32>, start: usize) {
        if token_ids.len() - start <= SCANNED_SYMBOLS {
            self.merge_scanning(table, token_ids, start);
        } else {
            self.merge_by_heap(table, token_ids, start);
        }
    }

    fn merge_scanning(&mut self, table: &MergeTable, token_ids: &mut Vec<u32>, start: usize) {
        let word = &mut token_ids[start..];
        self.pairs.clear();
        self.pairs
            .extend(word.windows(2).map(|two| table.get(two[0], two[1])));
        let mut length = word.len();
        loop {
            let mut best = NEVER;
            let mut left = 0;
            for (index, pair) in self.pairs.iter().enumerate() {
                if pair.rank < best {
                    best = pair.rank;
                    left = index;
                }
            }
            if best == NEVER {
                break;
            }
            word[left] = self.pairs[left].token_id;
            word.copy_within(left + 2..length, left + 1);
            length -= 1;
            self.pairs.remove(left);
            if left > 0 {
                self.pairs[left - 1] = table.get(word[left - 1], word[left]);
            }
            if left + 1 < length {
                self.pairs[left] = table.get(word[left], word[left + 1]);
            }
        }
        token_ids.truncate(start + length);
    }

    fn merge_by_heap(&mut self, table: &MergeTable, token_ids: &mut Vec<u32>, start: usize) {
        let word = &token_ids[start..];
        self.symbols.clear();
        self.heap.clear();
        for (index, &token_id) in (0..).zip(word) {
            let following = word.get(index as usize + 1);
            let merge = following.map_or(NO_MERGE, |&right| table.get(token_id, right));
            self.symbols.push(Symbol {
                token_id,
                previous: if index == 0 { NONE } else { index - 1 },
                next: following.map_or(NONE, |_| index + 1),
                merge,
            });
            self.enqueue(merge.rank, index);
        }
        while let Some(Reverse(entry)) = self.heap.pop() {
            let left = entry as u32;
            let Symbol { merge, next, .. } = self.symbols[left as usize];
            // The pair has changed since, or its left symbol is gone.
            if u64::from(merge.rank) != entry >> 32 {
                continue;
            }
            let right = self.symbols[next as usize];
            self.symbols[next as usize].merge = NO_MERGE;
            self.symbols[left as usize].token_id = merge.token_id;
            self.symbols[left as usize].next = right.next;
            if right.next != NONE {
                self.symbols[right.next as usize].previous = left;
            }
            self.pair(table, left);
            let previous = self.symbols[left as usize].previous;
            if previous != NONE {
                self.pair(table, previous);
            }
        }
        token_ids.truncate(start);
        let mut index = 0;
        while let Some(symbol) = self.symbols.get(index as usize) {
            token_ids.push(symbol.token_id);
            index = symbol.next;
        }
    }

    /// Asks for the merge of a symbol with the one after it.
    fn pair(&mut self, table: &MergeTable, left: u32) {
        let Symbol { token_id, next, .. } = self.symbols[left as usize];
        let merge = match self.symbols.get(next as usize) {
            Some(right) => table.get(token_id, right.token_id),
            None => NO_MERGE,
        };
        self.symbols[left as usize].merge = merge;
        self.enqueue(merge.rank, left);
    }

    fn enqueue(&mut self, rank: u32, left: u32) {
        if rank != NEVER {
            self.heap
                .push(Reverse(u64::from(rank) << 32 | u64::from(left)));
        }
    }
}

const NO_MERGE: Merge = Merge {
    rank: NEVER,
    token_id: 0,
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges 'a' = 0 with itself to powers of two, and some more, with equal products.
    fn table() -> MergeTable {
        MergeTable::new(&[
            (0, 0, 2),
            (2, 2, 3),
            (0, 1, 4),
            (2, 4, 5),
            (3, 3, 6),
            (1, 1, 7),
            (4, 7, 8),
            (2, 1, 9),
        ])
    }

    fn merged(symbols: &[u32], by: fn(&mut Merger, &MergeTable, &mut Vec<u32>, usize)) -> Vec<u32> {
        let mut token_ids = [&[99, 98], symbols].concat();
        by(&mut Merger::default(), &table(), &mut token_ids, 2);
        assert_eq!(token_ids[..2], [99, 98]);
        token_ids.split_off(2)
    }

    #[test]
    fn lowest_rank_first_and_leftmost_of_equals() {
        assert_eq!(merged(&[0, 0, 0], Merger::merge), [2, 0]);
        assert_eq!(merged(&[0, 0, 0, 0, 0, 0], Merger::merge), [3, 2]);
        assert_eq!(merged(&[0, 0, 0, 1], Merger::merge), [5]);
        assert!(merged(&[], Merger::merge).is_empty());
        assert_eq!(merged(&[1], Merger::merge), [1]);
    }

    #[test]
    fn both_ways_agree() {
        let mut state = 1_u64;
        for length in 0..400 {
            let symbols: Vec<u32> = (0..length)
                .map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    u32::from(state >> 33 & 3 == 0)
                })
                .collect();
            assert_eq!(
                merged(&symbols, Merger::merge_scanning),
                merged(&symbols, Merger::merge_by_heap),
                "{symbols:?}"
            );
        }
    }
}
