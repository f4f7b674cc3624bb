//! Declares the typed parameters of the WGSL templates in `kernels/`: one struct for each template.
//!
//! A struct's serialized fields are the variables of its template, and its resources, which are not
//! serialized, say which buffers the template binds. A template begins with the list of its
//! variables and buffers; `tests.rs` compares that list with the struct, and renders each struct
//! with every option both ways.

mod attention;
mod attention_step;
mod elementwise;
mod experts;
mod gated;
mod matmul_few;
mod matmul_tiled;
mod recurrent;
mod rows;
mod sampling;
mod shared;
mod state_scan;
mod step_rows;
mod streams;
#[cfg(test)]
mod tests;

pub(super) use self::{
    attention::{
        Append, AttentionPrefill, AttentionPrefillCoop, AttentionWindow, CacheShape, KeyRotation, PagedCache,
        ScoreParams, SeenRange, elements_per_word, padded,
    },
    attention_step::{
        AttentionCombine, AttentionOutput, AttentionStep, FEWEST_TOKENS, HeadNorms, NewToken, NormedRotation, StepShape,
    },
    elementwise::{ElementKernel, ElementOp, Operator, SecondOperand},
    experts::{Combine, GroupKernel, Route, RouteGroups, RouteScore, RouteWeights},
    gated::GatedKernel,
    matmul_few::{Finish, GemvExperts, GemvPart, MatMulFew, PendingNorm, Q8Input, Q8Output, share_tables},
    matmul_tiled::{MatMulCoop, MatMulTiled, TiledExperts, TiledPart, TiledProduct},
    recurrent::{ChunkShape, Delta, GatedDeltaChunks, GatedDeltaKernel, GatedDeltaPass, RunTable, ShortConv},
    rows::{F16Output, Heads, IdRange, InputName, RowInput, RowSource, RowsKernel},
    sampling::{Argmax, ArgmaxRound, BestKernel},
    shared::{
        BoundBuffer, ExpertStack, F32, Function, GluFunction, MatrixPlanes, Norm, Records, Rotation, RowCount, SoftCap,
        Strided,
    },
    state_scan::StateScanKernel,
    step_rows::{LayerNormKernel, StepRowSource, StepRows},
    streams::{DeviationKernel, MixStreamsKernel},
};

use std::fmt::Debug;

use minijinja::{Value, context, value::Serde};
use serde::Serialize;

use super::kernel::{Binding, Resource, reads};

/// The parameters of one template.
pub(super) trait Template: Debug + Serialize {
    /// The name of the template's file in `kernels/`, without its ending.
    const NAME: &'static str;

    /// Returns the buffers that the template binds after the step's, in the order of their binding
    /// numbers.
    fn bindings(&self) -> Vec<Binding>;
}

/// A [`Template`] of any type.
pub(super) trait AnyTemplate: Debug + Send + Sync {
    /// Returns [`Template::NAME`].
    fn name(&self) -> &'static str;

    /// Returns the variables of the template: the parameters, and `bindings` after the binding of
    /// the step's buffer.
    fn variables(&self, bindings: &[Binding]) -> Value;
}

impl<T: Template + Send + Sync> AnyTemplate for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn variables(&self, bindings: &[Binding]) -> Value {
        let step = reads("step", "u32", Resource::Step);
        let bindings: Vec<_> = std::iter::once(&step).chain(bindings).collect();
        context! { bindings => Value::from(Serde(bindings)), ..Value::from(Serde(self)) }
    }
}
