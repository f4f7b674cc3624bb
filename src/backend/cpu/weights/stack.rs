//! Numbers the rows of stacked matrices in groups of sixteen.

use std::ops::Range;

use crate::quant::ROWS;

/// The shape of `count` matrices `[rows, columns]`, one after the other in a tensor. A plain matrix
/// is a stack of one; experts share a tensor.
///
/// Products compute groups of sixteen rows. A group never has rows of two matrices, so the last
/// group of each matrix may be partial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stack {
    pub count: usize,
    pub rows: usize,
    pub columns: usize,
}

/// The place of a row among the groups of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupRow {
    pub group: usize,
    /// Number within the group, below 16.
    pub row: usize,
}

impl Stack {
    /// Returns the number of groups of each matrix.
    pub fn groups_per_matrix(&self) -> usize {
        self.rows.div_ceil(ROWS)
    }

    /// Returns the number of groups of all matrices.
    pub fn groups(&self) -> usize {
        self.count * self.groups_per_matrix()
    }

    /// Returns the place of a row, counted over all matrices.
    pub fn locate(&self, row: usize) -> GroupRow {
        let within = row % self.rows;
        GroupRow { group: row / self.rows * self.groups_per_matrix() + within / ROWS, row: within % ROWS }
    }

    /// Returns the rows of a group, counted over all matrices.
    pub fn rows_of(&self, group: usize) -> Range<usize> {
        let start = group / self.groups_per_matrix() * self.rows;
        let within = self.rows_within(group);
        start + within.start..start + within.end
    }

    /// Returns the rows of a group, counted from the start of its matrix.
    pub fn rows_within(&self, group: usize) -> Range<usize> {
        let start = group % self.groups_per_matrix() * ROWS;
        start..self.rows.min(start + ROWS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_one_group() {
        for (count, rows) in [(1, 1), (1, 40), (3, 16), (5, 7), (4, 33)] {
            let stack = Stack { count, rows, columns: 32 };
            let in_order: Vec<_> = (0..stack.groups()).flat_map(|group| stack.rows_of(group)).collect();
            assert_eq!(in_order, (0..count * rows).collect::<Vec<_>>());
            for number in in_order {
                let GroupRow { group, row } = stack.locate(number);
                assert!(row < ROWS && stack.rows_of(group).nth(row) == Some(number), "{stack:?}, row {number}");
            }
        }
    }
}
