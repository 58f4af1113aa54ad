//! The text forms of settings: parsing and formatting.

/// A whole number.
pub(super) mod count {
    pub(crate) const NAME: &str = "N";
    pub(crate) const FORM: &str = "a whole number in range";

    pub(crate) fn parse<T: TryFrom<u64>>(text: &str) -> Option<T> {
        // `u64::from_str` takes a sign.
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        T::try_from(digits.then(|| text.parse().ok()).flatten()?).ok()
    }

    pub(crate) fn show(value: &impl ToString) -> String {
        value.to_string()
    }
}

/// A whole number. The default is the server's choice.
pub(super) mod workers {
    pub(crate) const NAME: &str = super::count::NAME;
    pub(crate) const FORM: &str = super::count::FORM;

    pub(crate) fn parse(text: &str) -> Option<Option<usize>> {
        super::count::parse(text).map(Some)
    }

    pub(crate) fn show(value: &Option<usize>) -> String {
        value.map_or("the server's own".into(), |n| n.to_string())
    }
}

/// A whole number. The default is [`DEFAULT_QUEUE`](polyserve_core::ServerConfig::DEFAULT_QUEUE).
pub(super) mod queue {
    pub(crate) const NAME: &str = super::count::NAME;
    pub(crate) const FORM: &str = super::count::FORM;

    pub(crate) use super::workers::parse;

    pub(crate) fn show(value: &Option<usize>) -> String {
        value.unwrap_or(polyserve_core::ServerConfig::DEFAULT_QUEUE).to_string()
    }
}

/// An optional limit. 0 is no limit.
pub(super) mod limit {
    pub(crate) const NAME: &str = super::count::NAME;
    pub(crate) const FORM: &str = super::count::FORM;

    pub(crate) fn parse(text: &str) -> Option<Option<u64>> {
        super::count::parse(text).map(|limit| Some(limit).filter(|limit| *limit > 0))
    }

    pub(crate) fn show(value: &Option<u64>) -> String {
        value.unwrap_or(0).to_string()
    }
}

/// A number of bytes.
pub(super) mod bytes {
    pub(crate) const NAME: &str = "BYTES";
    pub(crate) const FORM: &str = "a number of bytes such as 65536, 64KiB or 1MiB";

    const UNITS: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

    pub(crate) fn parse(text: &str) -> Option<usize> {
        parse_u64(text)?.try_into().ok()
    }

    pub(crate) fn parse_u64(text: &str) -> Option<u64> {
        let unit = UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?.trim_end(), *factor)));
        let (number, factor) = unit.unwrap_or((text, 1));
        super::count::parse::<u64>(number)?.checked_mul(factor)
    }

    pub(crate) fn show(value: &usize) -> String {
        let unit = UNITS.iter().rev().find(|(_, factor)| *value > 0 && (*value as u64).is_multiple_of(*factor));
        unit.map_or(value.to_string(), |(unit, factor)| format!("{}{unit}", *value as u64 / factor))
    }
}

/// A number of bytes. The default is a quarter of the machine's memory, or of the cgroup's limit.
pub(super) mod memory {
    pub(crate) const NAME: &str = super::bytes::NAME;
    pub(crate) const FORM: &str = super::bytes::FORM;

    pub(crate) fn parse(text: &str) -> Option<Option<usize>> {
        super::bytes::parse(text).map(Some)
    }

    pub(crate) fn show(value: &Option<usize>) -> String {
        value.map_or("a quarter of the machine's or the cgroup's".into(), |bytes| super::bytes::show(&bytes))
    }
}

/// A time.
pub(super) mod time {
    use std::time::Duration;

    pub(crate) const NAME: &str = "TIME";
    pub(crate) const FORM: &str = "a time such as 10s, 500ms or 2m";

    pub(crate) fn parse(text: &str) -> Option<Duration> {
        humantime::parse_duration(text).ok()
    }

    pub(crate) fn show(value: &Duration) -> String {
        humantime::format_duration(*value).to_string()
    }
}

/// A boolean.
pub(super) mod switch {
    pub(crate) const NAME: &str = "BOOL";
    pub(crate) const FORM: &str = "true or false";

    pub(crate) fn parse(text: &str) -> Option<bool> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(true),
            "false" | "0" | "no" | "off" => Some(false),
            _ => None,
        }
    }

    pub(crate) fn show(value: &bool) -> String {
        value.to_string()
    }
}

/// Any text. The default is no text.
pub(super) mod text {
    pub(crate) const NAME: &str = "TEXT";
    pub(crate) const FORM: &str = "a text";

    pub(crate) fn parse(text: &str) -> Option<Option<String>> {
        Some(Some(text.to_owned()).filter(|text| !text.is_empty()))
    }

    pub(crate) fn show(value: &Option<String>) -> String {
        value.clone().unwrap_or("none".into())
    }
}

/// An overload policy. The default is none.
pub(super) mod overload {
    use polyserve_core::overload::Overload;

    pub(crate) const NAME: &str = "POLICY";
    pub(crate) const FORM: &str = "none, static:N, codel:TIME or gradient";

    pub(crate) fn parse(text: &str) -> Option<Option<Overload>> {
        Some(match text.split_once(':') {
            None if text == "none" => None,
            None if text == "gradient" => Some(Overload::gradient()),
            Some(("static", requests)) => Some(Overload::static_limit(super::count::parse(requests)?)),
            Some(("codel", target)) => Some(Overload::codel(super::time::parse(target)?)),
            _ => return None,
        })
    }

    pub(crate) fn show(value: &Option<Overload>) -> String {
        value.as_ref().map_or("none".into(), ToString::to_string)
    }
}

/// Networks of proxies. The default is none.
pub(super) mod proxies {
    use polyserve_core::TrustedProxies;

    pub(crate) const NAME: &str = "CIDR,...";
    pub(crate) const FORM: &str = "none, or networks and addresses with commas between them, such as 10.0.0.0/8,::1";

    pub(crate) fn parse(text: &str) -> Option<TrustedProxies> {
        if text == "none" { Some(TrustedProxies::default()) } else { text.parse().ok() }
    }

    pub(crate) fn show(value: &TrustedProxies) -> String {
        if value.is_empty() { "none".into() } else { value.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn overload_policies() {
        for text in ["none", "static:1", "codel:5ms", "codel:1500us", "gradient"] {
            assert_eq!(overload::show(&overload::parse(text).unwrap()), text);
        }
        for wrong in ["", "static", "static:", "static:-1", "static:x", "codel", "codel:5", "gradient:3", "Static:1"] {
            assert_eq!(overload::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn counts_are_digits_within_their_type() {
        assert_eq!((count::parse("0"), count::parse("4294967295")), (Some(0_u32), Some(u32::MAX)));
        for wrong in ["", "+1", "-1", "1.5", "0x10", "4294967296", "one", " 1"] {
            assert_eq!(count::parse::<u32>(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn bytes_have_units_and_no_overflow() {
        for (text, bytes) in [("0", 0), ("16KiB", 16 << 10), ("1 MiB", 1 << 20), ("2GiB", 2 << 30), ("1500", 1500)] {
            assert_eq!(bytes::parse(text), Some(bytes), "{text}");
            assert_eq!(bytes::parse(&bytes::show(&bytes)), Some(bytes), "{text}");
        }
        for wrong in ["KiB", "1kB", "1.5MiB", "18446744073709551615GiB", "-1KiB"] {
            assert_eq!(bytes::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_and_switches() {
        assert_eq!(time::parse("1m 30s"), Some(Duration::from_secs(90)));
        assert_eq!((time::parse("10"), time::parse("soon"), time::parse("999999999999999999999s")), (None, None, None));
        assert_eq!(time::parse(&time::show(&Duration::from_millis(1500))), Some(Duration::from_millis(1500)));
        assert_eq!((switch::parse("ON"), switch::parse("0"), switch::parse("maybe")), (Some(true), Some(false), None));
    }
}
