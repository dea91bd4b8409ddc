//! [`Span`]: a duration formatted for messages.

use std::{fmt, time::Duration};

/// Formats a duration for messages: `20s`, `1.5s`, `50ms`, `300µs`. Rounds to a thousandth of the unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span(pub Duration);

impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let (unit, name) = match nanos {
            1_000_000_000.. => (1_000_000_000, "s"),
            1_000_000.. => (1_000_000, "ms"),
            _ => (1_000, "µs"),
        };
        let thousandths = (nanos * 1_000 + unit / 2) / unit;
        let (whole, rest) = (thousandths / 1_000, thousandths % 1_000);
        // Without an allocation, because the deadman formats it while the allocator may be locked.
        match rest {
            0 => write!(out, "{whole}{name}"),
            _ if rest % 100 == 0 => write!(out, "{whole}.{}{name}", rest / 100),
            _ if rest % 10 == 0 => write!(out, "{whole}.{:02}{name}", rest / 10),
            _ => write!(out, "{whole}.{rest:03}{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_shown_in_its_unit_without_trailing_zeros() {
        let shown = |nanos| Span(Duration::from_nanos(nanos)).to_string();
        assert_eq!(shown(0), "0µs");
        assert_eq!(shown(300_000), "300µs");
        assert_eq!(shown(50_000_000), "50ms");
        assert_eq!(shown(1_234_567), "1.235ms");
        assert_eq!(shown(1_500_000_000), "1.5s");
        assert_eq!(shown(20_000_000_000), "20s");
        assert_eq!(shown(86_400_000_000_000), "86400s");
    }
}
