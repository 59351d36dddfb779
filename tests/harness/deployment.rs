use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs};

use fencepost_model::Fence;
use fencepost_model::placement::LANES;
use postgres::NoTls;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use redis::Commands;

use super::process::{Output, Process};
use super::redis::Redis;
use super::stack::Stack;
use super::turn::Turn;

/// One deployment of Fencepost: a database, a slot, topics, a Redis, a checkpoint and a configuration of its own.
/// While one lives, tests on other threads wait for their turn.
pub(crate) struct Deployment {
    /// Its store; a test may kill and restart it.
    pub(crate) redis: Redis,
    name: String,
    folder: PathBuf,
    settings: toml::Table,
    processes: AtomicU32,
    _turn: Turn,
}

impl Deployment {
    /// A deployment that `migrate` has not been run on yet. `name`: letters, digits and underscores.
    pub(crate) fn new(name: &str) -> Self {
        let turn = Turn::wait();
        let stack = Stack::get();
        let folder = stack.new_folder(name);
        let name = folder.file_name().expect("it was named").to_string_lossy().replace('-', "_");
        stack.sql().batch_execute(&format!("CREATE DATABASE {name}")).expect("a new database");
        let redis = Redis::start();
        let mut deployment =
            Self { redis, name, folder, settings: toml::Table::new(), processes: 0.into(), _turn: turn };
        deployment.configure();
        deployment
    }

    /// A deployment that is ready to run, with windows of a quarter of a second, so that tests need not wait long.
    pub(crate) fn migrated(name: &str) -> Self {
        let mut deployment = Self::new(name);
        deployment.set("relay.window_ms", 250);
        deployment.migrate();
        deployment
    }

    fn configure(&mut self) {
        let (stack, name) = (Stack::get(), self.name.clone());
        self.set("postgres.url", stack.postgres_url(&name));
        self.set("kafka.bootstrap_servers", stack.bootstrap_servers());
        self.set("kafka.topic_prefix", format!("{name}."));
        self.set("relay.slot", name.clone());
        self.set("relay.publication", name);
        self.set("pipeline.checkpoint_dir", self.checkpoint_dir().display().to_string());
        self.set("pipeline.workers", 2);
        self.set("store.redis.kind", "redis");
        self.set("store.redis.url", self.redis.url().to_owned());
    }

    /// Sets a key of the configuration, such as `relay.window_ms`, for the processes started from now on.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<toml::Value>) {
        let (sections, field) = key.rsplit_once('.').expect("a key is section.field");
        self.set_in(sections, field, value);
    }

    /// Sets a property of librdkafka, such as `linger.ms`, for the processes started from now on.
    pub(crate) fn set_kafka_property(&mut self, name: &str, value: &str) {
        self.set_in("kafka.properties", name, value);
    }

    fn set_in(&mut self, sections: &str, field: &str, value: impl Into<toml::Value>) {
        let mut table = &mut self.settings;
        for section in sections.split('.') {
            let entry = table.entry(section).or_insert_with(|| toml::Table::new().into());
            table = entry.as_table_mut().expect("a section is a table");
        }
        table.insert(field.to_owned(), value.into());
        let text = toml::to_string(&self.settings).expect("tables can be written");
        fs::write(self.config(), text).expect("the test's folder is writable");
    }

    pub(crate) fn checkpoint_dir(&self) -> PathBuf {
        self.folder.join("checkpoint")
    }

    /// The name of its database, slot and publication.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn topic(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    fn config(&self) -> PathBuf {
        self.folder.join("fencepost.toml")
    }

    /// Runs `fencepost migrate`.
    pub(crate) fn migrate(&self) {
        self.run(&["migrate"]).success();
    }

    /// Starts `fencepost` with these arguments, such as `["apply", "--store", "redis"]`.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
        // A developer's settings, as of `. dev/env`, would win over the file.
        for (variable, _) in
            env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FENCEPOST_"))
        {
            command.env_remove(variable);
        }
        command
            .arg("--config")
            .arg(self.config())
            .args(arguments)
            .current_dir(&self.folder)
            .env("RUST_BACKTRACE", "1");
        let number = self.processes.fetch_add(1, Ordering::Relaxed);
        let files = self.folder.join(format!("{number}-{}", arguments[0]));
        Process::spawn(format!("{} {}", self.name, arguments.join(" ")), &mut command, &files)
    }

    /// Runs `fencepost` with these arguments to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.spawn(arguments).finish()
    }

    /// Compares every counter with the edges, at rest, and gives the number of items compared.
    ///
    /// # Panics
    /// When any counter is wrong.
    #[track_caller]
    pub(crate) fn audit(&self) -> u64 {
        let stdout = self.run(&["audit"]).success().stdout;
        let words: Vec<_> = stdout.split_whitespace().collect();
        let count = |word: &str| {
            let at = words.iter().position(|found| *found == word).and_then(|at| words.get(at + 1));
            at.and_then(|count| count.parse::<u64>().ok())
                .unwrap_or_else(|| panic!("no \"{word} N\" in: {stdout}"))
        };
        assert_eq!(count("wrong"), 0, "{stdout}");
        count("items")
    }

    /// A new connection to the database.
    pub(crate) fn sql(&self) -> postgres::Client {
        postgres::Client::connect(&Stack::get().postgres_url(&self.name), NoTls).expect("Postgres is up")
    }

    /// The fences of the store by lane; a lane without one is left out.
    pub(crate) fn fences(&self) -> BTreeMap<u8, Fence> {
        let keys: Vec<_> = (0..LANES).map(|lane| format!("likes:lane:{lane}")).collect();
        let fences: Vec<Option<String>> = self.redis.client().mget(keys).expect("Redis is up");
        let parsed = fences.into_iter().map(|fence| fence.map(|text| text.parse().expect("a fence")));
        (0..LANES).zip(parsed).filter_map(|(lane, fence)| Some((lane, fence?))).collect()
    }
}

impl Drop for Deployment {
    /// Gives back what it holds of the shared services, as far as that is there: a test may have failed at any point.
    fn drop(&mut self) {
        let mut client = Stack::get().sql();
        let slots = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1 AND NOT active";
        // Its sessions hold the slot.
        let _ = client.batch_execute(&format!("ALTER DATABASE {} ALLOW_CONNECTIONS false", self.name));
        let _ = client.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $1",
            &[&self.name],
        );
        let _ = client.execute(slots, &[&self.name]);
        let _ = client.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
        let topics = ["flips", "windows", "totals", "dead-letters"].map(|name| self.topic(name));
        let names: Vec<_> = topics.iter().map(String::as_str).collect();
        let mut kafka = ClientConfig::new();
        kafka.set("bootstrap.servers", Stack::get().bootstrap_servers());
        let admin = kafka.create::<AdminClient<DefaultClientContext>>().expect("a client of librdkafka");
        let _ = pollster::block_on(admin.delete_topics(&names, &AdminOptions::new()));
    }
}
