//! Amounts that mend a counter travel the way of all likes: in order, once each, to the store they name.

use redis::Commands;

use crate::harness::{Deployment, Roles, wait_until};

const CORRECT: &str = "INSERT INTO fencepost.outbox (at, item_id, correction_id, store, amount, cut)
    VALUES (clock_timestamp(), $1, $2, $3, $4, $5)";

#[test]
fn a_correction_mends_the_store_it_names_once() {
    let deployment = Deployment::migrated("corrections");
    let _roles = Roles::spawn(&deployment);
    deployment
        .run(&["load", "--flips", "2000", "--bulk", "20", "--items", "50", "--unlike-share", "0"])
        .success();
    deployment.audit();

    let mut redis = deployment.redis.client();
    let tampered: i64 = redis.incr("likes:7", 3).unwrap();
    let owed: i64 = redis.decr("likes:8", 2).unwrap();
    let audit = deployment.run(&["audit"]);
    assert_eq!(audit.status.code(), Some(1), "the audit sees both: {}", audit.stdout);
    assert!(audit.stdout.contains("wrong 2"), "{}", audit.stdout);

    let cut = i64::try_from(deployment.applied()).unwrap();
    let mut sql = deployment.sql();
    let mut correct = |item: i64, id: i64, store: Option<&str>, amount: i64| {
        // The same id twice: a heal that was killed and started again.
        for _ in 0..2 {
            sql.execute(CORRECT, &[&item, &id, &store, &amount, &cut]).unwrap();
        }
    };
    correct(7, 1, Some("another-store"), -100);
    correct(7, 2, Some("redis"), -3);
    correct(8, 3, None, 2);
    wait_until("both are mended", || deployment.count(7) == tampered - 3 && deployment.count(8) == owed + 2);
    deployment.audit();
}
