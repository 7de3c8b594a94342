//! What `tailpost check` looks at on a PostgreSQL server.

mod failover;

use std::sync::Arc;

use rustls::ClientConfig;

use crate::config;
use crate::preflight::Finding;
use crate::source::{OperatorWord, Recovery};
use crate::telemetry::error_chain;
use crate::tls;

use super::client::{Endpoint, ReplicationClient};
use super::control::{Control, session_attributes};
use super::error::PostgresError;
use super::publication::Gap;
use super::setup::{Wanted, check_kind, how_to_keep_slots};
use super::{OLDEST_VERSION, publication};
use crate::source::select::Selector;

/// Looks at everything that matters and changes nothing.
///
/// `first_start`: whether there is no checkpoint; None: that is not known.
pub async fn preflight(config: &config::Postgres, first_start: Option<bool>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let tls = match tls::client_config(&config.dsn.ssl, tls::LIBPQ) {
        Ok(tls) => tls,
        Err(error) => return vec![Finding::bad("TLS", error_chain(&error))],
    };
    let endpoints = Endpoint::all(&config.dsn);
    let several = endpoints.len() > 1;
    for endpoint in endpoints {
        match look(config, &endpoint, (several, first_start), &tls, &mut findings).await {
            Ok(()) => {}
            // With several servers one may be away, or not be the primary.
            Err(error) if several && error.recovery() == Recovery::Retry => {
                findings.push(Finding::warning(
                    format!("PostgreSQL {}", endpoint.address()),
                    error_chain(&error),
                ));
            }
            Err(error) => findings.push(Finding::bad(
                format!("PostgreSQL {}", endpoint.address()),
                error_chain(&error),
            )),
        }
    }
    findings
}

async fn look(
    config: &config::Postgres,
    endpoint: &Endpoint,
    (several, first_start): (bool, Option<bool>),
    tls: &Arc<ClientConfig>,
    findings: &mut Vec<Finding>,
) -> Result<(), PostgresError> {
    let control = Control::connect(&config.dsn, endpoint, tls).await?;
    let in_recovery = control.in_recovery().await?;
    // With several, a standby is looked at for the day when it is promoted, also where no reading from it is wanted.
    if !(several && in_recovery) {
        session_attributes(config.dsn.config.get_target_session_attrs(), in_recovery)?;
    }
    let version = control.setting("server_version").await?;
    let subject = format!("PostgreSQL {}", endpoint.address());
    if control.version() < OLDEST_VERSION {
        return Err(PostgresError::Version { found: version });
    }
    if several && in_recovery {
        findings.push(Finding::good(subject, format!("version {version}, a standby")));
        return failover::standby(&control, config, findings).await;
    }
    findings.push(Finding::good(subject, format!("version {version}")));
    settings(&control, findings).await?;
    match ReplicationClient::connect(&config.dsn, endpoint, tls).await {
        Ok(client) if client.is_tls() => findings.push(Finding::good("replication", "allowed, over TLS")),
        Ok(_) => findings.push(Finding::good("replication", "allowed, not encrypted")),
        Err(error) => findings.push(Finding::bad("replication", error_chain(&error))),
    }
    let selector = Selector::of_postgres(config);
    match publication::exists(&control, config).await? {
        false if config.create => findings.push(match publication::could_be_made(&control, config, &selector).await {
            Ok(()) => Finding::good(
                "publication",
                format!("`{}` does not exist; the first start makes it", config.publication),
            ),
            Err(error) => Finding::bad("publication", error_chain(&error)),
        }),
        false => findings.push(Finding::bad(
            "publication",
            format!(
                "`{}` does not exist and create is false: make it, before the slot",
                config.publication
            ),
        )),
        true => match publication::compare(&control, config, &selector).await {
            Ok(left_out) if left_out.is_empty() => findings.push(Finding::good(
                "publication",
                format!("`{}` has what the pipeline lists", config.publication),
            )),
            Ok(left_out) => findings.extend(left_out.into_iter().map(|what| {
                Finding::warning(
                    "publication",
                    format!("`{}` leaves out a part: {what}", config.publication),
                )
            })),
            Err(error) => findings.push(Finding::bad("publication", error_chain(&error))),
        },
    }
    if let Some(reason) = publication::sees_no_updates(&control, config, &selector).await? {
        let text = format!("`on_update` has no effect: {reason}");
        findings.push(Finding::warning("publication", text));
    }
    let is_first_start = first_start.unwrap_or(control.slot(&config.slot).await?.is_none());
    for gap in publication::look_for_gaps(&control, config, &selector).await? {
        findings.push(match gap {
            Gap::Unlogged(error) | Gap::Missing(error) if is_first_start => Finding::bad("tables", error_chain(&error)),
            Gap::Unlogged(error) | Gap::Missing(error) | Gap::Awaited(error) => {
                Finding::warning("tables", error_chain(&error))
            }
        });
    }
    slot(&control, config, findings).await
}

async fn settings(control: &Control, findings: &mut Vec<Finding>) -> Result<(), PostgresError> {
    match control.setting("wal_level").await?.as_str() {
        "logical" => findings.push(Finding::good("wal_level", "logical")),
        found => findings.push(Finding::bad(
            "wal_level",
            PostgresError::WalLevel {
                found: found.to_owned(),
            }
            .to_string(),
        )),
    }
    if control.setting("fsync").await? == "off" {
        findings.push(Finding::warning(
            "fsync",
            "off: a crash of the server's machine can lose commits whose events were already published; set fsync = on",
        ));
    }
    match control.setting("max_slot_wal_keep_size").await?.as_str() {
        "-1" => findings.push(Finding::warning(
            "max_slot_wal_keep_size",
            "no limit: while tailpost is stopped the server keeps all log, until its disk is full; set a size that fits the disk",
        )),
        size => findings.push(Finding::good(
            "max_slot_wal_keep_size",
            format!("{size}: the slot is lost when tailpost is stopped for longer than that much log takes"),
        )),
    }
    for (setting, used, what) in [
        (
            "max_replication_slots",
            "SELECT count(*) FROM pg_replication_slots",
            "slots",
        ),
        ("max_wal_senders", "SELECT count(*) FROM pg_stat_replication", "senders"),
    ] {
        let limit: i64 = control.setting(setting).await?.parse().unwrap_or(0);
        let rows = control.rows("count what is in use", used, &[]).await?;
        let used: i64 = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(0);
        if used >= limit {
            findings.push(Finding::warning(
                setting,
                format!("{used} of {limit} {what} are in use: raise it, or drop unused ones"),
            ));
        } else {
            findings.push(Finding::good(setting, format!("{used} of {limit} {what} in use")));
        }
    }
    Ok(())
}

async fn slot(control: &Control, config: &config::Postgres, findings: &mut Vec<Finding>) -> Result<(), PostgresError> {
    let name = &config.slot;
    let slot = control.slot(name).await?;
    if !control.in_recovery().await? {
        failover::primary(control, config, slot.as_ref(), findings).await?;
    }
    let Some(slot) = slot else {
        findings.push(if config.create {
            Finding::good(
                "slot",
                format!("`{name}` does not exist; the first start makes it, a later one halts"),
            )
        } else {
            Finding::bad("slot", PostgresError::SlotMissing { slot: name.clone() }.to_string())
        });
        return Ok(());
    };
    let database = control.database().await?;
    let wanted = Wanted {
        slot: name,
        database: &database,
        create: config.create,
        start: config.start,
        word: OperatorWord::Nothing,
        how_to_keep_slots: how_to_keep_slots(control.version()),
    };
    if let Err(error) = check_kind(&slot, wanted) {
        findings.push(Finding::bad("slot", error_chain(&error)));
        return Ok(());
    }
    match (slot.wal_status.as_deref(), &slot.invalidation_reason) {
        (Some("lost"), _) | (_, Some(_)) => {
            let reason = slot.invalidation_reason.clone().unwrap_or_else(|| "wal_status is lost".to_owned());
            findings.push(Finding::bad("slot", PostgresError::SlotInvalidated { slot: name.clone(), reason }.to_string()));
        }
        (Some("unreserved"), _) => findings.push(Finding::warning(
            "slot",
            format!("`{name}` is about to be lost (wal_status unreserved): start tailpost now, or raise max_slot_wal_keep_size"),
        )),
        _ => {
            let confirmed = slot.confirmed.map(|lsn| lsn.to_string()).unwrap_or_default();
            let used = slot.active_pid.map(|pid| format!(", active for pid {pid}")).unwrap_or_default();
            findings.push(Finding::good("slot", format!("`{name}` stands at {confirmed}{used}")));
        }
    }
    // One that is being read has been found there.
    if slot.active_pid.is_none() && publication::may_be_younger(control, config, slot.catalog_xmin_age).await? {
        findings.push(Finding::warning(
            "publication",
            format!(
                "`{}` may be younger than what slot `{name}` must still read: the server ends the stream at a row that was \
                     written before the publication was made; make publications before slots",
                config.publication
            ),
        ));
    }
    Ok(())
}
