use std::fmt;
use std::str::FromStr;

use crate::{CutKind, Micros, WindowId};

/// What a lane of a store has applied. Kept in the store, moved in the same atomic write as the lane's counters.
///
/// Its text is what a store keeps and a person reads:
/// `generation=1 epoch=1 window=1790000000000 as_of=1790000000000000 kind=whole base_cut=0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Which life of the store's lane it is: a new one at each rebuild.
    pub generation: u64,
    /// Epoch of the relay that closed the window.
    pub epoch: u64,
    /// The last window applied.
    pub window: WindowId,
    /// As of when the lane's counters are exact: the label of the window's cut.
    pub as_of: Micros,
    /// What kind of cut the lane stands at.
    pub kind: CutKind,
    /// The window at whose cut the lane was last rebuilt; 0 when it was built from the start of the log.
    pub base_cut: WindowId,
}

impl Fence {
    /// The fence of a lane that has applied nothing.
    pub fn unapplied(generation: u64) -> Self {
        Self { generation, epoch: 0, window: 0, as_of: 0, kind: CutKind::Whole, base_cut: 0 }
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fence { generation, epoch, window, as_of, kind, base_cut } = self;
        write!(
            f,
            "generation={generation} epoch={epoch} window={window} as_of={as_of} kind={kind} base_cut={base_cut}"
        )
    }
}

/// Text that is no fence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a fence: {0:?}")]
pub struct FenceError(pub String);

impl FromStr for Fence {
    type Err = FenceError;

    fn from_str(text: &str) -> Result<Self, FenceError> {
        parse(text).filter(|fence| fence.to_string() == text).ok_or_else(|| FenceError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Fence> {
    let mut fields = text.split(' ');
    let mut field = |name: &str| fields.next()?.strip_prefix(name)?.strip_prefix('=');
    Some(Fence {
        generation: field("generation")?.parse().ok()?,
        epoch: field("epoch")?.parse().ok()?,
        window: field("window")?.parse().ok()?,
        as_of: field("as_of")?.parse().ok()?,
        kind: field("kind")?.parse().ok()?,
        base_cut: field("base_cut")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_fence_survives_its_text(generation: u64, epoch: u64, window: u64, as_of: i64, base_cut: u64) {
            for kind in [CutKind::Whole, CutKind::Partial, CutKind::Incomplete] {
                let fence = Fence { generation, epoch, window, as_of, kind, base_cut };
                prop_assert_eq!(fence.to_string().parse(), Ok(fence));
            }
        }

        #[test]
        fn other_text_is_refused(text: String) {
            prop_assert!(text.parse::<Fence>().is_err());
        }
    }

    #[test]
    fn a_fence_with_more_or_less_is_refused() {
        let text = Fence::unapplied(1).to_string();
        for wrong in [
            format!("{text} "),
            format!("{text} x=1"),
            text.replace("epoch=0 ", ""),
            text.replace("=0", "=00"),
        ] {
            assert!(wrong.parse::<Fence>().is_err(), "{wrong}");
        }
    }
}
