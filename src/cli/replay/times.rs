//! Numbers and times as a page writes them.

use std::time::Duration;

/// A number with a comma between its thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A delay in its largest unit: `350 ms`, `4 s`, `12 m`, `5 h`, `3 d`; rounded.
pub(super) fn delay(delay: Duration) -> String {
    let seconds = delay.as_millis().saturating_add(500) / 1_000;
    let rounded = |unit: u128| (seconds + unit / 2) / unit;
    match seconds {
        0 => format!("{} ms", delay.as_millis()),
        1..100 => format!("{seconds} s"),
        100..6_000 => format!("{} m", rounded(60)),
        6_000..172_800 => format!("{} h", rounded(3_600)),
        _ => format!("{} d", rounded(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_have_commas() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn a_delay_is_in_its_largest_unit() {
        for (ms, text) in [
            (0, "0 ms"),
            (499, "499 ms"),
            (4_200, "4 s"),
            (99_400, "99 s"),
            (120_000, "2 m"),
            (7_200_000, "2 h"),
            (259_200_000, "3 d"),
        ] {
            assert_eq!(delay(Duration::from_millis(ms)), text);
        }
    }
}
