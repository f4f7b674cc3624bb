//! Formats profiles of prompts or tokens as a table or as JSON: the time of each op.

use std::{cmp::Reverse, fmt, time::Duration};

use inkstone::OpTime;

/// Name of the time outside of steps: sampling, page tables, the caller.
const BETWEEN: &str = "between steps";

/// The times of several prompts or tokens, and of the ops in their steps.
#[derive(Default)]
pub struct Profile {
    ops: Vec<OpTime>,
    wall: Duration,
    /// Number of prompts or tokens.
    items: usize,
}

#[allow(dead_code, reason = "the example and the benchmark compile this file and use a part of it")]
impl Profile {
    /// Adds the total time of `items` prompts or tokens, and of their ops.
    pub fn add(&mut self, items: usize, wall: Duration, ops: Vec<OpTime>) {
        self.items += items;
        self.wall += wall;
        for op in ops {
            match self.ops.iter_mut().find(|known| known.op == op.op) {
                Some(known) => {
                    known.calls += op.calls;
                    known.time += op.time;
                    known.bytes += op.bytes;
                }
                None => self.ops.push(op),
            }
        }
    }

    /// Returns the share of the total time that the selected ops took.
    pub fn share(&self, is_selected: impl Fn(&str) -> bool) -> f64 {
        let times = self.ops.iter().filter(|op| is_selected(op.op)).map(|op| op.time);
        times.sum::<Duration>().as_secs_f64() / self.wall.as_secs_f64()
    }

    /// Returns the bytes of weights and cache that a prompt or token reads.
    pub fn bytes(&self) -> f64 {
        self.ops.iter().map(|op| op.bytes).sum::<u64>() as f64 / self.items as f64
    }

    /// Returns a JSON array with an object for each op.
    pub fn json(&self) -> String {
        let objects = self.lines().map(|Line { op, calls, micros, share, rate }| {
            let rate = rate.map_or("null".into(), |rate| format!("{rate:.2}"));
            format!("{{\"op\":\"{op}\",\"calls\":{calls},\"us\":{micros:.2},\"share\":{share:.4},\"gb_s\":{rate}}}")
        });
        format!("[{}]", objects.collect::<Vec<_>>().join(","))
    }

    /// Returns the ops, longest first, then the time outside of steps.
    fn lines(&self) -> impl Iterator<Item = Line> {
        let mut ops = self.ops.clone();
        ops.sort_by_key(|op| Reverse(op.time));
        let time = self.wall.saturating_sub(ops.iter().map(|op| op.time).sum());
        ops.push(OpTime { op: BETWEEN, calls: self.items as u64, time, bytes: 0 });
        ops.into_iter().map(|op| Line {
            op: op.op,
            calls: op.calls as f64 / self.items as f64,
            micros: 1e6 * op.time.as_secs_f64() / self.items as f64,
            share: op.time.as_secs_f64() / self.wall.as_secs_f64(),
            rate: (op.bytes > 0).then(|| op.bytes as f64 / op.time.as_secs_f64() / 1e9),
        })
    }
}

/// The mean values of an op per prompt or token.
struct Line {
    op: &'static str,
    calls: f64,
    micros: f64,
    share: f64,
    /// Rate of reading weights or cache, in GB/s.
    rate: Option<f64>,
}

/// Formats one line per op, and one for the total.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  op                calls          µs   share    GB/s")?;
        for Line { op, calls, micros, share, rate } in self.lines() {
            let rate = rate.map_or(String::new(), |rate| format!("{rate:8.1}"));
            writeln!(f, "  {op:<16}{calls:7.0}{micros:12.1}{:7.1}%{rate}", 100.0 * share)?;
        }
        let seconds = self.wall.as_secs_f64() / self.items as f64;
        write!(f, "  {:<23}{:12.1}{:7.1}%{:8.1}", "all", 1e6 * seconds, 100.0, self.bytes() / seconds / 1e9)
    }
}
