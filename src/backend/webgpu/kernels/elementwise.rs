//! Defines the parameters of element-wise functions.

use serde::Serialize;

use super::{Function, SoftCap, Strided, Template};
use crate::backend::webgpu::kernel::{Binding, Resource, reads, writes};

/// `y[row, column] = op(a[row, column], b[row, column])`.
#[derive(Debug, Serialize)]
pub struct ElementKernel {
    /// Invocations of a workgroup, each of which computes a column.
    pub workgroup: usize,
    /// Columns of a row of `y`.
    pub width: usize,
    /// The function.
    pub op: ElementOp,
    /// The first operand; `None` if it is `y` itself.
    pub a: Option<Strided>,
    /// The result.
    pub y: Strided,
}

/// A function of one or two elements.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ElementOp {
    /// Copies the element.
    Copy,
    /// Combines the element with the same column of a second operand.
    Binary {
        /// The operator.
        operator: Operator,
        /// The second operand.
        b: SecondOperand,
    },
    /// Applies an activation.
    Activate {
        /// The activation.
        function: Function,
    },
    /// Applies a soft cap.
    SoftCap {
        /// The cap.
        cap: SoftCap,
    },
    /// Limits the element to two numbers.
    Clamp {
        /// The buffer of the least value.
        #[serde(skip)]
        lower: Resource,
        /// The buffer of the greatest value.
        #[serde(skip)]
        upper: Resource,
    },
    /// Copies each group of `len` columns to a column further right.
    Shift {
        /// The column of `y` that column 0 is copied to.
        to: usize,
        /// Columns of a group.
        len: usize,
        /// Columns of `y` from the start of a group to the start of the next.
        every: usize,
    },
    /// Copies `len` columns of every `every`, from column `first` on.
    Slice {
        /// The first column.
        first: usize,
        /// Columns of a copied group.
        len: usize,
        /// Columns from the start of a group to the start of the next.
        every: usize,
    },
}

/// An operator of WGSL.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum Operator {
    /// Addition.
    #[serde(rename = "+")]
    Add,
    /// Multiplication.
    #[serde(rename = "*")]
    Mul,
    /// Division.
    #[serde(rename = "/")]
    Div,
}

/// The second operand of an [`Operator`].
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SecondOperand {
    /// A row for each row of the first operand.
    Rows {
        /// Elements from the start of a row to the start of the next.
        stride: usize,
        /// The buffer of the rows.
        #[serde(skip)]
        rows: Resource,
    },
    /// One row for all rows.
    Row {
        /// The buffer of the row.
        #[serde(skip)]
        row: Resource,
    },
    /// One number for all elements.
    Number {
        /// The buffer of the number.
        #[serde(skip)]
        number: Resource,
    },
}

impl Template for ElementKernel {
    const NAME: &'static str = "elementwise";

    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = vec![writes("y", "f32", self.y.rows)];
        bindings.extend(self.a.map(|a| reads("a", "f32", a.rows)));
        if let ElementOp::Binary { b, .. } = &self.op {
            let (SecondOperand::Rows { rows: b, .. }
            | SecondOperand::Row { row: b }
            | SecondOperand::Number { number: b }) = b;
            bindings.push(reads("b", "f32", *b));
        }
        if let ElementOp::Clamp { lower, upper } = &self.op {
            bindings.extend([reads("lower", "f32", *lower), reads("upper", "f32", *upper)]);
        }
        bindings
    }
}
