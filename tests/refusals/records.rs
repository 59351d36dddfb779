//! Records that no relay of this version wrote.

use fencepost_model::placement::{bucket, partition};
use fencepost_model::{Event, Flip, Position, WindowId, WindowRecord};
use fencepost_sources::log::{KafkaConfig, KafkaWindowLog, LogError, windows};
use fencepost_sources::relay::{BadRow, Change, FlipRecord, Origin, Pace, Relay, WindowLog};

use super::{assert_gives_up, assert_refused, like};
use crate::harness::{Deployment, Foreign, Roles, wait_until};

#[test]
fn foreign_records_are_set_aside_with_reasons_and_the_good_ones_among_them_counted() {
    let deployment = Deployment::migrated("foreign");
    let roles = Roles::spawn(&deployment);
    let load = deployment.spawn(&["load", "--rate", "500", "--bulk", "10", "--items", "200"]);
    deployment.wait_for_windows(2);

    let oversize = vec![b'x'; 1_000_000];
    // Nothing but its partition is wrong with it; its position lies after all there will be, so it is not known.
    let flip = r#"{"v":1,"i":7,"u":9,"o":5,"w":false,"l":true,"t":1,"p":[1,9000000000000000000,0]}"#;
    let right = i32::try_from(partition(7, bucket(9), 8)).unwrap();
    let wrong = (right + 1) % 8;
    let truncated = &flip[..flip.len() - 5];
    let unknown_field = flip.replace(r#""t":1"#, r#""t":1,"x":1"#);
    let wrong_type = flip.replace("false", "0");
    let newer = flip.replace(r#""v":1"#, r#""v":2"#);
    let cases = [
        (Foreign { partition: 0, key: Some(b"7:9"), value: None }, "no value"),
        (Foreign { partition: 1, key: None, value: None }, "no value"),
        (keyed(2, truncated), "malformed"),
        (Foreign { partition: 3, key: None, value: Some(b"not json \xff") }, "foreign"),
        (Foreign { partition: 4, key: None, value: Some(&oversize) }, "foreign"),
        (keyed(5, &wrong_type), "malformed"),
        (keyed(6, &unknown_field), "unknown field"),
        (Foreign { partition: 7, key: Some(b""), value: Some(br#"{"item":7}"#) }, "foreign"),
        (keyed(wrong, flip), "misrouted"),
        (keyed(right, &newer), "version 2"),
    ];
    deployment.produce("flips", &cases.map(|(record, _)| record));
    like_in_2099(&deployment);

    wait_until("all are set aside", || deployment.dead_letters().len() >= cases.len());
    deployment.wait_for_windows(3);
    drop(load);
    deployment.audit();
    assert_eq!(deployment.count(1_000_000), 1, "the flip of 2099 is a good one");
    assert!(roles.pipeline.logs().contains("fencepost dump dead-letters"), "the pipeline tells of them");
    let found = deployment.dead_letters();
    assert_eq!(found.len(), cases.len(), "nothing good is set aside: {found:?}");
    for (Foreign { partition, value, .. }, reason) in cases {
        let letter = found
            .iter()
            .find(|((at, _), letter)| *at == partition && letter.payload == value.unwrap_or_default());
        let (_, letter) =
            letter.unwrap_or_else(|| panic!("no dead letter of partition {partition}: {reason}"));
        assert!(letter.reason.contains(reason), "{reason}: {}", letter.reason);
    }
}

fn keyed(partition: i32, value: &str) -> Foreign<'_> {
    Foreign { partition, key: Some(b"7:9"), value: Some(value.as_bytes()) }
}

/// A like whose time is far ahead, as a database with a wrong clock would write it.
fn like_in_2099(deployment: &Deployment) {
    deployment
        .sql()
        .batch_execute(
            "CREATE TABLE fencepost.outbox_of_2099 PARTITION OF fencepost.outbox
                FOR VALUES FROM ('2099-01-01') TO ('2099-01-02');
            WITH edge AS (
                INSERT INTO fencepost.edges (item_id, user_id, op, at, bucket, liked)
                VALUES (1000000, 1, nextval('fencepost.op'), '2099-01-01 12:00', fencepost.bucket(1), true)
                RETURNING *
            )
            INSERT INTO fencepost.outbox (at, item_id, user_id, op, was, liked)
            SELECT at, item_id, user_id, op, false, liked FROM edge",
        )
        .unwrap();
}

#[test]
fn a_flip_of_a_newer_relay_stops_the_pipeline_before_its_window_closes() {
    let deployment = Deployment::migrated("newer_relay");
    let mut roles = Roles::spawn(&deployment);
    like(&deployment, 1);
    deployment.audit();
    assert_eq!(roles.relay.terminate().code(), Some(0));
    let kafka = deployment.kafka();
    let last = windows::last(&kafka).unwrap().unwrap();
    wait_until("all before is applied", || deployment.applied() == last.window);

    let window =
        relay_newer(&kafka, &last, Flip { item: 1, user: 2, op: 1_000, was: false, liked: true, at: 1 });
    assert!(window > last.window);
    assert_gives_up(roles.pipeline, &["has 0 events, and its marker says 1", "dead-letters"]);
    let letters = deployment.dead_letters();
    assert!(letters.values().all(|letter| letter.reason.contains("version 2, this build reads version 1")));
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(roles.applier.terminate().code(), Some(0));
    assert_eq!(deployment.applied(), last.window, "the window is not applied without it");
    // Nor by starting again: it stands in the log for a build that can read it.
    assert_refused(&deployment, &["pipeline"], &["has 0 events, and its marker says 1", "dead-letters"]);
    assert_eq!(deployment.count(1), 1);
}

/// Writes a window with this flip as a relay of a later version would, and returns the window.
fn relay_newer(kafka: &KafkaConfig, last: &WindowRecord, flip: Flip<i64>) -> WindowId {
    let partitions = u32::try_from(last.counts.len()).unwrap();
    let log = KafkaWindowLog::take_over(kafka, &format!("{}relay", kafka.topic_prefix), partitions).unwrap();
    let origin = Origin {
        flips_topic: last.flips_topic.clone(),
        system: last.system.clone(),
        timeline: last.timeline,
    };
    let (pace, now_ms) = (Pace { window_ms: 1_000, events_max: 10 }, last.window + 1);
    let (mut relay, mut log) = (Relay::resume(pace, origin, Some(last), now_ms), Newer(log));
    let begin = Change::Begin { final_lsn: last.position.lsn + 1, committed_at: last.as_of + 1 };
    assert_eq!(relay.apply(begin, now_ms, &mut log).unwrap(), None);
    assert_eq!(relay.apply(Change::Row(Ok(Event::Flip(flip))), now_ms, &mut log).unwrap(), None);
    let commit = Change::Commit { end_lsn: last.end_lsn + 1 };
    relay.apply(commit, now_ms + pace.window_ms, &mut log).unwrap().expect("its time has come").window
}

/// The log as a relay of a later version writes it.
struct Newer(KafkaWindowLog);

impl WindowLog for Newer {
    fn partitions(&self) -> u32 {
        self.0.partitions()
    }

    fn send(&mut self, record: &FlipRecord<'_>) -> Result<(), LogError> {
        let value = String::from_utf8_lossy(record.value).replacen(r#""v":1"#, r#""v":2"#, 1);
        self.0.send(&FlipRecord { value: value.as_bytes(), ..*record })
    }

    fn bury(&mut self, position: Position, row: &BadRow, timestamp: WindowId) -> Result<(), LogError> {
        self.0.bury(position, row, timestamp)
    }

    fn close(&mut self, record: &WindowRecord) -> Result<(), LogError> {
        self.0.close(record)
    }
}
