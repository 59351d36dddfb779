use std::collections::BTreeMap;

use fencepost_model::Id;

/// An item whose counter is not the number of its liked edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Drift<I> {
    /// The item.
    pub item: I,
    /// The number of its liked edges.
    pub edges: i64,
    /// What the store counts, debt included; `None` when its counter is no number.
    pub counter: Option<i64>,
}

/// The outcome of comparing every item that the edges or the store know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison<I> {
    /// Items compared.
    pub items: usize,
    /// Those that differ, by item.
    pub wrong: Vec<Drift<I>>,
}

/// Compares edge counts with counters. An item that one side does not know counts zero there; a counter that is no
/// number (`None`) is always wrong.
pub(crate) fn compare<I: Id>(edges: &BTreeMap<I, i64>, counters: &BTreeMap<I, Option<i64>>) -> Comparison<I> {
    let only_in_store = counters.iter().filter(|(item, _)| !edges.contains_key(item));
    let of_edges = edges.iter().map(|(item, edges)| Drift {
        item: *item,
        edges: *edges,
        counter: counters.get(item).copied().unwrap_or(Some(0)),
    });
    let of_store = only_in_store.map(|(item, counter)| Drift { item: *item, edges: 0, counter: *counter });
    let mut items = 0;
    let all = of_edges.chain(of_store).inspect(|_| items += 1);
    let mut wrong: Vec<_> = all.filter(|drift| drift.counter != Some(drift.edges)).collect();
    wrong.sort_unstable();
    Comparison { items, wrong }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_differ_is_found_and_nothing_else() {
        let edges = [(1, 5), (2, 0), (3, 7), (4, 1), (5, 2)].into();
        let counters = [(1, Some(5)), (3, Some(8)), (5, None), (6, Some(0)), (7, Some(-1))].into();
        let comparison = compare::<i64>(&edges, &counters);
        assert_eq!(comparison.items, 7);
        assert_eq!(
            comparison.wrong,
            [
                Drift { item: 3, edges: 7, counter: Some(8) },
                Drift { item: 4, edges: 1, counter: Some(0) },
                Drift { item: 5, edges: 2, counter: None },
                Drift { item: 7, edges: 0, counter: Some(-1) },
            ]
        );
    }
}
