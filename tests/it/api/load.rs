//! Tests of many requests at once with a cache that is too small for all: each text is that of its
//! request alone, requests come in the order of their priorities, and no page is lost.

use std::{
    io::{self, Write},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use inkstone::{
    Error, GenerateOptions, GenerateRequest, LogitsFor, Runner, SamplerOptions, Statistics, internals::generate::Limits,
};

use crate::support::{
    graphs::Random,
    on_cpu,
    recorder::{Recorder, history},
    tiny::{MODELS, RECURRENT, Tiny},
};

const CONTEXT: usize = 192;
const THREADS: usize = 16;
/// The largest numbers of tokens of a prompt and of a text.
const PROMPT: usize = 120;
const TEXT: usize = 60;

/// A request, and what its client does with it.
struct Load {
    prompt: Vec<u32>,
    options: GenerateOptions,
    /// The number of tokens after which the client stops reading.
    reads: usize,
    end: End,
}

/// The way in which a client stops reading.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// By the handle of the text.
    Stops,
    /// By dropping the text; the conversation goes on with another text.
    Drops,
    /// By dropping the runner, too.
    Disconnects,
    /// Half of the texts come together.
    Together,
}

impl Load {
    fn new(number: usize) -> Self {
        let mut random = Random::new(number as u64);
        let temperature = [0.0, 0.8][random.below(2)];
        let options = GenerateOptions {
            sampler: SamplerOptions { temperature, seed: Some(number as u64), ..Default::default() },
            max_tokens: Some(1 + random.below(TEXT)),
            priority: [0, 0, -1, 3][random.below(4)],
            ..Default::default()
        };
        // Some prompts begin alike.
        let start = random.below(4) as u32;
        let prompt = (0..1 + random.below(PROMPT)).map(|n| if n < 9 { start } else { random.below(300) as u32 });
        let (prompt, reads) = (prompt.collect(), [usize::MAX, usize::MAX, random.below(20)][random.below(3)]);
        let end = [End::Stops, End::Drops, End::Disconnects, End::Together][random.below(4)];
        Self { prompt, options, reads, end }
    }

    /// Returns the ids that a runner generates, up to the one after which the client has stopped.
    fn run(&self, runner: &mut Runner) -> Vec<u32> {
        let mut generation = runner.generate(&self.prompt[..], &self.options).unwrap().past_the_end();
        let stop = generation.stop_handle();
        loop {
            if generation.ids().len() >= self.reads {
                if self.end != End::Stops {
                    return generation.ids().to_vec();
                }
                stop.stop();
            }
            match generation.next() {
                Some(piece) => drop(piece.unwrap()),
                None => return generation.ids().to_vec(),
            }
        }
    }
}

/// Runs requests on threads that share a cache of a quarter of the pages that they need, and
/// returns the statistics at the end.
fn loaded(tiny: Tiny, count: usize) -> Statistics {
    let builder = on_cpu().threads(1).context_length(CONTEXT).prefill_chunk(32);
    let alone = Mutex::new(builder.from_gguf(tiny.path()).unwrap());
    let plan = builder.plan(tiny.path()).unwrap();
    let pages = THREADS * (PROMPT + TEXT).div_ceil(64) / 4;
    let limit = plan.total() - plan.cache() + plan.cache() * pages as u64 / CONTEXT.div_ceil(64) as u64;
    let model = builder.memory_limit(limit).from_gguf(tiny.path()).unwrap();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut runner = model.clone();
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= count {
                        return;
                    }
                    let load = Load::new(number);
                    let (ids, expected) = (load.run(&mut runner), load.run(&mut alone.lock().unwrap()));
                    // Where a client stops depends on the pieces that it gets.
                    let len = if load.reads == usize::MAX { expected.len() } else { ids.len().min(expected.len()) };
                    assert!(len >= load.reads.min(expected.len()) && ids[..len] == expected[..len], "{number}");
                    if load.end == End::Disconnects {
                        runner = model.clone();
                    }
                    if load.end == End::Together {
                        let requests = || (0..3).map(|n| Load::new(number + n)).map(|load| (load.prompt, load.options));
                        let texts = |runner: &mut Runner| {
                            let texts = runner.generate_many(requests().map(GenerateRequest::from), |_, _| true);
                            texts.unwrap().into_iter().map(|text| text.ids).collect::<Vec<_>>()
                        };
                        assert_eq!(texts(&mut runner), texts(&mut alone.lock().unwrap()), "{number}");
                    }
                }
            });
        }
    });
    model.statistics()
}

fn check(name: &str, statistics: Statistics) {
    assert!(statistics.preemptions > 0 && statistics.recomputed_tokens > 0, "{name}: {statistics:?}");
    assert!(statistics.cache_limit.is_some(), "{name}");
    let Statistics { running, waiting, short_of_memory, sequences, pages, cache_bytes, .. } = statistics;
    // The model itself has an empty sequence.
    assert_eq!(([running, waiting, short_of_memory, pages], sequences, cache_bytes), ([0; 4], 1, 0), "{name}");
    assert_eq!(statistics.step_times.iter().sum::<u64>(), statistics.steps, "{name}");
}

#[test]
fn texts_under_load_are_those_alone() {
    for tiny in [MODELS[0], RECURRENT, Tiny("gemma3", 0.0)] {
        check(tiny.0, loaded(tiny, 100));
    }
}

#[test]
#[ignore = "takes minutes: it shows that memory stays flat"]
fn ten_thousand_texts_under_load_are_those_alone() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        status.lines().find(|line| line.starts_with("VmRSS")).map(str::to_owned)
    };
    check(MODELS[0].0, loaded(MODELS[0], 500));
    println!("after 500: {:?}", resident());
    let statistics = loaded(MODELS[0], 10_000);
    println!("after 10,000: {:?}, {statistics:?}", resident());
    check(MODELS[0].0, statistics);
}

/// A writer whose first write tells that it waits, and waits for a word.
struct Waiting(Option<(Sender<()>, Receiver<()>)>);

impl Write for Waiting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some((started, finish)) = self.0.take() {
            started.send(()).unwrap();
            finish.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// While a session that is saved has all memory of the cache, requests wait, and go on by their
/// priorities.
#[test]
fn requests_wait_for_memory_and_come_by_priority() {
    let builder = on_cpu().threads(1).context_length(128).max_waiting(2);
    let limit = builder.plan(MODELS[0].path()).unwrap().total();
    let model = builder.memory_limit(limit).from_gguf(MODELS[0].path()).unwrap();
    let ended = Mutex::new(vec![]);
    let run = |number: usize, priority: i8| {
        let sampler = SamplerOptions::greedy();
        let options = GenerateOptions { sampler, priority, max_tokens: Some(3), ..Default::default() };
        let text = model.clone().generate(&[7; 100], &options).unwrap().into_text();
        ended.lock().unwrap().push(number);
        text
    };
    let (started, starts) = channel();
    let (finish, finishes) = channel();
    thread::scope(|scope| {
        let mut holder = model.clone();
        scope.spawn(move || {
            holder.prefill(&[5; 100]).unwrap();
            holder.save(&mut Waiting(Some((started, finishes)))).unwrap();
        });
        starts.recv().unwrap();
        let await_waiting = |count: usize| {
            while model.statistics().short_of_memory < count {
                thread::yield_now();
            }
        };
        let low = scope.spawn(|| run(0, -2));
        await_waiting(1);
        let higher = scope.spawn(|| run(1, -1));
        await_waiting(2);
        let refused = run(2, -1).unwrap_err();
        assert!(matches!(refused, Error::Busy { limit: 2 }), "{refused}");
        finish.send(()).unwrap();
        assert_eq!(low.join().unwrap().unwrap(), higher.join().unwrap().unwrap());
    });
    assert_eq!(ended.into_inner().unwrap(), [2, 1, 0]);
    assert_eq!(model.statistics().preemptions, 0);
}

#[test]
fn statistics_do_not_wait_for_a_step() {
    let (started, starts) = channel();
    let (finish, finishes) = channel();
    let limits = Limits { vocab_size: 4, max_tokens: 8, max_outputs: 8 };
    let logits_of = move |ids: &[u32]| {
        started.send(()).unwrap();
        finishes.recv_timeout(Duration::from_secs(60)).unwrap();
        vec![history(ids) as f32; 4]
    };
    let mut decoder = Recorder::new(limits, logits_of).into_decoder(50);
    let observer = decoder.clone();
    thread::scope(|scope| {
        scope.spawn(move || {
            let sequence = decoder.open();
            decoder.step(&[(sequence, &[1, 2], LogitsFor::Last)]).unwrap();
        });
        starts.recv().unwrap();
        let statistics = observer.statistics();
        assert_eq!((statistics.running, statistics.steps, statistics.sequences), (1, 0, 1));
        finish.send(()).unwrap();
    });
    assert_eq!((observer.statistics().steps, observer.statistics().tokens), (1, 2));
}
