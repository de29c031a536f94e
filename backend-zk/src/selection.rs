//! Selects the children of a listing that belong to the view of a query. Pure.

use synod_core::store::{Query, Sequence, Window};

use crate::containers::is_guard;

/// A child in a listing.
pub(crate) type Child = (Option<Sequence>, String);

/// The last number that a ticket may have. The rest, a million, is a reserve: a single create that
/// gets one of these is undone, and for several operations the directory is read before. So no
/// ticket reaches the end of the server's counter.
pub(crate) const LAST: Sequence = Sequence::new(i32::MAX.unsigned_abs() as u64 - (1 << 20));

/// The sequence that the server appended to a name: ten digits.
///
/// The last number, 2^31-1, does not count: the server's counter stops there, and every later child
/// gets the same number.
pub(crate) fn sequence(name: &str) -> Option<Sequence> {
    const DIGITS: usize = 10;
    let tail = name.as_bytes().get(name.len().checked_sub(DIGITS)?..)?;
    if !tail.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(tail).ok()?.parse().ok()?;
    (number < i32::MAX.unsigned_abs().into()).then_some(Sequence::new(number))
}

/// The children in the view of a query, in its order. Children with a sequence above `own` are left
/// out.
pub(crate) fn select_children(
    query: &Query,
    names: Vec<String>,
    own: Option<Sequence>,
) -> Vec<Child> {
    let ours = names.into_iter().filter(|name| is_ours(query.path.as_str(), name));
    let wanted = ours.filter(|name| name.starts_with(&query.prefix));
    let all = wanted.map(|name| (sequence(&name), name));
    let Some(window) = query.window else {
        let mut children: Vec<Child> = all.collect();
        children.sort_by(|a, b| a.1.cmp(&b.1));
        return children;
    };
    let numbered = all.filter(|(sequence, _)| sequence.is_some());
    match window {
        Window::Oldest { count } => {
            let mut children: Vec<Child> = numbered.collect();
            part(&mut children, count);
            children.truncate(count);
            children.sort();
            children
        }
        Window::Newest { count, before } => {
            let shown = |sequence: Option<Sequence>| {
                before.is_none_or(|before| sequence < Some(before))
                    && own.is_none_or(|own| sequence <= Some(own))
            };
            let mut children: Vec<Child> = numbered.filter(|child| shown(child.0)).collect();
            let cut = children.len().saturating_sub(count);
            part(&mut children, cut);
            children.drain(..cut);
            children.sort();
            children
        }
    }
}

/// Moves the `first` smallest children to the front, in any order: of a thousand tickets, only two
/// are needed.
fn part(children: &mut [Child], first: usize) {
    if first < children.len() {
        children.select_nth_unstable(first);
    }
}

/// Returns whether a child belongs to an application: the server keeps its own nodes in
/// `/zookeeper`, and guards exist for the server alone.
pub(crate) fn is_ours(dir: &str, name: &str) -> bool {
    !(is_guard(name) || dir == "/" && name == "zookeeper")
}

#[cfg(test)]
mod tests {
    use synod_core::path::Path;

    use super::*;
    use crate::containers::guard;

    fn names(children: Vec<Child>) -> Vec<String> {
        children.into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn a_sequence_is_ten_digits_at_the_end() {
        let table = [
            ("a-0000000007", Some(7)),
            ("0000000007", Some(7)),
            ("b2147483646", Some(2_147_483_646)),
            ("b2147483647", None),
            ("b-2147483648", None),
            ("a-000000007", None),
            ("short", None),
            ("é000000007", None),
        ];
        for (name, number) in table {
            assert_eq!(sequence(name).map(Sequence::get), number, "{name}");
        }
    }

    #[test]
    fn what_the_server_and_the_backend_keep_for_themselves_is_no_child() {
        let selected = |path: &str| {
            let path = Path::new(path).expect("valid");
            let guard = guard(&path).rsplit('/').next().map(str::to_owned);
            let all = ["a", "zookeeper"].map(str::to_owned).into_iter().chain(guard);
            names(select_children(&Query::children(path), all.collect(), None))
        };
        assert_eq!(selected("/"), ["a"]);
        assert_eq!(selected("/d"), ["a", "zookeeper"]);
    }

    #[test]
    fn windows_are_cut_from_the_right_end() {
        let all =
            || ["z-0000000001", "x", "a-0000000003", "m-0000000002"].map(str::to_owned).to_vec();
        let query = || Query::children(Path::new("/d").expect("valid"));
        let selected = |query: Query, own| names(select_children(&query, all(), own));

        assert_eq!(selected(query(), None), ["a-0000000003", "m-0000000002", "x", "z-0000000001"]);
        assert_eq!(selected(query().oldest(2), None), ["z-0000000001", "m-0000000002"]);
        assert_eq!(selected(query().newest(1), None), ["a-0000000003"]);
        assert_eq!(selected(query().newest(1), Some(Sequence::new(2))), ["m-0000000002"]);
        assert_eq!(selected(query().newest_before(9, Sequence::new(2)), None), ["z-0000000001"]);
        assert_eq!(selected(query().starting_with("m"), None), ["m-0000000002"]);
    }

    #[test]
    fn a_window_of_any_size_is_in_order() {
        // Every number below 31, shuffled.
        let all: Vec<String> = (0..31).map(|n| format!("t{:010}", n * 12 % 31)).collect();
        let mut sorted = all.clone();
        sorted.sort();
        let selected = |query: Query, own| names(select_children(&query, all.clone(), own));
        let query = || Query::children(Path::new("/d").expect("valid"));
        for count in 0..=32 {
            let most = count.min(31);
            assert_eq!(selected(query().oldest(count), None), sorted[..most], "{count}");
            assert_eq!(selected(query().newest(count), None), sorted[31 - most..], "{count}");
            let (before, own) = (Sequence::new(20), Some(Sequence::new(9)));
            let least = 10_usize.saturating_sub(count);
            assert_eq!(selected(query().newest(count), own), sorted[least..10], "{count}");
            let least = 20_usize.saturating_sub(count);
            assert_eq!(selected(query().newest_before(count, before), None), sorted[least..20]);
        }
    }
}
