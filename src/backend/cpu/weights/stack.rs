//! Several matrices of one shape, and their groups of sixteen rows.

use std::ops::Range;

use crate::quant::ROWS;

/// `count` matrices `[rows, columns]`, one after the other. One for most; experts have theirs in one tensor.
///
/// Products take sixteen rows at a time, and no such group has rows of two matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stack {
    pub count: usize,
    pub rows: usize,
    pub columns: usize,
}

impl Stack {
    /// Groups of sixteen rows in one of the matrices, the last perhaps not full.
    pub fn groups_each(&self) -> usize {
        self.rows.div_ceil(ROWS)
    }

    /// Groups in all of them.
    pub fn groups(&self) -> usize {
        self.count * self.groups_each()
    }

    /// The group in which a row lies, and its place there.
    pub fn locate(&self, row: usize) -> (usize, usize) {
        let within = row % self.rows;
        (row / self.rows * self.groups_each() + within / ROWS, within % ROWS)
    }

    /// The rows of a group, numbered through all matrices.
    pub fn rows_of(&self, group: usize) -> Range<usize> {
        let start = group / self.groups_each() * self.rows;
        let within = self.rows_within(group);
        start + within.start..start + within.end
    }

    /// The rows of a group, numbered within its matrix.
    pub fn rows_within(&self, group: usize) -> Range<usize> {
        let first = group % self.groups_each() * ROWS;
        first..self.rows.min(first + ROWS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_a_stack_is_in_one_group() {
        for (count, rows) in [(1, 1), (1, 40), (3, 16), (5, 7), (4, 33)] {
            let stack = Stack { count, rows, columns: 32 };
            let in_order: Vec<_> = (0..stack.groups()).flat_map(|group| stack.rows_of(group)).collect();
            assert_eq!(in_order, (0..count * rows).collect::<Vec<_>>());
            for row in in_order {
                let (group, within) = stack.locate(row);
                assert!(within < ROWS && stack.rows_of(group).nth(within) == Some(row), "{stack:?}, row {row}");
            }
        }
    }
}
