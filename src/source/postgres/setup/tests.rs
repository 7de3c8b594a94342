//! Where to go on, from every contradiction between checkpoint, slot and server.

use super::*;

fn slot() -> SlotFacts {
    SlotFacts {
        plugin: Some("pgoutput".to_owned()),
        database: Some("shop".to_owned()),
        active_pid: None,
        confirmed: Some(Lsn(100)),
        restart: Some(Lsn(90)),
        wal_status: Some("reserved".to_owned()),
        invalidation_reason: None,
        two_phase: false,
        temporary: false,
        failover: false,
        synced: false,
        catalog_xmin_age: Some(1),
    }
}

fn saved(base: u64) -> PostgresPosition {
    PostgresPosition {
        system_identifier: 7,
        timeline: 1,
        base: Lsn(base),
        partial: None,
        last_event_end: Lsn::ZERO,
    }
}

fn server() -> ServerFacts {
    ServerFacts {
        system_identifier: 7,
        timeline: 1,
        log_end: Lsn(1000),
        history: Ok(History::default()),
    }
}

/// It left timeline 1 at this place.
fn promoted(switch_point: u64) -> ServerFacts {
    ServerFacts {
        timeline: 2,
        history: History::parse(&format!("1\t{}\t", Lsn(switch_point)), 2),
        ..server()
    }
}

fn wanted(word: OperatorWord) -> Wanted<'static> {
    Wanted {
        slot: "s",
        database: "shop",
        create: true,
        start: Start::Earliest,
        word,
        how_to_keep_slots: "make it with failover",
    }
}

fn base_of(plan: Result<Plan, PostgresError>) -> (u64, bool) {
    match plan.expect("a plan") {
        Plan::Resume { position, gap } => (position.base.0, gap.is_some()),
        Plan::MakeSlot { .. } => panic!("the slot is there"),
    }
}

#[test]
fn the_checkpoint_wins_over_a_slot_that_is_behind_it() {
    assert_eq!(
        base_of(plan(
            Some(&saved(150)),
            &server(),
            Some(&slot()),
            wanted(OperatorWord::Nothing)
        )),
        (150, false)
    );
}

#[test]
fn without_a_checkpoint_the_slot_says_where_to_go_on() {
    assert_eq!(
        base_of(plan(None, &server(), Some(&slot()), wanted(OperatorWord::Nothing))),
        (100, false)
    );
}

#[test]
fn a_slot_ahead_of_the_checkpoint_halts_until_the_gap_is_accepted() {
    let error = plan(
        Some(&saved(99)),
        &server(),
        Some(&slot()),
        wanted(OperatorWord::Nothing),
    )
    .expect_err("a gap");
    let text = error.to_string();
    assert!(
        text.contains("0/64") && text.contains("0/63") && text.contains("--accept-gap"),
        "{text}"
    );
    assert_eq!(
        base_of(plan(
            Some(&saved(99)),
            &server(),
            Some(&slot()),
            wanted(OperatorWord::AcceptGap)
        )),
        (100, true)
    );
}

#[test]
fn a_lost_slot_halts_and_a_missing_one_is_made() {
    assert!(matches!(
        plan(Some(&saved(99)), &server(), None, wanted(OperatorWord::Nothing)),
        Err(PostgresError::SlotLost { .. })
    ));
    assert_eq!(
        plan(None, &server(), None, wanted(OperatorWord::Nothing)).expect("a plan"),
        Plan::MakeSlot {
            drop_first: false,
            from: Lsn::ZERO,
            gap: None
        }
    );
}

#[test]
fn another_server_is_never_accepted_as_a_gap() {
    let other = ServerFacts {
        system_identifier: 8,
        ..server()
    };
    for word in [OperatorWord::Nothing, OperatorWord::AcceptGap] {
        let error = plan(Some(&saved(150)), &other, Some(&slot()), wanted(word)).expect_err("another server");
        assert!(error.to_string().contains("--from-slot"), "{error}");
    }
    assert_eq!(
        base_of(plan(
            Some(&saved(150)),
            &other,
            Some(&slot()),
            wanted(OperatorWord::FromSlot)
        )),
        (100, false)
    );
}

#[test]
fn a_slot_of_another_kind_is_refused_with_its_remedy() {
    let of = |change: fn(&mut SlotFacts)| {
        let mut slot = slot();
        change(&mut slot);
        plan(None, &server(), Some(&slot), wanted(OperatorWord::AcceptGap))
            .expect_err("another kind")
            .to_string()
    };
    assert!(of(|slot| slot.plugin = Some("wal2json".to_owned())).contains("wal2json"));
    assert!(of(|slot| slot.plugin = None).contains("physical"));
    assert!(of(|slot| slot.database = Some("other".to_owned())).contains("`other`"));
    assert!(of(|slot| slot.two_phase = true).contains("two_phase"));
    assert!(of(|slot| slot.temporary = true).contains("temporary"));
}

#[test]
fn an_invalidated_slot_names_the_reason() {
    let lost = SlotFacts {
        wal_status: Some("lost".to_owned()),
        ..slot()
    };
    let error = plan(Some(&saved(150)), &server(), Some(&lost), wanted(OperatorWord::Nothing)).expect_err("lost");
    assert!(error.to_string().contains("wal_status is lost"), "{error}");
    let reason = SlotFacts {
        invalidation_reason: Some("idle_timeout".to_owned()),
        ..slot()
    };
    let error = plan(None, &server(), Some(&reason), wanted(OperatorWord::Nothing)).expect_err("lost");
    assert!(error.to_string().contains("idle_timeout"), "{error}");
}

#[test]
fn a_position_beyond_the_log_halts() {
    assert!(matches!(
        plan(
            Some(&saved(2000)),
            &server(),
            Some(&slot()),
            wanted(OperatorWord::Nothing)
        ),
        Err(PostgresError::BeyondLog { .. })
    ));
}

#[test]
fn a_start_is_heeded_only_without_a_checkpoint() {
    let at = |start| Wanted {
        start,
        ..wanted(OperatorWord::Nothing)
    };
    assert_eq!(
        base_of(plan(None, &server(), Some(&slot()), at(Start::Latest))),
        (1000, false)
    );
    assert_eq!(
        base_of(plan(None, &server(), Some(&slot()), at(Start::Lsn(Lsn(500))))),
        (500, false)
    );
    assert_eq!(
        base_of(plan(Some(&saved(150)), &server(), Some(&slot()), at(Start::Latest))),
        (150, false)
    );
    assert!(matches!(
        plan(None, &server(), Some(&slot()), at(Start::Lsn(Lsn(50)))),
        Err(PostgresError::StartTooEarly { .. })
    ));
}

fn synced(change: fn(&mut SlotFacts)) -> SlotFacts {
    let mut slot = SlotFacts {
        failover: true,
        synced: true,
        ..slot()
    };
    change(&mut slot);
    slot
}

#[test]
fn a_promotion_with_a_synchronised_slot_goes_on_on_the_new_timeline() {
    let plan = plan(
        Some(&saved(150)),
        &promoted(200),
        Some(&synced(|_| {})),
        wanted(OperatorWord::Nothing),
    );
    let on_new_timeline = PostgresPosition {
        timeline: 2,
        ..saved(150)
    };
    assert_eq!(
        plan.expect("a plan"),
        Plan::Resume {
            position: on_new_timeline,
            gap: None
        }
    );
}

#[test]
fn a_slot_that_did_not_come_through_a_promotion_halts_with_how_to_keep_it_the_next_time() {
    let missing = None;
    let temporary = Some(synced(|slot| slot.temporary = true));
    let invalid = Some(synced(|slot| {
        slot.invalidation_reason = Some("rows_removed".to_owned())
    }));
    for (slot, found) in [
        (missing, "does not exist"),
        (temporary, "is only temporary"),
        (invalid, "is invalid (rows_removed)"),
    ] {
        let drop_first = slot.is_some();
        let decide = |word| plan(Some(&saved(150)), &promoted(200), slot.as_ref(), wanted(word));
        let text = decide(OperatorWord::Nothing).expect_err("no slot").to_string();
        for part in [found, "timeline 2", "make it with failover", "--accept-gap"] {
            assert!(text.contains(part), "`{part}`: {text}");
        }
        assert!(matches!(
            decide(OperatorWord::AcceptGap).expect("a plan"),
            Plan::MakeSlot { drop_first: first, gap: Some(_), .. } if first == drop_first
        ));
    }
}

#[test]
fn events_past_the_switch_point_halt_and_an_accepted_gap_goes_on_from_there() {
    let ahead = PostgresPosition {
        last_event_end: Lsn(150),
        ..saved(150)
    };
    let decide = |word| plan(Some(&ahead), &promoted(120), Some(&synced(|_| {})), wanted(word));
    assert!(matches!(
        decide(OperatorWord::Nothing),
        Err(PostgresError::PastSwitchPoint { .. })
    ));
    // Behind the slot's place, 100: what both timelines have was done.
    assert_eq!(base_of(decide(OperatorWord::AcceptGap)), (120, true));
}

#[test]
fn a_primary_that_was_replaced_is_never_accepted_as_a_gap() {
    let ahead = PostgresPosition {
        timeline: 2,
        ..saved(150)
    };
    for word in [OperatorWord::Nothing, OperatorWord::AcceptGap] {
        let error = plan(Some(&ahead), &server(), Some(&slot()), wanted(word)).expect_err("an old primary");
        assert!(matches!(error, PostgresError::OlderTimeline { .. }), "{error}");
        assert!(error.is_of_one_server());
    }
    assert_eq!(
        base_of(plan(
            Some(&ahead),
            &server(),
            Some(&slot()),
            wanted(OperatorWord::FromSlot)
        )),
        (100, false)
    );
}

#[test]
fn a_slot_made_by_hand_after_a_promotion_is_ahead_of_the_checkpoint() {
    let by_hand = SlotFacts {
        confirmed: Some(Lsn(300)),
        ..slot()
    };
    let error = plan(
        Some(&saved(150)),
        &promoted(200),
        Some(&by_hand),
        wanted(OperatorWord::Nothing),
    );
    assert!(matches!(error, Err(PostgresError::SlotAhead { .. })));
}
