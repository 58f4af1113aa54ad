//! A flag for every server setting. Flags and environment variables are made from one list.

use std::collections::HashMap;

use clap::builder::Arg;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use polyserve::ServerConfig;
use polyserve::env::{LISTEN, PUBLISHED_WORKERS, SETTINGS, Setting, SettingError, Settings};
use serde_json::Value;

/// The settings that flags have set, as text. [`Settings`] parses them, like those of the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigArgs {
    flags: HashMap<&'static str, String>,
}

impl ConfigArgs {
    /// Returns the settings. Flags take precedence over this process's environment, and the environment over the
    /// defaults.
    pub(crate) fn settings(&self, listen: Option<&str>) -> Result<Settings, SettingError> {
        let flag = |name: &str| match name {
            LISTEN => listen.map(String::from),
            name => self.flags.get(name).cloned(),
        };
        Settings::read(flag, |variable| std::env::var_os(variable))
    }
}

impl ConfigArgs {
    /// The settings that a flag or the environment has set, for a record's header.
    pub(crate) fn given(&self) -> Result<Value, SettingError> {
        let settings = self.settings(None)?;
        let given = SETTINGS.iter().filter(|setting| settings.is_given(setting.name()));
        Ok(given.map(|setting| (setting.name().to_owned(), Value::from(setting.show(&settings.config)))).collect())
    }

    /// Returns the given flags, as on a command line.
    pub(crate) fn flags(&self) -> Vec<String> {
        let given = SETTINGS.iter().filter_map(|setting| Some((setting.flag(), self.flags.get(setting.name())?)));
        given.map(|(flag, value)| format!("{flag}={value}")).collect()
    }
}

fn arg(setting: &Setting) -> Arg {
    let default = setting.show(&ServerConfig::default());
    let published = if setting.name() == "workers" { format!(", then {PUBLISHED_WORKERS}") } else { String::new() };
    let help = format!("{} [env: {}{published}] [default: {default}]", setting.summary(), setting.variable());
    let arg = Arg::new(setting.name())
        .long(setting.flag().trim_start_matches('-').to_owned())
        .help(help)
        .value_name(setting.value_name())
        .help_heading("Server settings");
    // The flag's former name.
    let arg = if setting.name() == "server_header" { arg.alias("banner") } else { arg };
    if setting.is_switch() {
        arg.num_args(0..=1).require_equals(true).default_missing_value("true")
    } else {
        arg.allow_hyphen_values(true)
    }
}

impl Args for ConfigArgs {
    fn augment_args(command: Command) -> Command {
        command.args(SETTINGS.iter().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ConfigArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for setting in SETTINGS {
            if let Some(text) = matches.get_one::<String>(setting.name()) {
                self.flags.insert(setting.name(), text.clone());
            }
        }
        Ok(())
    }
}
