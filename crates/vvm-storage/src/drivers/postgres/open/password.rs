//! Where the password comes from: a file, the URL, the environment, or `~/.pgpass`.

use super::{Address, OpenError, address::Password};
use crate::drivers::hosts::Host;
use std::{env, fs, io, path::PathBuf};

/// The environment variable with the password.
const PASSWORD: &str = "VVM_STORAGE_PASSWORD";

/// The password for `host`: of `password_file`, else of the URL, else of the environment, else of `~/.pgpass`
/// or the file that `PGPASSFILE` names. Read anew for each connection, so that it can be changed.
pub(super) fn password(host: &Host, address: &Address) -> Result<Option<String>, OpenError> {
    let unreadable = |path: &PathBuf, cause| OpenError::PasswordFile { path: path.clone(), cause };
    if let Some(path) = &address.password_file {
        let text = fs::read_to_string(path).map_err(|cause| unreadable(path, cause))?;
        return Ok(text.lines().next().map(str::to_owned));
    }
    if let Some(Password(password)) = &address.password {
        return Ok(Some(password.clone()));
    }
    if let Some(password) = env::var(PASSWORD).ok().filter(|password| !password.is_empty()) {
        return Ok(Some(password));
    }
    let in_home = || Some(PathBuf::from(env::var_os("HOME")?).join(".pgpass"));
    let Some(path) = env::var_os("PGPASSFILE").map(PathBuf::from).or_else(in_home) else { return Ok(None) };
    match fs::read_to_string(&path) {
        Ok(text) => Ok(listed(&text, host, address)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(unreadable(&path, cause)),
    }
}

/// The password of the first line that fits: `host:port:database:user:password`, where `*` fits everything,
/// and a backslash stands before a colon or backslash that is part of a field.
fn listed(text: &str, host: &Host, address: &Address) -> Option<String> {
    let wanted = [&host.name, &host.port.to_string(), &address.database, &address.user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields: [String; 5] = fields(line).try_into().ok()?;
        let fits = fields.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted);
        let [.., password] = fields;
        fits.then_some(password)
    })
}

fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut characters) = (vec![String::new()], line.chars());
    while let Some(character) = characters.next() {
        let kept = match character {
            ':' if fields.len() < 5 => {
                fields.push(String::new());
                continue;
            }
            '\\' => characters.next(),
            character => Some(character),
        };
        if let Some(field) = fields.last_mut() {
            field.extend(kept);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_line_that_fits_has_the_password() {
        let address = Address::parse("postgres://me@h1,h2:5433/db").unwrap();
        let text = "# h1:5432:db:me:comment\nh2:*:db:me:two\\:\\\\\nh1:5432:db:you:three\n*:*:*:*:all:rest\n";
        let of = |host: usize| listed(text, &address.hosts[host], &address);
        assert_eq!(of(1).as_deref(), Some("two:\\"));
        assert_eq!(of(0).as_deref(), Some("all:rest"));
        assert_eq!(listed("h1:5432:db:me", &address.hosts[0], &address), None);
    }
}
