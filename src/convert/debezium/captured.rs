//! What a connector captures: the tables that its lists let in, as patterns, and the messages.
//!
//! Debezium puts its lists together: a table is read where the list of tables and that of schemas (MySQL: databases) both let it
//! in. Without any list it reads every table.

use super::Database;
use super::names::{self, Unwritable};
use super::settings::Given;
use super::transforms::Predicate;
use super::work::Work;

/// Stands for every table of every schema.
pub(super) const EVERY_TABLE: &str = "*.*";
const TABLES: &str = "spec.source.config.outbox.tables and .tables";

#[derive(Default)]
pub(super) struct Captured {
    /// Patterns of `schema.table`.
    pub(super) tables: Vec<String>,
    /// What names them; empty where nothing does.
    pub(super) tables_option: String,
    /// No list says which tables.
    pub(super) is_every_table: bool,
    /// Patterns of message prefixes.
    pub(super) prefixes: Vec<String>,
    pub(super) prefixes_option: String,
    /// Between the parts of a topic of the connector's own.
    pub(super) delimiter: String,
}

impl Captured {
    /// Takes the lists. `decodes`: a transform makes events of messages.
    pub(super) fn take(work: &mut Work, database: Database, decodes: bool) -> Self {
        let delimiter = work.settings.get("topic.delimiter");
        let mut captured = Self {
            delimiter: delimiter.map_or(".", |given| &given.value).to_owned(),
            ..Self::default()
        };
        captured.take_tables(work);
        captured.take_schemas(work);
        captured.leave_out_tables(work);
        match database {
            Database::Postgres if decodes => captured.take_prefixes(work),
            Database::Postgres => tell_of_messages(work),
            Database::Mysql | Database::Mariadb => {}
        }
        captured
    }

    fn take_tables(&mut self, work: &mut Work) {
        let Some(given) = work.settings.take_any(&["table.include.list", "table.whitelist"]) else {
            // A publication of messages alone has no tables.
            let has_none = work.settings.get("publication.autocreate.mode");
            if !has_none.is_some_and(|given| given.is("no_tables")) {
                self.tables.push(EVERY_TABLE.to_owned());
                self.is_every_table = true;
            }
            return;
        };
        self.tables_option.clone_from(&given.option);
        for expression in names::expressions(&given.value) {
            match names::tables(&expression) {
                Some(patterns) => self.tables.extend(patterns),
                None => work.not_possible(
                    &given.option,
                    format!("`{expression}` cannot be written as patterns: add the tables to `outbox.tables` by hand"),
                ),
            }
        }
    }

    /// Lists of schemas, or databases: the same side of the dot.
    fn take_schemas(&mut self, work: &mut Work) {
        let included = [
            "schema.include.list",
            "database.include.list",
            "schema.whitelist",
            "database.whitelist",
        ];
        for given in work.settings.take_each(&included) {
            let expressions = names::expressions(&given.value);
            self.narrow(work, &given, |table| within(table, &expressions));
            if self.is_every_table {
                self.is_every_table = false;
                self.tables_option.clone_from(&given.option);
            }
        }
        let excluded = [
            "schema.exclude.list",
            "database.exclude.list",
            "schema.blacklist",
            "database.blacklist",
        ];
        for given in work.settings.take_each(&excluded) {
            let expressions = names::expressions(&given.value);
            self.narrow(work, &given, |table| {
                let (schema, _) = table.split_once('.').ok_or(Unwritable)?;
                without(table, schema, &expressions, names::prefixes, names::part_intersection)
            });
        }
    }

    fn leave_out_tables(&mut self, work: &mut Work) {
        let excluded = ["table.exclude.list", "table.blacklist"];
        for given in work.settings.take_each(&excluded) {
            let expressions = names::expressions(&given.value);
            self.narrow(work, &given, |table| {
                without(table, table, &expressions, names::tables, names::intersection)
            });
        }
    }

    /// Puts in place of each pattern what a list leaves of it, and says what became of the list.
    fn narrow(&mut self, work: &mut Work, given: &Given, left: impl Fn(&str) -> Result<Vec<String>, Unwritable>) {
        let mut tables: Vec<String> = Vec::new();
        let mut is_told = true;
        for table in &self.tables {
            let left = left(table).unwrap_or_else(|Unwritable| {
                is_told = false;
                work.not_possible(
                    &given.option,
                    format!(
                        "no pattern says `{table}` without what this leaves out: name the tables in `outbox.tables` and `tables` of \
                         the source"
                    ),
                );
                vec![table.clone()]
            });
            tables.extend(left);
        }
        tables = distinct(tables);
        match tables == self.tables {
            true if is_told => work.not_needed(&given.option, "the tables that are read are within it"),
            // Where no other list names tables, they are told of as this one's.
            false if self.is_every_table => {}
            false => work.taken(&given.option, TABLES),
            true => {}
        }
        self.tables = tables;
    }

    fn take_prefixes(&mut self, work: &mut Work) {
        let excluded = work.take("message.prefix.exclude.list");
        match work.take("message.prefix.include.list") {
            Some(given) => {
                self.prefixes_option.clone_from(&given.option);
                for expression in names::expressions(&given.value) {
                    match names::prefixes(&expression) {
                        Some(patterns) => self.prefixes.extend(patterns),
                        None => work.not_possible(
                            &given.option,
                            format!("`{expression}` cannot be written as patterns: add the prefixes to `outbox.prefixes` by hand"),
                        ),
                    }
                }
            }
            None => {
                self.prefixes.push("*".to_owned());
                self.prefixes_option = "message.prefix.include.list, by default".to_owned();
            }
        }
        if let Some(given) = excluded {
            work.not_possible(
                &given.option,
                "no prefix is left out by name: name those that are outboxes in `outbox.prefixes`",
            );
        }
    }

    /// Which of the tables a router takes. None: nothing can tell.
    pub(super) fn tables_of(&self, predicate: Option<&Predicate>, prefix: &str) -> Option<Vec<String>> {
        let Some(predicate) = predicate else {
            return Some(self.tables.clone());
        };
        let mut taken = Vec::new();
        for table in &self.tables {
            match table.contains(['*', '?']) {
                false if predicate.takes(&self.topic(prefix, table))? => taken.push(table.clone()),
                false => {}
                true if self.delimiter != "." => return None,
                true => {
                    for chosen in predicate.tables(prefix)? {
                        taken.extend(names::intersection(table, &chosen).ok()?);
                    }
                }
            }
        }
        Some(distinct(taken))
    }

    fn topic(&self, prefix: &str, table: &str) -> String {
        let delimiter = &self.delimiter;
        format!("{prefix}{delimiter}{}", table.replace('.', delimiter))
    }

    /// The tables that no outbox is among. What a pattern has beside an outbox is among them: a table that both lists name is an
    /// outbox.
    pub(super) fn beside(&self, outboxes: &[String]) -> Vec<String> {
        let is_beside = |table: &&String| !outboxes.iter().any(|outbox| names::covers(outbox, table));
        self.tables.iter().filter(is_beside).cloned().collect()
    }
}

/// What is left of a pattern where only these schemas are let in.
fn within(table: &str, schemas: &[String]) -> Result<Vec<String>, Unwritable> {
    let (schema, name) = table.split_once('.').ok_or(Unwritable)?;
    let mut left = Vec::new();
    for expression in schemas {
        if !schema.contains(['*', '?']) {
            if names::matches_name(expression, schema).ok_or(Unwritable)? {
                left.push(table.to_owned());
            }
            continue;
        }
        for pattern in names::prefixes(expression).ok_or(Unwritable)? {
            if let Some(schema) = names::part_intersection(schema, &pattern)? {
                left.push(format!("{schema}.{name}"));
            }
        }
    }
    Ok(distinct(left))
}

/// What is left of a pattern of which these names are left out: all, or nothing. `compared` is what of the pattern they name.
fn without(
    table: &str,
    compared: &str,
    expressions: &[String],
    patterns: fn(&str) -> Option<Vec<String>>,
    intersection: fn(&str, &str) -> Result<Option<String>, Unwritable>,
) -> Result<Vec<String>, Unwritable> {
    for expression in expressions {
        if !compared.contains(['*', '?']) {
            if names::matches_name(expression, compared).ok_or(Unwritable)? {
                return Ok(Vec::new());
            }
            continue;
        }
        for pattern in patterns(expression).ok_or(Unwritable)? {
            match intersection(compared, &pattern)? {
                None => {}
                Some(cut) if cut == compared => return Ok(Vec::new()),
                Some(_) => return Err(Unwritable),
            }
        }
    }
    Ok(vec![table.to_owned()])
}

fn distinct(patterns: Vec<String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::with_capacity(patterns.len());
    for pattern in patterns {
        if !distinct.contains(&pattern) {
            distinct.push(pattern);
        }
    }
    distinct
}

/// Without a transform that decodes them, messages are published as they are, below a topic of the connector's own.
fn tell_of_messages(work: &mut Work) {
    const RAW: &str =
        "messages of pg_logical_emit_message are published raw there, to `<topic.prefix>.message`, and not here";
    let excluded = work.take("message.prefix.exclude.list");
    match (work.take("message.prefix.include.list"), excluded) {
        (Some(given), _) => work.not_possible(
            &given.option,
            format!("{RAW}: name those that are events in `outbox.prefixes`, with a processor of their own"),
        ),
        (None, Some(given)) if given.value == ".*" => work.not_needed(&given.option, "no message is read"),
        (None, Some(given)) => work.different(&given.option, RAW),
        (None, None) => work.different("message.prefix.include.list, by default", RAW),
    }
}

/// Says that names are compared as they are written.
pub(super) fn tell_of_case(work: &mut Work, database: Database, option: &str, names: &[String]) {
    let names: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| !name.contains('$') && name.contains(char::is_alphabetic))
        .collect();
    if names.is_empty() {
        return;
    }
    let shown = names.join("`, `");
    work.different(
        option,
        format!("names are matched in any case there, and here as they are written: see that they are `{shown}`"),
    );
    if database == Database::Postgres && shown.contains(char::is_uppercase) {
        work.not_possible(
            option,
            format!(
                "`{shown}` has capitals, which are seldom in a name of PostgreSQL; with another case than the name's own nothing is \
                 read: write it as it is"
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(tables: &[&str]) -> Captured {
        Captured {
            tables: tables.iter().map(|&table| table.to_owned()).collect(),
            ..Captured::default()
        }
    }

    #[test]
    fn lists_of_schemas_cut_patterns() {
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            within("*.outbox", &list(&["shop", "bank"])).unwrap(),
            ["shop.outbox", "bank.outbox"]
        );
        assert_eq!(within("public.outbox", &list(&["PUBLIC"])).unwrap(), ["public.outbox"]);
        assert_eq!(within("test.outbox", &list(&["shop"])).unwrap(), Vec::<String>::new());
        assert_eq!(within("*.*", &list(&["shop_.*"])).unwrap(), ["shop_*.*"]);
        assert_eq!(within("*_a.*", &list(&["shop_.*"])), Err(Unwritable));
        let without_schemas = |table: &str, names: &[&str]| {
            let (schema, _) = table.split_once('.').unwrap();
            without(table, schema, &list(names), names::prefixes, names::part_intersection)
        };
        assert_eq!(without_schemas("shop.outbox", &["Shop"]).unwrap(), Vec::<String>::new());
        assert_eq!(without_schemas("shop.outbox", &["test"]).unwrap(), ["shop.outbox"]);
        assert_eq!(without_schemas("*.outbox", &["test"]), Err(Unwritable));
        assert_eq!(without_schemas("shop*.outbox", &["test"]).unwrap(), ["shop*.outbox"]);
        let without_tables =
            |table: &str, names: &[&str]| without(table, table, &list(names), names::tables, names::intersection);
        assert_eq!(without_tables("public.*", &[r"public\.secret"]), Err(Unwritable));
        assert_eq!(
            without_tables("public.secret", &["public.secret"]).unwrap(),
            Vec::<String>::new()
        );
        assert_eq!(without_tables("public.a*", &["other.*"]).unwrap(), ["public.a*"]);
    }

    #[test]
    fn what_a_pattern_has_beside_the_outbox_is_ordinary() {
        let outboxes = ["public.outbox".to_owned()];
        let all = captured(&["public.outbox", "public.order_*", "public.customer"]);
        assert_eq!(all.beside(&outboxes), ["public.order_*", "public.customer"]);
        assert_eq!(captured(&["public.*"]).beside(&outboxes), ["public.*"]);
        assert_eq!(
            captured(&["public.outbox_*"]).beside(&["*.outbox*".to_owned()]),
            Vec::<String>::new()
        );
    }
}
