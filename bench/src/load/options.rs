use anyhow::ensure;
use clap::Args;

/// What load to drive, and when it ends: at the first of the given ends, or when it is stopped.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct LoadOptions {
    /// Edges to set a second, all clients together; as fast as possible when absent.
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
    /// Clients that call at once, each on its own connection.
    #[arg(long, value_name = "N", default_value_t = Self::default().clients)]
    pub clients: u32,
    /// End after so many seconds.
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// End once so many edges have flipped; calls under way are finished.
    #[arg(long, value_name = "N")]
    pub flips: Option<u64>,
    /// Items, numbered from 1.
    #[arg(long, value_name = "N", default_value_t = Self::default().items)]
    pub items: u32,
    /// Users, numbered from 1.
    #[arg(long, value_name = "N", default_value_t = Self::default().users)]
    pub users: u32,
    /// Exponent of the Zipf law that items are liked by; 0: all alike.
    #[arg(long, value_name = "S", default_value_t = Self::default().zipf)]
    pub zipf: f64,
    /// Share of the likes that go to one viral item, 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = Self::default().viral_share)]
    pub viral_share: f64,
    /// Share of unlikes, 0 to 1; they take back likes of the same client.
    #[arg(long, value_name = "SHARE", default_value_t = Self::default().unlike_share)]
    pub unlike_share: f64,
    /// Share of calls that repeat the client's call before, 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = Self::default().retry_share)]
    pub retry_share: f64,
    /// Edges a call sets; 1: by set_like, more: by set_likes.
    #[arg(long, value_name = "N", default_value_t = Self::default().bulk)]
    pub bulk: u32,
    /// What the calls follow from.
    #[arg(long, value_name = "N", default_value_t = Self::default().seed)]
    pub seed: u64,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            rate: None,
            clients: 8,
            seconds: None,
            flips: None,
            items: 20_000,
            users: 1_000_000,
            zipf: 1.0,
            viral_share: 0.0,
            unlike_share: 0.1,
            retry_share: 0.0,
            bulk: 1,
            seed: 1,
        }
    }
}

/// Each client has a thread and a connection.
const CLIENTS_MAX: u32 = 1_000;

/// A call's arrays are held in memory by each client.
const BULK_MAX: u32 = 1_000_000;

impl LoadOptions {
    /// Refuses what is out of range.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        for (name, value, max) in [
            ("clients", self.clients, CLIENTS_MAX),
            ("items", self.items, u32::MAX),
            ("users", self.users, u32::MAX),
            ("bulk", self.bulk, BULK_MAX),
        ] {
            ensure!((1..=max).contains(&value), "--{name} {value}: must lie between 1 and {max}");
        }
        for (name, value) in [
            ("viral-share", self.viral_share),
            ("unlike-share", self.unlike_share),
            ("retry-share", self.retry_share),
        ] {
            ensure!((0.0..=1.0).contains(&value), "--{name} {value}: must lie between 0 and 1");
        }
        ensure!((0.0..=10.0).contains(&self.zipf), "--zipf {}: must lie between 0 and 10", self.zipf);
        // Below one edge a day, or above what any machine does, the pace cannot be computed.
        ensure!(
            self.rate.is_none_or(|rate| (1e-5..=1e9).contains(&rate)),
            "--rate {:?}: must be positive and at most 1e9",
            self.rate
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Load {
        #[command(flatten)]
        options: LoadOptions,
    }

    #[test]
    fn the_flags_default_to_the_default() {
        let parsed = Load::try_parse_from(["load"]).expect("no flag is needed").options;
        assert_eq!(parsed, LoadOptions::default());
        parsed.check().expect("the default is in range");
    }

    #[test]
    fn what_is_out_of_range_is_refused_by_name() {
        for (flag, wrong) in [
            ("clients", "0"),
            ("clients", "1001"),
            ("items", "0"),
            ("bulk", "0"),
            ("viral-share", "1.1"),
            ("unlike-share", "NaN"),
            ("zipf", "inf"),
            ("rate", "0"),
        ] {
            let flag = format!("--{flag}");
            let options = Load::try_parse_from(["load", &flag, wrong]).expect("a number").options;
            let refusal = options.check().expect_err(&flag).to_string();
            assert!(refusal.starts_with(&flag), "{refusal}");
        }
    }
}
