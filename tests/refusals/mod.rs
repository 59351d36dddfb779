//! What cannot be exact is refused: the role stops, says what happened and what to run, and writes nothing.

mod loss;
mod records;
mod source;
mod topics;

use std::collections::BTreeMap;

use fencepost_model::Fence;

use crate::harness::{Deployment, Output, Process};

/// All that the roles write: where the topics end, and the store's fences.
#[derive(Debug, PartialEq)]
struct Written {
    ends: Vec<Vec<i64>>,
    fences: BTreeMap<u8, Fence>,
}

fn written(deployment: &Deployment) -> Written {
    let topics = ["flips", "windows", "totals"];
    Written { ends: topics.iter().map(|topic| deployment.ends(topic)).collect(), fences: deployment.fences() }
}

/// Starts a role that has to refuse: it exits with 1, says all of these words, and nothing is written meanwhile.
/// No other role may be running.
#[track_caller]
fn assert_refused(deployment: &Deployment, arguments: &[&str], words: &[&str]) {
    let before = written(deployment);
    let output = deployment.run(arguments);
    assert_says(&output, words);
    assert_eq!(written(deployment), before, "nothing was written by {arguments:?}");
}

/// A role that ran has to refuse by itself, and to say all of these words.
#[track_caller]
fn assert_gives_up(role: Process, words: &[&str]) {
    assert_says(&role.finish(), words);
}

#[track_caller]
fn assert_says(output: &Output, words: &[&str]) {
    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    let says = |line: &str| words.iter().all(|word| line.contains(word));
    assert!(output.stderr.lines().any(says), "no line with all of {words:?} in\n{}", output.stderr);
}

/// Likes by `user` of the items 1 to 20.
fn like(deployment: &Deployment, user: i64) {
    let like = "SELECT fencepost.set_likes(array_agg(n), array_agg($1::bigint), array_agg(true))
        FROM generate_series(1, 20::bigint) n";
    assert_eq!(deployment.sql().execute(like, &[&user]).unwrap(), 20);
}
