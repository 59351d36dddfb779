//! A store on Redis and one on Postgres, each with its own applier: neither waits for the other.

use std::collections::BTreeMap;

use fencepost_model::WindowId;
use fencepost_model::placement::LANES;
use fencepost_sinks::{CountsReader, PostgresConfig, StoreConfig};
use postgres::NoTls;

use crate::harness::{Deployment, Process, Roles, Stack, wait_until};

const LOAD: &[&str] =
    &["load", "--rate", "1000", "--bulk", "10", "--clients", "4", "--items", "1000", "--users", "5000"];

/// Windows that a store is away for.
const WINDOWS_AWAY: u32 = 12;

/// A deployment with a second store, in a database of its own.
struct TwoStores {
    deployment: Deployment,
    config: PostgresConfig,
    database: String,
}

impl TwoStores {
    fn new(name: &str) -> Self {
        let mut deployment = Deployment::new(name);
        deployment.set("relay.window_ms", 250);
        let database = format!("{}_store", deployment.topic("").trim_end_matches('.'));
        server().batch_execute(&format!("CREATE DATABASE {database}")).unwrap();
        let config = PostgresConfig {
            url: Stack::get().postgres_url(&database),
            schema: "likes".to_owned(),
            ..PostgresConfig::default()
        };
        deployment.set("store.durable.kind", "postgres");
        deployment.set("store.durable.url", config.url.clone());
        deployment.set("store.durable.schema", config.schema.clone());
        deployment.migrate();
        Self { deployment, config, database }
    }

    fn spawn_applier(&self) -> Process {
        self.deployment.spawn(&["apply", "--store", "durable"])
    }

    /// The window that every lane of the Postgres store has reached; 0 before it is built.
    fn applied(&self) -> WindowId {
        let mut reader = CountsReader::open(&StoreConfig::Postgres(self.config.clone())).unwrap();
        let fences: Vec<_> = reader.fences().unwrap().into_iter().flatten().collect();
        if fences.len() < usize::from(LANES) {
            return 0;
        }
        fences.iter().map(|fence| fence.window).min().unwrap()
    }

    fn wait_for_windows(&self, windows: u32) {
        let mut last = self.applied();
        for _ in 0..windows {
            wait_until("the Postgres store applies another window", || self.applied() > last);
            last = self.applied();
        }
    }

    /// Ends all connections to the store's database, and lets none in.
    fn close_database(&self) {
        server().batch_execute(&format!("ALTER DATABASE {} ALLOW_CONNECTIONS false", self.database)).unwrap();
        let end = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE datname = $1";
        server().query_one(end, &[&self.database]).unwrap();
    }

    fn open_database(&self) {
        server().batch_execute(&format!("ALTER DATABASE {} ALLOW_CONNECTIONS true", self.database)).unwrap();
    }

    /// Both stores equal the edges, item by item.
    fn audit(&self) {
        let stdout = self.deployment.run(&["audit"]).success().stdout;
        let items: BTreeMap<&str, &str> = stdout
            .lines()
            .map(|line| {
                let words: Vec<_> = line.split(' ').collect();
                let ["store", name, "window", _, "items", items, "wrong", "0"] = words[..] else {
                    panic!("{stdout}")
                };
                (name, items)
            })
            .collect();
        assert_eq!(items.keys().copied().collect::<Vec<_>>(), ["durable", "redis"], "{stdout}");
        assert!(items["durable"] == items["redis"] && items["redis"] != "0", "{stdout}");
    }
}

fn server() -> postgres::Client {
    postgres::Client::connect(&Stack::get().postgres_url("postgres"), NoTls).unwrap()
}

#[test]
fn a_store_that_is_away_for_many_windows_keeps_the_other_from_nothing() {
    let mut stores = TwoStores::new("two_stores");
    let mut roles = Roles::spawn(&stores.deployment);
    let mut durable = stores.spawn_applier();
    let load = stores.deployment.spawn(LOAD);
    stores.deployment.wait_for_windows(2);
    stores.wait_for_windows(2);

    let redis_stood = stores.deployment.applied();
    stores.deployment.redis.kill9();
    stores.wait_for_windows(WINDOWS_AWAY);
    stores.deployment.redis.restart();
    let went_on = stores.applied();
    assert!(went_on > redis_stood, "the Postgres store went on");
    wait_until("Redis has caught up", || stores.deployment.applied() >= went_on);

    let durable_stood = stores.applied();
    stores.close_database();
    durable.wait_for_log("not currently accepting connections");
    stores.deployment.wait_for_windows(WINDOWS_AWAY);
    let went_on = stores.deployment.applied();
    assert!(went_on > durable_stood, "Redis went on");
    stores.open_database();
    wait_until("the Postgres store has caught up", || stores.applied() >= went_on);

    assert!(durable.is_running() && roles.applier.is_running(), "they waited in place");
    drop(load);
    stores.audit();
    assert!(durable.terminate().success() && roles.applier.terminate().success());
}

#[test]
fn an_applier_of_postgres_that_is_killed_again_and_again_counts_nothing_twice() {
    let stores = TwoStores::new("durable_kills");
    let _roles = Roles::spawn(&stores.deployment);
    let load = stores.deployment.spawn(LOAD);
    for _ in 0..5 {
        let mut applier = stores.spawn_applier();
        stores.wait_for_windows(2);
        applier.kill9();
    }
    let _one = stores.spawn_applier();
    let _other = stores.spawn_applier();
    stores.wait_for_windows(4);
    drop(load);
    stores.audit();
    let shown = stores.deployment.run(&["get", "--store", "durable", "1"]).success().stdout;
    let count = stores.deployment.count(1);
    assert!(shown.starts_with(&format!("item 1 count {count} as_of ")), "{shown}");
}

#[test]
fn a_store_of_another_deployment_is_refused_and_an_emptied_one_is_built_anew() {
    let stores = TwoStores::new("durable_admission");
    let _roles = Roles::spawn(&stores.deployment);
    let mut applier = stores.spawn_applier();
    stores.deployment.run(&["load", "--flips", "2000", "--bulk", "20", "--items", "300"]).success();
    stores.audit();

    let stranger = stores.deployment.run(&[
        "apply",
        "--store",
        "stranger",
        "--set",
        "store.stranger.kind=postgres",
        "--set",
        &format!("store.stranger.url={}", stores.config.url),
        "--set",
        "store.stranger.schema=likes",
    ]);
    assert_eq!(stranger.status.code(), Some(1));
    assert!(stranger.stderr.contains("belongs to another deployment"), "{}", stranger.stderr);

    let mut store = postgres::Client::connect(&stores.config.url, NoTls).unwrap();
    store.batch_execute("TRUNCATE likes.lanes, likes.counts").unwrap();
    assert_eq!(applier.wait_exit().code(), Some(1));
    assert!(applier.logs().contains("--from-start"), "{}", applier.logs());
    let refused = stores.deployment.run(&["apply", "--store", "durable"]);
    assert_eq!(refused.status.code(), Some(1));
    let _applier = stores.deployment.spawn(&["apply", "--store", "durable", "--from-start"]);
    stores.audit();
}
