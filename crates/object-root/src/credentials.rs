//! Files with credentials, in the format of `~/.aws/credentials`.

use std::path::Path;

/// The credentials of the profile `default`.
pub(crate) struct Credentials {
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    /// The token of temporary credentials.
    pub(crate) token: Option<String>,
}

impl Credentials {
    /// Reads the file.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let fail = |what: &dyn std::fmt::Display| format!("credentials {}: {what}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| fail(&error))?;
        Self::parse(&text).map_err(|key| fail(&format!("there is no `{key}` in [default]")))
    }

    /// Parses the text of a file. The error is the key that is missing.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut is_default = true;
        let (mut access_key, mut secret_key, mut token) = (None, None, None);
        for line in text.lines().map(str::trim) {
            if let Some(profile) = line.strip_prefix('[') {
                is_default = profile.trim_end_matches(']').trim() == "default";
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            if !is_default || line.starts_with(['#', ';']) {
                continue;
            }
            let value = value.trim().to_owned();
            match key.trim() {
                "aws_access_key_id" => access_key = Some(value),
                "aws_secret_access_key" => secret_key = Some(value),
                "aws_session_token" => token = Some(value),
                _ => {}
            }
        }
        Ok(Self {
            access_key: access_key.ok_or("aws_access_key_id")?,
            secret_key: secret_key.ok_or("aws_secret_access_key")?,
            token,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_profile_is_read() {
        let text = "# keys\n[other]\naws_access_key_id = no\n[default]\naws_access_key_id = AKID\n\
                    aws_secret_access_key=a/b+c==\n; aws_session_token = x\n[third]\naws_secret_access_key = no\n";
        let read = Credentials::parse(text).unwrap_or_else(|key| panic!("{key}"));
        assert_eq!((&*read.access_key, &*read.secret_key, read.token), ("AKID", "a/b+c==", None));
        let missing = Credentials::parse("[default]\naws_access_key_id = x\n").err();
        assert_eq!(missing, Some("aws_secret_access_key"));
    }
}
