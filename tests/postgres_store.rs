//! The fence rule of the Postgres store, on a real Postgres.

use std::thread;

use fencepost_model::placement::{LANES, lane};
use fencepost_model::{CutKind, Fence};
use fencepost_sinks::{
    Buildable, CountsReader, Offer, Outcome, PostgresConfig, PostgresStore, Store, StoreConfig, StoreError,
};
use postgres::Client;

use crate::harness::wait_until;
use crate::schema::Database;

/// 2^53.
const LIMIT: i64 = 9_007_199_254_740_992;

/// A database, a store in it with generation 1, and a lane to write.
struct Bench {
    database: Database,
    config: PostgresConfig,
    store: PostgresStore,
    sql: Client,
}

impl Bench {
    fn new(name: &str) -> Self {
        let database = Database::empty(name);
        let config = PostgresConfig { url: database.url().to_owned(), ..PostgresConfig::default() };
        let sql = database.client();
        let mut bench = Self { store: PostgresStore::new(&config).unwrap(), database, config, sql };
        bench.store = bench.store_in("fencepost");
        bench.store.create(1).unwrap();
        bench
    }

    /// A store in this schema, with its tables.
    fn store_in(&mut self, schema: &str) -> PostgresStore {
        fencepost_schema::create_store(&mut self.sql, schema).unwrap();
        PostgresStore::new(&PostgresConfig { schema: schema.to_owned(), ..self.config.clone() }).unwrap()
    }

    fn reader(&self) -> CountsReader {
        CountsReader::open(&StoreConfig::Postgres(self.config.clone())).unwrap()
    }

    fn apply(&mut self, offer: &Offer<i64>) -> Outcome<i64> {
        let mut outcomes = self.store.apply(std::slice::from_ref(offer)).unwrap();
        assert_eq!(outcomes.len(), 1);
        outcomes.remove(0)
    }

    fn count(&mut self, item: i64) -> i64 {
        self.reader().counts(&[item]).unwrap()[0].value.unwrap()
    }

    fn fence(&mut self, lane: u8) -> Option<Fence> {
        Store::<i64>::fences(&mut self.store).unwrap()[usize::from(lane)]
    }

    /// All that the store holds, row versions included, to show that nothing changed.
    fn dump(&mut self) -> Vec<String> {
        let rows = "SELECT xmin::text || counts::text FROM fencepost.counts
            UNION ALL SELECT ctid::text || lanes::text FROM fencepost.lanes ORDER BY 1";
        self.sql.query(rows, &[]).unwrap().iter().map(|row| row.get(0)).collect()
    }

    #[track_caller]
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
    let as_of = i64::try_from(window).unwrap() * 1_000;
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
    let mut bench = Bench::new("store_adds");
    assert_eq!(bench.apply(&offer(0, 10, &[(41, 3), (42, 1)])), applied());
    assert_eq!(bench.apply(&offer(10, 11, &[(42, 1_000_000_000_000_000)])), applied());
    let after = Fence { kind: CutKind::Partial, epoch: 2, ..at(12) };
    assert_eq!(bench.apply(&Offer { after, ..offer(11, 12, &[(42, 7)]) }), applied());
    assert_eq!((bench.count(41), bench.count(42)), (3, 1_000_000_000_000_008));
    assert_eq!((bench.fence(7), bench.fence(8)), (Some(after), Some(at(0))), "other lanes stay");
    let last = Fence { epoch: 2, ..at(15) };
    let empty = Offer { before: after, after: last, ..offer(0, 15, &[]) };
    assert_eq!(bench.apply(&empty), applied());
    assert_eq!(bench.fence(7), Some(last));
}

#[test]
fn what_does_not_follow_is_refused() {
    let mut bench = Bench::new("store_refuses");
    assert_eq!(bench.apply(&offer(0, 10, &[(42, 1)])), applied());
    let follows = || offer(10, 11, &[(42, 1)]);
    let changed = |change: fn(&mut Fence)| {
        let mut offer = follows();
        change(&mut offer.before);
        change(&mut offer.after);
        offer
    };
    let mut lower_epoch = follows();
    lower_epoch.after.epoch = 0;
    for wrong in [
        offer(0, 10, &[(42, 1)]),
        offer(11, 12, &[(42, 1)]),
        offer(9, 11, &[(42, 1)]),
        changed(|fence| fence.generation = 2),
        changed(|fence| fence.base_cut = 5),
        changed(|fence| fence.epoch = 2),
        changed(|fence| fence.kind = CutKind::Incomplete),
        changed(|fence| fence.as_of += 1),
        lower_epoch,
    ] {
        bench.assert_refused(&wrong, Some(at(10)));
    }
    bench.sql.execute("DELETE FROM fencepost.lanes WHERE lane = 7", &[]).unwrap();
    bench.assert_refused(&follows(), None);
}

#[test]
fn below_zero_shows_zero_and_later_likes_pay_the_debt_back() {
    let mut bench = Bench::new("store_debts");
    let owed = |debt| Outcome::Applied { set_aside: vec![], debts: vec![(42, debt)] };
    assert_eq!(bench.apply(&offer(0, 1, &[(42, 2)])), applied());
    assert_eq!(bench.apply(&offer(1, 2, &[(41, 1), (42, -5)])), owed(3));
    assert_eq!(bench.count(42), 0);
    let debts = bench.reader().debts::<i64>().unwrap();
    assert_eq!((debts.by_item, debts.fences[7]), ([(42, 3)].into(), Some(at(2))));
    assert_eq!(bench.apply(&offer(2, 3, &[(42, 1)])), owed(2));
    assert_eq!(bench.apply(&offer(3, 4, &[(42, 2)])), applied());
    assert_eq!(bench.count(42), 0);
    assert_eq!(bench.apply(&offer(4, 5, &[(42, 7)])), applied());
    assert_eq!(bench.count(42), 7);
}

#[test]
fn a_counter_beyond_2_to_the_53_is_set_aside_and_counted_on_from_zero() {
    let mut bench = Bench::new("store_beyond");
    assert_eq!(bench.apply(&offer(0, 1, &[(41, 5), (42, LIMIT - 2), (43, 2 - LIMIT)])), {
        Outcome::Applied { set_aside: vec![], debts: vec![(43, LIMIT - 2)] }
    });
    assert_eq!(bench.apply(&offer(1, 2, &[(42, 1)])), applied(), "the largest counter is exact");
    assert_eq!(bench.count(42), LIMIT - 1);
    let outcome = bench.apply(&offer(2, 3, &[(41, 1), (42, 3), (43, -4)]));
    let aside = |item| format!("\"fencepost\".aside item_id={item} window_id=3");
    assert_eq!(outcome, Outcome::Applied { set_aside: vec![aside(42), aside(43)], debts: vec![(43, 4)] });
    assert_eq!([41, 42, 43].map(|item| bench.count(item)), [6, 3, 0]);
    let kept: i64 =
        bench.sql.query_one("SELECT sum FROM fencepost.aside WHERE item_id = 42", &[]).unwrap().get(0);
    assert_eq!(kept, LIMIT - 1);
    assert_eq!(bench.fence(7), Some(at(3)));
}

#[test]
fn many_lanes_go_in_one_call_and_each_is_judged_alone() {
    let mut bench = Bench::new("store_lanes");
    let offers: Vec<Offer<i64>> = (0..LANES)
        .rev()
        .map(|lane| Offer { lane, ..offer(u64::from(lane % 2), 5, &[(i64::from(lane), 1)]) })
        .collect();
    let outcomes = bench.store.apply(&offers).unwrap();
    for (offer, outcome) in offers.iter().zip(outcomes) {
        let follows = offer.lane % 2 == 0;
        let expected = if follows { applied() } else { Outcome::Refused { fence: Some(at(0)) } };
        assert_eq!(outcome, expected, "lane {}", offer.lane);
        assert_eq!(bench.count(offer.lane.into()), i64::from(follows));
    }
}

#[test]
fn appliers_that_offer_the_same_at_once_add_it_once() {
    let mut bench = Bench::new("store_race");
    let (writers, windows) = (4, 50_u64);
    thread::scope(|scope| {
        for writer in 0..writers {
            let mut store = PostgresStore::new(&bench.config).unwrap();
            scope.spawn(move || {
                for window in 0..windows {
                    // Each in an order of its own: none may wait for one that waits for it.
                    let mut offers: Vec<_> = (0..LANES)
                        .map(|lane| Offer {
                            lane,
                            ..offer(window, window + 1, &[(lane.into(), 1), (1000 + i64::from(lane), 2)])
                        })
                        .collect();
                    offers.rotate_left(writer * 13);
                    for outcome in store.apply(&offers).unwrap() {
                        assert!(matches!(
                            outcome,
                            Outcome::Applied { .. } | Outcome::Refused { fence: Some(_) }
                        ));
                    }
                }
            });
        }
    });
    let expected = i64::try_from(windows).unwrap();
    for lane in 0..LANES {
        assert_eq!(bench.fence(lane), Some(at(windows)));
        assert_eq!((bench.count(lane.into()), bench.count(1000 + i64::from(lane))), (expected, 2 * expected));
    }
}

#[test]
fn a_lane_that_another_holds_is_waited_for_and_then_seen_as_it_is() {
    let mut bench = Bench::new("store_waits");
    let mut holder = bench.database.client();
    let mut held = holder.transaction().unwrap();
    held.execute("UPDATE fencepost.lanes SET window_id = 9 WHERE lane = 7", &[]).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| bench.store.apply(&[offer(0, 10, &[(42, 1)])]).unwrap());
        bench.database.wait_for_waiters(1);
        held.commit().unwrap();
        let moved = Fence { window: 9, ..at(0) };
        assert_eq!(waiter.join().unwrap(), [Outcome::Refused { fence: Some(moved) }]);
    });
}

#[test]
fn stores_in_schemas_of_one_database_do_not_meet() {
    let mut bench = Bench::new("store_schemas");
    let mut shadow = bench.store_in("shadow");
    assert!(shadow.is_empty::<i64>().unwrap());
    assert!(!bench.store.is_empty::<i64>().unwrap());
    shadow.create(1).unwrap();
    bench.apply(&offer(0, 10, &[(42, 1)]));
    shadow.apply(&[offer(0, 9, &[(42, 100)])]).unwrap();
    assert_eq!(bench.count(42), 1);
    bench.store.clear::<i64>().unwrap();
    assert!(bench.store.is_empty::<i64>().unwrap());
    let left: i64 =
        bench.sql.query_one("SELECT count FROM shadow.counts WHERE item_id = 42", &[]).unwrap().get(0);
    assert_eq!((left, Store::<i64>::fences(&mut shadow).unwrap()[7]), (100, Some(at(9))));
    let error = bench.reader().counts(&[42_i64]).unwrap_err();
    assert!(error.to_string().contains("has no fence"), "{error}");
}

#[test]
fn creating_again_leaves_what_stands() {
    let mut bench = Bench::new("store_again");
    bench.apply(&offer(0, 10, &[(42, 1)]));
    bench.sql.execute("DELETE FROM fencepost.lanes WHERE lane = 8", &[]).unwrap();
    bench.store.create(2).unwrap();
    assert_eq!((bench.fence(7), bench.fence(8)), (Some(at(10)), Some(Fence::unapplied(2))));
    assert_eq!(fencepost_schema::create_store(&mut bench.sql, "fencepost").unwrap(), Vec::<String>::new());
}

#[test]
fn counts_are_read_with_their_fences() {
    let mut bench = Bench::new("store_reads");
    let items = [5_i64, 6, 7];
    for item in &items[..2] {
        assert_eq!(bench.apply(&Offer { lane: lane(*item), ..offer(0, 10, &[(*item, *item)]) }), applied());
    }
    let mut reader = bench.reader();
    let counts = reader.counts(&items).unwrap();
    let values: Vec<_> = counts.iter().map(|count| (count.item, count.value, count.fence.window)).collect();
    assert_eq!(values, [(5, Some(5), 10), (6, Some(6), 10), (7, Some(0), 0)]);
    assert_eq!(reader.items::<i64>().unwrap(), [5, 6]);
}

#[test]
fn updates_stay_in_their_page_and_touch_no_index() {
    let mut bench = Bench::new("store_hot");
    // Its snapshot would keep old versions, and their room, for as long as it looks.
    bench.sql.batch_execute("ALTER TABLE fencepost.counts SET (autovacuum_enabled = off)").unwrap();
    let all: Vec<(i64, i64)> = (0..5_000).map(|item| (item, 1)).collect();
    assert_eq!(bench.apply(&offer(0, 1, &all)), applied());
    for window in 1..20 {
        let some: Vec<_> = all.iter().copied().filter(|(item, _)| item % 8 == 0).collect();
        assert_eq!(bench.apply(&offer(window, window + 1, &some)), applied());
    }
    drop(bench.store);
    let updates =
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_all_tables WHERE relid = 'fencepost.counts'::regclass";
    let mut seen = (0, 0);
    wait_until("statistics have come in", || {
        let row = bench.sql.query_one(updates, &[]).unwrap();
        seen = (row.get(0), row.get(1));
        seen.0 == 19 * 625_i64
    });
    assert!(seen.1 * 10 >= seen.0 * 9, "{} of {} updates were HOT", seen.1, seen.0);
}

#[test]
fn a_schema_without_tables_names_the_command_that_makes_them() {
    let database = Database::empty("store_bare");
    let config = PostgresConfig { url: database.url().to_owned(), ..PostgresConfig::default() };
    let error = Store::<i64>::fences(&mut PostgresStore::new(&config).unwrap()).unwrap_err();
    assert!(matches!(&error, StoreError::Refused(text) if text.contains("fencepost migrate")), "{error}");
}
