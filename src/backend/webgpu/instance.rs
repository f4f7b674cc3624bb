//! Opens the process's connection to its GPU drivers.

use std::sync::LazyLock;

/// The connection, opened once: some drivers fail if several are opened and closed at the same
/// time.
static INSTANCE: LazyLock<wgpu::Instance> = LazyLock::new(|| {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
    // In debug builds wgpu's default writes the line of every expression into shaders, which makes
    // loading much slower, and looks for validation layers.
    descriptor.flags = wgpu::InstanceFlags::empty();
    without_wayland(&descriptor).unwrap_or_else(|| wgpu::Instance::new(descriptor))
});

/// Returns the process's connection to its GPU drivers.
pub(super) fn instance() -> &'static wgpu::Instance {
    &INSTANCE
}

/// Opens Vulkan, the only interface on Linux, without the extension for Wayland's windows.
///
/// With it, Mesa's layer that sorts devices connects to the compositor each time that devices are
/// listed, and libwayland writes an error to the standard error if there is no session: in a
/// container, or under a web server.
#[cfg(all(feature = "wgpu", target_os = "linux"))]
fn without_wayland(descriptor: &wgpu::InstanceDescriptor) -> Option<wgpu::Instance> {
    use wgpu::hal::{self, api::Vulkan, vulkan};

    let hal_descriptor = hal::InstanceDescriptor {
        name: "inkstone",
        flags: descriptor.flags,
        memory_budget_thresholds: descriptor.memory_budget_thresholds,
        backend_options: descriptor.backend_options.clone(),
        telemetry: None,
        display: None,
    };
    let remove_wayland: Box<vulkan::CreateInstanceCallback<'_>> =
        Box::new(|args| args.extensions.retain(|name| *name != c"VK_KHR_wayland_surface"));
    // SAFETY: wgpu uses this extension only to create a surface, which this crate never does, and
    // then checks that the instance has it. No other extension is removed or added.
    let opened = unsafe { vulkan::Instance::init_with_callback(&hal_descriptor, Some(remove_wayland)) };
    // SAFETY: the instance was just created, and has no other owner.
    opened.ok().map(|instance| unsafe { wgpu::Instance::from_hal::<Vulkan>(instance) })
}

#[cfg(not(all(feature = "wgpu", target_os = "linux")))]
fn without_wayland(_: &wgpu::InstanceDescriptor) -> Option<wgpu::Instance> {
    None
}
