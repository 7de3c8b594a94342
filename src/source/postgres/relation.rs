//! The tables that the stream has described so far.
//!
//! A description comes before a table's first change in a connection and after each change of the table. One that
//! changes nothing gives the same `Arc` as before: what is computed for a table may be kept by its pointer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::pgoutput::{RelationColumn, RelationMessage, ReplicaIdentity};
use crate::row::{Column, ColumnKind, Table};

/// Tables by their relation's id. May outlive a connection: the server describes each one anew.
#[derive(Debug)]
pub(super) struct Relations {
    database: String,
    tables: HashMap<u32, Arc<Table>>,
    /// Of types that are not built in, those that are read as a built-in one: domains.
    domains: HashMap<u32, ColumnKind>,
}

/// A change of a relation that the server has not described: a fault in the stream, which a person must look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("relation {id} has a change but no description in the stream")]
pub struct UnknownRelation {
    pub id: u32,
}

impl Relations {
    /// Of this database: a description does not name it.
    pub(super) fn new(database: String) -> Self {
        Self {
            database,
            tables: HashMap::new(),
            domains: HashMap::new(),
        }
    }

    /// Takes in what a Type message says, which comes before the description that needs it. Of a domain it gives the
    /// domain's id, but schema and name of the type below.
    pub(super) fn name_type(&mut self, id: u32, schema: &str, name: &str) {
        let kind = BUILT_IN_TYPES
            .iter()
            .find(|built_in| is_catalog(schema) && built_in.1 == name)
            .map(|it| it.2);
        match kind {
            Some(kind) => self.domains.insert(id, kind),
            None => self.domains.remove(&id),
        };
    }

    /// Takes a description in and gives its table: the one that was there, if nothing has changed.
    pub(super) fn describe(&mut self, relation: &RelationMessage<'_>) -> &Arc<Table> {
        let table = self.described_table(relation);
        match self.tables.entry(relation.id) {
            Entry::Vacant(entry) => entry.insert(Arc::new(table)),
            Entry::Occupied(entry) => {
                let known = entry.into_mut();
                if **known != table {
                    *known = Arc::new(table);
                }
                known
            }
        }
    }

    /// Gives a table whose old rows are whole rows the key that these columns are. False: it does not have all of them.
    pub(super) fn identify(&mut self, id: u32, key: &[String]) -> bool {
        let Some(table) = self.tables.get_mut(&id) else {
            return false;
        };
        if key.iter().any(|name| table.column_index(name).is_none()) {
            return false;
        }
        let mut keyed = Table::clone(table);
        for column in &mut keyed.columns {
            column.key = key.contains(&column.name);
        }
        keyed.keyed = true;
        *table = Arc::new(keyed);
        true
    }

    /// # Errors
    /// The stream has not described the relation.
    pub(super) fn table(&self, id: u32) -> Result<&Arc<Table>, UnknownRelation> {
        self.tables.get(&id).ok_or(UnknownRelation { id })
    }

    fn described_table(&self, relation: &RelationMessage<'_>) -> Table {
        let RelationMessage {
            schema, name, identity, ..
        } = *relation;
        let columns: Vec<_> = relation
            .columns
            .iter()
            .map(|described| self.column(identity, described))
            .collect();
        let by_key = matches!(identity, ReplicaIdentity::Default | ReplicaIdentity::Index);
        Table {
            database: self.database.clone(),
            schema: if is_catalog(schema) { CATALOG } else { schema }.to_owned(),
            name: name.to_owned(),
            keyed: by_key && columns.iter().any(|column| column.key),
            columns,
        }
    }

    fn column(&self, identity: ReplicaIdentity, described: &RelationColumn<'_>) -> Column {
        let key = match identity {
            ReplicaIdentity::Default | ReplicaIdentity::Index => described.key,
            ReplicaIdentity::Full => true,
            ReplicaIdentity::Nothing => false,
        };
        Column {
            name: described.name.to_owned(),
            kind: self.column_kind(described.type_id),
            key,
        }
    }

    fn column_kind(&self, type_id: u32) -> ColumnKind {
        let built_in = BUILT_IN_TYPES
            .iter()
            .find(|built_in| built_in.0 == type_id)
            .map(|it| it.2);
        built_in
            .or_else(|| self.domains.get(&type_id).copied())
            .unwrap_or(ColumnKind::Text)
    }
}

/// On the wire the catalog's name is empty.
fn is_catalog(schema: &str) -> bool {
    schema.is_empty() || schema == CATALOG
}

const CATALOG: &str = "pg_catalog";

/// The types that are not read as text. Their ids are fixed, in `src/include/catalog/pg_type.dat` of PostgreSQL's source.
const BUILT_IN_TYPES: [(u32, &str, ColumnKind); 12] = [
    (16, "bool", ColumnKind::Boolean),
    (17, "bytea", ColumnKind::Binary),
    (20, "int8", ColumnKind::Integer),
    (21, "int2", ColumnKind::Integer),
    (23, "int4", ColumnKind::Integer),
    (26, "oid", ColumnKind::Integer),
    (114, "json", ColumnKind::Json),
    (700, "float4", ColumnKind::Float),
    (701, "float8", ColumnKind::Float),
    (1700, "numeric", ColumnKind::Numeric),
    (2950, "uuid", ColumnKind::Uuid),
    (3802, "jsonb", ColumnKind::Json),
];

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::super::pgoutput::{LogicalMessage, decode};
    use super::*;

    fn relations() -> Relations {
        Relations::new("db".to_owned())
    }

    fn described(identity: ReplicaIdentity, columns: &[(&'static str, u32, bool)]) -> RelationMessage<'static> {
        let column = |&(name, type_id, key)| RelationColumn {
            key,
            name,
            type_id,
            type_modifier: -1,
        };
        RelationMessage {
            id: 7,
            schema: "s",
            name: "t",
            identity,
            columns: columns.iter().map(column).collect(),
        }
    }

    #[test]
    fn same_description_keeps_the_pointer_and_another_replaces_it() {
        let mut relations = relations();
        let message = described(ReplicaIdentity::Default, &[("id", 20, true)]);
        let first = relations.describe(&message).clone();
        assert!(Arc::ptr_eq(&first, relations.describe(&message)));
        assert!(Arc::ptr_eq(&first, relations.table(7).unwrap()));

        let wider = described(ReplicaIdentity::Default, &[("id", 20, true), ("note", 25, false)]);
        let second = relations.describe(&wider).clone();
        assert_eq!((first.columns.len(), second.columns.len()), (1, 2));
        assert!(Arc::ptr_eq(&second, relations.table(7).unwrap()));
    }

    #[test]
    fn relation_without_a_description_is_an_error() {
        let error = relations().table(16_920).unwrap_err();
        assert_eq!(
            error.to_string(),
            "relation 16920 has a change but no description in the stream"
        );
    }

    #[test]
    fn identity_says_which_columns_are_the_key() {
        use ReplicaIdentity::{Default, Full, Index, Nothing};
        let cases = [
            (Default, true, [true, false], true),
            (Default, false, [false, false], false),
            (Index, true, [true, false], true),
            (Full, true, [true, true], false),
            (Nothing, true, [false, false], false),
        ];
        for (identity, first_flag, keys, keyed) in cases {
            let message = described(identity, &[("a", 23, first_flag), ("b", 25, false)]);
            let mut relations = relations();
            let table = relations.describe(&message);
            let found: Vec<_> = table.columns.iter().map(|column| column.key).collect();
            assert_eq!(
                (found.as_slice(), table.keyed),
                (keys.as_slice(), keyed),
                "{identity:?} {first_flag}"
            );
        }
    }

    #[test]
    fn table_with_whole_old_rows_is_given_its_key() {
        let message = described(ReplicaIdentity::Full, &[("a", 23, false), ("b", 25, false)]);
        let mut relations = relations();
        assert!(!relations.describe(&message).keyed);
        assert!(!relations.identify(7, &["b".to_owned(), "c".to_owned()]));
        assert!(!relations.table(7).unwrap().keyed);
        assert!(relations.identify(7, &["b".to_owned()]));
        let table = relations.table(7).unwrap();
        let keys: Vec<_> = table.columns.iter().map(|column| column.key).collect();
        assert_eq!((keys.as_slice(), table.keyed), (&[false, true][..], true));
        assert!(!relations.identify(8, &[]));
    }

    #[test]
    fn built_in_types_have_their_kinds() {
        use ColumnKind::{Binary, Boolean, Float, Integer, Json, Numeric, Text, Uuid};
        let kinds = [
            (16, Boolean),
            (17, Binary),
            (20, Integer),
            (21, Integer),
            (23, Integer),
            (25, Text),
            (26, Integer),
            (114, Json),
            (199, Text),
            (700, Float),
            (701, Float),
            (1700, Numeric),
            (2950, Uuid),
            (3802, Json),
            (16_744, Text),
        ];
        for (id, kind) in kinds {
            assert_eq!(relations().column_kind(id), kind, "type {id}");
        }
    }

    #[test]
    fn domain_is_read_as_the_type_below_it() {
        let mut relations = relations();
        let payload = Bytes::from_static(b"Y\0\0\x41\x68\0bytea\0");
        let Ok(LogicalMessage::Type { id, schema, name }) = decode(&payload) else {
            panic!()
        };
        relations.name_type(id, schema, name);
        let message = described(ReplicaIdentity::Default, &[("body", 0x4168, false)]);
        assert_eq!(relations.describe(&message).columns[0].kind, ColumnKind::Binary);

        // An application may call a type of its own the same.
        relations.name_type(id, "app", "bytea");
        assert_eq!(relations.describe(&message).columns[0].kind, ColumnKind::Text);
    }

    #[test]
    fn empty_schema_is_the_catalog() {
        let message = RelationMessage {
            schema: "",
            ..described(ReplicaIdentity::Nothing, &[])
        };
        assert_eq!(relations().describe(&message).schema, "pg_catalog");
    }

    proptest! {
        #[test]
        fn any_description_gives_its_columns(
            ids in prop::collection::vec(0_u32..4000, 0..9),
            flags: u16,
            identity in prop::sample::select(b"dnfi".to_vec()),
        ) {
            let mut payload = b"R\0\0\0\x07\0t\0".to_vec();
            payload.push(identity);
            payload.extend(u16::try_from(ids.len()).unwrap().to_be_bytes());
            for (index, id) in ids.iter().enumerate() {
                payload.push(u8::from(flags >> index & 1 == 1));
                payload.extend(b"c\0");
                payload.extend(id.to_be_bytes());
                payload.extend((-1_i32).to_be_bytes());
            }
            let payload = Bytes::from(payload);
            let Ok(LogicalMessage::Relation(message)) = decode(&payload) else { panic!() };
            let mut relations = relations();
            let first = relations.describe(&message).clone();
            prop_assert_eq!(first.columns.len(), ids.len());
            prop_assert!(!first.keyed || first.columns.iter().any(|column| column.key));
            prop_assert!(Arc::ptr_eq(&first, relations.describe(&message)));
        }
    }
}
