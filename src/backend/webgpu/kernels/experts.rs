//! Defines the parameters of routing: the selection of experts, the grouping of rows by expert, and
//! the sums of the experts' results.

use serde::Serialize;

use super::{BoundBuffer, RowCount, Strided, Template};
use crate::backend::webgpu::kernel::{Binding, Resource, reads, writes};

/// Selects the active experts of each row, with their weights.
#[derive(Debug, Serialize)]
pub struct Route {
    /// Invocations of a workgroup, which computes a row.
    pub workgroup: u32,
    /// Number of experts in the layer.
    pub experts: usize,
    /// Largest number of active experts of a row.
    pub top_k: usize,
    /// Whether `x` are logits, whose `top_k` largest become weights by a softmax. Otherwise they
    /// are weights, at most `top_k` of which are not 0.
    pub softmax: bool,
    /// Logits or weights, `[rows, experts]`.
    pub x: Strided,
    /// The list of each row's (expert, weight), `[rows, top_k]`, if it is written.
    pub selected: Option<BoundBuffer>,
    /// The weights of all experts, `[rows, experts]`, if they are written.
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

/// Assigns a slot to each (row, expert) of a list, expert by expert, and divides the slots into
/// tiles of one expert each.
#[derive(Debug, Serialize)]
pub struct GroupKernel {
    /// Invocations of the only workgroup.
    pub workgroup: u32,
    /// Number of experts in the layer.
    pub experts: usize,
    /// Largest number of active experts of a row.
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

/// Sums the results of a row's experts, times their weights.
#[derive(Debug, Serialize)]
pub struct Combine {
    /// Invocations of a workgroup, each of which computes a column.
    pub workgroup: usize,
    /// Columns of a row.
    pub width: usize,
    /// Largest number of active experts of a row.
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
