//! Fences as rows of the table `lanes`.

use fencepost_model::Fence;
use fencepost_model::placement::LANES;
use postgres::Row;
use postgres::types::ToSql;

use crate::store::StoreError;

/// The fields of a fence in the order of [`read_fence`] and [`FenceRows`].
pub(super) const COLUMNS: &str = "lane, generation, epoch, window_id, as_of, kind, base_cut";

/// The fence of each lane, by lane.
pub(super) fn read_fences(rows: &[Row]) -> Result<Vec<Option<Fence>>, StoreError> {
    let mut fences = vec![None; usize::from(LANES)];
    for row in rows {
        let (lane, fence) = read_fence(row)?;
        fences[usize::from(lane)] = Some(fence);
    }
    Ok(fences)
}

/// The lane and fence that a row says.
pub(super) fn read_fence(row: &Row) -> Result<(u8, Fence), StoreError> {
    let lane: i16 = row.get(0);
    let number = |column: usize| u64::try_from(row.get::<_, i64>(column)).ok();
    let fence = || {
        let lane = u8::try_from(lane).ok().filter(|lane| *lane < LANES)?;
        let fence = Fence {
            generation: number(1)?,
            epoch: number(2)?,
            window: number(3)?,
            as_of: row.get(4),
            kind: row.get::<_, &str>(5).parse().ok()?,
            base_cut: number(6)?,
        };
        Some((lane, fence))
    };
    fence().ok_or_else(|| {
        StoreError::Refused(format!(
            "the row of lane {lane} in table lanes is no fence; something else writes to it, and its checks are gone: \
             stop it, then rebuild the store (`fencepost apply --store NAME --from-start`)"
        ))
    })
}

/// Fences as arrays, a column each.
pub(super) struct FenceRows {
    lanes: Vec<i16>,
    generations: Vec<i64>,
    epochs: Vec<i64>,
    windows: Vec<i64>,
    as_ofs: Vec<i64>,
    kinds: Vec<&'static str>,
    base_cuts: Vec<i64>,
}

impl FenceRows {
    /// What follows `unnest` to make rows of [`COLUMNS`] out of [`FenceRows::parameters`].
    pub(super) const ARRAYS: &str =
        "($1::smallint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[])";

    pub(super) fn of(fences: impl Iterator<Item = (u8, Fence)>) -> Result<Self, StoreError> {
        let mut rows = Self {
            lanes: Vec::new(),
            generations: Vec::new(),
            epochs: Vec::new(),
            windows: Vec::new(),
            as_ofs: Vec::new(),
            kinds: Vec::new(),
            base_cuts: Vec::new(),
        };
        for (lane, fence) in fences {
            let number = |n: u64| {
                i64::try_from(n).map_err(|_| {
                    StoreError::Refused(format!(
                        "lane {lane} would move to {fence}, which no bigint can hold; report this"
                    ))
                })
            };
            rows.lanes.push(lane.into());
            rows.generations.push(number(fence.generation)?);
            rows.epochs.push(number(fence.epoch)?);
            rows.windows.push(number(fence.window)?);
            rows.as_ofs.push(fence.as_of);
            rows.kinds.push(fence.kind.as_str());
            rows.base_cuts.push(number(fence.base_cut)?);
        }
        Ok(rows)
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn parameters(&self) -> [&(dyn ToSql + Sync); 7] {
        [
            &self.lanes,
            &self.generations,
            &self.epochs,
            &self.windows,
            &self.as_ofs,
            &self.kinds,
            &self.base_cuts,
        ]
    }
}
