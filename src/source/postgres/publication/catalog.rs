//! What the server's catalog says of a publication and of the tables that could be in it.

use crate::config::NamePattern;
use crate::source::select::Selector;

use super::super::control::{Control, column, quote_identifier};
use super::super::error::PostgresError;

/// From this version on a publication can leave out rows and columns, and have the tables of a schema.
const PARTS_OF_TABLES: u32 = 150_000;
/// From this version on a publication can have stored generated columns.
pub(super) const GENERATED_COLUMNS: u32 = 180_000;

/// What a table without log is called.
pub(super) const UNLOGGED: &str = "an unlogged table";

/// A publication, as `pg_publication` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PublicationFacts {
    pub(super) all_tables: bool,
    /// Those whose tables it has, whenever they are made.
    pub(super) schemas: Vec<String>,
    pub(super) inserts: bool,
    pub(super) updates: bool,
    pub(super) deletes: bool,
    pub(super) truncates: bool,
    /// Whether a partition's rows come under the name of the partitioned table.
    pub(super) via_root: bool,
    /// How many transactions ago it was made or last altered.
    pub(super) age: i32,
}

impl PublicationFacts {
    pub(super) async fn read(control: &Control, name: &str) -> Result<Option<Self>, PostgresError> {
        const ACTION: &str = "read the publication";
        let schemas = match control.version() >= PARTS_OF_TABLES {
            true => {
                "ARRAY(SELECT n.nspname::text FROM pg_publication_namespace s JOIN pg_namespace n ON n.oid = s.pnnspid \
                 WHERE s.pnpubid = p.oid)"
            }
            false => "'{}'::text[]",
        };
        let sql = format!(
            "SELECT puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot, age(xmin), {schemas} \
             FROM pg_publication p WHERE pubname = $1"
        );
        let rows = control.rows(ACTION, &sql, &[&name]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(Self {
            all_tables: column(row, 0, ACTION)?,
            inserts: column(row, 1, ACTION)?,
            updates: column(row, 2, ACTION)?,
            deletes: column(row, 3, ACTION)?,
            truncates: column(row, 4, ACTION)?,
            via_root: column(row, 5, ACTION)?,
            age: column(row, 6, ACTION)?,
            schemas: column(row, 7, ACTION)?,
        }))
    }

    /// Each operation, as the option `publish` names it, and whether it is published.
    pub(super) fn operations(&self) -> [(&'static str, bool); 4] {
        [
            ("insert", self.inserts),
            ("update", self.updates),
            ("delete", self.deletes),
            ("truncate", self.truncates),
        ]
    }

    /// Whether it has tables of the pattern's schema before they are made.
    pub(super) fn awaits(&self, pattern: &NamePattern) -> bool {
        self.all_tables || self.schemas.iter().any(|schema| pattern.is_in(schema))
    }
}

/// A table whose rows arrive under its own name, and what of them does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Published {
    pub(super) schema: String,
    pub(super) name: String,
    /// The condition that rows must meet.
    pub(super) row_filter: Option<String>,
    /// Columns that no row comes with. Generated ones are told of by no list.
    pub(super) left_out: Vec<String>,
}

impl Published {
    pub(super) async fn read(control: &Control, publication: &str) -> Result<Vec<Self>, PostgresError> {
        const ACTION: &str = "read the publication's tables";
        let parts = match control.version() >= PARTS_OF_TABLES {
            true => {
                "t.rowfilter, ARRAY(SELECT a.attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
                 JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = t.schemaname AND c.relname = t.tablename \
                 AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND a.attname <> ALL (t.attnames) \
                 ORDER BY a.attnum)"
            }
            false => "NULL::text, '{}'::text[]",
        };
        let sql = format!(
            "SELECT t.schemaname::text, t.tablename::text, {parts} FROM pg_publication_tables t WHERE t.pubname = $1 ORDER BY 1, 2"
        );
        let rows = control.rows(ACTION, &sql, &[&publication]).await?;
        rows.iter()
            .map(|row| {
                Ok(Self {
                    schema: column(row, 0, ACTION)?,
                    name: column(row, 1, ACTION)?,
                    row_filter: column(row, 2, ACTION)?,
                    left_out: column(row, 3, ACTION)?,
                })
            })
            .collect()
    }

    pub(super) fn is(&self, schema: &str, name: &str) -> bool {
        self.schema == schema && self.name == name
    }
}

/// A relation of the database with rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableFacts {
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) partitioned: bool,
    /// The tables that it is a partition of, the nearest first, with their schemas.
    pub(super) ancestors: Vec<(String, String)>,
    /// Whether UPDATE and DELETE can be published.
    pub(super) identified: bool,
    /// Whether our role may put it into a publication.
    pub(super) owned: bool,
    /// Why the log has no rows of it: what it is.
    pub(super) unlogged: Option<String>,
}

impl TableFacts {
    pub(super) fn quoted(&self) -> String {
        quoted(&self.schema, &self.name)
    }
}

fn quoted(schema: &str, name: &str) -> String {
    format!("{}.{}", quote_identifier(schema), quote_identifier(name))
}

/// The tables of a database.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    tables: Vec<TableFacts>,
}

impl Catalog {
    /// Empty for a pipeline without tables.
    pub(super) async fn read(control: &Control, selector: &Selector) -> Result<Self, PostgresError> {
        const ACTION: &str = "read the database's tables";
        if !selector.has_tables() {
            return Ok(Self::default());
        }
        // A generated column is in no old row of these servers.
        let whole = match control.version() >= GENERATED_COLUMNS {
            true => "",
            false => {
                "AND NOT EXISTS (SELECT 1 FROM pg_attribute g WHERE g.attrelid = c.oid AND g.attnum = ANY (i.indkey) \
                 AND g.attgenerated <> '')"
            }
        };
        // Identity: an index marked for it, FULL, or the default with a primary key.
        let sql = format!(
            "SELECT n.nspname::text, c.relname::text, c.relkind = 'p', \
                   c.relreplident = 'f' OR EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND \
                   CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END {whole}), \
                   pg_has_role(c.relowner, 'USAGE'), \
                   CASE WHEN c.relkind = 'v' THEN 'a view' WHEN c.relkind = 'm' THEN 'a materialized view' \
                   WHEN c.relkind = 'f' THEN 'a foreign table' WHEN c.relpersistence = 'u' THEN '{UNLOGGED}' END, \
                   coalesce(above.schemas, '{{}}'), coalesce(above.names, '{{}}') \
                   FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                   LEFT JOIN LATERAL (SELECT array_agg(an.nspname::text ORDER BY a.step) AS schemas, \
                   array_agg(ac.relname::text ORDER BY a.step) AS names \
                   FROM pg_partition_ancestors(c.oid) WITH ORDINALITY a(relid, step) \
                   JOIN pg_class ac ON ac.oid = a.relid JOIN pg_namespace an ON an.oid = ac.relnamespace \
                   WHERE a.relid <> c.oid) above ON c.relispartition \
                   WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't' \
                   AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') ORDER BY 1, 2"
        );
        let rows = control.rows(ACTION, &sql, &[]).await?;
        let tables: Result<_, PostgresError> = rows
            .iter()
            .map(|row| {
                let schemas: Vec<String> = column(row, 6, ACTION)?;
                let names: Vec<String> = column(row, 7, ACTION)?;
                Ok(TableFacts {
                    schema: column(row, 0, ACTION)?,
                    name: column(row, 1, ACTION)?,
                    partitioned: column(row, 2, ACTION)?,
                    identified: column(row, 3, ACTION)?,
                    owned: column(row, 4, ACTION)?,
                    unlogged: column(row, 5, ACTION)?,
                    ancestors: schemas.into_iter().zip(names).collect(),
                })
            })
            .collect();
        Ok(Self { tables: tables? })
    }

    /// Those with rows in the log that a pattern names. A partition counts through a table above it that one names too.
    pub(super) fn listed(&self, selector: &Selector) -> Vec<TableFacts> {
        let is_named = |schema: &str, name: &str| selector.table(schema, name).is_some();
        let is_listed = |table: &&TableFacts| {
            table.unlogged.is_none()
                && is_named(&table.schema, &table.name)
                && !table.ancestors.iter().any(|(schema, name)| is_named(schema, name))
        };
        self.tables.iter().filter(is_listed).cloned().collect()
    }

    /// The patterns that name no table with rows in the log, each with a relation without such rows that it does name.
    pub(super) fn unmatched<'s>(&'s self, selector: &'s Selector) -> Vec<(&'s NamePattern, Option<&'s TableFacts>)> {
        let patterns = selector.table_patterns();
        let unmatched = patterns.filter_map(|pattern| {
            let named = self
                .tables
                .iter()
                .filter(|table| pattern.matches(&table.schema, &table.name));
            let (unlogged, logged): (Vec<_>, Vec<_>) = named.partition(|table| table.unlogged.is_some());
            logged.is_empty().then(|| (pattern, unlogged.first().copied()))
        });
        unmatched.collect()
    }

    /// The partitions of a table under whose names its rows arrive.
    pub(super) fn published_parts<'s>(
        &'s self,
        of: &'s TableFacts,
        published: &'s [Published],
    ) -> impl Iterator<Item = &'s TableFacts> {
        self.tables.iter().filter(|table| {
            let mut above = table.ancestors.iter();
            let mut published = published.iter();
            above.any(|(schema, name)| *schema == of.schema && *name == of.name)
                && published.any(|published| published.is(&table.schema, &table.name))
        })
    }

    /// Whether patterns name all the partitions under whose names a table's rows arrive, as `*.*` does.
    pub(super) fn arrives_in_parts(&self, table: &TableFacts, published: &[Published], selector: &Selector) -> bool {
        let mut parts = self.published_parts(table, published).peekable();
        parts.peek().is_some() && parts.all(|part| selector.table(&part.schema, &part.name).is_some())
    }
}

/// The table under whose name a partition's rows arrive, if that is another.
pub(super) fn arrives_as(table: &TableFacts, published: &[Published]) -> Option<String> {
    let is_published = |schema: &str, name: &str| published.iter().any(|published| published.is(schema, name));
    let above = table
        .ancestors
        .iter()
        .find(|(schema, name)| is_published(schema, name))?;
    Some(quoted(&above.0, &above.1))
}
