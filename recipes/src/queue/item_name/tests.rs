//! What the names of items say of them.

use super::*;

#[test]
fn a_name_is_read_as_it_was_written_and_does_not_grow() {
    let mut name = ItemName::with_id(Some(7), "x", "a/b").expect("short");
    assert_eq!(name.to_string(), "entry-007-x-id-a%2Fb");
    for delivery in 1..1_000_u32 {
        name = name.next(Revision::new(40 + u64::from(delivery)));
        let text = name.to_string();
        assert_eq!(text, format!("entry-007-+d{delivery}r41-x-id-a%2Fb"));
        assert_eq!(ItemName::parse(&text).as_ref(), Some(&name));
    }
    assert_eq!(name.id().as_deref(), Some("a/b"));
    let later = name.not_before(Duration::from_millis(7));
    assert_eq!(later.to_string(), "entry-007-+d999r41t7-x-id-a%2Fb");
    assert_eq!(ItemName::parse(&later.to_string()), Some(later.clone()));
    assert_eq!(later.anew().to_string(), "entry-007-+d0t7-x-id-a%2Fb");
    assert_eq!(ItemName::parse("entry-007-+d0t7-x-id-a%2Fb"), Some(later.anew()));
    let bounded = ItemName::unique(None, "x".to_owned()).in_slot(Some(5));
    assert_eq!(bounded.to_string(), "entry-100-+d0s5-x");
    let bounded = bounded.next(Revision::new(41));
    assert_eq!(bounded.to_string(), "entry-100-+d1r41s5-x");
    assert_eq!(ItemName::parse(&bounded.to_string()), Some(bounded.clone()));
    assert_eq!(bounded.anew().to_string(), "entry-100-x");
    let changed = bounded.changed(Revision::new(50)).changed(Revision::new(60));
    assert_eq!(changed.to_string(), "entry-100-+d1c2r41s5-x");
    assert_eq!(ItemName::parse(&changed.to_string()), Some(changed));
    let key = "01234567-89ab-8def-a123-000000000abc-0001";
    let since = ItemName::unique(None, key.to_owned()).since();
    assert_eq!(since, Some(SystemTime::UNIX_EPOCH + Duration::from_millis(0xabc)));
}

#[test]
fn names_of_others_are_none_of_items() {
    for name in ["other", "entry-", "entry-1-a", "entry-abc-a", "entry-+12-a", "entry-100"] {
        assert_eq!(ItemName::parse(name), None, "{name}");
    }
    for name in ["entry-100-+d-a", "entry-100-+d1r-a", "entry-100-+r1-a", "entry-100-+d1x-a"] {
        assert_eq!(ItemName::parse(name), None, "{name}");
    }
    let kazoo = ItemName::parse("entry-100-0000000012").expect("an entry");
    assert_eq!((kazoo.priority, kazoo.delivered, kazoo.id()), (100, 0, None));
}

#[test]
fn items_are_ranked_by_priority_and_then_by_their_first_create() {
    let item = |priority, key: &str| ItemName::unique(priority, key.to_owned());
    let (first, second) = (item(None, "z"), item(None, "a"));
    let (urgent, at) = (item(Some(1), "m"), Revision::new);
    assert!(first.rank(at(5)) < second.rank(at(6)));
    assert!(urgent.rank(at(7)) < first.rank(at(5)));
    // A delivery leaves it in its place.
    assert!(first.next(at(5)).rank(at(9)) < second.rank(at(6)));
}
