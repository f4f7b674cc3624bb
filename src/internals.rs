//! Gives the crate's own tests and benchmarks the stages of the engine. Programs need none of them,
//! and no version keeps them as they are.

/// Tensor formats.
pub mod quant {
    pub use crate::quant::*;
}

/// Devices: the traits and the two backends.
pub mod backend {
    pub use crate::backend::*;
}

/// The decode loop's parts.
pub mod generate {
    pub use crate::generate::{Limits, MtpHead, generate_many};
}

/// Graphs of ops.
pub mod graph {
    pub use crate::graph::*;
}

/// Resizing of images, and the sizes that vision encoders take.
pub mod image {
    pub use crate::image::{resize::Filter, size::*};
}

/// Pages and states of sequences.
pub mod kv_cache {
    pub use crate::kv_cache::*;
}

/// Model families.
pub mod models {
    pub use crate::models::*;
}

/// Passes over graphs.
pub mod optimize {
    pub use crate::optimize::*;
}

/// Plans of steps.
pub mod plan {
    pub use crate::plan::*;
}

/// Tensors by name.
pub mod weights {
    pub use crate::weights::*;
}

/// Vision encoders.
pub mod vision {
    pub use crate::vision::*;
}
