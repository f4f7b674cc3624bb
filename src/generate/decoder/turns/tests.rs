use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use super::{super::engine::Engine, Turns};
use crate::{
    Result,
    backend::{Executable, Step},
    graph::Builder,
    kv_cache::{CacheLayout, CacheType, KvCache},
};

/// Records the calls of `set_shared`.
struct Recorder(Arc<Mutex<Vec<bool>>>);

impl Executable for Recorder {
    fn run(&mut self, _: &Step<'_>) -> Result<&[f32]> {
        Ok(&[])
    }

    fn set_shared(&mut self, shared: bool) {
        self.0.lock().unwrap().push(shared);
    }
}

fn turns() -> (Turns, Arc<Mutex<Vec<bool>>>) {
    let mut builder = Builder::new();
    let tokens = builder.tokens();
    let table = builder.weight("table", crate::DType::F32, 4, 4);
    let row = builder.embed(table, tokens);
    let layout = CacheLayout::new(&builder.finish(row).unwrap(), CacheType::F32).unwrap();
    let calls = Arc::<Mutex<Vec<bool>>>::default();
    (Turns::new(Engine::new(Box::new(Recorder(calls.clone())), KvCache::new(&layout, 8))), calls)
}

/// Keeps the engine in use until `jobs` threads wait for it; returns the names of the threads
/// that run the jobs, in order.
fn queue_jobs(turns: &Turns, jobs: usize) -> Vec<Option<String>> {
    let names = Mutex::new(vec![]);
    thread::scope(|scope| {
        turns.with_engine(|_| {
            for job in 0..jobs {
                let names = &names;
                scope.spawn(move || {
                    turns.with_engine(|_| names.lock().unwrap().push((job, thread::current().name().map(String::from))))
                });
                while turns.shared.waiting.load(super::Acquire) <= job {
                    thread::yield_now();
                }
            }
        });
    });
    let names = names.into_inner().unwrap();
    assert!(names.iter().map(|(job, _)| *job).eq(0..jobs), "jobs run in the order of their calls");
    names.into_iter().map(|(_, name)| name).collect()
}

#[test]
fn a_single_thread_uses_the_engine_directly() {
    let (turns, calls) = turns();
    for _ in 0..100 {
        assert_eq!(turns.with_engine(|_| thread::current().id()), thread::current().id());
    }
    assert!(turns.thread.get().is_none() && calls.lock().unwrap().is_empty());
}

#[test]
fn waiting_threads_are_served_in_order_by_the_engines_thread() {
    let (turns, calls) = turns();
    for round in 1..=20 {
        let names = queue_jobs(&turns, 3);
        assert!(names.iter().all(|name| name.as_deref() == Some("inkstone-engine")), "{names:?}");
        // The engine's thread may wait for more jobs before it releases the engine.
        let alone = (0..1000).any(|_| {
            thread::sleep(Duration::from_micros(100));
            turns.with_engine(|_| thread::current().id()) == thread::current().id()
        });
        assert!(alone, "round {round}");
    }
    let calls = calls.lock().unwrap();
    assert!(calls.chunks(2).all(|pair| pair == [true, false]), "{calls:?}");
}

#[test]
fn a_panic_reaches_only_its_caller() {
    let (turns, _) = turns();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        turns.with_engine(|_| {
            scope.spawn(|| {
                let result = catch_unwind(AssertUnwindSafe(|| turns.with_engine(|_| panic!("as the test wants"))));
                sender.send(result.is_err()).unwrap();
            });
            while turns.shared.waiting.load(super::Acquire) == 0 {
                thread::yield_now();
            }
        });
        assert!(receiver.recv().unwrap());
    });
    assert!(catch_unwind(AssertUnwindSafe(|| turns.with_engine(|_| panic!("as the test wants")))).is_err());
    assert_eq!(turns.with_engine(|_| 7), 7);
}

#[test]
fn every_call_of_several_threads_runs_once() {
    let (turns, _) = turns();
    let count = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..2000).for_each(|_| turns.with_engine(|_| *count.lock().unwrap() += 1)));
        }
    });
    assert_eq!(count.into_inner().unwrap(), 8000);
    let shared = turns.shared.clone();
    drop(turns);
    assert_eq!(Arc::strong_count(&shared), 1, "the engine's thread has ended");
}
