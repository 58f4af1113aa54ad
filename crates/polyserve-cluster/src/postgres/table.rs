//! The check of a table when a store opens: a put over a column of another type, a missing key or another encoding fails
//! for good, and each with an error of its own.

use tokio_postgres::{Client, Error, SimpleQueryMessage, SimpleQueryRow};

/// A column of a table.
#[derive(Debug)]
struct TableColumn {
    name: String,
    type_name: String,
    is_not_null: bool,
    has_default: bool,
    is_generated: bool,
    /// Whether texts that are equal have the same bytes.
    is_exact: bool,
    /// Whether this column alone is a key that `ON CONFLICT` takes.
    is_key: bool,
}

/// Returns what makes the database or the table unfit, with what would be right. A table that does not exist is fit. Logs which
/// rights of a write are missing: a store may be only read. Logs the settings by which a crash of the server loses acknowledged writes.
///
/// # Cost
///
/// One round trip.
pub(super) async fn misfit(client: &Client, table: &str) -> Result<Option<String>, Error> {
    // In the simple protocol, because a pooler may not keep prepared statements. All values are texts.
    let sql = format!(
        "SELECT current_database(), current_setting('server_encoding'), t.relkind, c.attname,
            format_type(c.atttypid, c.atttypmod), c.attnotnull, c.atthasdef OR c.attidentity <> '', c.attgenerated <> '',
            coalesce(l.collisdeterministic, true),
            EXISTS (SELECT FROM pg_index i WHERE i.indrelid = t.oid AND i.indisunique AND i.indisvalid AND i.indimmediate
                AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = c.attnum),
            t.relpersistence, EXISTS (SELECT FROM pg_rewrite w WHERE w.ev_class = t.oid),
            concat_ws(', ', CASE WHEN NOT has_any_column_privilege(t.oid, 'INSERT') THEN 'INSERT' END,
                CASE WHEN NOT has_any_column_privilege(t.oid, 'UPDATE') THEN 'UPDATE' END,
                CASE WHEN NOT has_table_privilege(t.oid, 'DELETE') THEN 'DELETE' END),
            concat_ws(', ', CASE WHEN current_setting('fsync') = 'off' THEN 'fsync' END,
                CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'synchronous_commit' END)
        FROM (SELECT to_regclass('{table}') AS oid) named LEFT JOIN pg_class t ON t.oid = named.oid
            LEFT JOIN pg_attribute c ON c.attrelid = t.oid AND c.attnum > 0 AND NOT c.attisdropped
            LEFT JOIN pg_collation l ON l.oid = c.attcollation"
    );
    let messages = client.simple_query(&sql).await?;
    let rows: Vec<&SimpleQueryRow> = messages
        .iter()
        .filter_map(|message| if let SimpleQueryMessage::Row(row) = message { Some(row) } else { None })
        .collect();
    let Some(first) = rows.first() else { return Ok(Some("the catalog of the database is empty".into())) };
    let text = |row: &SimpleQueryRow, index| row.get(index).unwrap_or_default().to_owned();
    let encoding = text(first, 1);
    // A database without an encoding, `SQL_ASCII`, may have texts that are none.
    if encoding != "UTF8" {
        let database = text(first, 0);
        return Ok(Some(format!(
            "the database {database} has the encoding {encoding}; it has to be UTF8: CREATE DATABASE name \
             ENCODING 'UTF8' TEMPLATE template0"
        )));
    }
    let table = table.replace('"', "");
    let off = text(first, 13);
    if !off.is_empty() {
        tracing::warn!(
            table,
            off,
            "PostgreSQL acknowledges writes that are not on its disk, and a crash loses them; set this on"
        );
    }
    match &*text(first, 2) {
        "" => return Ok(None),
        "r" => {}
        // It has no `xmax`, which tells a put whether it replaced.
        "p" => return Ok(Some(format!("the table {table} is partitioned; it has to be a table by itself"))),
        _ => return Ok(Some(format!("{table} is no table; name a table, or a name that is free"))),
    }
    let is = |row: &SimpleQueryRow, index| row.get(index) == Some("t");
    match &*text(first, 10) {
        // After a crash, the server empties it.
        "u" => {
            return Ok(Some(format!(
                "the table {table} is UNLOGGED, so a crash loses what is in it; it has to be logged: ALTER TABLE {table} SET LOGGED"
            )));
        }
        "t" => return Ok(Some(format!("the table {table} is temporary; name another table, or a name that is free"))),
        _ => {}
    }
    if is(first, 11) {
        return Ok(Some(format!(
            "the table {table} has rules, which change what a write does; it has to have none: DROP RULE name ON {table}"
        )));
    }
    let missing = text(first, 12);
    if !missing.is_empty() {
        tracing::warn!(table, missing, "the user of the PostgreSQL URL has not all rights of writes: these will fail");
    }
    let columns = rows.iter().map(|row| TableColumn {
        name: text(row, 3),
        type_name: text(row, 4),
        is_not_null: is(row, 5),
        has_default: is(row, 6),
        is_generated: is(row, 7),
        is_exact: is(row, 8),
        is_key: is(row, 9),
    });
    Ok(misfit_of(&table, &columns.collect::<Vec<_>>()))
}

fn misfit_of(table: &str, columns: &[TableColumn]) -> Option<String> {
    for name in ["id", "value"] {
        let Some(column) = columns.iter().find(|column| column.name == name) else {
            return Some(format!(
                "the table {table} has no column {name}; it has to have `id text PRIMARY KEY, value text NOT NULL`"
            ));
        };
        let misfit = |what: &str, change: &str| {
            Some(format!("the column {name} of the table {table} {what}: ALTER TABLE {table} {change}"))
        };
        // `varchar` without a length is a `text`.
        if !["text", "character varying"].contains(&&*column.type_name) {
            let what = format!("has the type {}; it has to be text", column.type_name);
            return misfit(&what, &format!("ALTER COLUMN {name} TYPE text"));
        }
        if column.is_generated {
            return misfit("is generated; it has to be writable", &format!("ALTER COLUMN {name} DROP EXPRESSION"));
        }
        if !column.is_exact {
            let what = "has a nondeterministic collation, which takes different texts for the same; it has to be \"C\"";
            return misfit(what, &format!("ALTER COLUMN {name} TYPE text COLLATE \"C\""));
        }
        if name == "id" && !column.is_key {
            return misfit("is no key by itself; it has to be the PRIMARY KEY, or UNIQUE", "ADD PRIMARY KEY (id)");
        }
        if !column.is_not_null {
            return misfit(
                "may be NULL, which no entity is; it has to be NOT NULL",
                &format!("ALTER COLUMN {name} SET NOT NULL"),
            );
        }
    }
    let is_missing = |column: &&TableColumn| {
        column.is_not_null && !column.has_default && !column.is_generated && !["id", "value"].contains(&&*column.name)
    };
    let TableColumn { name, .. } = columns.iter().find(is_missing)?;
    Some(format!(
        "the column {name} of the table {table} is NOT NULL, and a put has no value for it; it has to have a DEFAULT: ALTER TABLE \
         {table} ALTER COLUMN {name} SET DEFAULT ..."
    ))
}
