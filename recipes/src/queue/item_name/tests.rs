//! Names of items.

use super::*;

/// A key with the format of this library.
const KEY: &str = "01234567-89ab-8def-a123-000000000abc";

#[test]
fn a_name_is_read_as_it_was_written_and_does_not_grow() {
    let named = ItemName::with_id(Some(7), KEY, "a/b").expect("a valid id");
    let mut name = named.expect("a short id");
    assert_eq!(name.to_string(), format!("entry-007-{KEY}-id-a%2Fb"));
    for delivery in 1..1_000_u32 {
        name = name.next_delivery(Revision::new(40 + u64::from(delivery)));
        let text = name.to_string();
        assert_eq!(text, format!("entry-007-+d{delivery}r41-{KEY}-id-a%2Fb"));
        assert_eq!(ItemName::parse(&text).as_ref(), Some(&name));
    }
    assert_eq!(name.id().as_deref(), Some("a/b"));
    let later = name.clone().not_before(Duration::from_millis(7));
    assert_eq!(later.to_string(), format!("entry-007-+d999r41t7-{KEY}-id-a%2Fb"));
    assert_eq!(ItemName::parse(&later.to_string()), Some(later.clone()));
    assert_eq!(later.anew().to_string(), format!("entry-007-+d0c1-{KEY}-id-a%2Fb"));
    assert_eq!(ItemName::parse(&later.anew().to_string()), Some(later.anew()));
    let without_id = name.without_id(|| "other".to_owned());
    assert_eq!(without_id.to_string(), format!("entry-007-+d999r41-{KEY}"));
    assert_eq!(
        without_id.without_id(|| "other".to_owned()).to_string(),
        "entry-007-+d999r41-other"
    );
    let undelivered = name.undelivered();
    assert_eq!(undelivered.to_string(), format!("entry-007-+d998c1r41-{KEY}-id-a%2Fb"));
    assert_eq!(ItemName::parse(&undelivered.to_string()), Some(undelivered));
    let bounded = ItemName::unique(None, "x".to_owned()).in_slot(Some(5));
    assert_eq!(bounded.to_string(), "entry-100-+d0s5-x");
    let bounded = bounded.next_delivery(Revision::new(41));
    assert_eq!(bounded.to_string(), "entry-100-+d1r41s5-x");
    assert_eq!(ItemName::parse(&bounded.to_string()), Some(bounded.clone()));
    assert_eq!(bounded.anew().to_string(), "entry-100-+d0c1s5-x");
    let changed = bounded.changed(Revision::new(50)).changed(Revision::new(60));
    assert_eq!(changed.to_string(), "entry-100-+d1c2r41s5-x");
    assert_eq!(ItemName::parse(&changed.to_string()), Some(changed));
    let failed = bounded.clone().not_before(Duration::from_millis(7)).with_failures(true);
    assert_eq!(failed.to_string(), "entry-100-+d1r41t7fs5-x");
    assert_eq!(ItemName::parse(&failed.to_string()), Some(failed.clone()));
    assert_eq!(failed.anew().to_string(), "entry-100-+d0c1s5-x");
    let dir = Path::new("/failures").expect("valid");
    let node = |name: &ItemName| name.failures_node(&dir).map(|node| node.to_string());
    assert_eq!(node(&failed).as_deref(), Some("/failures/100-r41-x"));
    assert_eq!(node(&failed.next_delivery(Revision::new(50))), node(&failed));
    assert_eq!((node(&bounded), node(&failed.anew())), (None, None));
    let since = ItemName::unique(None, format!("{KEY}-0001")).since();
    assert_eq!(since, Some(SystemTime::UNIX_EPOCH + Duration::from_millis(0xabc)));
}

#[test]
fn a_name_never_exceeds_the_limit_of_the_store() {
    let longest = "x".repeat(MAX_ID);
    let named = ItemName::with_id(Some(999), KEY, &longest).expect("a valid id");
    let mut name = named.expect("a short id").in_slot(Some(u64::MAX)).with_failures(true);
    name = name.changed(Revision::new(u64::MAX)).not_before(Duration::MAX);
    (name.delivered, name.changes) = (u32::MAX, Some(u32::MAX));
    let text = name.to_string();
    assert!(text.len() <= 255, "{} bytes", text.len());
    assert_eq!(ItemName::parse(&text), Some(name.clone()));
    assert_eq!(
        name.next_delivery(Revision::new(1)).delivered,
        u32::MAX,
        "there is no greater number"
    );
    for long in [longest.clone() + "x", "/".repeat(MAX_ID / 3 + 1), "x".repeat(200)] {
        assert_eq!(ItemName::with_id(None, KEY, &long).expect("a valid id"), None, "{long}");
    }
}

#[test]
fn the_names_of_other_programs_have_no_id_unless_they_begin_as_those_of_this_library() {
    for key in ["order-id-17", "-id-17", "01234567-89ab-8def-a123-000000000ab-id-1"] {
        let name = ItemName::unique(None, key.to_owned());
        assert_eq!((name.id(), name.id_node(&Path::root())), (None, None), "{key}");
    }
    for strange in
        [format!("{KEY}x-id-1"), KEY.replace('-', "x") + "-id-1", "ä".repeat(18) + "-id-1"]
    {
        assert_eq!(ItemName::unique(None, strange.clone()).id(), None, "{strange}");
    }
    assert_eq!(ItemName::unique(None, format!("{KEY}-id-1")).id().as_deref(), Some("1"));
}

#[test]
fn other_names_are_rejected() {
    for name in ["other", "entry-", "entry-1-a", "entry-abc-a", "entry-+12-a", "entry-100"] {
        assert_eq!(ItemName::parse(name), None, "{name}");
    }
    for name in [
        "entry-100-+d-a",
        "entry-100-+d1r-a",
        "entry-100-+r1-a",
        "entry-100-+d1x-a",
        "entry-100-+d0c4294967296-a",
    ] {
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
    // A delivery does not change the position.
    assert!(first.next_delivery(at(5)).rank(at(9)) < second.rank(at(6)));
}
