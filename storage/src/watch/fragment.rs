//! Room storage, watches: cutting an oversized response between events. Pure arithmetic on sizes.

use std::ops::Range;

/// Which events go into which part: consecutive, not empty ranges that cover `0..sizes.len()`.
///
/// `base` is the encoded size of the response without events but marked as a fragment, `sizes` each
/// event's share (tag, length and body), `limit` the size a part must stay below. A part holds at least
/// one event, whatever its size. One event, or all of them below the limit, is one part.
pub fn fragments(base: usize, sizes: &[usize], limit: usize) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut total = base;
    for (at, size) in sizes.iter().enumerate() {
        if at > start && total + size >= limit {
            parts.push(start..at);
            start = at;
            total = base;
        }
        total += size;
    }
    if start < sizes.len() {
        parts.push(start..sizes.len());
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cuts_where_the_limit_would_be_reached() {
        assert_eq!(fragments(10, &[], 100), vec![]);
        assert_eq!(fragments(10, &[500], 100), vec![0..1]);
        assert_eq!(fragments(10, &[40, 40], 91), vec![0..2]);
        assert_eq!(fragments(10, &[40, 40], 90), vec![0..1, 1..2]);
        assert_eq!(
            fragments(10, &[40, 40, 40, 500, 1], 100),
            vec![0..2, 2..3, 3..4, 4..5]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn parts_cover_everything_and_stay_below_the_limit(
            sizes in proptest::collection::vec(1..60usize, 0..40), base in 0..20usize, limit in 1..150usize,
        ) {
            let parts = fragments(base, &sizes, limit);
            let mut next = 0;
            for part in &parts {
                prop_assert_eq!(part.start, next);
                prop_assert!(part.end > part.start);
                let total: usize = base + sizes[part.clone()].iter().sum::<usize>();
                prop_assert!(total < limit || part.len() == 1);
                next = part.end;
            }
            prop_assert_eq!(next, sizes.len());
        }
    }
}
