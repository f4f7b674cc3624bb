//! Makes samples of a struct such that every pair of its options occurs in one of them.

use std::collections::{BTreeSet, HashSet};

/// The choice of an option: its question, and the index of the answer.
type OptionChoice = (&'static str, usize);

/// Samples in a row that may have no new pair of answers before a struct's samples are taken to be
/// complete.
const PATIENCE: usize = 300;

/// Answers the questions of a sample at random.
pub(super) struct Choices {
    random: u64,
    answers: BTreeSet<OptionChoice>,
}

impl Choices {
    /// Picks one of the values.
    pub fn of<T: Clone>(&mut self, question: &'static str, values: &[T]) -> T {
        // A linear congruential generator, with the constants of Knuth's MMIX.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = (self.random >> 33) as usize % values.len();
        assert!(self.answers.insert((question, number)), "`{question}` is asked twice");
        values[number].clone()
    }

    /// Picks `true` or `false`.
    pub fn flag(&mut self, question: &'static str) -> bool {
        self.of(question, &[false, true])
    }

    /// Picks a value or none.
    pub fn option<T>(&mut self, question: &'static str, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag(question).then(|| make(self))
    }
}

/// Makes samples until every pair of answers that occurs has occurred.
pub(super) fn pairwise<T>(make: impl Fn(&mut Choices) -> T) -> Vec<T> {
    let (mut covered, mut samples, mut without_new) = (HashSet::new(), vec![], 0);
    let mut choices = Choices { random: 1, answers: BTreeSet::new() };
    while without_new < PATIENCE {
        choices.answers.clear();
        let sample = make(&mut choices);
        let before = covered.len();
        let answers = &choices.answers;
        covered.extend(answers.iter().flat_map(|a| answers.iter().map(move |b| (*a, *b))));
        without_new += 1;
        if covered.len() > before || samples.is_empty() {
            samples.push(sample);
            without_new = 0;
        }
    }
    samples
}

#[test]
fn every_pair_of_answers_occurs() {
    let samples = pairwise(|c| (c.of("a", &[0, 1, 2]), c.flag("b"), c.option("c", |c| c.of("d", &[0, 1, 2, 3]))));
    for a in 0..3 {
        for b in [false, true] {
            assert!(samples.iter().any(|sample| (sample.0, sample.1) == (a, b)));
        }
        for d in 0..4 {
            assert!(samples.iter().any(|sample| (sample.0, sample.2) == (a, Some(d))));
        }
        assert!(samples.iter().any(|sample| (sample.0, sample.2) == (a, None)));
    }
}
