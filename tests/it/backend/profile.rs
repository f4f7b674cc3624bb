//! Profiles: what devices note of where the time of steps goes.

use std::time::{Duration, Instant};

use inkstone::{Error, LogitsFor, internals::generate::Limits};

use super::{
    cpu::{backends_for, driver, quantized_model},
    ops::ragged,
};
use crate::support::{drive::label, interpret::Step, recorder::Recorder};

/// A prefill of two sequences, and a token of each after it.
fn steps() -> [Step; 2] {
    [ragged(&[(0, 0, 3), (1, 0, 2)], 90), ragged(&[(0, 3, 1), (1, 2, 1)], 90)]
}

/// The ops of the graph with their calls in two steps and the bytes that those read: whole
/// matrices, and of the cache two heads' keys and values of 32 floats for each position.
#[test]
fn ops_are_counted_with_the_bytes_that_they_read() {
    const POSITIONS: u64 = 3 + 2 + 4 + 3;
    let expected = [
        ("attention", 2, POSITIONS * 2 * 2 * 32 * 4),
        ("embed", 2, 0),
        ("matmul", 2, 2 * 90 * 272),
        ("matmul_add", 4, 2 * 256 * (132 + 1024)),
        ("matmul_joined", 2, 2 * (192 * 144 + 64 * 144 + 64 * 210)),
        ("matmul_swiglu", 2, 2 * 2 * 512 * 144),
        ("select_outputs", 2, 0),
    ];
    let (graph, weights) = quantized_model();
    for backend in backends_for(&graph) {
        let mut driver = driver(&*backend, &graph, &weights);
        driver.executable.set_profiling(true).unwrap();
        steps().iter().for_each(|step| drop(driver.run(step).unwrap()));
        let profile = driver.executable.take_profile();
        assert!(profile.is_sorted_by(|a, b| a.time >= b.time), "{}: {profile:?}", label(&*backend));
        let is_op = |name: &str| graph.nodes().iter().any(|node| node.op.name() == name);
        let (ops, others): (Vec<_>, Vec<_>) = profile.into_iter().partition(|entry| is_op(entry.op));
        let mut ops: Vec<_> = ops.into_iter().map(|entry| (entry.op, entry.calls, entry.bytes)).collect();
        ops.sort();
        assert_eq!(ops, expected, "{}", label(&*backend));
        assert!(others.iter().all(|entry| entry.calls > 0 && entry.bytes == 0), "{others:?}");
    }
}

/// They leave no time out and count none twice. A step may be interrupted where nobody times, but
/// not every one.
#[test]
fn times_add_up_to_those_of_the_steps() {
    let (graph, weights) = quantized_model();
    for backend in backends_for(&graph) {
        let mut driver = driver(&*backend, &graph, &weights);
        driver.executable.set_profiling(true).unwrap();
        let mut shares = (0..20).map(|_| {
            driver.executable.take_profile();
            let started = Instant::now();
            driver.run(&ragged(&[(0, 0, 40)], 90)).unwrap();
            let wall = started.elapsed();
            let noted: Duration = driver.executable.take_profile().iter().map(|entry| entry.time).sum();
            assert!(noted <= wall, "{}: {noted:?} of {wall:?}", label(&*backend));
            noted.as_secs_f64() / wall.as_secs_f64()
        });
        // A GPU of its own is idle while the driver prepares so short a step.
        let least = if backend.device().memory.is_some() { 0.0 } else { 0.8 };
        assert!(shares.any(|share| share > least), "{}", label(&*backend));
    }
}

#[test]
fn profiling_changes_no_result_and_can_be_left_off() {
    let (graph, weights) = quantized_model();
    for backend in backends_for(&graph) {
        let mut driver = driver(&*backend, &graph, &weights);
        let expected = steps().map(|step| driver.run(&step).unwrap());
        assert_eq!(driver.executable.take_profile(), [], "{}: on at first", label(&*backend));
        driver.executable.set_profiling(true).unwrap();
        assert!(steps().map(|step| driver.run(&step).unwrap()) == expected, "{}", label(&*backend));
        assert_ne!(driver.executable.take_profile(), []);
        assert_eq!(driver.executable.take_profile(), [], "{}: taken twice", label(&*backend));
        driver.run(&steps()[0]).unwrap();
        driver.executable.set_profiling(false).unwrap();
        driver.run(&steps()[0]).unwrap();
        assert_eq!(driver.executable.take_profile(), [], "{}: on after all", label(&*backend));
    }
}

#[test]
fn a_device_that_cannot_time_says_so() {
    let limits = Limits { vocab_size: 5, max_tokens: 4, max_outputs: 1 };
    let mut decoder = Recorder::new(limits, |_| vec![0.0; 5]).into_decoder(10);
    assert!(matches!(decoder.set_profiling(true), Err(Error::Unsupported(_))));
    decoder.set_profiling(false).unwrap();
    let sequence = decoder.open();
    decoder.step(&[(sequence, &[1, 2], LogitsFor::Last)]).unwrap();
    assert_eq!(decoder.take_profile(), []);
}
