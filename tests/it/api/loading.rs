//! Tests of the progress of loading, and of its cancellation.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
};

use inkstone::{Device, Error, Runner, RunnerBuilder};

use crate::support::{data, tiny::MODELS};

fn storyteller() -> PathBuf {
    data("storyteller/storyteller.gguf")
}

/// Returns every device of this machine.
fn devices() -> Vec<Device> {
    #[cfg(any(feature = "wgpu", feature = "metal"))]
    let adapters = inkstone::internals::backend::webgpu::Gpu::adapters();
    #[cfg(not(any(feature = "wgpu", feature = "metal")))]
    let adapters: Vec<inkstone::DeviceInfo> = vec![];
    let gpus = adapters.into_iter().map(|info| Device::Gpu(inkstone::Adapter::Named(info.name)));
    [Device::Cpu].into_iter().chain(gpus).collect()
}

fn builder(device: &Device) -> RunnerBuilder {
    Runner::builder().device(device.clone()).threads(2)
}

type Calls = Arc<Mutex<Vec<(u64, u64)>>>;

/// Records each call, and cancels at the call with this number.
fn noting(builder: RunnerBuilder, cancel_at: usize) -> (RunnerBuilder, Calls) {
    let calls = Calls::default();
    let noted = calls.clone();
    let loading = thread::current().id();
    let builder = builder.on_progress(move |ready, total| {
        assert_eq!(thread::current().id(), loading, "called in another thread");
        let mut calls = noted.lock().unwrap();
        calls.push((ready, total));
        calls.len() <= cancel_at
    });
    (builder, calls)
}

#[test]
fn progress_is_reported_from_start_to_end() {
    for device in devices() {
        let (builder, calls) = noting(builder(&device).threads(1), usize::MAX);
        let total = builder.plan(storyteller()).unwrap().weights;
        assert!(calls.lock().unwrap().is_empty(), "a plan loads nothing");
        builder.from_gguf(storyteller()).unwrap();
        let calls = calls.lock().unwrap();
        assert_eq!((calls[0], *calls.last().unwrap()), ((0, total), (total, total)), "{device:?}");
        assert!(calls.iter().all(|call| call.1 == total) && calls.is_sorted(), "{calls:?}");
        assert!(calls.len() >= 3, "none between: {calls:?}");
        assert!(calls.windows(2).all(|pair| pair[1].0 - pair[0].0 >= total / 16 || pair[1].0 == total), "{calls:?}");
    }
}

#[test]
fn loading_can_be_cancelled_at_any_call_and_retried() {
    for device in devices() {
        for cancel_at in 0..3 {
            let (cancelling, calls) = noting(builder(&device).threads(1), cancel_at);
            let error = cancelling.from_gguf(storyteller()).unwrap_err();
            assert!(matches!(error, Error::Cancelled), "{device:?}: {error}");
            assert_eq!(calls.lock().unwrap().len(), cancel_at + 1, "called after it was cancelled");
            assert_eq!(Arc::strong_count(&calls), 2);
            drop(cancelling);
            assert_eq!(Arc::strong_count(&calls), 1, "somebody keeps the callback");
        }
        let mut runner = builder(&device).from_gguf(storyteller()).unwrap();
        assert_eq!(runner.generate_ids(&[1, 2], 3, |_| true).unwrap().len(), 3);
    }
}

/// After a cancellation, the next device is not tried.
#[test]
fn cancelled_load_is_not_retried_on_another_device() {
    let (builder, calls) = noting(Runner::builder(), 0);
    assert!(matches!(builder.from_path(storyteller()), Err(Error::Cancelled)));
    assert_eq!(calls.lock().unwrap().len(), 1);
}

#[test]
fn loaded_model_drops_the_callback() {
    let (builder, calls) = noting(builder(&Device::Cpu), usize::MAX);
    let runner = builder.from_gguf(MODELS[0].path()).unwrap();
    drop(builder);
    assert_eq!(Arc::strong_count(&calls), 1);
    drop(runner);
}

#[test]
fn callback_panic_reaches_the_caller() {
    for panic_at in [0, 4 << 20] {
        let builder = builder(&Device::Cpu).threads(1).on_progress(move |ready, _| {
            assert!(ready < panic_at, "on purpose");
            true
        });
        let panic = catch_unwind(AssertUnwindSafe(|| builder.from_gguf(storyteller()).map(drop))).unwrap_err();
        assert!(panic.downcast_ref::<&str>().is_some_and(|what| what.contains("on purpose")));
    }
}
