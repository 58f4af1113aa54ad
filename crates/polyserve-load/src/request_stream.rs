//! The order of a thread's requests.
//!
//! Invariant: the sequence is a function of the traffic, its seed, its part and the thread's number. Cost: at most two
//! random numbers a request.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::mix::Mix;
use crate::traffic::{ExchangeGroup, Exchanges, Traffic, TrafficPlan};

/// One request of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PlannedRequest {
    /// GET of a key.
    Get(u32),
    /// GET of a key after the server has acknowledged an update: the first row would be a wrong answer.
    GetUpdated(u32),
    /// PUT of a key's row.
    Put(u32, u32),
    /// An exchange of the list.
    Fixed(u32),
}

/// The requests of a thread, in order.
#[derive(Debug)]
pub(crate) struct RequestStream {
    plan: Arc<TrafficPlan>,
    random: ChaCha8Rng,
    next: usize,
    is_filling: bool,
}

impl RequestStream {
    /// Returns the next request.
    pub(crate) fn next(&mut self) -> PlannedRequest {
        match &*self.plan {
            TrafficPlan::Entities(_) if self.is_filling => {
                self.next += 1;
                PlannedRequest::Put((self.next - 1) as u32, 0)
            }
            TrafficPlan::Entities(entities) => {
                let key = entities.picker.pick(self.random.next_u64());
                let Mix { get, put } = entities.mix;
                if put == 0 {
                    return PlannedRequest::Get(key);
                }
                let wide = u128::from(self.random.next_u64()) * (u128::from(get) + u128::from(put));
                // The integer part decides between GET and PUT. The first bit of the fraction chooses the update.
                match (wide >> 64) as u64 {
                    part if part < u64::from(get) => PlannedRequest::Get(key),
                    _ => PlannedRequest::Put(key, 1 + (wide >> 63 & 1) as u32),
                }
            }
            TrafficPlan::Exchanges(Exchanges { order, groups, .. }) => {
                let at = self.next;
                self.next = if at + 1 == order.len() { 0 } else { at + 1 };
                let ExchangeGroup { first, count, .. } = groups[order[at] as usize];
                let id = if count == 1 { 0 } else { (u64::from(self.random.next_u32()) * u64::from(count)) >> 32 };
                PlannedRequest::Fixed(first + id as u32)
            }
        }
    }
}

/// The bits of a stream's number that hold the thread's number.
const THREAD_BITS: u32 = 16;

impl Traffic {
    /// Returns the requests of thread number `thread` of `threads`.
    pub(crate) fn request_stream(&self, thread: usize, threads: usize) -> RequestStream {
        let next = match &*self.plan {
            TrafficPlan::Exchanges(Exchanges { order, .. }) => {
                let first = if self.part == 0 { 0 } else { self.random(5, 0).next_u32() as usize };
                (first + order.len() * thread / threads.max(1)) % order.len()
            }
            TrafficPlan::Entities(_) => 0,
        };
        let random = self.random(3, thread);
        RequestStream { plan: Arc::clone(&self.plan), random, next, is_filling: self.is_filling }
    }

    /// Returns the random numbers of the due times of a thread.
    pub(crate) fn arrival_stream(&self, thread: usize) -> ChaCha8Rng {
        self.random(4, thread)
    }

    /// Returns the random numbers of the pauses before further attempts of a thread.
    pub(crate) fn pause_stream(&self, thread: usize) -> ChaCha8Rng {
        self.random(6, thread)
    }

    /// Returns the random numbers of a thread in this part, for one use. `data` has the uses 0, 1 and 2.
    fn random(&self, usage: u8, thread: usize) -> ChaCha8Rng {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.seed.to_le_bytes());
        key[8] = usage;
        let mut random = ChaCha8Rng::from_seed(key);
        random.set_stream(self.part << THREAD_BITS | thread as u64);
        random
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Data;
    use crate::dist::Dist;
    use crate::traffic::Exchange;
    use std::collections::{HashMap, HashSet};

    fn entities(keys: u64, mix: &str, seed: u64) -> Traffic {
        Traffic::entities(&Data::new(1), keys, Dist::Uniform, mix.parse().unwrap(), seed).unwrap()
    }

    fn drawn(traffic: &Traffic, thread: usize, count: usize) -> Vec<PlannedRequest> {
        let mut stream = traffic.request_stream(thread, 4);
        (0..count).map(|_| stream.next()).collect()
    }

    #[test]
    fn a_seed_and_a_thread_give_one_sequence() {
        let sequence = |seed, thread| drawn(&entities(1_000, "get=1,put=1", seed), thread, 500);
        assert_eq!(sequence(7, 0), sequence(7, 0));
        assert!(sequence(7, 0) != sequence(8, 0) && sequence(7, 0) != sequence(7, 1));
    }

    /// Regression test: every slice of a comparison requested the same first entities: 10,000 of a million.
    #[test]
    fn parts_request_the_entities_that_were_announced() {
        let traffic = entities(1_000_000, "get=1", 0);
        let keys = |part: u64| drawn(&traffic.part(part), 1, 5_000);
        let distinct: HashSet<_> = (0..100).flat_map(keys).collect();
        // 500,000 uniform draws from a million keys find 1 - exp(-1/2) of them: 393,469, with a standard deviation of 344.
        assert!(distinct.len().abs_diff(393_469) < 2_000, "{}", distinct.len());
        assert_eq!(keys(3), keys(3));
    }

    /// Regression test: every slice of a comparison began with the first of the requests.
    #[test]
    fn parts_of_requests_in_turn_begin_anywhere() {
        let exchange = |at: u32| Exchange::new("GET", &format!("/{at}"));
        let traffic = Traffic::expecting((0..100).map(exchange).collect()).unwrap();
        let starts = |part: u64| drawn(&traffic.part(part), 1, 5);
        let distinct: HashSet<_> = (1..=200).flat_map(starts).collect();
        assert_eq!(distinct.len(), 100, "200 parts of five requests leave none out");
        assert_eq!(starts(3), starts(3));
        assert_eq!(drawn(&traffic, 0, 1), [PlannedRequest::Fixed(0)], "part 0 begins with the first");
    }

    /// Exact counts of one seed, within five standard deviations of the weights.
    #[test]
    fn a_mix_is_kept_to() {
        let mut counts: HashMap<&str, u32> = HashMap::new();
        for planned in drawn(&entities(10, "get=95,put=5", 0), 0, 100_000) {
            let name = match planned {
                PlannedRequest::Get(key) => {
                    assert!(key < 10);
                    "get"
                }
                PlannedRequest::Put(key, version) => {
                    assert!(key < 10);
                    ["", "first", "second"][version as usize]
                }
                PlannedRequest::GetUpdated(_) | PlannedRequest::Fixed(_) => panic!("neither is drawn"),
            };
            *counts.entry(name).or_default() += 1;
        }
        assert!(counts["get"].abs_diff(95_000) < 350, "{counts:?}");
        assert!(counts["first"].abs_diff(2_500) < 250 && counts["second"].abs_diff(2_500) < 250, "{counts:?}");
        let only = |mix| {
            drawn(&entities(10, mix, 0), 0, 1_000).iter().all(|planned| matches!(planned, PlannedRequest::Get(_)))
        };
        assert!(only("get=1") && !only("get=1,put=1"));
        assert!(
            drawn(&entities(10, "put=1", 0), 0, 1_000).iter().all(|planned| matches!(planned, PlannedRequest::Put(..)))
        );
    }

    #[test]
    fn exchanges_come_in_turn_and_threads_begin_apart() {
        let all = (0..8).map(|i| Exchange::new("GET", &format!("/{i}"))).collect();
        let traffic = Traffic::expecting(all).unwrap();
        let fixed = |sequence: &[u32]| sequence.iter().map(|at| PlannedRequest::Fixed(*at)).collect::<Vec<_>>();
        assert_eq!(drawn(&traffic, 0, 9), fixed(&[0, 1, 2, 3, 4, 5, 6, 7, 0]));
        assert_eq!(drawn(&traffic, 3, 3), fixed(&[6, 7, 0]));
    }

    /// A request with many ids has one weight, and each part draws other ids.
    #[test]
    fn ids_are_drawn_evenly_from_their_range() {
        let many = Exchange::new("GET", "/{id}").with(|one| (one.ids, one.weight) = (Some(5..=104), 3));
        let put =
            Exchange::new("PUT", "/").with(|one| (one.ids, one.body) = (Some(7..=7), Some(b"{{id},{id}}".into())));
        let traffic = Traffic::expecting(vec![Exchange::new("GET", "/a"), many, put]).unwrap();
        let TrafficPlan::Exchanges(Exchanges { all, .. }) = &*traffic.plan else { panic!("exchanges") };
        let last = &all[101];
        assert_eq!((all.len(), all[1].target.as_str(), all[100].target.as_str()), (102, "/5", "/104"));
        assert_eq!(last.body.as_deref(), Some(&b"{7,7}"[..]));
        let drawn_in = |part: u64| drawn(&traffic.part(part), 0, 5_000);
        let mut counts: HashMap<PlannedRequest, u32> = HashMap::new();
        drawn_in(1).into_iter().for_each(|planned| *counts.entry(planned).or_default() += 1);
        assert_eq!((counts[&PlannedRequest::Fixed(0)], counts[&PlannedRequest::Fixed(101)]), (1_000, 1_000));
        // 3,000 draws of 100 ids: 30 each, with a standard deviation of 5.4.
        assert!((1..=100).all(|id| counts[&PlannedRequest::Fixed(id)].abs_diff(30) < 27), "{counts:?}");
        assert!(drawn_in(1) == drawn_in(1) && drawn_in(1) != drawn_in(2));
        assert!(drawn(&traffic.seed(1), 0, 5_000) != drawn(&traffic, 0, 5_000), "another seed draws other ids");
    }

    #[test]
    fn a_weight_is_the_share_of_a_round() {
        let exchange = |(path, weight): (&str, u32)| Exchange::new("GET", path).with(|one| one.weight = weight);
        let traffic = Traffic::expecting([("/a", 1), ("/b", 4), ("/c", 2)].map(exchange).into()).unwrap();
        let round = |at: usize| drawn(&traffic, 0, 14)[at..at + 7].to_vec();
        assert_eq!(round(0), round(7));
        assert_eq!(round(0), [1, 2, 1, 0, 1, 2, 1].map(PlannedRequest::Fixed), "evenly spread");
    }
}
