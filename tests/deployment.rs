//! The harness's deployment, and with it the shortest way of a like through all of Fencepost.

use redis::Commands;

use crate::harness::{Deployment, wait_until};

#[test]
fn a_like_is_counted_by_a_deployment_that_was_frozen_killed_and_asked_to_end() {
    let mut deployment = Deployment::new("like");
    deployment.set("relay.window_ms", 250);
    deployment.migrate();
    let like = |item: i64| {
        deployment.sql().execute("SELECT fencepost.set_like($1, 7, true)", &[&item]).unwrap();
    };
    let counted = |item: i64| {
        let count: Option<i64> = deployment.redis.client().get(format!("likes:{item}")).unwrap();
        count == Some(1)
    };

    let mut up = deployment.spawn(&["up"]);
    like(41);
    wait_until("the first like is counted", || counted(41));
    assert_eq!(deployment.fences().len(), 64);

    up.freeze();
    like(42);
    assert!(up.is_running());
    up.thaw();
    wait_until("the like of the frozen time is counted", || counted(42));

    up.kill9();
    like(43);
    let mut up = deployment.spawn(&["up"]);
    wait_until("the like of the time without a process is counted", || counted(43));
    assert_eq!(deployment.audit(), 3);

    assert!(up.terminate().success(), "SIGTERM ends it with another exit code than 0");
}
