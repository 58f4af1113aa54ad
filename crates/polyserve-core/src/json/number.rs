//! The text of numbers in JSON: that of `itoa` and `serde_json`, faster for short ones.
//!
//! Invariant: a short number has the same text. A decimal of at most 15 digits that reads as a float is the shortest one that does:
//! two decimals of at most 15 digits never read as the same float. `serde_json` writes the shortest one.
//!
//! Cost: eight digits are computed in one word, and stored at once. A number that is not short costs a multiplication and a division
//! more than without this module.

/// Numbers below this have at most eight digits.
const SHORT: u64 = 100_000_000;

/// The number of different fractions with six digits.
const FRACTIONS: u32 = 1_000_000;

/// The text of a number below [`SHORT`], or of a fraction: at most eight digits.
#[derive(Clone, Copy)]
pub(super) struct Digits {
    /// The digits from the lowest byte on. What follows them is of no meaning.
    pub(super) text: [u8; 8],
    pub(super) count: usize,
}

impl Digits {
    #[inline]
    fn append(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.text);
        out.truncate(out.len() - (self.text.len() - self.count));
    }
}

/// A decimal number with at most six digits after the point.
pub(super) struct Decimal {
    pub(super) is_negative: bool,
    pub(super) whole: Digits,
    pub(super) fraction: Digits,
}

/// Appends a whole number.
#[inline]
pub(super) fn write_integer(number: i64, out: &mut Vec<u8>) {
    match short_integer(number) {
        Some(digits) => digits.append(out),
        None => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
    }
}

/// Appends a float, or `null` if it is not finite.
pub(super) fn write_float(number: f64, out: &mut Vec<u8>) {
    let Some(decimal) = short_decimal(number) else {
        let _ = serde_json::to_writer(out, &number); // writing to a `Vec` does not fail
        return;
    };
    if decimal.is_negative {
        out.push(b'-');
    }
    decimal.whole.append(out);
    out.push(b'.');
    decimal.fraction.append(out);
}

/// Returns the text of a whole number, if it has at most eight digits and no sign.
#[allow(clippy::inline_always)] // for each read
#[inline(always)]
pub(super) fn short_integer(number: i64) -> Option<Digits> {
    match u64::try_from(number) {
        Ok(short @ ..SHORT) => Some(short_text(short as u32)),
        _ => None,
    }
}

/// Returns the text of a float that is short.
#[allow(clippy::inline_always)] // for each read
#[inline(always)]
pub(super) fn short_decimal(number: f64) -> Option<Decimal> {
    let magnitude = number.abs();
    // Within these limits, the text has no exponent.
    if !(0.001..SHORT as f64).contains(&magnitude) {
        return None;
    }
    // The sum is rounded to a whole number, which is in its lowest bits.
    let sum = magnitude * f64::from(FRACTIONS) + WHOLE_NUMBERS;
    if (sum - WHOLE_NUMBERS) / f64::from(FRACTIONS) != magnitude {
        return None;
    }
    let millionths = sum.to_bits() - WHOLE_NUMBERS.to_bits();
    let fraction = (millionths % u64::from(FRACTIONS)) as u32;
    Some(Decimal {
        is_negative: number < 0.0,
        whole: short_text((millionths / u64::from(FRACTIONS)) as u32),
        fraction: fraction_text(fraction),
    })
}

/// The floats from this one to its double are the whole numbers. They have the same exponent.
const WHOLE_NUMBERS: f64 = (1_u64 << 52) as f64;

/// Returns the text of millionths, without zeros at its end. One digit stays.
#[inline]
fn fraction_text(millionths: u32) -> Digits {
    // Six digits, and two zeros behind them: that makes the eight that `digits` takes.
    let digits = digits(millionths * 100);
    let zeros = (digits | 1).leading_zeros() as usize / 8;
    Digits { text: (digits | ZEROS).to_le_bytes(), count: 8 - zeros }
}

/// Returns the text of a number below [`SHORT`].
#[inline]
fn short_text(number: u32) -> Digits {
    let (text, count) = match number {
        ..10 => (u64::from(number) | ZEROS, 1),
        10..100 => (u64::from((number / 10) | ((number % 10) << 8)) | ZEROS, 2),
        _ => {
            let digits = digits(number);
            let zeros = digits.trailing_zeros() as usize / 8; // it is not zero
            ((digits | ZEROS) >> (8 * zeros), 8 - zeros)
        }
    };
    Digits { text: text.to_le_bytes(), count }
}

/// Eight times the digit zero.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// Returns the eight digits of a number below [`SHORT`] as values of 0 to 9. The first one is in the lowest byte.
#[inline]
fn digits(number: u32) -> u64 {
    let fours = u64::from(number / 10_000) | u64::from(number % 10_000) << 32;
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f; // of each four digits, divided by 100
    let pairs = hundreds | (fours - hundreds * 100) << 16;
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f; // of each pair, divided by 10
    tens | (pairs - tens * 10) << 8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written<T>(number: T, write: fn(T, &mut Vec<u8>)) -> String {
        let mut out = b"before".to_vec();
        write(number, &mut out);
        String::from_utf8(out.split_off(6)).unwrap()
    }

    fn random() -> impl Iterator<Item = u64> {
        let mut bits = 0x9E37_79B9_7F4A_7C15_u64;
        std::iter::repeat_with(move || {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            bits
        })
    }

    #[test]
    fn a_whole_number_has_the_text_of_itoa() {
        let edges = (0..19).flat_map(|power| [0, 1, 2].map(|above| 10_i64.pow(power) - 1 + above));
        let special = [i64::MIN, i64::MAX, -1].into_iter().chain(edges);
        let random = random().take(20_000).map(|bits| (bits >> (bits % 64)) as i64);
        for number in special.chain(random) {
            assert_eq!(written(number, write_integer), number.to_string());
        }
        for number in 0..20_000 {
            assert_eq!(written(number, write_integer), number.to_string());
        }
    }

    /// Entity tags depend on the text, so it must not change.
    #[test]
    fn a_float_has_the_text_of_serde_json() {
        let special =
            [0.0, -0.0, f64::NAN, f64::INFINITY, 1e8, 99_999_999.999_999, 99_999_999.999_999_9, 5e-324, f64::MAX];
        let around = [0.001, 0.01, 0.1, 0.5, 1.0, 1.0 / 3.0, 60.750847, 1e7, 1e8, 1e15, 1e16];
        let around = around.into_iter().flat_map(|number: f64| [number.next_down(), number, number.next_up()]);
        let decimals = random().take(100_000).flat_map(|bits| {
            let (digits, decimals) = (bits >> 8 >> (bits % 50), (bits >> 58) as i32 % 9);
            [digits as f64 / 10_f64.powi(decimals), (digits % 100_000_000_000_000) as f64 / 1e6]
        });
        let bits = random().take(20_000).map(f64::from_bits);
        for number in special.into_iter().chain(around).chain(decimals).chain(bits) {
            for number in [number, -number] {
                assert_eq!(written(number, write_float), serde_json::to_string(&number).unwrap());
            }
        }
    }
}
