//! Which days the outbox has partitions for, and which of those are done with: a pure rule.

/// A partition of the outbox, or a table that was one and is to be dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    /// Its name within the schema.
    pub(super) name: String,
    /// Its day, counted from today in UTC: negative when that day is over.
    pub(super) day: i32,
    /// How far it has come on its way out.
    pub(super) state: State,
    /// Whether a transaction holds a lock on it, and so may have written to it what is not committed.
    pub(super) in_use: bool,
}

/// How far a partition has come on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It takes rows of its day.
    Attached,
    /// It takes no more rows, but whoever detached it was broken off.
    Detaching,
    /// It is a table by itself, and marked to be dropped.
    Detached,
}

/// For how many days ahead there are partitions, without a hole: 0 when there is one for today only, `None` when there
/// is none for today.
pub(super) fn days_ahead(partitions: &[Partition]) -> Option<u32> {
    let has = |day| partitions.iter().any(|found| found.day == day && found.state == State::Attached);
    let first_missing = (0..).find(|day| !has(*day)).expect("partitions are finite");
    u32::try_from(first_missing - 1).ok()
}

/// The partitions whose day ended at least so many days ago, and that nobody uses.
pub(super) fn expired(
    partitions: &[Partition],
    retention_days: u32,
) -> impl Iterator<Item = &Partition> + '_ {
    // A partition of yesterday has ended on the day that began today: zero days ago.
    let ended_days_ago = |partition: &Partition| -i64::from(partition.day) - 1;
    partitions.iter().filter(move |partition| {
        partition.state == State::Attached
            && !partition.in_use
            && ended_days_ago(partition) >= i64::from(retention_days)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(day: i32, state: State) -> Partition {
        Partition { name: format!("day {day}"), day, state, in_use: false }
    }

    fn attached(days: impl IntoIterator<Item = i32>) -> Vec<Partition> {
        days.into_iter().map(|day| partition(day, State::Attached)).collect()
    }

    #[test]
    fn days_ahead_are_counted_up_to_the_first_hole() {
        assert_eq!(days_ahead(&attached(-3..=14)), Some(14));
        assert_eq!(days_ahead(&attached([0])), Some(0));
        assert_eq!(days_ahead(&attached([2, 0, 1, 4, 5])), Some(2));
        assert_eq!(days_ahead(&attached([-1, 1, 2])), None);
        let mut detached = attached(0..=3);
        detached[2].state = State::Detached;
        assert_eq!(days_ahead(&detached), Some(1));
    }

    #[test]
    fn a_partition_expires_when_its_day_ended_long_enough_ago_and_nobody_uses_it() {
        let days = |partitions: &[Partition], retention| -> Vec<i32> {
            expired(partitions, retention).map(|partition| partition.day).collect()
        };
        assert_eq!(days(&attached(-10..=14), 7), [-10, -9, -8]);
        assert_eq!(days(&attached(-3..=14), 1), [-3, -2], "never yesterday's: the clock may step back");
        let mut some_in_use = attached(-10..=-8);
        some_in_use[1].in_use = true;
        assert_eq!(days(&some_in_use, 7), [-10, -8]);
        let on_their_way = [partition(-10, State::Detaching), partition(-9, State::Detached)];
        assert!(days(&on_their_way, 7).is_empty(), "they are finished, not begun again");
    }
}
