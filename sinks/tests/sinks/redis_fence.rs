//! Every branch of the script, on a real Redis.

use std::collections::BTreeMap;

use fencepost_model::placement::{LANES, lane};
use fencepost_model::{CutKind, Fence};
use fencepost_sinks::{Buildable, CountsReader, Offer, Outcome, RedisConfig, RedisStore, Store, StoreError};

use crate::redis_server::RedisServer;

/// 2^53.
const LIMIT: i64 = 9_007_199_254_740_992;

/// A server, a store on it with generation 1, and a lane to write.
struct Bench {
    server: RedisServer,
    store: RedisStore,
}

impl Bench {
    fn new() -> Self {
        let server = RedisServer::start(&[]);
        let mut store = RedisStore::new(&server.config()).expect("a good configuration");
        store.create(1).expect("redis answers");
        Self { server, store }
    }

    fn apply(&mut self, offer: &Offer<i64>) -> Outcome<i64> {
        let mut outcomes = self.store.apply(std::slice::from_ref(offer)).expect("redis answers");
        assert_eq!(outcomes.len(), 1);
        outcomes.remove(0)
    }

    fn get(&self, key: &str) -> Option<String> {
        self.server.run(&format!("GET {key}"))
    }

    fn fence(&mut self, lane: u8) -> Option<Fence> {
        Store::<i64>::fences(&mut self.store).expect("redis answers")[usize::from(lane)]
    }

    /// Everything that the server holds, to show that nothing changed.
    fn dump(&self) -> BTreeMap<String, Vec<u8>> {
        let keys: Vec<String> = self.server.run("KEYS *");
        keys.into_iter().map(|key| (key.clone(), self.server.run(&format!("DUMP {key}")))).collect()
    }

    fn assert_refused(&mut self, offer: &Offer<i64>, fence: Option<Fence>) {
        let before = self.dump();
        assert_eq!(self.apply(offer), Outcome::Refused { fence });
        assert_eq!(self.dump(), before, "a refused offer changes nothing");
    }
}

fn at(window: u64) -> Fence {
    if window == 0 {
        return Fence::unapplied(1);
    }
    let as_of = i64::try_from(window).expect("small") * 1_000;
    Fence { generation: 1, epoch: 1, window, as_of, kind: CutKind::Whole, base_cut: 0 }
}

/// The step of lane 7 between two windows.
fn offer(before: u64, after: u64, amounts: &[(i64, i64)]) -> Offer<i64> {
    Offer { lane: 7, before: at(before), after: at(after), amounts: amounts.to_vec() }
}

fn applied() -> Outcome<i64> {
    Outcome::Applied { set_aside: vec![], debts: vec![] }
}

#[test]
fn amounts_are_added_and_the_fence_moves() {
    let mut bench = Bench::new();
    assert_eq!(bench.apply(&offer(0, 10, &[(41, 3), (42, 1)])), applied());
    assert_eq!(bench.apply(&offer(10, 11, &[(42, 1_000_000_000_000_000)])), applied());
    assert_eq!(bench.apply(&offer(11, 12, &[(42, 7)])), applied());
    assert_eq!(bench.apply(&offer(12, 15, &[])), applied());
    assert_eq!(bench.get("likes:41").as_deref(), Some("3"));
    assert_eq!(bench.get("likes:42").as_deref(), Some("1000000000000008"));
    assert_eq!(bench.get("likes:lane:7"), Some(at(15).to_string()));
    assert_eq!(bench.fence(8), Some(at(0)), "other lanes stay");
}

#[test]
fn what_does_not_follow_is_refused() {
    let mut bench = Bench::new();
    assert_eq!(bench.apply(&offer(0, 10, &[(42, 1)])), applied());
    let replay = offer(0, 10, &[(42, 1)]);
    let gap = offer(11, 12, &[(42, 1)]);
    let behind = offer(9, 11, &[(42, 1)]);
    for wrong in [replay, gap, behind] {
        bench.assert_refused(&wrong, Some(at(10)));
    }
    let mut other_generation = offer(10, 11, &[(42, 1)]);
    (other_generation.before.generation, other_generation.after.generation) = (2, 2);
    let mut lower_epoch = offer(10, 11, &[(42, 1)]);
    lower_epoch.after.epoch = 0;
    let mut other_base = offer(10, 11, &[(42, 1)]);
    (other_base.before.base_cut, other_base.after.base_cut) = (5, 5);
    for wrong in [other_generation, lower_epoch, other_base] {
        bench.assert_refused(&wrong, Some(at(10)));
    }
    let mut higher_epoch = offer(10, 11, &[(42, 1)]);
    higher_epoch.after.epoch = 2;
    assert_eq!(bench.apply(&higher_epoch), applied());
}

#[test]
fn a_lane_without_a_fence_is_not_written() {
    let mut bench = Bench::new();
    bench.server.run::<()>("DEL likes:lane:7");
    bench.assert_refused(&offer(0, 10, &[(42, 1)]), None);
    bench.server.run::<()>("LPUSH likes:lane:7 x");
    bench.assert_refused(&offer(0, 10, &[(42, 1)]), None);
    bench.server.run::<()>("DEL likes:lane:7");
    bench.server.run::<()>("SET likes:lane:7 garbage");
    let error = bench.store.apply(&[offer(0, 10, &[(42, 1)])]).expect_err("no fence");
    assert!(matches!(&error, StoreError::Refused(text) if text.contains("likes:lane:7")), "{error}");
    assert!(Store::<i64>::fences(&mut bench.store).is_err());
    let fences = bench.store.readable_fences().expect("redis answers");
    assert_eq!((fences[6], fences[7]), (Some(at(0)), None), "to build anew, which the message tells to run");
    redis::cmd("SET")
        .arg("likes:lane:7")
        .arg(b"\xff")
        .exec(&mut bench.server.connection())
        .expect("redis answers");
    let error = bench.store.apply(&[offer(0, 10, &[(42, 1)])]).expect_err("no fence");
    assert!(matches!(&error, StoreError::Refused(text) if text.contains("likes:lane:7")), "{error}");
}

#[test]
fn what_is_no_number_is_set_aside_and_counted_on_from_zero() {
    let mut bench = Bench::new();
    let texts = [
        "many",
        "042",
        "+1",
        "1.5",
        "1e3",
        "",
        "-0",
        " 1",
        "0x10",
        "-",
        "9007199254740992",
        "-9007199254740992",
    ];
    let texts = texts.iter().chain(&[
        "9007199254740993",
        "9223372036854775807",
        "-9223372036854775808",
        "99999999999999999999",
    ]);
    let mut amounts = Vec::new();
    let mut connection = bench.server.connection();
    for (item, text) in (100..).zip(texts.clone()) {
        redis::cmd("SET")
            .arg(format!("likes:{item}"))
            .arg(*text)
            .exec(&mut connection)
            .expect("redis answers");
        amounts.push((item, 2_i64));
    }
    bench.server.run::<()>("RPUSH likes:200 a b");
    bench.server.run::<()>("SET likes:201 9007199254740990");
    bench.server.run::<()>("SET likes:202 -9007199254740990");
    bench.server.run::<()>("SET likes:203 5");
    amounts.extend([(200, 3), (201, 2), (202, -2), (203, 1), (204, 1)]);
    let Outcome::Applied { set_aside, debts } = bench.apply(&offer(0, 10, &amounts)) else {
        panic!("it follows")
    };

    for (item, text) in (100..).zip(texts) {
        assert_eq!(bench.get(&format!("likes:{item}")).as_deref(), Some("2"), "{text:?}");
        assert_eq!(bench.get(&format!("likes:aside:{item}:10")).as_deref(), Some(*text));
    }
    assert_eq!(bench.get("likes:200").as_deref(), Some("3"));
    assert_eq!(bench.server.run::<Vec<String>>("LRANGE likes:aside:200:10 0 -1"), ["a", "b"]);
    assert_eq!(bench.get("likes:201").as_deref(), Some("2"), "it would have gone beyond 2^53");
    assert_eq!((bench.get("likes:202").as_deref(), debts), (Some("0"), vec![(202, 2)]));
    assert_eq!(bench.get("likes:203").as_deref(), Some("6"), "its neighbours are counted as ever");
    assert_eq!(bench.get("likes:204").as_deref(), Some("1"));
    assert_eq!(set_aside.len(), amounts.len() - 2);
    assert!(set_aside.contains(&"likes:aside:200:10".to_owned()));

    bench.apply(&offer(10, 11, &amounts));
    assert_eq!(bench.get("likes:100").as_deref(), Some("4"));
}

#[test]
fn the_largest_counter_is_exact() {
    let mut bench = Bench::new();
    bench.apply(&offer(0, 10, &[(42, LIMIT - 2)]));
    assert_eq!(bench.apply(&offer(10, 11, &[(42, 1)])), applied());
    assert_eq!(bench.get("likes:42").as_deref(), Some("9007199254740991"));
}

#[test]
fn below_zero_shows_zero_and_later_likes_pay_the_debt_back() {
    let mut bench = Bench::new();
    let owed = |debt| Outcome::Applied { set_aside: vec![], debts: vec![(42, debt)] };
    let shows =
        |bench: &Bench| (bench.get("likes:42"), bench.server.run::<Option<String>>("HGET likes:debt:7 42"));
    let pair = |count: &str, debt: Option<&str>| (Some(count.to_owned()), debt.map(str::to_owned));
    assert_eq!(bench.apply(&offer(0, 1, &[(42, 2)])), applied());
    assert_eq!(bench.apply(&offer(1, 2, &[(42, -5)])), owed(3));
    assert_eq!(shows(&bench), pair("0", Some("3")));
    assert_eq!(bench.apply(&offer(2, 3, &[(42, -1_000_000_000_000_000)])), owed(1_000_000_000_000_003));
    assert_eq!(shows(&bench), pair("0", Some("1000000000000003")), "all digits");
    assert_eq!(bench.apply(&offer(3, 4, &[(42, 1_000_000_000_000_001)])), owed(2));
    assert_eq!(bench.apply(&offer(4, 5, &[(42, 2)])), applied());
    assert_eq!(shows(&bench), pair("0", None));
    bench.apply(&offer(5, 6, &[(42, -3)]));
    assert_eq!(bench.apply(&offer(6, 7, &[(42, 10)])), applied());
    assert_eq!(shows(&bench), pair("7", None));

    bench.apply(&offer(7, 8, &[(41, -4)]));
    let mut reader = CountsReader::open(&bench.server.store_config()).expect("a good configuration");
    let debts = reader.debts::<i64>().expect("redis answers");
    assert_eq!((debts.by_item, debts.fences[7]), (BTreeMap::from([(41, 4)]), Some(at(8))));
}

#[test]
fn a_debt_hash_that_is_none_is_set_aside() {
    for spoil in ["SET likes:debt:7 x", "HSET likes:debt:7 42 much", "HSET likes:debt:7 42 -3"] {
        let mut bench = Bench::new();
        bench.server.run::<()>(spoil);
        let outcome = bench.apply(&offer(0, 1, &[(41, -1), (42, 1)]));
        let set_aside = vec!["likes:aside:debt:7:1".to_owned()];
        assert_eq!(outcome, Outcome::Applied { set_aside, debts: vec![(41, 1)] }, "{spoil}");
        assert_eq!(bench.get("likes:42").as_deref(), Some("1"), "{spoil}");
    }
}

#[test]
fn a_debt_that_would_grow_beyond_2_to_the_53_is_forgiven() {
    for (spoil, aside) in [("DEL likes:42", None), ("SET likes:42 0", Some("0"))] {
        let mut bench = Bench::new();
        bench.apply(&offer(0, 1, &[(42, -(LIMIT - 2))]));
        bench.server.run::<()>(spoil);
        let outcome = bench.apply(&offer(1, 2, &[(41, 1), (42, -5), (43, 1)]));
        let set_aside = aside.map(|_| "likes:aside:42:2".to_owned()).into_iter().collect();
        assert_eq!(outcome, Outcome::Applied { set_aside, debts: vec![(42, 5)] }, "{spoil}");
        assert_eq!(bench.get("likes:41").as_deref(), Some("1"));
        assert_eq!(bench.get("likes:aside:42:2").as_deref(), aside);
        assert_eq!(bench.apply(&offer(2, 3, &[(42, 6)])), applied(), "{spoil}");
        assert_eq!(bench.get("likes:42").as_deref(), Some("1"));
    }
}

#[test]
fn a_user_who_may_not_write_all_that_a_lane_may_need_writes_nothing() {
    for command in ["set", "incrby", "hset", "hdel", "rename"] {
        let mut bench = Bench::new();
        bench.server.run::<()>(&format!("ACL SETUSER narrow on >secret ~* +@all -{command}"));
        let url = format!("redis://narrow:secret@127.0.0.1:{}", bench.server.port());
        let mut narrow =
            RedisStore::new(&RedisConfig { url, ..bench.server.config() }).expect("a good configuration");
        let before = bench.dump();
        let error = narrow.apply(&[offer(0, 1, &[(41, 1), (42, -1)])]).expect_err("not permitted");
        assert!(matches!(&error, StoreError::Refused(text) if text.contains(command)), "{error}");
        assert_eq!(bench.dump(), before, "{command}");
        assert_eq!(bench.fence(7), Some(at(0)));
    }
}

#[test]
fn a_window_larger_than_any_lua_stack_is_one_step() {
    let mut bench = Bench::new();
    let amounts: Vec<(i64, i64)> = (0..20_000).map(|item| (item, item % 7 + 1)).collect();
    assert_eq!(bench.apply(&offer(0, 1, &amounts)), applied());
    let unlikes: Vec<(i64, i64)> = (0..20_000).map(|item| (item, -4)).collect();
    let Outcome::Applied { debts, .. } = bench.apply(&offer(1, 2, &unlikes)) else { panic!("it follows") };
    assert_eq!(debts.len(), (0..20_000).filter(|item| item % 7 + 1 < 4).count());
    let Outcome::Applied { debts, .. } = bench.apply(&offer(2, 3, &amounts)) else { panic!("it follows") };
    assert_eq!(debts.len(), (0..20_000).filter(|item| item % 7 == 0).count(), "1 - 4 + 1 is below zero");
    for item in [0, 1, 2, 3, 6, 9_999, 19_999] {
        let sum: i64 = 2 * (item % 7 + 1) - 4;
        assert_eq!(bench.get(&format!("likes:{item}")), Some(sum.max(0).to_string()), "item {item}");
    }
}

#[test]
fn many_lanes_go_in_one_call_and_each_is_judged_alone() {
    let mut bench = Bench::new();
    let offers: Vec<Offer<i64>> = (0..LANES)
        .map(|lane| Offer { lane, ..offer(u64::from(lane % 2), 5, &[(i64::from(lane), 1)]) })
        .collect();
    let outcomes = bench.store.apply(&offers).expect("redis answers");
    for (lane, outcome) in (0..LANES).zip(outcomes) {
        let expected = if lane % 2 == 0 { applied() } else { Outcome::Refused { fence: Some(at(0)) } };
        assert_eq!(outcome, expected, "lane {lane}");
    }
}

#[test]
fn two_prefixes_on_one_redis_do_not_meet() {
    let mut bench = Bench::new();
    let config = RedisConfig { key_prefix: "likes:shadow:".into(), ..bench.server.config() };
    let mut shadow = RedisStore::new(&config).expect("a good configuration");
    assert!(shadow.is_empty::<i64>().expect("redis answers"));
    assert!(!bench.store.is_empty::<i64>().expect("redis answers"));
    shadow.create(1).expect("redis answers");
    bench.apply(&offer(0, 10, &[(42, 1), (43, -1)]));
    shadow.apply(&[offer(0, 9, &[(42, 100)])]).expect("redis answers");
    assert_eq!(bench.get("likes:42").as_deref(), Some("1"));
    assert_eq!(bench.get("likes:shadow:42").as_deref(), Some("100"));

    bench.server.run::<()>("SET other:42 7");
    bench.server.run::<()>("SET likes:aside:42:10 old");
    bench.store.clear::<i64>().expect("redis answers");
    assert!(bench.store.is_empty::<i64>().expect("redis answers"));
    assert_eq!(bench.get("likes:shadow:42").as_deref(), Some("100"));
    assert_eq!(bench.get("other:42").as_deref(), Some("7"));
    assert_eq!(bench.server.run::<usize>("DBSIZE"), usize::from(LANES) + 2);
}

#[test]
fn creating_again_leaves_what_stands() {
    let mut bench = Bench::new();
    bench.apply(&offer(0, 10, &[(42, 1)]));
    bench.server.run::<()>("DEL likes:lane:8");
    bench.store.create(2).expect("redis answers");
    assert_eq!(bench.fence(7), Some(at(10)));
    assert_eq!(bench.fence(8), Some(Fence::unapplied(2)));
}

#[test]
fn a_redis_that_evicts_is_refused() {
    let server = RedisServer::start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let mut store = RedisStore::new(&server.config()).expect("a good configuration");
    let error = Store::<i64>::fences(&mut store).expect_err("it may evict");
    assert!(matches!(&error, StoreError::Refused(text) if text.contains("noeviction")), "{error}");
}

#[test]
fn counts_are_read_with_their_fences() {
    let mut bench = Bench::new();
    let items = [5_i64, 6, 7, 8];
    for item in &items[..3] {
        let offer = Offer { lane: lane(*item), ..offer(0, 10, &[(*item, *item)]) };
        assert_eq!(bench.apply(&offer), applied());
    }
    bench.server.run::<()>("SET likes:7 seven");
    let mut reader = CountsReader::open(&bench.server.store_config()).expect("a good configuration");
    let counts = reader.counts(&items).expect("redis answers");
    let values: Vec<_> = counts.iter().map(|count| (count.item, count.value, count.fence.window)).collect();
    assert_eq!(values, [(5, Some(5), 10), (6, Some(6), 10), (7, None, 10), (8, Some(0), 0)]);
    assert_eq!(reader.items::<i64>().expect("redis answers"), [5, 6, 7]);
    assert_eq!(reader.fences().expect("redis answers").iter().flatten().count(), usize::from(LANES));
    bench.server.run::<()>(&format!("DEL likes:lane:{}", lane(5_i64)));
    let error = reader.counts(&items).expect_err("a lane without a fence");
    assert!(error.to_string().contains("has no fence"), "{error}");
}
