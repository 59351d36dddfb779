//! Reading a store on Postgres.

use std::collections::BTreeMap;

use fencepost_model::Fence;
use fencepost_model::placement::lane;
use postgres::{IsolationLevel, Transaction};

use super::connection::Connection;
use super::fences::read_fences;
use super::tables::Tables;
use super::{ColumnId, PostgresConfig};
use crate::counts::{Count, Debts};
use crate::store::StoreError;

/// Reads the counters of one schema, each answer as of one instant.
pub(crate) struct PostgresCounts {
    connection: Connection,
    tables: Tables,
}

impl PostgresCounts {
    pub(crate) fn new(config: &PostgresConfig) -> Result<Self, StoreError> {
        Ok(Self { connection: Connection::new(config)?, tables: Tables::new(&config.schema)? })
    }

    pub(crate) fn fences(&mut self) -> Result<Vec<Option<Fence>>, StoreError> {
        self.read(|_, _| Ok(())).map(|((), fences)| fences)
    }

    pub(crate) fn counts<I: ColumnId>(&mut self, items: &[I]) -> Result<Vec<Count<I>>, StoreError> {
        let (rows, fences) = self.read(|transaction, tables| transaction.query(&tables.read(), &[&items]))?;
        let counts: BTreeMap<I, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let count = |item: &I| {
            let lane = lane(*item);
            let fence = fences[usize::from(lane)].ok_or_else(|| {
                StoreError::Refused(format!(
                    "lane {lane} has no fence in {}: the store is not built, or has lost its counters; run \
                     `fencepost apply --store NAME`, which says what to do",
                    self.tables.lanes()
                ))
            })?;
            Ok(Count { item: *item, value: Some(counts.get(item).copied().unwrap_or(0)), fence })
        };
        items.iter().map(count).collect()
    }

    pub(crate) fn items<I: ColumnId>(&mut self) -> Result<Vec<I>, StoreError> {
        let (rows, _) = self.read(|transaction, tables| transaction.query(&tables.items(), &[]))?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    pub(crate) fn debts<I: ColumnId>(&mut self) -> Result<Debts<I>, StoreError> {
        let (rows, fences) = self.read(|transaction, tables| transaction.query(&tables.debts(), &[]))?;
        Ok(Debts { by_item: rows.iter().map(|row| (row.get(0), row.get(1))).collect(), fences })
    }

    /// Reads in a snapshot, and the fences of the same.
    fn read<T>(
        &mut self,
        read: impl FnOnce(&mut Transaction<'_>, &Tables) -> Result<T, postgres::Error>,
    ) -> Result<(T, Vec<Option<Fence>>), StoreError> {
        let tables = &self.tables;
        self.connection.with(|session| {
            let all = || {
                let snapshot =
                    session.client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
                let mut transaction = snapshot.read_only(true).start()?;
                let fences = transaction.query(&tables.fences(), &[])?;
                let answer = read(&mut transaction, tables)?;
                transaction.commit()?;
                Ok::<_, postgres::Error>((answer, fences))
            };
            let (answer, fences) = all().map_err(|error| session.failure(&error))?;
            Ok((answer, read_fences(&fences)?))
        })
    }
}
