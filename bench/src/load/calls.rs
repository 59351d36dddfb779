use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::LoadOptions;

/// The item that goes viral: the first by the Zipf law, too.
pub const VIRAL_ITEM: i64 = 1;

/// How many of its likes a client remembers, to take them back.
const RECENT_MAX: usize = 4_096;

/// One call of a client: the edges to set, as `fencepost.set_likes` takes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) items: Vec<i64>,
    pub(crate) users: Vec<i64>,
    pub(crate) likes: Vec<bool>,
}

/// The calls of one client, without end. They follow from the options and the client's number alone.
pub(crate) struct Calls {
    random: StdRng,
    ranks: Zipf<f64>,
    users: i64,
    viral_share: f64,
    unlike_share: f64,
    retry_share: f64,
    bulk: u32,
    /// Likes of this client that it has not taken back.
    recent: Vec<(i64, i64)>,
    last: Call,
}

impl Calls {
    /// The calls of the client with this number. The options have been checked.
    pub(crate) fn new(options: &LoadOptions, client: u32) -> Self {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&options.seed.to_le_bytes());
        seed[8..12].copy_from_slice(&client.to_le_bytes());
        Self {
            random: StdRng::from_seed(seed),
            ranks: Zipf::new(f64::from(options.items), options.zipf).expect("the options were checked"),
            users: options.users.into(),
            viral_share: options.viral_share,
            unlike_share: options.unlike_share,
            retry_share: options.retry_share,
            bulk: options.bulk,
            recent: Vec::new(),
            last: Call::default(),
        }
    }

    /// The next call.
    pub(crate) fn next(&mut self) -> &Call {
        let is_retry = !self.last.items.is_empty() && self.random.random_bool(self.retry_share);
        if !is_retry {
            self.last = Call::default();
            for _ in 0..self.bulk {
                let (item, user, liked) = self.edge();
                self.last.items.push(item);
                self.last.users.push(user);
                self.last.likes.push(liked);
            }
        }
        &self.last
    }

    fn edge(&mut self) -> (i64, i64, bool) {
        if !self.recent.is_empty() && self.random.random_bool(self.unlike_share) {
            let (item, user) = self.recent.swap_remove(self.random.random_range(..self.recent.len()));
            return (item, user, false);
        }
        let item = if self.random.random_bool(self.viral_share) { VIRAL_ITEM } else { self.ranked_item() };
        let user = self.random.random_range(1..=self.users);
        if self.recent.len() < RECENT_MAX {
            self.recent.push((item, user));
        } else {
            let forgotten = self.random.random_range(..RECENT_MAX);
            self.recent[forgotten] = (item, user);
        }
        (item, user, true)
    }

    fn ranked_item(&mut self) -> i64 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a rank is a whole number, at most that of the items"
        )]
        let item = self.ranks.sample(&mut self.random) as i64;
        item
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn calls(options: &LoadOptions, client: u32, n: usize) -> Vec<Call> {
        let mut calls = Calls::new(options, client);
        (0..n).map(|_| calls.next().clone()).collect()
    }

    #[test]
    fn a_clients_calls_follow_from_the_seed_and_its_number() {
        let options = LoadOptions { bulk: 3, retry_share: 0.1, ..LoadOptions::default() };
        let first = calls(&options, 0, 100);
        assert_eq!(first, calls(&options, 0, 100));
        assert_ne!(first, calls(&options, 1, 100));
        assert_ne!(first, calls(&LoadOptions { seed: 2, ..options }, 0, 100));
    }

    #[test]
    fn calls_stay_in_range_and_have_the_size_of_a_bulk() {
        let options = LoadOptions { bulk: 7, items: 10, users: 20, ..LoadOptions::default() };
        for call in calls(&options, 0, 1_000) {
            assert_eq!((call.items.len(), call.users.len(), call.likes.len()), (7, 7, 7));
            assert!(call.items.iter().all(|item| (1..=10).contains(item)), "{call:?}");
            assert!(call.users.iter().all(|user| (1..=20).contains(user)), "{call:?}");
        }
    }

    #[test]
    fn an_unlike_takes_back_a_like_of_the_same_client() {
        let options = LoadOptions { unlike_share: 0.4, ..LoadOptions::default() };
        let mut liked = HashSet::new();
        for call in calls(&options, 0, 10_000) {
            let edge = (call.items[0], call.users[0]);
            let is_known = liked.contains(&edge);
            assert!(call.likes[0] || is_known, "{call:?}");
            liked.insert(edge);
        }
    }

    #[test]
    fn shares_are_kept() {
        let options = LoadOptions {
            viral_share: 0.5,
            unlike_share: 0.2,
            retry_share: 0.1,
            items: 1_000_000,
            zipf: 0.0,
            ..LoadOptions::default()
        };
        let calls = calls(&options, 0, 50_000);
        let share = |n: usize| n as f64 / calls.len() as f64;
        let unlikes = share(calls.iter().filter(|call| !call.likes[0]).count());
        let viral = share(calls.iter().filter(|call| call.items[0] == VIRAL_ITEM).count());
        let retries = share(calls.windows(2).filter(|pair| pair[0] == pair[1]).count());
        assert!((0.18..0.22).contains(&unlikes), "{unlikes}");
        assert!((0.48..0.52).contains(&viral), "{viral}");
        assert!((0.09..0.11).contains(&retries), "{retries}");
    }

    #[test]
    fn by_the_zipf_law_the_first_item_is_liked_twice_as_often_as_the_second() {
        let options = LoadOptions { zipf: 1.0, items: 100, ..LoadOptions::default() };
        let calls = calls(&options, 0, 100_000);
        let count = |item| calls.iter().filter(|call| call.items[0] == item).count() as f64;
        let ratio = count(1) / count(2);
        assert!((1.9..2.1).contains(&ratio), "{ratio}");
    }
}
