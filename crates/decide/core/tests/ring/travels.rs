//! Every request there can be: which may travel.

use evenkeel_core::request::ring::{Asked, Consistency, Presence, Stays, may_fail_over, travel};

const PRESENCES: [Presence; 4] =
    [Presence::Unknown, Presence::Own, Presence::Absent, Presence::There];

fn requests() -> Vec<Asked> {
    let levels: Vec<_> = (0..=0x0A).filter_map(Consistency::of).collect();
    assert_eq!(levels.len(), 11);
    let mut all = Vec::new();
    for bits in 0..8_u8 {
        for &consistency in &levels {
            for serial in [None, Some(Consistency::Serial), Some(Consistency::LocalSerial)] {
                let [is_conditional, is_write, writes_stay] = [1, 2, 4].map(|bit| bits & bit > 0);
                let asked = Asked { consistency, serial, is_conditional, is_write, writes_stay };
                all.push(asked);
            }
        }
    }
    all
}

#[test]
fn nothing_travels_that_means_its_own_data_centre() {
    for asked in requests() {
        let name = asked.consistency.name();
        let stays = name.contains("LOCAL") || name.contains("SERIAL") || asked.is_conditional;
        assert!(!stays || travel(&asked, Presence::There).is_err(), "{asked:?}");
    }
}

#[test]
fn everything_else_travels_to_where_a_replica_is_unless_writes_are_to_stay() {
    let mut travelled = 0;
    for asked in requests() {
        let levels = ["ANY", "ONE", "TWO", "THREE", "QUORUM", "ALL", "EACH_QUORUM"];
        let kept = asked.is_conditional || (asked.is_write && asked.writes_stay);
        if levels.contains(&asked.consistency.name()) && !kept {
            assert_eq!(travel(&asked, Presence::There), Ok(()), "{asked:?}");
            travelled += 1;
        }
    }
    // Seven levels, three serial levels, and of read/write × pinned all but the pinned write.
    assert_eq!(travelled, 7 * 3 * 3);
}

#[test]
fn a_serial_level_beside_an_ordinary_write_means_nothing() {
    for asked in requests() {
        for away in PRESENCES {
            let without = Asked { serial: None, ..asked };
            assert_eq!(travel(&asked, away), travel(&without, away));
        }
    }
}

#[test]
fn nothing_travels_to_where_no_replica_is_known() {
    for asked in requests() {
        for away in [Presence::Unknown, Presence::Own, Presence::Absent] {
            assert!(travel(&asked, away).is_err());
        }
    }
}

#[test]
fn every_reason_is_given_to_somebody_and_has_its_own_name_and_words() {
    let mut given = [false; Stays::ALL.len()];
    for asked in requests() {
        for away in PRESENCES {
            if let Err(stays) = travel(&asked, away) {
                given[stays.index()] = true;
                assert_eq!(Stays::ALL[stays.index()], stays);
            }
        }
    }
    assert_eq!(given, [true; 7]);
    let unique = |texts: [String; 7]| texts.into_iter().collect::<std::collections::BTreeSet<_>>();
    assert_eq!(unique(Stays::ALL.map(|stays| stays.to_string())).len(), 7);
    assert_eq!(unique(Stays::ALL.map(|stays| stays.name().to_owned())).len(), 7);
}

#[test]
fn without_a_node_at_home_only_meaning_and_the_operator_keep_a_request() {
    let mut failed_over = 0;
    for asked in requests() {
        let means_home = asked.consistency.name().contains("LOCAL")
            || (asked.is_conditional && asked.serial == Some(Consistency::LocalSerial));
        let is_kept = asked.is_write && asked.writes_stay;
        assert_eq!(may_fail_over(&asked), !means_home && !is_kept, "{asked:?}");
        let travels = travel(&asked, Presence::There).is_ok();
        assert!(!travels || may_fail_over(&asked), "what travels may fail over: {asked:?}");
        failed_over += usize::from(may_fail_over(&asked) && !travels);
    }
    assert!(failed_over > 0);
}
