//! Splits the options of a URL: `?name=value&name=value`. Each driver has its own options.

/// Iterates over the options.
pub(crate) fn options(text: &str) -> impl Iterator<Item = Result<(&str, &str), String>> {
    text.split('&').filter(|option| !option.is_empty()).map(|option| {
        option
            .split_once('=')
            .filter(|(_, value)| !value.is_empty())
            .ok_or_else(|| format!("option `{option}` has no value: write {option}=VALUE, or leave it out"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_a_name_and_a_value() {
        assert_eq!(options("a=1&&b=2=3").collect::<Result<Vec<_>, _>>(), Ok(vec![("a", "1"), ("b", "2=3")]));
        assert_eq!(options("").count(), 0);
        for empty in ["a", "a=", "b=1&a"] {
            let refusal = options(empty).collect::<Result<Vec<_>, _>>().unwrap_err();
            assert!(refusal.contains("=VALUE"), "{refusal}");
        }
    }
}
