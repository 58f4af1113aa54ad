//! Figures for metrics: [`Histogram`], and [`StoreFigures`], what a store counts itself.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A histogram that one thread writes, and any thread reads.
///
/// Invariant: a reader sees each value at most once. It may see a value in its bucket and not yet in the sum.
///
/// Cost: an addition is a search among the bounds from the smallest on, and two loads and stores without a lock.
///
/// ```
/// use polyserve_core::figures::Histogram;
/// let histogram = Histogram::new(&[1, 10]);
/// [1, 2, 11].into_iter().for_each(|value| histogram.add(value));
/// let counted = histogram.read();
/// assert_eq!((&counted.counts[..], counted.sum), (&[1, 1, 1][..], 14));
/// ```
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// The number of values within each bound, and of those beyond the last one.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// Creates a histogram without a value. `bounds`: the largest value of each bucket, in ascending order.
    pub fn new(bounds: &'static [u64]) -> Self {
        Self { bounds, counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(), sum: AtomicU64::new(0) }
    }

    /// Adds a value. If two threads add at the same time, a value may be lost.
    #[inline]
    pub fn add(&self, value: u64) {
        // Most values are small, so the search begins at the first bound. A large value is that of something that took longer than this.
        let bucket = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        if let Some(count) = self.counts.get(bucket) {
            add_alone(count, 1);
        }
        add_alone(&self.sum, value);
    }

    /// Returns the values so far.
    pub fn read(&self) -> HistogramCounts {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        HistogramCounts { bounds: self.bounds, counts, sum: self.sum.load(Ordering::Relaxed) }
    }
}

/// Adds to a counter that only this thread writes.
#[inline]
fn add_alone(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
}

/// The values of a [`Histogram`] at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistogramCounts {
    /// The largest value of each bucket but the last, which has no bound.
    pub bounds: &'static [u64],
    /// The number of values in each bucket.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub sum: u64,
}

impl HistogramCounts {
    /// Adds the values of a histogram with the same bounds.
    pub fn merge(&mut self, other: &Self) {
        for (count, other) in self.counts.iter_mut().zip(&other.counts) {
            *count += other;
        }
        self.sum += other.sum;
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The bounds of a histogram of durations, in nanoseconds: a request in memory takes some microseconds, and one that waits for an
/// engine or a disk takes milliseconds.
pub const DURATION_BOUNDS: [u64; 19] = {
    let mut bounds = [
        10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
        2_500_000, 5_000_000, 10_000_000,
    ];
    let mut index = 0;
    while index < bounds.len() {
        bounds[index] *= 1_000;
        index += 1;
    }
    bounds
};

/// What a store counts itself, for metrics: [`EntityRepo::figures`](crate::EntityRepo::figures). It is read while the store works,
/// and after its end.
pub trait StoreFigures: fmt::Debug + Send + Sync {
    /// Returns the figures of this moment.
    fn read(&self) -> Vec<StoreFigure>;
}

/// A figure of a store.
///
/// ```
/// use polyserve_core::figures::{FigureValue, StoreFigure};
/// let figure = StoreFigure::new("polyserve_tree_rotations", "Rotations of the tree", FigureValue::Count(7));
/// assert_eq!(figure.name, "polyserve_tree_rotations");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreFigure {
    /// The name, in the form of Prometheus, without the unit and without `_total`, which the kind of the value adds.
    pub name: &'static str,
    /// One sentence without a full stop.
    pub help: &'static str,
    /// The value.
    pub value: FigureValue,
}

impl StoreFigure {
    /// Creates a figure.
    pub const fn new(name: &'static str, help: &'static str, value: FigureValue) -> Self {
        Self { name, help, value }
    }
}

/// The value of a [`StoreFigure`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FigureValue {
    /// A number that only grows.
    Count(u64),
    /// A number of bytes that are in use now.
    Bytes(u64),
    /// Durations, in nanoseconds.
    Durations(HistogramCounts),
    /// Sizes, as numbers.
    Sizes(HistogramCounts),
}

impl FigureValue {
    /// Adds the value of the same figure of another store.
    pub fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Count(value), Self::Count(other)) | (Self::Bytes(value), Self::Bytes(other)) => *value += other,
            (Self::Durations(value), Self::Durations(other)) | (Self::Sizes(value), Self::Sizes(other)) => {
                value.merge(other);
            }
            _ => {} // one name has one kind of value
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_within_its_bound() {
        let histogram = Histogram::new(&DURATION_BOUNDS);
        let microseconds = [0, 10, 10_000_000].map(|microseconds| microseconds * 1_000);
        for nanoseconds in microseconds.into_iter().chain([10_001, 10_000_000_001]) {
            histogram.add(nanoseconds);
        }
        let HistogramCounts { counts, .. } = histogram.read();
        assert_eq!((counts[0], counts[1], counts[18], counts[19]), (2, 1, 1, 1));
    }

    #[test]
    fn figures_of_two_stores_are_added() {
        let histogram = Histogram::new(&[1]);
        histogram.add(1);
        for value in [FigureValue::Count(2), FigureValue::Bytes(2), FigureValue::Sizes(histogram.read())] {
            let mut sum = value.clone();
            sum.merge(&value);
            match sum {
                FigureValue::Count(sum) | FigureValue::Bytes(sum) => assert_eq!(sum, 4),
                FigureValue::Sizes(counted) | FigureValue::Durations(counted) => {
                    assert_eq!((counted.count(), counted.sum), (2, 2));
                }
            }
        }
    }
}
