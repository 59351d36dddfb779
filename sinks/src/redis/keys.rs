//! The names of keys: what a person may type into `redis-cli`.

use fencepost_model::Id;
use fencepost_model::placement::LANES;

/// The keys of one store under its prefix: `likes:42`, `likes:lane:7`, `likes:debt:7`, `likes:aside:42:<window>`.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn counter<I: Id>(&self, item: I) -> String {
        format!("{}{item}", self.prefix)
    }

    pub(crate) fn fence(&self, lane: u8) -> String {
        format!("{}lane:{lane}", self.prefix)
    }

    pub(crate) fn debt(&self, lane: u8) -> String {
        format!("{}debt:{lane}", self.prefix)
    }

    /// The fences of all lanes, by lane.
    pub(crate) fn fences(&self) -> Vec<String> {
        (0..LANES).map(|lane| self.fence(lane)).collect()
    }

    /// A pattern for SCAN that matches at least every key of the store.
    pub(crate) fn pattern(&self) -> String {
        let mut pattern = String::with_capacity(self.prefix.len() + 1);
        for letter in self.prefix.chars() {
            if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^') {
                pattern.push('\\');
            }
            pattern.push(letter);
        }
        pattern.push('*');
        pattern
    }

    /// The item that a key counts, if it is a counter of this store.
    pub(crate) fn item<I: Id>(&self, key: &[u8]) -> Option<I> {
        let text = self.name(key)?;
        text.parse().ok().filter(|item: &I| item.to_string() == text)
    }

    /// Whether the key belongs to this store. One under a longer prefix, such as `likes:eu:42`, is another's.
    pub(crate) fn owns<I: Id>(&self, key: &[u8]) -> bool {
        let of_lane =
            |text: &str| text.parse::<u8>().is_ok_and(|lane| lane < LANES && lane.to_string() == text);
        self.item::<I>(key).is_some()
            || self.name(key).is_some_and(|name| match name.split_once(':') {
                Some(("lane" | "debt", lane)) => of_lane(lane),
                Some(("aside", rest)) => rest
                    .rsplit_once(':')
                    .is_some_and(|(name, window)| !name.is_empty() && window.parse::<u64>().is_ok()),
                _ => false,
            })
    }

    fn name<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        str::from_utf8(key.strip_prefix(self.prefix.as_bytes())?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_owns_what_it_names_and_nothing_under_a_longer_prefix() {
        let keys = Keys::new("likes:");
        for own in [&keys.counter(-42_i64), "likes:42", "likes:lane:7", "likes:debt:63", "likes:aside:42:9"] {
            assert!(keys.owns::<i64>(own.as_bytes()), "{own}");
        }
        assert!(keys.owns::<i64>(b"likes:aside:debt:7:1790000000000"));
        for other in [
            "likes:eu:42",
            "likes:eu:lane:7",
            "likes:lane:64",
            "likes:lane:07",
            "likes:042",
            "likes:",
            "likes:x",
            "like:42",
        ] {
            assert!(!keys.owns::<i64>(other.as_bytes()), "{other}");
        }
        assert!(!keys.owns::<i64>(b"likes:\xff"));
    }

    #[test]
    fn the_pattern_takes_the_prefix_literally() {
        assert_eq!(Keys::new("a*[b]?\\:").pattern(), "a\\*\\[b\\]\\?\\\\:*");
    }
}
