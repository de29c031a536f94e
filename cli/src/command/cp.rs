//! `cp`: copies a node and everything below it, by an export to a file and its import.

use std::io::Seek as _;

use crate::args::Common;
use crate::args::copy::{Cp, Import};
use crate::command::import::{self, temporary};
use crate::command::{connect, export};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::settings::Settings;

pub(crate) async fn run(common: &Common, cp: &Cp) -> Result<(), Failure> {
    let target = Settings::other(common, cp.to.as_deref(), cp.to_profile.as_deref())?;
    let config = target.map(|settings| settings.config()).transpose()?;
    let from = connect(common).await?;
    let to = match &config {
        Some(config) => Progress::waiting("connecting", config.connect()).await?,
        None => from.clone(),
    };
    let mut file = temporary()?;
    let copied = async {
        let ephemeral = export::write(&from, &cp.from, cp.acl, &file).await?;
        file.rewind()?;
        let import = Import {
            file: "-".into(),
            to: Some(cp.target.clone()),
            on_existing: cp.on_existing,
            dry_run: cp.dry_run,
        };
        let counts = import::check_and_write(&to, &import, &mut file).await?;
        Ok::<_, Failure>((ephemeral, counts))
    };
    let copied = copied.await;
    if config.is_some() {
        to.close().await?;
    }
    from.close().await?;
    let (ephemeral, counts) = copied?;
    export::warn_of_ephemeral(ephemeral);
    if counts.without_acl > 0 {
        output::warning(&import::without_acl(counts.without_acl));
    }
    counts.print(common, cp.dry_run)
}
