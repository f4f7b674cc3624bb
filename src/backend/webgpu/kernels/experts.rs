//! Defines the parameters of routing: the selection of experts, the grouping of rows by expert, and
//! the sums of the experts' results.

use serde::Serialize;

use super::{BoundBuffer, F32, RowCount, Strided, Template};
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
    /// The computation of weights from `x`, which are logits; `None` if they are weights, at most
    /// `top_k` of which are not 0.
    pub weights: Option<RouteWeights>,
    /// Logits or weights, `[rows, experts]`.
    pub x: Strided,
    /// The list of each row's (expert, weight), `[rows, top_k]`, if it is written.
    pub selected: Option<BoundBuffer>,
    /// The weights of all experts, `[rows, experts]`, if they are written.
    pub y: Option<Strided>,
}

/// The computation of weights from the logits of a router.
#[derive(Debug, Serialize)]
pub struct RouteWeights {
    /// The probabilities that experts are selected by; `None` for a softmax over the selected
    /// experts.
    pub score: Option<RouteScore>,
    /// Whether the weights are divided by their sum.
    pub normalized: bool,
    /// The groups of experts that are selected first, if any.
    pub groups: Option<RouteGroups>,
    /// The factor of the weights.
    pub scale: F32,
    /// The bias of the probabilities, one for each expert, if there is one.
    pub bias: Option<BoundBuffer>,
}

/// The function that turns logits into probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteScore {
    /// The softmax over all experts.
    Softmax,
    /// The sigmoid of each logit.
    Sigmoid,
}

/// Groups of neighboring experts.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RouteGroups {
    /// The number of groups.
    pub count: usize,
    /// The number of experts in a group.
    pub size: usize,
    /// The number of groups that are selected.
    pub top_k: usize,
}

impl Template for Route {
    const NAME: &'static str = "route";

    fn bindings(&self) -> Vec<Binding> {
        let mut bindings = vec![reads("x", "f32", self.x.rows)];
        bindings.extend(self.selected.map(|selected| writes("selected", "vec2<u32>", selected.0)));
        bindings.extend(self.y.map(|y| writes("y", "f32", y.rows)));
        let bias = self.weights.as_ref().and_then(|weights| weights.bias);
        bindings.extend(bias.map(|bias| reads("bias", "f32", bias.0)));
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
