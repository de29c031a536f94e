//! [`Settings`]: the store that the options, the environment or a profile of the configuration
//! file name.

use std::env;
use std::fs;
use std::io;
use std::path::{Path as FilePath, PathBuf};

use serde_json::{Map, Value};
use synod::{Config, Error, Result as StoreResult};

use crate::args::Common;
use crate::failure::Failure;
use crate::output;

const NO_STORE: &str = "no store was named; say --store URL or set SYNOD_STORE, for example \
    --store zk://localhost:2181, or --here for the processes of this user on this machine";

/// The URL of `--here`.
const HERE: &str = "file:";

/// The environment variable with the password of `--user`.
const PASSWORD: &str = "SYNOD_PASSWORD";

/// The settings of the connection to a store: the fields of a [`Config`].
///
/// It does not implement `Debug`, because it contains the password.
pub(crate) struct Settings {
    fields: Map<String, Value>,
    /// The profile, for error messages.
    profile: Option<String>,
}

impl Settings {
    /// The settings of the store that was named; `None` if none was.
    pub(crate) fn if_named(common: &Common) -> Result<Option<Self>, Failure> {
        let Some(mut settings) = named(common)? else { return Ok(None) };
        match &common.user {
            Some(_) if settings.fields.contains_key("credentials") => {
                return Err(settings.wrong_because("it has a user already"));
            }
            Some(user) => {
                let password = password(common.password_file.as_deref())?;
                settings.set_credentials(user, password);
            }
            None if common.password_file.is_some() => {
                return Err(Failure::usage("--password-file needs --user"));
            }
            None => {}
        }
        Ok(Some(settings))
    }

    /// The settings of a second store, by its URL or its profile; `None` for neither.
    pub(crate) fn other(
        common: &Common,
        url: Option<&str>,
        profile: Option<&str>,
    ) -> Result<Option<Self>, Failure> {
        match (url, profile) {
            (Some(url), _) => Ok(Some(Self::of_url(url.to_owned()))),
            (None, Some(profile)) => of_profile(common, Some(profile)),
            (None, None) => Ok(None),
        }
    }

    /// The settings of the store that was named.
    pub(crate) fn of(common: &Common) -> Result<Self, Failure> {
        Self::if_named(common)?.ok_or_else(|| Failure::usage(NO_STORE))
    }

    fn of_url(url: String) -> Self {
        let fields = Map::from_iter([("url".to_owned(), url.into())]);
        Self { fields, profile: None }
    }

    fn set_credentials(&mut self, user: &str, password: String) {
        let credentials = Map::from_iter([
            ("user".to_owned(), user.into()),
            ("password".to_owned(), password.into()),
        ]);
        self.fields.insert("credentials".to_owned(), credentials.into());
    }

    pub(crate) fn url(&self) -> &str {
        self.fields.get("url").and_then(Value::as_str).unwrap_or_default()
    }

    /// The URL as the user wrote it, without its password.
    pub(crate) fn shown_url(&self) -> Result<String, Failure> {
        Ok(Config::new(self.url()).map_err(|error| self.wrong(error))?.url.to_string())
    }

    /// The same settings for another URL.
    pub(crate) fn with_url(&self, url: &str) -> Self {
        let mut fields = self.fields.clone();
        fields.insert("url".to_owned(), url.into());
        Self { fields, profile: self.profile.clone() }
    }

    /// The same settings without this one, unless it is in the URL.
    pub(crate) fn without(&self, name: &str) -> Self {
        let mut fields = self.fields.clone();
        let _removed = fields.remove(name);
        Self { fields, profile: self.profile.clone() }
    }

    pub(crate) fn config(&self) -> Result<Config, Failure> {
        // A URL alone has errors that say more.
        let config: StoreResult<Config> = Config::new(self.url());
        let config = config.map_err(|error| self.wrong(error))?;
        if self.fields.len() == 1 {
            return Ok(config);
        }
        serde_json::from_value(Value::Object(self.fields.clone()))
            .map_err(|error| self.wrong_because(&error.to_string()))
    }

    fn wrong_because(&self, why: &str) -> Failure {
        let profile = self.profile.as_deref().unwrap_or("the options");
        Failure::plain(format!("{profile}: {why}"))
    }

    fn wrong(&self, error: Error) -> Failure {
        match &self.profile {
            Some(profile) => Failure::plain(format!("{profile}: {error}")),
            None => error.into(),
        }
    }

    /// The URL, for a command that takes no other settings.
    #[cfg(any(feature = "bench", feature = "conformance"))]
    pub(crate) fn url_alone(&self) -> Result<&str, Failure> {
        if self.fields.len() > 1 {
            return Err(Failure::plain("this command takes the settings of the URL only"));
        }
        Ok(self.url())
    }
}

/// The settings from the first of these sources that has them: an option, the environment, and the
/// default profile of the configuration file.
fn named(common: &Common) -> Result<Option<Settings>, Failure> {
    let of_environment = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    if common.here {
        return Ok(Some(Settings::of_url(HERE.to_owned())));
    }
    match (&common.store, &common.profile) {
        (Some(_), Some(_)) => {
            return Err(Failure::usage("--store and --profile name two stores; say one of them"));
        }
        (Some(url), None) => return Ok(Some(Settings::of_url(url.clone()))),
        (None, Some(profile)) => return of_profile(common, Some(profile)),
        (None, None) => {}
    }
    match (of_environment("SYNOD_STORE"), of_environment("SYNOD_PROFILE")) {
        (Some(_), Some(_)) => Err(Failure::plain(
            "SYNOD_STORE and SYNOD_PROFILE name two stores; say --store or --profile",
        )),
        (Some(url), None) => Ok(Some(Settings::of_url(url))),
        (None, profile) => of_profile(common, profile.as_deref()),
    }
}

/// The settings of a profile, or of the default profile if the file has one.
fn of_profile(common: &Common, name: Option<&str>) -> Result<Option<Settings>, Failure> {
    let (path, is_required) = match &common.config {
        Some(path) => (path.clone(), true),
        None => match usual_path() {
            Some(path) => (path, name.is_some()),
            None if name.is_some() => {
                return Err(Failure::plain("say --config FILE, as there is no home directory"));
            }
            None => return Ok(None),
        },
    };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_required => return Ok(None),
        Err(error) => return Err(wrong(&path, &error.to_string())),
    };
    let mut file = parse(&path, &text)?;
    let name = match (name, file.remove("default")) {
        (Some(name), _) => name.to_owned(),
        (None, Some(Value::String(name))) => name,
        (None, Some(_)) => return Err(wrong(&path, "`default` is the name of a profile")),
        (None, None) if is_required => {
            return Err(wrong(&path, "it has no `default`; say --profile NAME"));
        }
        (None, None) => return Ok(None),
    };
    let Some(Value::Object(mut profiles)) = file.remove("profiles") else {
        return Err(wrong(&path, "it has no table such as [profiles.prod]"));
    };
    let Some(Value::Object(fields)) = profiles.remove(&name) else {
        let known: Vec<&str> = profiles.keys().map(String::as_str).collect();
        let name = name.escape_debug();
        return Err(wrong(&path, &format!("no profile `{name}`; it has {}", known.join(", "))));
    };
    let profile = format!("{}: profile {}", output::file(&path), name.escape_debug());
    profile_of(fields, &path, &profile).map(Some)
}

/// The settings of a table, which may have a user and the file of the password, too.
fn profile_of(
    mut fields: Map<String, Value>,
    path: &FilePath,
    profile: &str,
) -> Result<Settings, Failure> {
    let wrong = |why: &str| Failure::plain(format!("{profile}: {why}"));
    let text = |field: Option<Value>, what: &str| match field {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        // The value may be a password.
        Some(_) => Err(wrong(&format!("`{what}` is a text"))),
    };
    let user = text(fields.remove("user"), "user")?;
    let file = text(fields.remove("password_file"), "password_file")?;
    text(fields.get("url").cloned(), "url")?.ok_or_else(|| wrong("it has no `url`"))?;
    let written = fields.get("credentials").and_then(|it| it.get("password")).cloned();
    text(written, "credentials.password")?;
    let is_identity = |it: &Value| ["user", "password"].iter().all(|key| it[*key].is_string());
    let identities = fields.get("identities").and_then(Value::as_array);
    if fields.contains_key("identities")
        && !identities.is_some_and(|all| all.iter().all(is_identity))
    {
        return Err(wrong("`identities` is a list, each with the texts `user` and `password`"));
    }
    let mut settings = Settings { fields, profile: Some(profile.to_owned()) };
    if let Some(user) = user {
        if settings.fields.contains_key("credentials") {
            return Err(wrong("`user` and `credentials` exclude each other"));
        }
        // A relative path is relative to the configuration file.
        let file = file.map(|file| path.parent().map_or(file.clone().into(), |it| it.join(file)));
        settings.set_credentials(&user, password(file.as_deref())?);
    } else if file.is_some() {
        return Err(wrong("`password_file` needs `user`"));
    }
    Ok(settings)
}

/// Parses the configuration file. Errors do not quote its text.
fn parse(path: &FilePath, text: &str) -> Result<Map<String, Value>, Failure> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| 1 + text[..span.start].matches('\n').count());
        let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        wrong(path, &format!("{line}{}", error.message()))
    })
}

/// The password in a file, without the line break at its end, or in the environment.
fn password(file: Option<&FilePath>) -> Result<String, Failure> {
    let Some(path) = file else {
        return env::var(PASSWORD).map_err(|_| {
            Failure::plain(format!("a user has a password: say --password-file, or set {PASSWORD}"))
        });
    };
    let mut text = fs::read_to_string(path).map_err(|error| wrong(path, &error.to_string()))?;
    if text.ends_with('\n') {
        text.pop();
    }
    if text.ends_with('\r') {
        text.pop();
    }
    Ok(text)
}

/// The configuration file of this user.
fn usual_path() -> Option<PathBuf> {
    let directory = |name: &str| env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let base = directory("XDG_CONFIG_HOME").filter(|base| base.is_absolute());
    let base = base.or_else(|| Some(directory("HOME")?.join(".config")))?;
    Some(base.join("synod").join("config.toml"))
}

fn wrong(path: &FilePath, why: &str) -> Failure {
    Failure::plain(format!("{}: {why}", output::file(path)))
}
