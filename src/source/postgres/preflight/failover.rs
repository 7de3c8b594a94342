//! Whether the slot would come through the promotion of a standby.

use crate::config;
use crate::preflight::Finding;

use super::super::control::{Control, SLOTS_FOLLOW, SlotFacts, quote_identifier};
use super::super::error::PostgresError;

const SUBJECT: &str = "failover";

/// Standbys have a slot of their own on their primary, or a sender without any.
const STANDBYS: &str = "SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical') \
     + (SELECT count(*) FROM pg_stat_replication r \
     WHERE NOT EXISTS (SELECT 1 FROM pg_replication_slots s WHERE s.active_pid = r.pid))";

/// Looks at a primary. Without a standby there is nothing to come through.
pub(super) async fn primary(
    control: &Control,
    config: &config::Postgres,
    slot: Option<&SlotFacts>,
    findings: &mut Vec<Finding>,
) -> Result<(), PostgresError> {
    let rows = control.rows("count the standbys", STANDBYS, &[]).await?;
    let standbys: i64 = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(0);
    let name = &config.slot;
    if control.version() < SLOTS_FOLLOW {
        let text = "this version keeps no slot through the promotion of a standby: after one, the pipeline halts; from PostgreSQL 17 on a standby can keep slots in step";
        findings.push(match standbys {
            0 => Finding::good(SUBJECT, text),
            _ => Finding::warning(SUBJECT, text),
        });
        return Ok(());
    }
    let Some(slot) = slot.filter(|_| standbys > 0) else {
        return Ok(());
    };
    if !slot.failover {
        findings.push(Finding::warning(
            SUBJECT,
            format!(
                "slot `{name}` would not come through the promotion of a standby: while tailpost is stopped, send ALTER_REPLICATION_SLOT {} (FAILOVER true) over a replication connection (psql 'replication=database ...')",
                quote_identifier(name)
            ),
        ));
        return Ok(());
    }
    findings.push(Finding::good(
        SUBJECT,
        format!("slot `{name}`: the server keeps it in step on standbys that ask for it"),
    ));
    let named = control.setting("synchronized_standby_slots").await?;
    findings.push(if named.is_empty() {
        Finding::warning(
            SUBJECT,
            "synchronized_standby_slots is empty: the pipeline can relay events that a standby does not have yet, and halts if that one is promoted then; name the standby's slot there",
        )
    } else {
        Finding::good(
            SUBJECT,
            format!("`synchronized_standby_slots` waits for {named} before an event is relayed"),
        )
    });
    Ok(())
}

/// Looks at a standby among several servers.
pub(super) async fn standby(
    control: &Control,
    config: &config::Postgres,
    findings: &mut Vec<Finding>,
) -> Result<(), PostgresError> {
    if control.version() < SLOTS_FOLLOW {
        return Ok(());
    }
    let name = &config.slot;
    let slot = control.slot(name).await?;
    let invalidation = slot.as_ref().and_then(SlotFacts::invalidation);
    findings.push(match slot {
        Some(_) if invalidation.is_some() => Finding::warning(
            SUBJECT,
            format!(
                "slot `{name}` is invalid here ({}): it would not come through a promotion of this standby",
                invalidation.unwrap_or_default()
            ),
        ),
        Some(slot) if slot.temporary => Finding::warning(
            SUBJECT,
            format!("slot `{name}` is not in step here yet: it will be when the primary's has moved past what this standby needs"),
        ),
        Some(_) => Finding::good(SUBJECT, format!("slot `{name}` is in step here")),
        None => Finding::warning(
            SUBJECT,
            format!(
                "slot `{name}` is not here and would not come through a promotion of this standby: set sync_replication_slots = on (found {}), hot_standby_feedback = on (found {}) and a dbname in primary_conninfo",
                control.setting("sync_replication_slots").await?,
                control.setting("hot_standby_feedback").await?
            ),
        ),
    });
    Ok(())
}
