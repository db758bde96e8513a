//! `--free` and `--max-used`: only as many snapshots go as it takes.

use super::super::take;
use super::choose::Reason;
use super::plan::{Plan, Row};
use crate::{exit, format};
use icecore::admin::{Access, ErrorCode, Failure, Request, Response};
use icecore::units::ByteLength;

/// How much space there has to be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Goal {
    free: Option<Free>,
    used_max: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Free {
    Bytes(u64),
    /// Hundredths of a per cent.
    Share(u64),
}

/// What the pool has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    pub used: u64,
    pub capacity: u64,
    /// What has to come back.
    pub needed: u64,
}

impl Goal {
    /// Reads the two options; `None` if neither is given.
    pub fn parse(free: Option<&str>, max_used: Option<&str>) -> anyhow::Result<Option<Self>> {
        let free = free.map(parse_free).transpose().map_err(|why| exit::usage(format!("--free: {why}")))?;
        let used_max = max_used
            .map(|text| format::parse_size_with_unit(text, "").map(ByteLength::get))
            .transpose()
            .map_err(|why| exit::usage(format!("--max-used: {why}")))?;
        Ok((free.is_some() || used_max.is_some()).then_some(Self { free, used_max }))
    }

    /// Bytes that have to come back.
    fn needed(&self, used: u64, capacity: u64, kept: u64) -> u64 {
        let wanted = match self.free {
            None => 0,
            Some(Free::Bytes(bytes)) => bytes,
            Some(Free::Share(share)) => {
                u64::try_from(u128::from(capacity) * u128::from(share) / 10_000).unwrap_or(u64::MAX)
            }
        };
        // What is kept from data is not free, however little is used.
        let for_free = wanted.saturating_sub(capacity.saturating_sub(used).saturating_sub(kept));
        let for_used = self.used_max.map_or(0, |most| used.saturating_sub(most));
        for_free.max(for_used)
    }

    /// Lets stay what need not go; answers what to say if it is not enough.
    pub fn apply(&self, access: &mut Access, plan: &mut Plan) -> anyhow::Result<Option<Failure>> {
        let status = take!(access.call(Request::Status)?, Response::Status(status) => status.statistics);
        let (used, capacity) = (status.used_bytes, status.capacity_bytes);
        let needed = self.needed(used, capacity, status.kept_bytes);
        plan.space = Some(Space { used, capacity, needed });
        let mut oldest_first: Vec<usize> =
            (0..plan.rows.len()).filter(|index| plan.rows[*index].reasons.is_empty()).collect();
        oldest_first.sort_by_key(|index| plan.rows[*index].entry.created);

        let mut frees = |plan: &Plan, count: usize| {
            let rows = oldest_first[..count].iter().map(|index| &plan.rows[*index]);
            super::frees(access, rows).map(ByteLength::get)
        };
        let all = frees(plan, oldest_first.len())?;
        // More snapshots never give back less: the fewest that suffice are found by halving.
        let (mut too_few, mut enough) = (0, oldest_first.len());
        if needed == 0 {
            enough = 0;
        }
        while all >= needed && enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            if frees(plan, middle)? >= needed { enough = middle } else { too_few = middle }
        }
        for index in &oldest_first[enough..] {
            plan.rows[*index].reasons.push(Reason::EnoughSpace);
        }
        Ok((all < needed).then(|| shortfall(needed, all, plan)))
    }
}

fn shortfall(needed: u64, frees: u64, plan: &Plan) -> Failure {
    let kept = plan.rows.iter().filter(|row: &&Row| !row.reasons.is_empty()).count();
    let (needed, frees) = (format::size(ByteLength(needed)), format::size(ByteLength(frees)));
    let message = format!(
        "{needed} would have to come back, and pruning gives {frees}: {kept} snapshots stay (-nv says why), and the \
         rest is what the datasets hold now"
    );
    Failure::new(ErrorCode::NoSpace, message)
}

fn parse_free(text: &str) -> Result<Free, String> {
    if text.trim().ends_with('%') {
        return format::parse_share(text).map(Free::Share);
    }
    format::parse_size_with_unit(text, &format!("{text}% or ")).map(|size| Free::Bytes(size.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_sizes_are_read() {
        assert_eq!(parse_free("20%"), Ok(Free::Share(2000)));
        assert_eq!(parse_free("2.5 %"), Ok(Free::Share(250)));
        assert_eq!(parse_free("50G"), Ok(Free::Bytes(50 << 30)));
        for text in ["%", "101%", "-1%", "1.234%", "x%", "1e1%", ".5%", "20", "0"] {
            assert!(parse_free(text).is_err(), "{text}");
        }
        assert_eq!(Goal::parse(None, None).unwrap(), None);
    }

    #[test]
    fn what_is_needed_is_exact() {
        let needed = |free: Option<&str>, used: Option<&str>| {
            Goal::parse(free, used).unwrap().unwrap().needed(900, 1050, 50)
        };
        assert_eq!(needed(Some("20%"), None), 110);
        assert_eq!(needed(Some("9%"), None), 0);
        assert_eq!(needed(Some("150B"), None), 50);
        assert_eq!(needed(None, Some("300B")), 600);
        assert_eq!(needed(Some("100%"), Some("899B")), 950);
        let beyond = Goal::parse(Some("10%"), None).unwrap().unwrap();
        assert_eq!(beyond.needed(1200, 1000, 0), 100);
        assert_eq!(beyond.needed(0, u64::MAX, 0), 0);
        assert_eq!(beyond.needed(500, 1000, 600), 100);
    }
}
