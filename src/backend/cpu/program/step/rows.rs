//! How a thread does its share of tasks that go row by row.

use super::context::Walk;
use crate::{
    Result,
    backend::cpu::{
        program::{
            buffer::Buffer,
            task::{BinaryOp, Side},
        },
        threads::pool::Worker,
        weights::prepare::Table,
    },
};

impl Walk<'_> {
    pub unsafe fn embed(&self, table: &Table, out: Buffer, worker: Worker<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        for token in worker.share(self.step.tokens.len()) {
            // SAFETY: the row is this thread's alone.
            let row = unsafe { std::slice::from_raw_parts_mut(self.row(out, token), out.width) };
            self.prepared.read_row(table, self.step.tokens[token] as usize, &mut bytes, row)?;
        }
        Ok(())
    }

    pub unsafe fn slice(&self, [first, len, every]: [usize; 3], x: Buffer, out: Buffer, worker: Worker<'_>) {
        for row in worker.share(self.rows(out.rows)) {
            for group in 0..out.width / len {
                // SAFETY: by the caller.
                unsafe {
                    let from = self.row(x, row).add(group * every + first);
                    self.row(out, row).add(group * len).copy_from_nonoverlapping(from, len);
                }
            }
        }
    }

    pub unsafe fn binary(&self, op: BinaryOp, a: Buffer, b: &Side, out: Buffer, worker: Worker<'_>) {
        let kernel = match op {
            BinaryOp::Add => self.kernels.add,
            BinaryOp::Mul => self.kernels.mul,
            BinaryOp::Div => self.kernels.div,
        };
        for row in worker.share(self.rows(out.rows)) {
            let b = match b {
                Side::Row(b) => b.as_ptr(),
                Side::Rows(b) => self.row(*b, row).cast_const(),
            };
            // SAFETY: by the caller.
            unsafe { kernel(self.row(a, row), b, self.row(out, row), out.width) };
        }
    }
}
