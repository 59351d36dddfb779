use postgres::{Client, NoTls};

use crate::harness::{Stack, wait_until};

/// A database of its own, with the schema in it.
pub(crate) struct Database {
    name: String,
    url: String,
}

/// What `fencepost.set_like` returns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) changed: bool,
    pub(crate) liked: bool,
    pub(crate) op: Option<i64>,
}

impl Database {
    /// An empty database. The name is used once in the whole test binary.
    pub(crate) fn empty(name: &str) -> Self {
        let stack = Stack::get();
        let mut server = Client::connect(&stack.postgres_url("postgres"), NoTls).unwrap();
        server.batch_execute(&format!("CREATE DATABASE {name}")).unwrap();
        Self { name: name.to_owned(), url: stack.postgres_url(name) }
    }

    /// A database that likes can be written to.
    pub(crate) fn migrated(name: &str) -> Self {
        let database = Self::empty(name);
        let mut client = database.client();
        fencepost_schema::create_tables(&mut client, name).unwrap();
        fencepost_schema::create_functions(&mut client).unwrap();
        database
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.url, NoTls).unwrap()
    }

    /// Waits until so many sessions of this database wait for a lock.
    pub(crate) fn wait_for_waiters(&self, waiters: i64) {
        let mut client = self.client();
        let count = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        wait_until("sessions wait for a lock", || {
            client.query_one(count, &[]).unwrap().get::<_, i64>(0) == waiters
        });
    }

    /// The last op that was drawn; 0 when none was.
    pub(crate) fn last_op(&self) -> i64 {
        let last = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM fencepost.op";
        self.client().query_one(last, &[]).unwrap().get(0)
    }

    /// Amounts of the item's flips, in the order of their ops.
    pub(crate) fn amounts(&self, item: i64) -> Vec<i64> {
        let amounts = "SELECT (liked::integer - was::integer)::bigint
            FROM fencepost.outbox WHERE item_id = $1 ORDER BY op";
        self.client().query(amounts, &[&item]).unwrap().iter().map(|row| row.get(0)).collect()
    }

    /// The outbox tells the history of every edge: its flips alternate in the order of their ops, and end where the
    /// edge stands. So the amounts of an item add up to its liked edges.
    pub(crate) fn assert_outbox_equals_edges(&self) {
        let wrong = "
            WITH history AS (
                SELECT item_id, user_id, op, was, liked,
                    lag(liked, 1, false) OVER edge AS before,
                    lead(op) OVER edge IS NULL AS is_last
                FROM fencepost.outbox
                WINDOW edge AS (PARTITION BY item_id, user_id ORDER BY op)
            )
            SELECT format('%s %s op %s: was %s liked %s, before %s, edge %s op %s',
                item_id, user_id, history.op, was, history.liked, before, edge.liked, edge.op)
            FROM history FULL JOIN fencepost.edges AS edge USING (item_id, user_id)
            WHERE (before = was AND was <> history.liked
                AND (NOT is_last OR (edge.liked, edge.op) = (history.liked, history.op))) IS NOT TRUE";
        let wrong: Vec<String> =
            self.client().query(wrong, &[]).unwrap().iter().map(|row| row.get(0)).collect();
        assert!(wrong.is_empty(), "{} rows, such as {:?}", wrong.len(), wrong[0]);
    }
}

pub(crate) fn set_like(
    client: &mut impl postgres::GenericClient,
    item: i64,
    user: i64,
    liked: bool,
) -> Answer {
    let row =
        client.query_one("SELECT * FROM fencepost.set_like($1, $2, $3)", &[&item, &user, &liked]).unwrap();
    Answer { changed: row.get("changed"), liked: row.get("liked"), op: row.get("op") }
}
