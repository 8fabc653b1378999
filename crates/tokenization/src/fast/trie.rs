//! A trie over bytes as a double array: one load, of one unit, decides each step.
//!
//! The child of a node for a byte is the unit at `base ^ byte`, if that unit is labelled with the
//! byte. As no two nodes share a base, the label alone says that the unit is this node's child.
//! Units carry their value, so that finding one costs no second access; those of siblings lie
//! within 256 places.

use super::NotCovered;

/// Label of a unit that is no node; no byte equals it.
const FREE: u32 = 256;
const LABEL_MASK: u32 = (1 << 9) - 1;
/// Set in nodes that end a key.
const HAS_VALUE: u32 = 1 << 9;
/// Bases have the 22 bits above.
const BASE_SHIFT: u32 = 10;
const MAX_UNITS: usize = 1 << (32 - BASE_SHIFT);
/// Units of one block; the children of a node lie in one.
const BLOCK: usize = 256;
/// New nodes look for room in so many of the last blocks: enough to fill them to over 90 %.
const OPEN_BLOCKS: usize = 16;

/// Maps byte strings to values.
#[derive(Debug)]
pub(super) struct Trie<V> {
    units: Vec<Unit<V>>,
}

#[derive(Debug, Clone, Copy)]
struct Unit<V> {
    /// Base of the children, `HAS_VALUE`, label. A node without children has base 0: that is the
    /// block of the root, which has no other nodes.
    links: u32,
    value: V,
}

impl<V: Copy> Unit<V> {
    fn is_free(&self) -> bool {
        self.links & LABEL_MASK == FREE
    }

    #[inline]
    fn node(&self) -> Node<V> {
        Node {
            base: (self.links >> BASE_SHIFT) as usize,
            value: (self.links & HAS_VALUE != 0).then_some(self.value),
        }
    }
}

/// A node reached by some bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<V> {
    base: usize,
    /// Of the bytes that led here.
    pub(super) value: Option<V>,
}

impl<V: Copy + Default> Trie<V> {
    /// A trie of `keys`, of which the last of equal ones counts. Empty keys are left out.
    ///
    /// # Errors
    /// There are more nodes than this layout has room for.
    pub(super) fn new(mut keys: Vec<(&[u8], V)>) -> Result<Self, NotCovered> {
        keys.retain(|(key, _)| !key.is_empty());
        keys.sort_by_key(|&(key, _)| key);
        let mut builder = Builder {
            units: Vec::new(),
            base_used: Vec::new(),
            open: Vec::new(),
        };
        builder.add_block();
        // The root's block has no children: see `Unit`.
        builder.open.clear();
        builder.place(&keys)?;
        Ok(Self {
            units: builder.units,
        })
    }

    /// The node of no bytes.
    #[inline]
    pub(super) fn root(&self) -> Node<V> {
        self.units.first().map_or(
            Node {
                base: 0,
                value: None,
            },
            Unit::node,
        )
    }

    /// The node one `byte` further.
    #[inline]
    pub(super) fn child(&self, node: Node<V>, byte: u8) -> Option<Node<V>> {
        let unit = self.units.get(node.base ^ usize::from(byte))?;
        (unit.links & LABEL_MASK == u32::from(byte)).then(|| unit.node())
    }

    /// The value of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Option<V> {
        let mut node = self.root();
        for &byte in key {
            node = self.child(node, byte)?;
        }
        node.value
    }
}

struct Builder<V> {
    units: Vec<Unit<V>>,
    /// By base.
    base_used: Vec<bool>,
    /// Free units of the last blocks, oldest block first.
    open: Vec<(usize, Vec<u8>)>,
}

/// Keys below one node: `keys[first..last]` share their first `depth` bytes.
struct Pending {
    unit: usize,
    first: usize,
    last: usize,
    depth: usize,
}

impl<V: Copy + Default> Builder<V> {
    fn add_block(&mut self) {
        let start = self.units.len();
        let free = Unit {
            links: FREE,
            value: V::default(),
        };
        self.units.resize(start + BLOCK, free);
        self.base_used.resize(start + BLOCK, false);
        if self.open.len() == OPEN_BLOCKS {
            self.open.remove(0);
        }
        self.open.push((start, (0..=u8::MAX).collect()));
    }

    /// Places all nodes, a node's descendants before its next sibling's.
    fn place(&mut self, keys: &[(&[u8], V)]) -> Result<(), NotCovered> {
        let mut stack = vec![Pending {
            unit: 0,
            first: 0,
            last: keys.len(),
            depth: 0,
        }];
        let mut children: Vec<(u8, Pending)> = Vec::new();
        let mut labels = Vec::new();
        while let Some(pending) = stack.pop() {
            let Pending {
                unit,
                mut first,
                last,
                depth,
            } = pending;
            // Sorted, stable: keys that end here come first, the one that counts last.
            while first < last && keys[first].0.len() == depth {
                self.units[unit].value = keys[first].1;
                self.units[unit].links |= HAS_VALUE;
                first += 1;
            }
            children.clear();
            labels.clear();
            while first < last {
                let label = keys[first].0[depth];
                let count = keys[first..last].partition_point(|(key, _)| key[depth] == label);
                let child = Pending {
                    unit: 0,
                    first,
                    last: first + count,
                    depth: depth + 1,
                };
                labels.push(label);
                children.push((label, child));
                first += count;
            }
            if labels.is_empty() {
                continue;
            }
            let base = self.base_for(&labels)?;
            self.base_used[base] = true;
            self.units[unit].links |= (base as u32) << BASE_SHIFT;
            for (label, mut child) in children.drain(..).rev() {
                child.unit = base ^ usize::from(label);
                self.units[child.unit].links = u32::from(label);
                stack.push(child);
            }
            if let Some((start, free)) =
                (self.open.iter_mut()).find(|(start, _)| *start == base & !(BLOCK - 1))
            {
                let start = *start;
                free.retain(|&place| self.units[start + usize::from(place)].is_free());
            }
        }
        Ok(())
    }

    /// An unused base with free units for all `labels`.
    fn base_for(&mut self, labels: &[u8]) -> Result<usize, NotCovered> {
        for (start, free) in &self.open {
            if free.len() < labels.len() {
                continue;
            }
            for &place in free {
                let base = start + usize::from(place ^ labels[0]);
                let is_free = |&label: &u8| self.units[base ^ usize::from(label)].is_free();
                if !self.base_used[base] && labels.iter().all(is_free) {
                    return Ok(base);
                }
            }
        }
        let base = self.units.len();
        if base + BLOCK > MAX_UNITS {
            return Err(NotCovered(format!(
                "the vocabulary needs more than {MAX_UNITS} trie units"
            )));
        }
        self.add_block();
        Ok(base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(trie: &Trie<u32>, keys: &[&str]) -> Vec<Option<u32>> {
        keys.iter().map(|key| trie.get(key.as_bytes())).collect()
    }

    #[test]
    fn keys_have_their_values_and_others_none() {
        let keys = ["a", "ab", "abc", "b", "\0", "\0\0", "\u{ff}", "文字", "文"];
        let numbered = keys
            .iter()
            .zip(0..)
            .map(|(key, value)| (key.as_bytes(), value));
        let trie = Trie::new(numbered.collect()).unwrap();
        assert_eq!(values(&trie, &keys), (0..9).map(Some).collect::<Vec<_>>());
        let others = [
            "",
            "ac",
            "abcd",
            "c",
            "\0a",
            "文字字",
            "\u{1}",
            "\u{6587}\0",
        ];
        assert_eq!(values(&trie, &others), [None; 8]);
    }

    #[test]
    fn of_equal_keys_the_last_counts() {
        let trie = Trie::new(
            vec![("x", 1), ("", 9), ("x", 2)]
                .into_iter()
                .map(|(key, value): (&str, u32)| (key.as_bytes(), value))
                .collect(),
        )
        .unwrap();
        assert_eq!(values(&trie, &["x", ""]), [Some(2), None]);
    }

    #[test]
    fn an_empty_trie_has_nothing() {
        let trie: Trie<u32> = Trie::new(Vec::new()).unwrap();
        for byte in 0..=u8::MAX {
            assert!(trie.child(trie.root(), byte).is_none());
        }
    }

    #[test]
    fn many_keys() {
        // All of up to 3 letters out of 40, and long ones that share beginnings.
        let letters: Vec<u8> = (0..40).map(|letter| letter * 6 + 7).collect();
        let mut keys: Vec<Vec<u8>> = letters.iter().map(|&letter| vec![letter]).collect();
        for length in 1..3 {
            let longest: Vec<_> = keys
                .iter()
                .filter(|key| key.len() == length)
                .cloned()
                .collect();
            for key in longest {
                keys.extend(letters.iter().map(|&letter| [&key[..], &[letter]].concat()));
            }
        }
        keys.extend((0..500_u32).map(|index| format!("{:050}", index * index).into_bytes()));
        let numbered = keys
            .iter()
            .zip(0_u32..)
            .map(|(key, value)| (&key[..], value));
        let trie = Trie::new(numbered.collect()).unwrap();
        for (key, value) in keys.iter().zip(0..) {
            assert_eq!(trie.get(key), Some(value));
        }
        assert_eq!(trie.get(&[letters[0], 8]), None);
    }
}
