//! The properties of adapters for which tests build kernels.

use super::context::{GpuChoices, Traits};

/// The properties of a common adapter, without matrix units.
const PLAIN: Traits = Traits {
    software: false,
    subgroup: Some(32),
    matrices: false,
    workgroup: 1024,
    workgroup_bytes: 32 << 10,
    storage_buffers: 16,
    binding_bytes: 1 << 27,
    buffer_bytes: 1 << 30,
    alignment: 256,
    timestamps: false,
    choices: GpuChoices::DEFAULT,
};

/// Adapters with and without matrix units, with subgroups of several sizes, and without subgroups.
pub(super) const ADAPTERS: [Traits; 6] = [
    PLAIN,
    Traits { matrices: true, workgroup_bytes: 48 << 10, ..PLAIN },
    Traits { subgroup: Some(8), workgroup: 512, ..PLAIN },
    Traits { subgroup: Some(16), storage_buffers: 8, ..PLAIN },
    Traits { subgroup: Some(64), ..PLAIN },
    Traits { subgroup: None, workgroup: 256, workgroup_bytes: 16 << 10, ..PLAIN },
];
