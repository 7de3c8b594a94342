//! What `tailpost check` looks at on a MySQL or MariaDB server.

use crate::config::{self, MysqlHost};
use crate::preflight::Finding;
use crate::source::select::Selector;
use crate::telemetry::error_chain;

use super::assemble::event_limit;
use super::client::Client;
use super::endpoint::{Endpoint, takes_writes};
use super::error::MysqlError;
use super::lock::Lock;
use super::server::{Flavor, LogGtids, ServerFacts};
use super::session::{is_whole, register};
use super::tables::{SYSTEM_SCHEMAS, TABLE_TYPES};

/// Looks at everything that matters and changes nothing.
pub async fn preflight(config: &config::Mysql, pipeline: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(error) = look(config, pipeline, &mut findings).await {
        let subject = match (&error, config.dsn.hosts.as_slice()) {
            (MysqlError::TlsSetup(_), _) => "TLS".to_owned(),
            (_, [host]) => host.to_string(),
            _ => "servers".to_owned(),
        };
        findings.push(Finding::bad(subject, error_chain(&error)));
    }
    findings
}

async fn look(config: &config::Mysql, pipeline: &str, findings: &mut Vec<Finding>) -> Result<(), MysqlError> {
    let (endpoint, mut client) = Endpoint::find(&config.dsn).await?;
    let encrypted = match (client.is_tls(), endpoint.host()) {
        (true, _) => "over TLS",
        (false, MysqlHost::Socket(_)) => "over a socket file",
        (false, MysqlHost::Tcp { .. }) => "not encrypted",
    };
    let facts = ServerFacts::ask(&mut client).await?;
    findings.push(Finding::good(
        format!("{} {}", facts.flavor.name(), endpoint.host()),
        format!("version {}, {encrypted}", client.version()),
    ));
    successors(config, &endpoint, findings).await?;
    replication(config, &endpoint, findings).await;
    findings.extend(other_replica(&mut client, config, pipeline, facts.flavor).await);
    format(config, &facts, findings);
    gtids(config, &facts, findings);
    retention(&facts, findings);
    durability(&facts, findings);
    tables(&mut client, config, findings).await
}

/// The DSN's other servers, which may have to be gone on with one day.
async fn successors(
    config: &config::Mysql,
    endpoint: &Endpoint,
    findings: &mut Vec<Finding>,
) -> Result<(), MysqlError> {
    for other in Endpoint::all(&config.dsn)? {
        if other.host() == endpoint.host() {
            continue;
        }
        let asked = async {
            let mut client = other.connect().await?;
            let writes = takes_writes(&mut client).await?;
            Ok::<_, MysqlError>((writes, ServerFacts::ask(&mut client).await?))
        };
        let subject = format!("successor {}", other.host());
        findings.push(match asked.await {
            Err(error) => Finding::warning(subject, error_chain(&error)),
            Ok((true, _)) => Finding::warning(
                subject,
                "it takes writes as well: where both do, which of them is read depends on their order; SET GLOBAL read_only = ON on the replica",
            ),
            Ok((false, facts)) if facts.gtids == LogGtids::Off => Finding::warning(
                subject,
                "without gtid_mode = ON the pipeline cannot go on with it; set gtid_mode = ON on all servers",
            ),
            Ok((false, facts)) if !facts.logs_what_it_replicates() => Finding::warning(
                subject,
                "log_replica_updates (log_slave_updates) is off, so its binlog has nothing of what it replicates; set it in its option file, then restart it",
            ),
            Ok((false, _)) => Finding::good(subject, "a replica that the pipeline can go on with once it takes writes"),
        });
    }
    Ok(())
}

/// Whether the user may replicate is found by trying.
async fn replication(config: &config::Mysql, endpoint: &Endpoint, findings: &mut Vec<Finding>) {
    let tried = async {
        let mut client = endpoint.connect().await?;
        // By an id of its own, so that the pipeline's stays in the server's list if it runs.
        register(&mut client, config.server_id ^ 0x2000_0000).await
    };
    findings.push(match tried.await {
        Ok(()) => Finding::good("replication", format!("allowed, as server_id {}", config.server_id)),
        Err(error) => Finding::bad("replication", error_chain(&error)),
    });
}

/// A replica that reads by the pipeline's id and is not the pipeline itself: of two, the server ends one.
async fn other_replica(client: &mut Client, config: &config::Mysql, pipeline: &str, flavor: Flavor) -> Option<Finding> {
    // MySQL before 8.0.22 knows the older statement only. MariaDB asks for REPLICATION MASTER ADMIN, which reading does not need:
    // without it nothing is known, and nothing is said.
    let statements: &[&str] = match flavor {
        Flavor::Mysql => &["SHOW REPLICAS", "SHOW SLAVE HOSTS"],
        Flavor::Mariadb => &["SHOW SLAVE HOSTS"],
    };
    let mut replicas = None;
    for statement in statements {
        replicas = client.query("list the replicas", statement).await.ok();
        if replicas.is_some() {
            break;
        }
    }
    let wanted = config.server_id.to_string();
    let cell = |row: &[Option<String>], column: usize| row.get(column).cloned().flatten().unwrap_or_default();
    let found = replicas?.into_iter().find(|row| cell(row, 0) == wanted)?;
    if Lock::new(pipeline).is_taken(client).await.unwrap_or(true) {
        // The pipeline runs: it is that replica.
        return None;
    }
    Some(Finding::warning(
        "server_id",
        format!(
            "{wanted} is that of a replica which is connected now (it calls itself `{}`), expected an id of the pipeline's own: the \
             server ends one of two with the same; give each its own, by `server_id` of spec.source.config",
            cell(&found, 1)
        ),
    ))
}

fn format(config: &config::Mysql, facts: &ServerFacts, findings: &mut Vec<Finding>) {
    let setting = |name: &str| facts.variables.get(name).unwrap_or_default();
    findings.push(match setting("binlog_format") {
        "ROW" | "" => Finding::good(
            "binlog_format",
            "ROW; a connection of the application can still set another: a row that comes as a statement halts the pipeline",
        ),
        found => Finding::bad(
            "binlog_format",
            MysqlError::BinlogFormat { found: found.to_owned() }.to_string(),
        ),
    });
    findings.push(match setting("binlog_row_image") {
        "" => Finding::good("binlog_row_image", "FULL"),
        found if is_whole(found) => Finding::good("binlog_row_image", found),
        found if config.outbox.is_empty() => Finding::warning(
            "binlog_row_image",
            format!("{found}: columns that an INSERT leaves to their default, and those that an UPDATE does not change, are missing from the records; SET GLOBAL binlog_row_image = 'FULL'"),
        ),
        found => Finding::bad(
            "binlog_row_image",
            MysqlError::RowImage {
                found: found.to_owned(),
                reason: "an INSERT leaves out columns that have their default, so an outbox event could lack some",
            }
            .to_string(),
        ),
    });
    findings.push(match setting("binlog_row_metadata") {
        "FULL" => Finding::good("binlog_row_metadata", "FULL"),
        found => Finding::warning(
            "binlog_row_metadata",
            format!("{found}: the binlog does not name columns, so information_schema is asked, which knows them only as they are now: rows written before an ALTER TABLE can halt the pipeline; SET GLOBAL binlog_row_metadata = 'FULL'"),
        ),
    });
    if setting("binlog_row_value_options").contains("PARTIAL_JSON") {
        let text = "PARTIAL_JSON: an UPDATE that changes a part of a JSON document in an ordinary table (JSON_SET, JSON_REPLACE, JSON_REMOVE) halts the pipeline; SET GLOBAL binlog_row_value_options = ''";
        findings.push(if config.tables.is_empty() {
            Finding::warning("binlog_row_value_options", text)
        } else {
            Finding::bad("binlog_row_value_options", text)
        });
    }
    if facts.variables.is_on("log_bin_compress") {
        findings.push(Finding::good("log_bin_compress", "ON: rows are decompressed here"));
    }
    if facts.variables.is_on("binlog_transaction_compression") {
        findings.push(Finding::good(
            "binlog_transaction_compression",
            "ON: transactions are decompressed here; each is held in memory as it was compressed",
        ));
    }
    let event_size = setting("binlog_row_event_max_size").parse::<u64>().unwrap_or(0);
    let limit = event_limit(config.max_message_bytes);
    if event_size > limit as u64 {
        let error = MysqlError::RowEventSize {
            found: event_size,
            limit,
        };
        findings.push(Finding::bad("binlog_row_event_max_size", error.to_string()));
    }
}

fn gtids(config: &config::Mysql, facts: &ServerFacts, findings: &mut Vec<Finding>) {
    findings.push(match (&facts.gtids, facts.variables.get("gtid_mode")) {
        (LogGtids::Mysql { .. }, _) => Finding::good("gtid_mode", "ON"),
        (LogGtids::Mariadb { newest, .. }, _) => Finding::good("GTIDs", format!("at {newest}")),
        (LogGtids::Off, mode) => Finding::warning(
            "gtid_mode",
            format!(
                "{}: positions are places in this server's files, so the pipeline can't follow to another server, nor begin beyond 4 GiB in a file; set gtid_mode = ON",
                mode.unwrap_or("OFF")
            ),
        ),
    });
    if facts.identity.id == config.server_id {
        findings.push(Finding::bad(
            "server_id",
            format!("{} is the server's own: set another by `server_id`", config.server_id),
        ));
    }
}

fn retention(facts: &ServerFacts, findings: &mut Vec<Finding>) {
    let seconds = facts.variables.get("binlog_expire_logs_seconds");
    let days = facts.variables.get("expire_logs_days");
    let parse = |value: Option<&str>| value.and_then(|value| value.parse::<f64>().ok()).unwrap_or(0.0);
    let kept = match parse(seconds) {
        seconds if seconds > 0.0 => seconds,
        _ => parse(days) * 86_400.0,
    };
    let subject = "binlog_expire_logs_seconds";
    findings.push(if kept == 0.0 {
        Finding::warning(
            subject,
            "0: the server never removes binlog by itself, until its disk is full; set a time that is longer than any outage",
        )
    } else if kept < 86_400.0 {
        Finding::warning(
            subject,
            format!("{kept:.0}: when tailpost is stopped for longer, events are lost; set a time that is longer than any outage"),
        )
    } else {
        Finding::good(subject, format!("{kept:.0}: tailpost may be stopped for as long, and no longer"))
    });
}

/// What the binlog still holds after the server's machine has failed.
fn durability(facts: &ServerFacts, findings: &mut Vec<Finding>) {
    findings.push(match facts.variables.get("sync_binlog") {
        Some("1") => Finding::good("sync_binlog", "1"),
        found => Finding::warning(
            "sync_binlog",
            format!(
                "{}: when the server's machine fails, the binlog can lose transactions whose events were published, and others can get their GTIDs; set sync_binlog = 1",
                found.unwrap_or("unknown")
            ),
        ),
    });
}

/// The tables that patterns without wildcards name, and the outboxes among those that there are.
async fn tables(client: &mut Client, config: &config::Mysql, findings: &mut Vec<Finding>) -> Result<(), MysqlError> {
    let system = SYSTEM_SCHEMAS.map(|schema| format!("'{schema}'")).join(", ");
    let statement = format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(ENGINE, ''), COALESCE((SELECT GROUP_CONCAT(COLUMN_NAME) FROM \
         information_schema.COLUMNS c WHERE c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND \
         EXTRA LIKE '%auto_increment%'), '') FROM information_schema.TABLES t WHERE TABLE_TYPE IN ({TABLE_TYPES}) AND \
         TABLE_SCHEMA NOT IN ({system}) ORDER BY TABLE_SCHEMA, TABLE_NAME"
    );
    let rows = client.query("list the tables", &statement).await?;
    let selector = Selector::of_mysql(config);
    let mut seen = Vec::new();
    for row in rows {
        let cells: Vec<String> = row.into_iter().map(Option::unwrap_or_default).collect();
        let [schema, name, engine, counter] = cells.as_slice() else {
            continue;
        };
        let Some(selection) = selector.table(schema, name) else {
            continue;
        };
        seen.push((schema.clone(), name.clone()));
        if selection == crate::event::Selection::Outbox {
            findings.push(outbox_table(schema, name, engine, counter));
        }
    }
    for pattern in selector.table_patterns() {
        if !seen.iter().any(|(schema, name)| pattern.matches(schema, name)) {
            findings.push(Finding::warning(
                "tables",
                format!("`{pattern}` matches no table that the DSN's user can see: create it, or GRANT SELECT on it"),
            ));
        }
    }
    Ok(())
}

fn outbox_table(schema: &str, name: &str, engine: &str, counter: &str) -> Finding {
    let subject = format!("outbox {schema}.{name}");
    match (engine, counter) {
        ("BLACKHOLE", "") => Finding::good(subject, "BLACKHOLE: rows go to the binlog only"),
        ("BLACKHOLE", counter) => Finding::warning(
            subject,
            format!(
                "BLACKHOLE with the AUTO_INCREMENT column `{counter}`, which is 1 in each statement: it cannot tell events apart; map no event_id to it, the derived one does"
            ),
        ),
        _ => Finding::good(
            subject,
            format!(
                "{engine}: rows stay in the table until the application deletes them; with BLACKHOLE nothing stays"
            ),
        ),
    }
}
