//! The choice of experts, and how tokens are grouped by expert and joined again.

use serde::Serialize;

use super::{BoundBuffer, RowCount, Strided, Template};
use crate::backend::webgpu::kernel::{Binding, Resource, reads, writes};

/// Chooses the experts of each row, with their weights.
#[derive(Debug, Serialize)]
pub struct Route {
    /// Invocations of a workgroup, which has a row.
    pub workgroup: u32,
    /// Experts of the layer.
    pub experts: usize,
    /// Experts of a row, at most.
    pub top_k: usize,
    /// Whether `x` are logits, of which the `top_k` largest go through a softmax. Otherwise they
    /// are weights, of which at most `top_k` are not 0.
    pub softmax: bool,
    /// Logits or weights, `[rows, experts]`.
    pub x: Strided,
    /// The list of each row's (expert, weight), `[rows, top_k]`, if it is wanted.
    pub selected: Option<BoundBuffer>,
    /// The weights of all experts, `[rows, experts]`, if they are wanted.
    pub y: Option<Strided>,
}

impl Template for Route {
    const NAME: &'static str = "route";

    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = vec![reads("x", "f32", self.x.rows)];
        bindings.extend(self.selected.map(|selected| writes("selected", "vec2<u32>", selected.0)));
        bindings.extend(self.y.map(|y| writes("y", "f32", y.rows)));
        bindings
    }
}

/// Gives each (row, expert) of a list a slot, expert by expert, and cuts the slots into tiles of
/// one expert each.
#[derive(Debug, Serialize)]
pub struct GroupKernel {
    /// Invocations of the one workgroup.
    pub workgroup: u32,
    /// Experts of the layer.
    pub experts: usize,
    /// Experts of a row, at most.
    pub top_k: usize,
    /// Slots of a tile.
    pub tile: usize,
    /// The number of rows.
    pub rows: RowCount,
    /// The list of each row's (expert, weight), `[rows, top_k]`.
    #[serde(skip)]
    pub selected: Resource,
}

impl Template for GroupKernel {
    const NAME: &'static str = "group";

    fn bindings(&self) -> Vec<Binding> {
        vec![
            reads("selected", "vec2<u32>", self.selected),
            writes("slot_of", "u32", Resource::SlotOf),
            writes("token_of", "u32", Resource::TokenOf),
            writes("tiles", "vec4<u32>", Resource::Tiles),
        ]
    }
}

/// Adds up what a row's experts made of it, times their weights.
#[derive(Debug, Serialize)]
pub struct Combine {
    /// Invocations of a workgroup, each with a column.
    pub workgroup: usize,
    /// Columns of a row.
    pub width: usize,
    /// Experts of a row, at most.
    pub top_k: usize,
    /// The experts' results, `[slots, width]`.
    pub results: Strided,
    /// The sums, `[rows, width]`.
    pub y: Strided,
    /// The list of each row's (expert, weight), `[rows, top_k]`.
    #[serde(skip)]
    pub selected: Resource,
}

impl Template for Combine {
    const NAME: &'static str = "combine";

    fn bindings(&self) -> Vec<Binding> {
        vec![
            reads("selected", "vec2<u32>", self.selected),
            reads("slot_of", "u32", Resource::SlotOf),
            reads("results", "f32", self.results.rows),
            writes("y", "f32", self.y.rows),
        ]
    }
}
