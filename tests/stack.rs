//! The harness itself: the services are real, and each can be ended without the others noticing.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use redis::Commands;

use crate::harness::{Redis, Stack, wait_until};

#[test]
fn all_three_services_answer() {
    let stack = Stack::get();

    let mut sql = postgres::Client::connect(&stack.postgres_url("postgres"), postgres::NoTls).unwrap();
    let wal_level: String = sql.query_one("SHOW wal_level", &[]).unwrap().get(0);
    assert_eq!(wal_level, "logical");

    let mut kafka = ClientConfig::new();
    kafka.set("bootstrap.servers", stack.bootstrap_servers());
    let consumer: BaseConsumer = kafka.create().unwrap();
    let metadata = consumer.fetch_metadata(None, Duration::from_secs(30)).unwrap();
    assert_eq!(metadata.brokers().len(), 1);
    assert_eq!(metadata.brokers()[0].port(), i32::from(stack.kafka_port()));

    let redis = Redis::start();
    let policy: Vec<String> =
        redis::cmd("CONFIG").arg("GET").arg("maxmemory-policy").query(&mut redis.client()).unwrap();
    assert_eq!(policy[1], "noeviction");
}

#[test]
fn a_killed_redis_comes_back_on_its_port_with_its_data() {
    let mut redis = Redis::start();
    let mut before = redis.client();
    let () = before.set("likes:42", 1234).unwrap();

    redis.kill9();
    assert!(before.get::<_, i64>("likes:42").is_err());
    redis.restart();

    let count: i64 = redis.client().get("likes:42").unwrap();
    assert_eq!(count, 1234);
    let url = redis.url().to_owned();
    drop(redis);
    wait_until("a dropped Redis is gone", || {
        redis::Client::open(url.as_str()).unwrap().get_connection().is_err()
    });
}
