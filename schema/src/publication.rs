use anyhow::{Context, ensure};
use postgres::Client;

/// One row if there is a publication of the name: whether it publishes the outbox as the relay reads it, and nothing
/// else.
const IS_RIGHT: &str = "
    SELECT NOT puballtables AND pubinsert AND NOT pubupdate AND NOT pubdelete AND NOT pubtruncate AND pubviaroot
        AND NOT EXISTS (SELECT FROM pg_publication_namespace WHERE pnpubid = publication.oid)
        AND coalesce(
            (SELECT count(*) = 1
                AND bool_and(prrelid = 'fencepost.outbox'::regclass AND prqual IS NULL AND prattrs IS NULL)
            FROM pg_publication_rel WHERE prpubid = publication.oid),
            false)
    FROM pg_publication AS publication WHERE pubname = $1";

/// Creates the publication of the outbox: its inserts, in the name of the table and not of its partitions.
pub(crate) fn create(client: &mut Client, name: &str) -> anyhow::Result<Option<String>> {
    let context = || format!("creating publication {name}");
    let quoted: String = client.query_one("SELECT quote_ident($1)", &[&name]).with_context(context)?.get(0);
    if let Some(row) = client.query_opt(IS_RIGHT, &[&name]).with_context(context)? {
        ensure!(
            row.get::<_, bool>(0),
            "publication {name} publishes something else than the inserts of fencepost.outbox; \
             set relay.publication to another name, or run: ALTER PUBLICATION {quoted} SET TABLE fencepost.outbox; \
             ALTER PUBLICATION {quoted} SET (publish = 'insert', publish_via_partition_root = true)"
        );
        return Ok(None);
    }
    client
        .batch_execute(&format!(
            "CREATE PUBLICATION {quoted} FOR TABLE fencepost.outbox \
             WITH (publish = 'insert', publish_via_partition_root = true)"
        ))
        .with_context(context)?;
    Ok(Some(format!("publication {name}")))
}
