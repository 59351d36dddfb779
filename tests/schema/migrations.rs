//! What `migrate` creates, and that it finishes what was half done.

use fencepost_schema::{create_functions, create_slot, create_tables};

use super::database::{Database, set_like};

#[test]
fn to_migrate_again_makes_what_is_missing_and_nothing_else() {
    let database = Database::empty("migrate_again");
    let mut client = database.client();
    let refusal = create_functions(&mut client).unwrap_err();
    assert!(format!("{refusal:#}").contains("run fencepost migrate"), "{refusal:#}");

    let name = database.name();
    let made = create_tables(&mut client, name).unwrap();
    assert!(made.contains(&format!("publication {name}")), "{made:?}");
    // Ended here the first time: there is nothing yet that a flip could come from.
    assert!(client.execute("SELECT fencepost.set_like(1, 2, true)", &[]).is_err());
    assert!(
        create_tables(&mut client, name).unwrap().len() <= 1,
        "only a partition may be new, after midnight"
    );

    assert_eq!(create_slot(&mut client, name).unwrap(), Some(format!("replication slot {name}")));
    assert_eq!(create_slot(&mut client, name).unwrap(), None);
    assert_eq!(create_functions(&mut client).unwrap().len(), 2);
    assert!(set_like(&mut client, 1, 2, true).changed);

    client.batch_execute(&format!("DROP PUBLICATION {name}")).unwrap();
    let made = create_tables(&mut client, name).unwrap();
    assert!(made.contains(&format!("publication {name}")), "{made:?}");
    assert_eq!(create_functions(&mut client).unwrap(), Vec::<String>::new());
    client.execute("SELECT pg_drop_replication_slot($1)", &[&name]).unwrap();
    database.assert_outbox_equals_edges();
}

#[test]
fn a_migration_waits_for_another_one() {
    let database = Database::empty("migrate_at_once");
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                let mut client = database.client();
                create_tables(&mut client, database.name()).unwrap();
                create_slot(&mut client, database.name()).unwrap();
                create_functions(&mut client).unwrap();
            });
        }
    });
    let mut client = database.client();
    assert!(set_like(&mut client, 1, 2, true).changed);
    client.execute("SELECT pg_drop_replication_slot($1)", &[&database.name()]).unwrap();
}

#[test]
fn a_publication_or_slot_that_is_for_something_else_is_refused_with_its_repair() {
    let database = Database::migrated("migrate_refused");
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE PUBLICATION migrate_all FOR ALL TABLES;
            CREATE PUBLICATION migrate_edges FOR TABLE fencepost.outbox, fencepost.edges
                WITH (publish = 'insert', publish_via_partition_root = true);
            CREATE PUBLICATION migrate_updates FOR TABLE fencepost.outbox WITH (publish_via_partition_root = true);
            CREATE PUBLICATION migrate_filter FOR TABLE fencepost.outbox WHERE (item_id > 0)
                WITH (publish = 'insert', publish_via_partition_root = true);
            CREATE PUBLICATION migrate_leaves FOR TABLE fencepost.outbox WITH (publish = 'insert')",
        )
        .unwrap();
    for name in ["migrate_all", "migrate_edges", "migrate_updates", "migrate_filter", "migrate_leaves"] {
        let refusal = create_tables(&mut client, name).unwrap_err().to_string();
        let Some((_, repair)) = refusal.split_once("or run: ") else { panic!("{refusal}") };
        // A publication of all tables cannot be turned into another.
        if name != "migrate_all" {
            client.batch_execute(repair).unwrap();
            create_tables(&mut client, name).unwrap();
        }
    }

    client.batch_execute("SELECT pg_create_physical_replication_slot('migrate_physical')").unwrap();
    let refusal = create_slot(&mut client, "migrate_physical").unwrap_err().to_string();
    let Some((_, repair)) = refusal.split_once("run: ") else { panic!("{refusal}") };
    client.batch_execute(repair).unwrap();
    create_slot(&mut client, "migrate_physical").unwrap();

    let other = Database::migrated("migrate_refused_too");
    let refusal = create_slot(&mut other.client(), "migrate_physical").unwrap_err().to_string();
    assert!(refusal.contains("database migrate_refused"), "{refusal}");
    client.batch_execute(repair).unwrap();
}

#[test]
fn placement_in_sql_is_that_of_the_vectors() {
    let database = Database::migrated("placement");
    let mut client = database.client();
    let vectors = include_str!("../../model/vectors/placement.csv");
    let rows: Vec<_> = vectors.lines().skip(1).collect();
    assert!(rows.len() >= 20, "the vectors are gone");
    for line in rows {
        let mut fields = line.split(',').map(|field| field.parse::<i64>().unwrap());
        let (id, hash) = (fields.next().unwrap(), fields.next().unwrap());
        let row = client
            .query_one("SELECT fencepost.bucket($1)::bigint, fencepost.lane($1)::bigint", &[&id])
            .unwrap();
        assert_eq!((row.get(0), row.get(1)), (hash, hash), "{id}");
    }
}

#[test]
fn every_leaf_of_the_edges_keeps_the_row_as_it_was() {
    let database = Database::migrated("replica_identity");
    let leaves: Vec<String> = database
        .client()
        .query(
            "SELECT relreplident::text FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
            WHERE inhparent = 'fencepost.edges'::regclass",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(leaves, vec!["f"; 16]);
}
