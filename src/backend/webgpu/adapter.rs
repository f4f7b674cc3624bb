//! Lists the adapters of this machine, chooses one, and opens it.

use super::{
    context::{Context, GpuChoices, Traits},
    instance::instance,
};
use crate::{
    Error, Result,
    backend::{Adapter, DeviceInfo},
};

/// Largest number of invocations in a workgroup that kernels use.
const MAX_WORKGROUP: u32 = 1024;
/// Largest size in bytes of a buffer of weights: some drivers fail with larger ones.
const MAX_BUFFER: u64 = (1 << 30) - 4096;

/// Returns all adapters of the machine.
pub(super) fn all() -> Vec<wgpu::Adapter> {
    pollster::block_on(instance().enumerate_adapters(wgpu::Backends::all()))
}

/// Upper limits of the adapter's features that kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuLimits {
    /// Largest number of invocations in a workgroup; at least 256.
    pub workgroup: u32,
    /// Largest size in bytes of a binding, the range of a buffer that a kernel sees; at least
    /// 262,144. Larger tensors are split by rows.
    pub binding_bytes: u64,
    /// Whether kernels may use subgroup operations.
    pub subgroups: bool,
    /// Whether kernels may use matrix units.
    pub matrices: bool,
}

impl Default for GpuLimits {
    fn default() -> Self {
        Self { workgroup: MAX_WORKGROUP, binding_bytes: MAX_BUFFER, subgroups: true, matrices: true }
    }
}

impl GpuLimits {
    pub(super) fn check(&self) -> Result<()> {
        if self.workgroup < 256 || self.binding_bytes < 1 << 18 {
            let what = format!("are {self:?}, but must be 256 invocations and 262,144 bytes at least");
            return Err(Error::argument("limits", what));
        }
        Ok(())
    }
}

/// Returns the public description of an adapter.
pub(super) fn describe(adapter: &wgpu::Adapter) -> DeviceInfo {
    let info = adapter.get_info();
    let driver = [info.driver.as_str(), info.driver_info.as_str()].join(" ");
    let software = if is_software(adapter) { ", software" } else { "" };
    let details = format!("{}, {}{software}", info.backend, driver.trim());
    DeviceInfo { name: info.name.clone(), details, threads: 1, memory: memory(adapter), fallback: None, profile: None }
}

/// Finds the requested adapter.
///
/// # Errors
/// [`Error::NoDevice`] if this machine has no such adapter.
pub(super) fn find(wanted: &Adapter) -> Result<wgpu::Adapter> {
    let adapters = all();
    let known: Vec<_> = adapters.iter().map(|adapter| (describe(adapter), is_software(adapter))).collect();
    let found = match wanted {
        Adapter::Best => adapters.into_iter().filter(|adapter| rank(adapter) > 0).max_by_key(rank),
        Adapter::Named(name) => {
            let name = name.to_lowercase();
            adapters.into_iter().find(|adapter| adapter.get_info().name.to_lowercase().contains(&name))
        }
    };
    found.ok_or_else(|| Error::NoDevice(not_found(wanted, &known)))
}

/// Returns the message that no adapter is `wanted`. `known` are the adapters of this machine, each
/// with whether it is software.
fn not_found(wanted: &Adapter, known: &[(DeviceInfo, bool)]) -> String {
    let names: Vec<_> = known.iter().map(|(info, _)| format!("{} ({})", info.name, info.details)).collect();
    let names = if names.is_empty() { "none".into() } else { names.join("; ") };
    match (wanted, known.iter().find(|(_, software)| *software)) {
        (Adapter::Named(name), _) => format!("no adapter has a name that contains `{name}`; adapters: {names}"),
        (Adapter::Best, None) => format!("no GPU was found; adapters: {names}"),
        (Adapter::Best, Some((info, _))) => {
            let name = info.name.split(" (").next().unwrap_or(&info.name);
            format!(
                "no GPU was found, only software that emulates one: {names}; it runs if it is named, as \
                 `Adapter::Named({name:?}.into())`, but `Device::Cpu` is faster"
            )
        }
    }
}

fn is_software(adapter: &wgpu::Adapter) -> bool {
    adapter.get_info().device_type == wgpu::DeviceType::Cpu
}

/// Returns the rank of an adapter: the best has the largest, and software has 0. If several
/// interfaces have the same GPU, DX12 ranks last, because its compiler may lack subgroups.
fn rank(adapter: &wgpu::Adapter) -> u32 {
    let info = adapter.get_info();
    let kind = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => 4,
        wgpu::DeviceType::IntegratedGpu => 3,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 1,
        wgpu::DeviceType::Cpu => return 0,
    };
    2 * kind + u32::from(info.backend != wgpu::Backend::Dx12)
}

/// Opens an adapter with all features that kernels can use and `allowed` permits.
///
/// # Errors
/// [`Error::Device`] if the driver refuses.
pub(super) fn open(adapter: &wgpu::Adapter, allowed: &GpuLimits) -> Result<Context> {
    let info = adapter.get_info();
    let has = adapter.features();
    let subgroups = if allowed.subgroups { wgpu::Features::SUBGROUP } else { wgpu::Features::empty() };
    let used = subgroups | wgpu::Features::SHADER_F16 | wgpu::Features::TIMESTAMP_QUERY;
    let matrices = allowed.matrices
        && allowed.subgroups
        && has.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX | wgpu::Features::SHADER_F16)
        && info.subgroup_min_size == info.subgroup_max_size
        && adapter.cooperative_matrix_properties().iter().any(is_f16_16x16);
    let mut features = has & used;
    let mut experimental = wgpu::ExperimentalFeatures::disabled();
    if matrices {
        features |= wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
        // SAFETY: the only experimental feature that kernels use is matrices, and the self-test
        // compares their results with known ones.
        experimental = unsafe { wgpu::ExperimentalFeatures::enabled() };
    }
    let limits = adapter.limits();
    let traits = Traits {
        software: is_software(adapter),
        subgroup: features
            .contains(wgpu::Features::SUBGROUP)
            .then_some(info.subgroup_min_size)
            .filter(|size| *size >= 4),
        matrices,
        workgroup: limits
            .max_compute_invocations_per_workgroup
            .min(limits.max_compute_workgroup_size_x)
            .min(allowed.workgroup),
        workgroup_bytes: limits.max_compute_workgroup_storage_size,
        storage_buffers: limits.max_storage_buffers_per_shader_stage,
        binding_bytes: limits.max_storage_buffer_binding_size.min(allowed.binding_bytes),
        buffer_bytes: limits.max_buffer_size,
        alignment: u64::from(limits.min_storage_buffer_offset_alignment.max(16)),
        timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
        choices: GpuChoices::default(),
    };
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("inkstone"),
        required_features: features,
        required_limits: limits,
        experimental_features: experimental,
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        trace: wgpu::Trace::Off,
    };
    let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
        .map_err(|error| Error::Device { device: info.name.clone(), what: error.to_string() })?;
    Context::new(info.name, device, queue, traits)
}

/// Returns the bytes of the largest heap of device memory. Only Vulkan reports it.
#[cfg(all(feature = "wgpu", not(target_vendor = "apple")))]
fn memory(adapter: &wgpu::Adapter) -> Option<u64> {
    /// `VK_MEMORY_HEAP_DEVICE_LOCAL_BIT`.
    const DEVICE_LOCAL: u32 = 1;
    // SAFETY: the handles are used while the adapter exists, and only for queries.
    unsafe {
        let vulkan = adapter.as_hal::<wgpu::hal::api::Vulkan>()?;
        let instance = vulkan.shared_instance().raw_instance();
        let properties = instance.get_physical_device_memory_properties(vulkan.raw_physical_device());
        let local = properties.memory_heaps_as_slice().iter().filter(|heap| heap.flags.as_raw() & DEVICE_LOCAL != 0);
        local.map(|heap| heap.size).max()
    }
}

#[cfg(not(all(feature = "wgpu", not(target_vendor = "apple"))))]
fn memory(_: &wgpu::Adapter) -> Option<u64> {
    None
}

/// Returns whether the shape is a product of 16 by 16 matrices of f16 with f32 sums.
fn is_f16_16x16(shape: &wgpu::CooperativeMatrixProperties) -> bool {
    let sizes = [shape.m_size, shape.n_size, shape.k_size];
    sizes == [16; 3]
        && shape.ab_type == wgpu::CooperativeScalarType::F16
        && shape.cr_type == wgpu::CooperativeScalarType::F32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str, details: &str) -> DeviceInfo {
        DeviceInfo {
            name: name.into(),
            details: details.into(),
            threads: 1,
            memory: None,
            fallback: None,
            profile: None,
        }
    }

    #[test]
    fn error_of_a_missing_gpu_says_what_helps() {
        let software = info("llvmpipe (LLVM 15.0.6, 256 bits)", "Vulkan, llvmpipe Mesa 22.3.6, software");
        let error = not_found(&Adapter::Best, &[(software.clone(), true)]);
        assert!(error.contains("only software that emulates one: llvmpipe (LLVM 15.0.6"), "{error}");
        assert!(error.contains(r#"`Adapter::Named("llvmpipe".into())`"#), "{error}");
        // The other adapter is not a GPU either.
        let odd = info("Odd", "Vulkan, none");
        assert!(not_found(&Adapter::Best, &[(odd, false), (software, true)]).contains(r#"Named("llvmpipe""#));
        assert_eq!(not_found(&Adapter::Best, &[]), "no GPU was found; adapters: none");
        let named = not_found(&Adapter::Named("H200".into()), &[(info("A", "B"), true)]);
        assert_eq!(named, "no adapter has a name that contains `H200`; adapters: A (B)");
    }
}
