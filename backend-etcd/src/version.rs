//! [`Version`]: the version that a member reports.

/// The version of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u64, u64, u64);

impl Version {
    /// The version in a text like `3.5.16`, or `3.6.0-rc.1`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(['.', '-', '+']);
        let mut number = || parts.next()?.parse().ok();
        Some(Self(number()?, number()?, number()?))
    }

    /// True if its answer to a request for progress arrives after all events up to the revision in
    /// it. Older members answer while events of a watch are still to be sent
    /// (<https://github.com/etcd-io/etcd/issues/15220>).
    pub(crate) fn tells_progress(self) -> bool {
        match (self.0, self.1) {
            (3, 4) => self.2 >= 25,
            (3, 5) => self.2 >= 8,
            (major, minor) => (major, minor) >= (3, 6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_members_write_them() {
        assert_eq!(Version::parse("3.4.23"), Some(Version(3, 4, 23)));
        assert_eq!(Version::parse("3.6.0-rc.1"), Some(Version(3, 6, 0)));
        for wrong in ["", "3", "3.4", "a.b.c", "v3.4.1"] {
            assert_eq!(Version::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_members_with_the_fix_report_progress() {
        let tells = |text| Version::parse(text).expect("a version").tells_progress();
        for text in ["3.4.25", "3.4.40", "3.5.8", "3.6.0", "3.10.0", "4.0.0"] {
            assert!(tells(text), "{text}");
        }
        for text in ["3.3.27", "3.4.23", "3.4.24", "3.5.0", "3.5.7", "2.9.9"] {
            assert!(!tells(text), "{text}");
        }
    }
}
