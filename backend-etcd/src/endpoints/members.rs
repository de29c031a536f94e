//! [`Members`]: the members of the current list, and the one that is called.

use std::sync::Arc;

use synod_core::random::Random;
use synod_core::store::ServerList;

use crate::endpoints::endpoint::Endpoint;
use crate::options::EtcdOptions;

/// The members in the order in which they are called.
///
/// After a change of the list the member that answered last remains as the last one until a member
/// of the list answers: so a wrong list does not end a session.
///
/// The hosts of a list that the members report remain behind it, and one of them that answers is
/// not left.
#[derive(Default)]
pub(super) struct Members {
    list: Option<Arc<[String]>>,
    /// The members of the list, the hosts that are not in it, then the one that is only kept.
    all: Vec<Arc<Endpoint>>,
    /// The number of members of the list, and of hosts that are not in it.
    stay: usize,
    current: usize,
    /// The member that answered last.
    answered: Option<Arc<Endpoint>>,
}

impl Members {
    #[cfg(test)]
    pub(super) fn all(&self) -> &[Arc<Endpoint>] {
        &self.all
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The member that is called. No session is opened without one.
    pub(super) fn current(&self) -> Arc<Endpoint> {
        self.all.get(self.current).cloned().unwrap_or_default()
    }

    pub(super) fn contains(&self, endpoint: &Arc<Endpoint>) -> bool {
        self.place(endpoint).is_some()
    }

    fn place(&self, endpoint: &Arc<Endpoint>) -> Option<usize> {
        self.all.iter().position(|member| Arc::ptr_eq(member, endpoint))
    }

    /// Takes a list, if it is not the last one. A member that stays keeps its connection. The list
    /// is another object after each reading of its source: then a member of it is called again,
    /// even if none of them answered before.
    pub(super) fn follow(&mut self, list: &ServerList, options: &EtcdOptions, random: &Random) {
        let (list, last_resort) = (&list.get(), list.last_resort());
        let Some(previous) = &self.list else {
            return self.take(list, last_resort, options, random);
        };
        if Arc::ptr_eq(previous, list) {
            return;
        }
        if previous == list {
            self.list = Some(list.clone());
            if self.current >= self.stay {
                self.current = 0;
            }
            return;
        }
        self.take(list, last_resort, options, random);
    }

    fn take(
        &mut self,
        list: &Arc<[String]>,
        last_resort: &[String],
        options: &EtcdOptions,
        random: &Random,
    ) {
        let current = self.current();
        let mut added: Vec<String> = list.iter().map(|member| options.url(member)).collect();
        let hosts: Vec<String> = last_resort.iter().map(|host| options.url(host)).collect();
        let mut others: Vec<String> =
            hosts.iter().filter(|host| !added.contains(host)).cloned().collect();
        let (mut all, mut behind, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for member in self.all.drain(..) {
            let place = |urls: &[String]| urls.iter().position(|url| *url == member.url);
            if let Some(place) = place(&added) {
                let _same = added.remove(place);
                all.push(member);
            } else if let Some(place) = place(&others) {
                let _same = others.remove(place);
                behind.push(member);
            } else {
                left.push(member);
            }
        }
        // If all processes used the order of the list, one member would get the whole load after
        // each failure.
        while !added.is_empty() {
            let count = u64::try_from(added.len()).unwrap_or(u64::MAX);
            let next = usize::try_from(random.below(count)).unwrap_or_default();
            let url = added.swap_remove(next);
            let is_host = last_resort.is_empty() || hosts.contains(&url);
            let new = if is_host { Endpoint::new } else { Endpoint::reported };
            all.push(Arc::new(new(url)));
        }
        all.append(&mut behind);
        all.extend(others.into_iter().map(|url| Arc::new(Endpoint::new(url))));
        self.stay = all.len();
        let answered = self.answered.as_ref();
        left.retain(|member| answered.is_some_and(|last| Arc::ptr_eq(last, member)));
        all.append(&mut left);
        self.all = all;
        self.current = self.place(&current).filter(|place| *place < self.stay).unwrap_or(0);
        self.list = Some(list.clone());
    }

    /// Records that a member answered. Returns whether the last answer was from another one.
    pub(super) fn answered(&mut self, endpoint: &Arc<Endpoint>) -> bool {
        if self.answered.as_ref().is_some_and(|last| Arc::ptr_eq(last, endpoint)) {
            return false;
        }
        self.answered = Some(endpoint.clone());
        if self.place(endpoint).is_some_and(|place| place < self.stay) {
            self.all.truncate(self.stay);
            self.current = if self.current < self.stay { self.current } else { 0 };
        }
        true
    }

    /// Makes the next member the current one, if this is the current one.
    pub(super) fn pass_over(&mut self, endpoint: &Arc<Endpoint>) {
        let Some(place) = self.place(endpoint).filter(|place| *place == self.current) else {
            return;
        };
        self.current = (place + 1) % self.all.len();
        if self.current != place {
            let (from, to) = (&self.all[place].url, &self.all[self.current].url);
            tracing::debug!(from, to, "asking another member");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The members after each of these lists, and the way to change them.
    struct World(Members, EtcdOptions, Random);

    impl World {
        fn new(list: &[&str]) -> Self {
            let options = EtcdOptions::new(list.iter().copied());
            let mut world = Self(Members::default(), options, Random::seeded(3));
            world.follow(list);
            world
        }

        fn follow(&mut self, list: &[&str]) {
            self.0.follow(&ServerList::fixed(own(list)), &self.1, &self.2);
        }

        fn take(&mut self, list: &ServerList) {
            self.0.follow(list, &self.1, &self.2);
        }

        fn pass(&mut self) {
            let current = self.0.current();
            self.0.pass_over(&current);
        }

        fn names(&self) -> Vec<&str> {
            self.0.all().iter().map(|member| &member.url["http://".len()..]).collect()
        }

        fn current(&self) -> String {
            self.0.current().url["http://".len()..].to_owned()
        }
    }

    fn own(names: &[&str]) -> Vec<String> {
        names.iter().copied().map(str::to_owned).collect()
    }

    #[test]
    fn the_hosts_remain_behind_the_members_that_are_reported() {
        let list = ServerList::of_ensemble(own(&["a", "b"]), |name| Ok(name.to_owned()));
        let mut world = World(Members::default(), EtcdOptions::new(["a", "b"]), Random::seeded(3));
        world.take(&list);
        let host = world.0.current();
        assert!(world.0.answered(&host) && !host.is_reported);
        list.report(Ok(own(&["x", "y"])));
        world.take(&list);
        assert_eq!(world.names().len(), 4);
        assert!(Arc::ptr_eq(&world.0.current(), &host), "a host that answers is not left");
        world.pass();
        let mut others: Vec<String> = (0..3)
            .map(|_| {
                let current = world.current();
                world.pass();
                current
            })
            .collect();
        others.sort();
        assert_eq!(others.len(), 3);
        assert!(["x", "y"].iter().all(|name| others.iter().any(|other| other == name)));
        let member = |name: &str| {
            let mut all = world.0.all().iter();
            all.find(|member| member.url.ends_with(name)).cloned().expect("it is listed")
        };
        let x = member("//x");
        assert!(x.is_reported && !member("//a").is_reported);
        assert!(world.0.answered(&x));
        assert_eq!(world.names().len(), 4, "the hosts are never forgotten");
        // The cluster is replaced, except for one host.
        list.report(Ok(own(&["b", "z"])));
        world.take(&list);
        let mut names = world.names();
        names.sort_unstable();
        assert_eq!(names, ["a", "b", "x", "z"], "x answered last");
        let z = world.0.all().iter().find(|member| member.url.ends_with("//z")).cloned();
        assert!(world.0.answered(&z.expect("it is listed")));
        assert_eq!(world.names().len(), 3);
        assert!(!world.0.contains(&x));
    }

    #[test]
    fn a_member_that_stays_keeps_its_connection_and_its_turn() {
        let mut world = World::new(&["a", "b", "c"]);
        let current = world.0.current();
        assert!(world.0.answered(&current) && !world.0.answered(&current));
        world.follow(&["x", &current.url["http://".len()..], "y"]);
        assert!(Arc::ptr_eq(&world.0.current(), &current), "it is the same object");
        assert_eq!(world.names().len(), 3);
        world.0.pass_over(&current);
        world.0.pass_over(&current);
        assert!(["x", "y"].contains(&&*world.current()), "it is passed over once");
    }

    #[test]
    fn the_member_that_answered_stays_behind_the_list_until_one_of_it_answers() {
        let mut world = World::new(&["a", "b"]);
        let old = world.0.current();
        let _first = world.0.answered(&old);
        world.follow(&["x", "y"]);
        assert_eq!(world.names().len(), 3);
        assert!(Arc::ptr_eq(&world.0.all()[2], &old) && world.0.contains(&old));
        for _ in 0..2 {
            let silent = world.0.current();
            assert!(!Arc::ptr_eq(&silent, &old), "the list is tried first");
            world.0.pass_over(&silent);
        }
        assert!(Arc::ptr_eq(&world.0.current(), &old), "no member of the list answers");
        world.follow(&["x", "y"]);
        assert!(["x", "y"].contains(&&*world.current()), "the list was read again");
        let new = world.0.current();
        assert!(world.0.answered(&new));
        assert!(!world.0.contains(&old));
        world.0.pass_over(&old);
        assert!(Arc::ptr_eq(&world.0.current(), &new), "a late failure of the old one");
    }

    #[test]
    fn a_member_that_never_answered_is_forgotten_with_the_list() {
        let mut world = World::new(&["a", "b"]);
        world.follow(&["x"]);
        assert_eq!((world.names(), world.current()), (vec!["x"], "x".to_owned()));
        world.follow(&["x", "y"]);
        assert_eq!(world.current(), "x");
        let _first = world.0.answered(&world.0.current());
        world.follow(&["y"]);
        world.follow(&["z"]);
        assert_eq!(world.names(), ["z", "x"], "only the last answer counts");
    }
}
