//! The merges of a BPE model: which two neighbouring tokens become which one, and in which order.

/// A merge of two tokens. The lower its rank, the earlier it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Merge {
    /// Line of the merge in the model's list; [`NEVER`] if there is none.
    pub(super) rank: u32,
    /// The token that comes out.
    pub(super) token_id: u32,
}

/// The rank of two tokens that do not merge.
pub(super) const NEVER: u32 = u32::MAX;

const NO_MERGE: Merge = Merge {
    rank: NEVER,
    token_id: 0,
};

/// A hash table with open addressing, at most half full, 16 bytes a slot: one cache line for
/// nearly every question, most of which are answered with no.
pub(super) struct MergeTable {
    slots: Box<[Slot]>,
    shift: u32,
}

#[derive(Clone, Copy)]
struct Slot {
    /// Left token in the upper half, right token in the lower.
    pair: u64,
    merge: Merge,
}

/// Token ids are below 2^24.
const EMPTY: u64 = u64::MAX;

impl MergeTable {
    /// Of merges in the order of the file: `(left, right, product)`. Of a pair that is named more
    /// than once, the last line counts, as in the `tokenizers` crate.
    pub(super) fn new(merges: &[(u32, u32, u32)]) -> Self {
        let size = (2 * merges.len()).next_power_of_two().max(2);
        let slot = Slot {
            pair: EMPTY,
            merge: NO_MERGE,
        };
        let mut table = Self {
            slots: vec![slot; size].into(),
            shift: 64 - size.trailing_zeros(),
        };
        for (rank, &(left, right, token_id)) in (0..).zip(merges) {
            let pair = pair(left, right);
            let index = table.find(pair);
            table.slots[index] = Slot {
                pair,
                merge: Merge { rank, token_id },
            };
        }
        table
    }

    #[inline]
    pub(super) fn get(&self, left: u32, right: u32) -> Merge {
        self.slots[self.find(pair(left, right))].merge
    }

    /// Index of the pair's slot, or of the empty one where it would be.
    #[inline]
    fn find(&self, pair: u64) -> usize {
        // Multiplication mixes upwards: the upper bits depend on all of the pair.
        let hash = (pair ^ (pair >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mask = self.slots.len() - 1;
        let mut index = (hash >> self.shift) as usize & mask;
        loop {
            let found = self.slots[index].pair;
            if found == pair || found == EMPTY {
                return index;
            }
            index = (index + 1) & mask;
        }
    }
}

#[inline]
fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_and_others_are_not() {
        let merges: Vec<_> = (0..5_000).map(|i| (i, i * 7 % 5_000, i + 1)).collect();
        let table = MergeTable::new(&merges);
        for (rank, &(left, right, token_id)) in (0..).zip(&merges) {
            assert_eq!(table.get(left, right), Merge { rank, token_id });
        }
        for i in 0..5_000 {
            assert_eq!(table.get(i, i * 7 % 5_000 + 1).rank, NEVER);
        }
    }

    #[test]
    fn the_last_of_equal_pairs_counts() {
        let table = MergeTable::new(&[(1, 2, 3), (2, 2, 4), (1, 2, 3)]);
        assert_eq!(table.get(1, 2).rank, 2);
        assert_eq!(MergeTable::new(&[]).get(0, 0).rank, NEVER);
    }
}
